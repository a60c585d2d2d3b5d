"""What it costs a survey to propose runs in groups: regret on the paper's landscapes, against one run at a time.

    python -m benchmarks.groups [--searches 400] [--tasks MNIST] [--sizes 1 2 4 5 10]

A survey of 20 runs makes its first 10 at once in any case: they are an even design. The size of the later groups was
chosen on MNIST, before the other tasks were looked at. Regret is that to the best cell in one run that spends all of ε.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paper.experiments.surveys import EPSILONS, best
from paper.simulate.surveys import Plan, surveyed

SEED = 84
TASKS = ("MNIST", "CIFAR-10", "federated")


def main(searches: int = 400, tasks: Sequence[str] = TASKS, sizes: Sequence[int] = (1, 4)) -> None:
    for name in tasks:
        one: float | None = None
        for size in sizes:
            regrets = [regret(name, size, epsilon, searches) for epsilon in EPSILONS]
            mean = float(np.mean(regrets))
            one = mean if one is None else one
            each = "  ".join(f"{found:.4f}" for found in regrets)
            print(
                f"{name:<10} groups of {size:>2}: regret {mean:.4f} ({each}), {mean / one:.3f} of the first", flush=True
            )


def regret(name: str, size: int, epsilon: float, searches: int) -> float:
    """The mean over searches."""
    scores, _ = surveyed(name, replace(Plan(), group=size), epsilon, searches, SEED)
    return best(name, epsilon) - float(scores.mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--searches", type=int, default=400)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--sizes", nargs="+", type=int, default=(1, 4))
    main(**vars(parser.parse_args()))
