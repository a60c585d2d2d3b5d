"""A search in two stages on scikit-learn's handwritten digits, ε = 8 and δ = 1e-5 for both together.

    python examples/stages.py [--folder stages]

The first stage makes many cheap runs: a tenth of the steps, with more noise. Its winner is released, and the second
stage searches around it with full runs. The two guarantees compose, which costs less than their sum. How the budget is
divided is a ``dphypo.planning.TwoStages``: a few public numbers. As in ``digits.py`` about a fifth of the digits is
held out, to report an accuracy that no guarantee covers; the rest is private, and a part of it, set apart by a hash,
ranks the runs with noise.

Kill it in the middle and start it again: it goes on where it was.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy.stats import loguniform
from sklearn.datasets import load_digits
from torch import nn

import dphypo
from dphypo.integrations.torch import DPSGD, PrivateAccuracy, PublicAccuracy, split_by_hash
from dphypo.planning import TwoStages

EPSILON, DELTA = 8.0, 1e-5
DESIGN = TwoStages(share=0.2)  # twice the usual share for the first stage: so few digits make scoring dear
SPACE = dphypo.Space({"learning_rate": loguniform(0.01, 10), "max_grad_norm": loguniform(0.1, 10)})


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def declare(epochs: float) -> tuple[DPSGD, DPSGD, PublicAccuracy]:
    """A full run and a cheap one, their noise still to be found, and the accuracy on the digits that are held out."""
    pixels, labels = load_digits(return_X_y=True)
    private, held_out = split_by_hash((pixels / 16).astype(np.float32), labels, key="held out")
    train, rank = split_by_hash(*private, key="score")
    full = DPSGD(
        model=network,
        data=train,
        records=1150,  # about as many as there are: the exact number of private records is nobody's business
        score=PrivateAccuracy(rank, noise_multiplier=2.0, records=280),
        noise_multiplier="calibrate",
        epochs=epochs,
        batch_size=128,
    )
    # There are many cheap runs, and each is scored on private records: with the noise of a full run's score, scoring
    # alone would cost more than the whole stage may.
    cheap = full.at(fraction=DESIGN.fraction, score=PrivateAccuracy(rank, noise_multiplier=8.0, records=280))
    return full, cheap, PublicAccuracy(held_out)


def main() -> None:
    parser = argparse.ArgumentParser(description="Tune a private model in two stages.")
    parser.add_argument("--folder", type=Path, default=Path("stages"), help="where the journal goes")
    parser.add_argument("--epochs", type=float, default=20, help="epochs of one full run")
    parser.add_argument("--compute", type=float, default=8, help="expected compute of the search, in full runs")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    full, cheap, held_out = declare(options.epochs)
    print("Solving for the noise of both stages ...", flush=True)
    stages = DESIGN.stages(SPACE, full, compute=options.compute, epsilon=EPSILON, delta=DELTA, cheap=cheap)
    first, last = (stage.account(SPACE).epsilon(DELTA) for stage in stages)
    print(f"They may cost ε = {first:.2f} and {last:.2f}: together {EPSILON:g} at δ = {DELTA:g}.")
    search = dphypo.Stages(SPACE, stages, delta=DELTA, journal=options.folder / "stages.db")
    release = search.run()
    for number, released in enumerate(search.released, 1):
        print(f"Stage {number} released {dict(released.params or {})}")
    if release.params is not None:
        print(f"The last stage released {dict(release.params)}, score {release.score:.3f}")
        print(f"Accuracy on digits held out (not private, not used by the search): {held_out(release.model):.3f}")
    print("\n" + release.certificate.statement())


if __name__ == "__main__":
    main()
