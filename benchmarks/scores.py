"""What tuning by a named score reaches: ``DPSGD(score="accuracy")`` on the digits, 1 200 private records, total ε = 4.

    python -m benchmarks scores

No space, no split and no noise is given, as in the README's ten lines. The other 597 digits judge the releases; no
search sees them. Seeds are fixed, so that these releases carry no guarantee of their own.
"""

from __future__ import annotations

import logging
import time

import numpy as np
from sklearn.datasets import load_digits
from torch import nn

from dphypo.entropy import Seeded
from dphypo.integrations.torch import DPSGD, PublicAccuracy
from dphypo.search.survey_plan import plan_tuning
from dphypo.search.tune import stages_of

SEARCHES, RECORDS, EPSILON, DELTA = 20, 1200, 4.0, 1e-5


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def main() -> None:
    """Twenty searches by each optimiser."""
    logging.disable(logging.WARNING)  # dp_accounting remarks on orders that it leaves out
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = (x[order] / 16).astype(np.float32), y[order]
    judge = PublicAccuracy((x[RECORDS:], y[RECORDS:]))
    print(f"digits, {RECORDS} private records, total epsilon = {EPSILON:g}, {SEARCHES} searches each")
    for optimizer in ("sgd", "adam"):
        train = DPSGD(
            model=network, data=(x[:RECORDS], y[:RECORDS]), score="accuracy", epochs=20, optimizer=optimizer,
            device="cpu",
        )  # fmt: skip
        space, began = train.default_space(), time.perf_counter()
        tuning = plan_tuning(space, train, epsilon=EPSILON, delta=DELTA)
        print(f"{optimizer}: {tuning.summary}", flush=True)
        found = []
        for seed in range(SEARCHES):
            search = stages_of(space, tuning, delta=DELTA, journal=None, entropy=Seeded(seed))
            found.append(judge(search.run(progress=False).model))
        print(f"  mean {np.mean(found):.4f}, worst {min(found):.4f}, {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
