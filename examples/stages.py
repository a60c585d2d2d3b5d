"""A search in two stages on scikit-learn's handwritten digits, ε = 8 and δ = 1e-5 for both together.

    python examples/stages.py [--folder stages]

The first stage makes many cheap runs: a tenth of the steps, with more noise. Its winner is released, and the second
stage searches around it with full runs. The two guarantees compose, which costs less than their sum. As in
``digits.py`` about a fifth of the digits is held out, to report an accuracy that no guarantee covers; the rest is
private, and a part of it, set apart by a hash, ranks the runs with noise.

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
from dphypo.integrations.opacus import DPSGD, PrivateAccuracy, PublicAccuracy, split_by_hash

EPSILON, DELTA = 8.0, 1e-5
SPACE = dphypo.Space({"learning_rate": loguniform(0.01, 10), "max_grad_norm": loguniform(0.1, 10)})


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def declare(epochs: float, cheap_runs: float, full_runs: float) -> tuple[list[dphypo.Stage], PublicAccuracy]:
    """Both stages, the noise of the second still to be found, and the accuracy on the digits that are held out."""
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
    cheap = full.at(epochs=epochs / 10, noise_multiplier=2.0, score=PrivateAccuracy(rank, 6.0, records=280))
    stages = [
        dphypo.Stage(cheap, dphypo.NegativeBinomial(shape=8, mean=cheap_runs), prior=dphypo.PriorAround(spread=0.1)),
        dphypo.Stage(full, dphypo.NegativeBinomial(shape=8, mean=full_runs)),
    ]
    return stages, PublicAccuracy(held_out)


def main() -> None:
    parser = argparse.ArgumentParser(description="Tune a private model in two stages.")
    parser.add_argument("--folder", type=Path, default=Path("stages"), help="where the journal goes")
    parser.add_argument("--epochs", type=float, default=20, help="epochs of one full run")
    parser.add_argument("--cheap-runs", type=float, default=20, help="mean number of cheap runs")
    parser.add_argument("--full-runs", type=float, default=6, help="mean number of full runs")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    stages, held_out = declare(options.epochs, options.cheap_runs, options.full_runs)
    alone = stages[0].account(SPACE).epsilon(DELTA)
    print(f"The first stage would cost ε = {alone:.2f} alone. Solving for the noise of the second ...", flush=True)
    stages = dphypo.calibrate_stages(SPACE, stages, epsilon=EPSILON, delta=DELTA)
    print(f"It may cost ε = {stages[1].account(SPACE).epsilon(DELTA):.2f}: together {EPSILON:g} at δ = {DELTA:g}.")
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
