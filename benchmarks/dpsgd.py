"""One run of the engine against Opacus's own training loop: ``python -m benchmarks dpsgd``.

What tuning the digits reaches is measured by ``python -m paper digits``. (A module called ``opacus`` here would hide
the package it measures.)
"""

from __future__ import annotations

import time
import warnings

import numpy as np
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dphypo.torch import DPSGD

BATCH, EPOCHS = 256, 2


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))


def convolutions() -> nn.Module:
    """The paper's network for MNIST."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1)),
        *(nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10)),
    )


def plain_opacus(model: nn.Module, data: TensorDataset, epochs: int) -> None:
    """The loop of Opacus's own examples."""
    model.train()
    criterion = nn.CrossEntropyLoss()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module, optimizer, loader = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=DataLoader(data, batch_size=BATCH),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
        )
        for _ in range(epochs):
            for inputs, targets in loader:
                optimizer.zero_grad()
                criterion(module(inputs), targets).backward()
                optimizer.step()


def speed(repeats: int = 7) -> None:
    """Samples a second of one run, everything included, over those of Opacus's own loop on the same model."""
    torch.set_num_threads(1)
    count = 4096
    inputs, targets = torch.randn(count, 1, 28, 28), torch.randint(10, (count,))
    data = TensorDataset(inputs, targets)
    print(f"samples a second of CPU time, {count} images, batches of {BATCH}, one thread, median of {repeats} pairs")
    for factory in (perceptron, convolutions):
        mechanism = DPSGD(
            model=factory,
            data=data,
            score=lambda model: 0.0,
            noise_multiplier=1.0,
            epochs=EPOCHS,
            batch_size=BATCH,
            device="cpu",
        )
        ours, theirs = [], []
        for repeat in range(repeats + 1):
            start = time.process_time()
            mechanism({}, seed=repeat)
            middle = time.process_time()
            plain_opacus(factory(), data, EPOCHS)
            if repeat:  # the first pair warms up
                ours.append(EPOCHS * count / (middle - start))
                theirs.append(EPOCHS * count / (time.process_time() - middle))
        ratio = float(np.median(np.array(ours) / np.array(theirs)))
        print(
            f"  {factory.__name__:<13} dphypo {np.median(ours):7.0f}  Opacus {np.median(theirs):7.0f}"
            f"  ratio {ratio:.2f}"
        )


def main() -> None:
    speed()


if __name__ == "__main__":
    main()
