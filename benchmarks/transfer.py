"""What the transfer rule is worth: surveys of the digits with it and without.

    python -m benchmarks.transfer [--repetitions 8] [--optimizer adam]

Total ε = 8 at δ = 1e-5, private scores, 15 short runs of 15 per cent of the steps, then one full run, judged on digits
that are held out.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.stats import loguniform
from sklearn.datasets import load_digits
from torch import nn

import dphypo
from dphypo.mechanisms.sampled_gaussian import Transfer
from dphypo.search import Stages
from dphypo.search.tune import plan_tuning
from dphypo.torch import DPSGD, PrivateAccuracy, PublicAccuracy, split_by_hash


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def accuracies(optimizer: str, rule: Transfer | None, repetitions: int) -> list[float]:
    """The accuracy of each release on the digits that are held out."""
    pixels, labels = load_digits(return_X_y=True)
    private, held_out = split_by_hash((pixels / 16).astype(np.float32), labels, key="held out")
    train, rank = split_by_hash(private, key="score")
    mechanism = DPSGD(
        model=network,
        data=train,
        records=1150,
        score=PrivateAccuracy(rank, noise_multiplier="calibrate", records=280),
        noise_multiplier="calibrate",
        epochs=20,
        batch_size=128,
        optimizer=optimizer,
        transfer_rule=rule,
    )
    rates = loguniform(0.01, 10) if optimizer == "sgd" else loguniform(1e-4, 0.1)
    space = dphypo.Space({"learning_rate": rates, "max_grad_norm": loguniform(0.1, 10)})
    plan = dphypo.SurveyPlan(runs=15, fraction=0.15)
    tuning = plan_tuning(space, mechanism, epsilon=8.0, delta=1e-5, survey=plan)
    judge, found = PublicAccuracy(held_out), []
    for _ in range(repetitions):
        release = Stages.of(tuning.declare(space, 1e-5), journal=None).run(progress=False)
        found.append(judge(release.model))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Surveys of the digits with and without the transfer rule.")
    parser.add_argument("--repetitions", type=int, default=8, help="surveys of each kind")
    parser.add_argument("--optimizer", default="adam", help="one of PyTorch's")
    options = parser.parse_args()
    rules = {"rehearsal": None, "same rate": lambda params, fraction: params}
    for name, rule in rules.items():
        found = np.array(accuracies(options.optimizer, rule, options.repetitions))
        error = found.std(ddof=1) / len(found) ** 0.5
        print(f"{options.optimizer}, {name}: mean {found.mean():.3f} ± {error:.3f} (s.e.), worst {found.min():.3f}")


if __name__ == "__main__":
    main()
