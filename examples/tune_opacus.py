"""An ordinary Opacus script, and the five lines that make it tune itself, privately.

    python examples/tune_opacus.py

The script trained with a learning rate and a clipping norm that somebody had to choose, and with noise that somebody
had to compute for them. Now both are tuned, and ε = 4 covers the tuning too. What changed:

    -def train(params, noise_multiplier=1.0, steps=240):
    +def train(params, *, seed, run):                                                         # 1
    +    torch.manual_seed(seed)                                                              # 2
    -        noise_multiplier=noise_multiplier,
    +        noise_multiplier=run.noise_multiplier,                                           # 3
    -    for _ in range(steps):
    +    for _ in range(run.steps):                                                           # 4
    -model, accuracy = train({"lr": 0.5, "max_grad_norm": 1.0})
    +release = dphypo.tune(SPACE, OwnTraining(train, RUN), epsilon=4, delta=1e-5, ...)        # 5
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from opacus import PrivacyEngine
from scipy.stats import loguniform
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import dphypo
from dphypo.mechanisms import DpSgd, OwnTraining

PIXELS, LABELS = (torch.tensor(part) for part in load_digits(return_X_y=True))
PIXELS = (PIXELS / 16).float()
PRIVATE = TensorDataset(PIXELS[:1500], LABELS[:1500])
PUBLIC = PIXELS[1500:], LABELS[1500:]  # say that the last 297 are nobody's secret
SPACE = dphypo.Space({"lr": loguniform(0.01, 10), "max_grad_norm": loguniform(0.1, 10)})
RUN = DpSgd.of(records=1500, batch_size=125, epochs=20, noise_multiplier=1.0)  # the noise is solved for


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def train(params: Mapping[str, Any], *, seed: int, run: DpSgd) -> tuple[dict[str, Any], float]:
    torch.manual_seed(seed)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=(module := network()),
        optimizer=torch.optim.SGD(module.parameters(), lr=params["lr"]),
        data_loader=DataLoader(PRIVATE, batch_size=125),  # 12 batches: Opacus samples each record at rate 1/12
        noise_multiplier=run.noise_multiplier,
        max_grad_norm=params["max_grad_norm"],
    )
    batches = iter(loader)
    for _ in range(run.steps):
        try:
            inputs, targets = next(batches)
        except StopIteration:
            batches = iter(loader)
            inputs, targets = next(batches)
        optimizer.zero_grad()
        loss: Any = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        accuracy = (module(PUBLIC[0]).argmax(1) == PUBLIC[1]).double().mean().item()
    return {name: value.numpy() for name, value in module.state_dict().items()}, accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description="Tune an Opacus script.")
    parser.add_argument("--journal", type=Path, default=None, help="a file, to go on after an interrupt")
    parser.add_argument("--runs", type=int, default=20, help="short runs of the survey")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # Opacus and PyTorch remark on hooks and on generators that are not secure
    release = dphypo.tune(
        SPACE, OwnTraining(train, RUN), epsilon=4, delta=1e-5, survey=options.runs, journal=options.journal
    )
    model = network()
    model.load_state_dict({name: torch.tensor(value) for name, value in release.model.items()})
    with torch.no_grad():
        accuracy = (model(PUBLIC[0]).argmax(1) == PUBLIC[1]).double().mean().item()
    print(f"{release}\naccuracy on public digits: {accuracy:.3f}\n{release.certificate.statement()}")


if __name__ == "__main__":
    main()
