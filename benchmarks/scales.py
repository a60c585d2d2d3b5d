"""A clipping norm on a logarithmic scale against one on a linear scale: surveys on the paper's landscapes.

    python -m benchmarks.scales [--searches 400] [--task MNIST]

SGD, 20 runs of a tenth of the steps, total ε at δ = 1e-5. The scale is what the design of the first runs and the
Gaussian process see; the cells are the same. Prints the mean regret, half its 95 % interval, where the worst twentieth
begins, and the worst. The federated task has logarithmic scales only.
"""

from __future__ import annotations

import argparse

import numpy as np

from paper.data.points import Floats
from paper.experiments.surveys import best
from paper.simulate.staged_task import TASKS, StagedTask
from paper.simulate.survey_costs import noise
from paper.simulate.surveys import STEPS, Plan, picked, short_steps

EPSILONS, SEED, PLAN = (2.0, 4.25, 8.0), 7, Plan()


def logarithmic(task: StagedTask, features: Floats) -> Floats:
    """The same cells, the second feature on a logarithmic scale."""
    logs = np.log(np.asarray(task.grid.second, dtype=np.float64))
    found = features.copy()
    found[:, 1] = np.tile((logs - logs.min()) / np.ptp(logs), len(task.grid.first))
    return found


def main(name: str = "MNIST", searches: int = 400) -> None:
    task = TASKS[name]
    steps = short_steps(task, PLAN.fraction)
    for epsilon in EPSILONS:
        level = noise(STEPS[name], epsilon, steps, PLAN.count, PLAN.factor)
        short, world = task.trained(steps).at(level * (task.full / steps) ** 0.5), task.world(level)
        for scale, features in (("linear", world.features), ("logarithmic", logarithmic(task, world.features))):
            regret = best(name, epsilon) - world.mean[picked(features, short, task.noise, PLAN, searches, SEED)]
            half = 1.96 * regret.std(ddof=1) / len(regret) ** 0.5
            worst = f"{np.quantile(regret, 0.95):.3f}, {regret.max():.3f}"
            print(f"{name}, ε = {epsilon:g}, {scale}: {regret.mean():.4f} ± {half:.4f} ({worst})", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--searches", type=int, default=400)
    parser.add_argument("--task", default="MNIST", choices=["MNIST", "CIFAR-10"])
    options = parser.parse_args()
    main(options.task, options.searches)
