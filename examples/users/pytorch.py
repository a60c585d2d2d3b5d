"""A PyTorch user: tune a network on private records, save it, load it elsewhere, predict.

python examples/users/pytorch.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from scipy.stats import loguniform
from sklearn.datasets import load_digits
from torch import nn

import dphypo
from dphypo.torch import DPSGD, PrivateAccuracy, split_by_hash


def network(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def main(folder: Path) -> None:
    pixels, labels = load_digits(return_X_y=True)
    trains, scores = split_by_hash(pixels / 16, labels)  # a hash of each record decides its side
    train = DPSGD(
        model=network,
        data=trains,
        score=PrivateAccuracy(scores, noise_multiplier="calibrate"),
        noise_multiplier="calibrate",  # tune solves for it
        epochs=3,
    )
    space = dphypo.Space({"learning_rate": loguniform(0.1, 10), "width": [16, 32]})
    # The journal keeps the search: after an interrupt, run the program again and it resumes.
    release = dphypo.tune(space, train, epsilon=8, delta=1e-5, survey=3, journal=folder / "tune.db")
    release.save(folder / "release")

    loaded = dphypo.load_release(folder / "release", model=network)  # on another machine; model= is optional
    digit = loaded.model(torch.tensor(pixels[:1] / 16, dtype=torch.float32)).argmax()
    print(f"The first picture shows a {int(digit)}; the model was trained with {dict(loaded.params or {})}.")
    print(loaded.certificate.statement())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else sys.exit(__doc__))
