"""A survey, then a study around what it found, on scikit-learn's handwritten digits: ε = 8 and δ = 1e-5 together.

    python examples/stages.py [--folder stages]

The survey makes short runs, a tenth of the steps with more noise, and publishes them all. The study then makes a random
number of full runs around the best of them and releases only the best. The two guarantees compose, which costs less
than their sum. As in ``digits.py`` about a fifth of the digits is held out, to report an accuracy that no guarantee
covers; the rest is private, and a part of it, chosen by a hash, ranks the runs with noise.

Kill it in the middle and start it again: it resumes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy.stats import loguniform
from sklearn.datasets import load_digits
from torch import nn

import dphypo
from dphypo.accounting import solve_noise
from dphypo.torch import DPSGD, PrivateAccuracy, PublicAccuracy, split_by_hash

EPSILON, DELTA = 8.0, 1e-5
SPACE = dphypo.Space({"learning_rate": loguniform(0.01, 10), "max_grad_norm": loguniform(0.1, 10)})


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def declare(epochs: float) -> tuple[DPSGD, PublicAccuracy]:
    """A full run, its noise still to be found, and the accuracy on the digits that are held out."""
    pixels, labels = load_digits(return_X_y=True)
    private, held_out = split_by_hash((pixels / 16).astype(np.float32), labels, key="held out")
    train, rank = split_by_hash(private, key="score")
    full = DPSGD(
        model=network,
        data=train,
        records=1150,  # about as many as there are: the exact number of private records is private
        score=PrivateAccuracy(rank, noise_multiplier=8.0, records=280),
        noise_multiplier="calibrate",
        epochs=epochs,
        batch_size=128,
    )
    return full, PublicAccuracy(held_out)


def main() -> None:
    parser = argparse.ArgumentParser(description="Tune a private model by a survey, then a study.")
    parser.add_argument("--folder", type=Path, default=Path("stages"), help="where the journal goes")
    parser.add_argument("--epochs", type=float, default=20, help="epochs of one full run")
    parser.add_argument("--runs", type=float, default=4, help="the mean number of full runs of the study")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    full, held_out = declare(options.epochs)

    def search(noise: float) -> dphypo.Stages:
        run = full.at(noise_multiplier=noise)
        survey = dphypo.Survey(run.at(fraction=0.1, match=True), 12, prior=dphypo.PriorAround())
        study = dphypo.Stage(run, dphypo.Geometric(mean=options.runs))
        return dphypo.Stages(SPACE, [survey, study], delta=DELTA, journal=options.folder / "stages.db")

    print("Solving for the noise of both parts ...", flush=True)
    found = solve_noise(lambda noise: search(noise).guarantee, epsilon=EPSILON, delta=DELTA)
    print(f"With a noise multiplier of {found.value:.4g} both cost ε = {found.epsilon:.4g} at δ = {DELTA:g} together.")
    tuned = search(found.value)
    tuned.certificate.save(options.folder / "approved.json")  # known, and saved, before anything runs
    release = tuned.run()
    print(f"The survey published {len(tuned.released[0].rows)} runs.")
    if release.params is not None:
        print(f"The study released {dict(release.params)}, score {release.score:.3f}")
        print(f"Accuracy on digits held out (not private, not used by the search): {held_out(release.model):.3f}")
    print("\n" + release.certificate.statement())


if __name__ == "__main__":
    main()
