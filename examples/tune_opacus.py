"""An ordinary Opacus script that tunes itself, privately.

    python examples/tune_opacus.py

The script trained with a learning rate and a clipping norm that somebody had to choose, and with noise that somebody
had to compute for them. Now both are tuned, and ε = 4 covers the tuning too. In the loop, ``run.make_private`` takes
the place of ``PrivacyEngine().make_private``: it gives exactly the steps, the rate and the noise that were declared.
``examples/users/opacus_before.py`` and ``opacus_after.py`` can be compared by ``diff``.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from scipy.stats import loguniform
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import dphypo
from dphypo.mechanisms import OwnTraining, SampledGaussian
from dphypo.mechanisms.sampled_gaussian import OwnRun

PIXELS, LABELS = (torch.tensor(part) for part in load_digits(return_X_y=True))
PIXELS = (PIXELS / 16).float()
PRIVATE = TensorDataset(PIXELS[:1500], LABELS[:1500])
PUBLIC = PIXELS[1500:], LABELS[1500:]  # assume the last 297 are public
SPACE = dphypo.Space({"lr": loguniform(0.01, 10), "max_grad_norm": loguniform(0.1, 10)})
RUN = SampledGaussian.of(records=1500, batch_size=125, epochs=20, noise_multiplier=1.0)  # the noise is solved for


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def train(params: Mapping[str, Any], *, seed: int, run: OwnRun) -> tuple[dict[str, Any], float]:
    torch.manual_seed(seed)
    module = network()
    optimizer = torch.optim.SGD(module.parameters(), lr=params["lr"])
    loader = DataLoader(PRIVATE, batch_size=125)
    with run.make_private(module, optimizer, loader, max_grad_norm=params["max_grad_norm"]) as parts:
        model, private, batches = parts
        for inputs, targets in batches:
            private.zero_grad()
            loss: Any = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            private.step()
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
        SPACE,
        OwnTraining(train, RUN, scores="public"),
        epsilon=4,
        delta=1e-5,
        survey=options.runs,
        journal=options.journal,
    )
    model = network()
    model.load_state_dict({name: torch.tensor(value) for name, value in release.model.items()})
    with torch.no_grad():
        accuracy = (model(PUBLIC[0]).argmax(1) == PUBLIC[1]).double().mean().item()
    print(f"{release}\naccuracy on public digits: {accuracy:.3f}\n{release.certificate.statement()}")


if __name__ == "__main__":
    main()
