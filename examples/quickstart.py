"""Private hyperparameter tuning in ten lines that matter: a DP-SGD model on the handwritten digits.

python examples/quickstart.py
"""

from __future__ import annotations

from scipy.stats import loguniform
from sklearn.datasets import load_digits
from torch import nn

import dphypo
from dphypo.torch import DPSGD, PublicAccuracy


def network(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def main() -> None:
    x, y = load_digits(return_X_y=True)
    private, public = (x[:1500] / 16, y[:1500]), (x[1500:] / 16, y[1500:])  # assume the last 297 are public

    space = dphypo.Space(
        {"learning_rate": loguniform(0.1, 10), "max_grad_norm": loguniform(0.1, 10), "width": [32, 64]}
    )
    runs = dphypo.NegativeBinomial(shape=8, mean=6)
    train = DPSGD(model=network, data=private, score=PublicAccuracy(public), noise_multiplier="calibrate", epochs=15)
    train = train.calibrated(space, runs, epsilon=4, delta=1e-5)
    study = dphypo.Study(space, train, runs, delta=1e-5, journal=None)
    release = study.run()
    print(release)
    print(release.certificate.statement())


if __name__ == "__main__":
    main()
