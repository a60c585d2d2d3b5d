"""One length with matched noise against several lengths whose drift is learnt: surveys on the paper's landscapes.

    python -m benchmarks.drift [--searches 200]

Total ε = 4.25 at δ = 1e-5, SGD. Prints the mean regret, half its 95 % interval, and where the worst twentieth begins.
"""

from __future__ import annotations

import argparse

from paper.experiments.surveys import described
from paper.simulate.survey_rivals import learned_drift
from paper.simulate.surveys import Plan, surveyed

EPSILON, SEED = 4.25, 81
SINGLE = (Plan(20, 0.1), Plan(20, 0.03))
SEVERAL = ({0.03: 14, 0.1: 6}, {0.03: 14, 0.1: 16}, {0.1: 14, 0.3: 2})


def main(searches: int = 200) -> None:
    for name in ("MNIST", "CIFAR-10"):
        for plan in SINGLE:
            found = described(name, EPSILON, *surveyed(name, plan, EPSILON, searches, SEED))
            print(name, f"{plan.count} of {plan.fraction:g}", found, flush=True)
        for lengths in SEVERAL:
            words = " and ".join(f"{count} of {fraction:g}" for fraction, count in lengths.items())
            for pick in ("longest", "extrapolated"):
                found = described(name, EPSILON, *learned_drift(name, EPSILON, lengths, pick, searches, SEED))
                print(name, f"{words}, {pick}", found, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--searches", type=int, default=200)
    main(parser.parse_args().searches)
