"""DP-SGD runs against two peers: Opacus's own training loop (speed), and a fixed choice of hyperparameters (accuracy).

``python -m benchmarks dpsgd`` runs both parts; ``python -m benchmarks.dpsgd speed`` or ``... accuracy 20`` one of them,
the second with so many repetitions. (A module called ``opacus`` here would hide the package it measures.)
"""

from __future__ import annotations

import importlib.util
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from scipy import stats
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import dphypo
from dphypo.entropy import Seeded
from dphypo.integrations.opacus import DPSGD

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


def plain_opacus(model: nn.Module, data: TensorDataset, mode: str, epochs: int) -> None:
    """The loop of Opacus's own examples."""
    model.train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = PrivacyEngine()
        criterion: Any = nn.CrossEntropyLoss()
        made = engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=DataLoader(data, batch_size=BATCH),
            criterion=criterion,
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            grad_sample_mode=mode,
        )
        module, optimizer, loader = made[0], made[1], made[-1]
        if mode == "ghost":
            criterion = made[2]
            assert isinstance(criterion, DPLossFastGradientClipping)
        for _ in range(epochs):
            for inputs, targets in loader:
                optimizer.zero_grad()
                criterion(module(inputs), targets).backward()
                optimizer.step()


def speed(repeats: int = 7) -> None:
    """Samples a second of one run, everything included, over those of Opacus's own loop on the same model and mode."""
    torch.set_num_threads(1)
    count = 4096
    inputs, targets = torch.randn(count, 1, 28, 28), torch.randint(10, (count,))
    data = TensorDataset(inputs, targets)
    print(f"samples a second of CPU time, {count} images, batches of {BATCH}, one thread, median of {repeats} pairs")
    for factory, mode in (
        (perceptron, "hooks"),
        (perceptron, "ghost"),
        (convolutions, "hooks"),
        (convolutions, "ghost"),
    ):
        mechanism = DPSGD(
            model=factory,
            data=data,
            score=lambda model: 0.0,
            noise_multiplier=1.0,
            epochs=EPOCHS,
            batch_size=BATCH,
            grad_sample_mode=mode,  # type: ignore[arg-type]
            device="cpu",
        )
        ours, theirs = [], []
        for repeat in range(repeats + 1):
            start = time.process_time()
            mechanism({}, seed=repeat)
            middle = time.process_time()
            plain_opacus(factory(), data, mode, EPOCHS)
            if repeat:  # the first pair warms up
                ours.append(EPOCHS * count / (middle - start))
                theirs.append(EPOCHS * count / (time.process_time() - middle))
        ratio = float(np.median(np.array(ours) / np.array(theirs)))
        print(
            f"  {factory.__name__:<13} {mode:<6} dphypo {np.median(ours):7.0f}  Opacus {np.median(theirs):7.0f}"
            f"  ratio {ratio:.2f}"
        )


def accuracy(repetitions: int = 20) -> None:
    """The demo's held-out accuracy, against one run with the middle of the space, and against a search in stages, at
    the same total (ε, δ)."""
    demo, staged = _example("digits"), _example("stages")
    mechanism, held_out = demo.declare()
    tuned = mechanism.calibrated(demo.SPACE, demo.RUNS, epsilon=demo.EPSILON, delta=demo.DELTA)
    middle = {"learning_rate": 10**-0.5, "max_grad_norm": 1.0, "batch_size": 128}
    everything = dphypo.Space({name: [value] for name, value in middle.items()})
    single = dphypo.Pmf({1: 1.0})
    # A fixed choice needs no records to rank by: it trains on them too, and spends all of ε on one run.
    more = tuple(np.concatenate(parts) for parts in zip(_pair(mechanism.data), _pair_of_score(mechanism), strict=True))
    fixed = mechanism.at(data=more, records=1430, score=held_out).calibrated(
        everything, single, epsilon=demo.EPSILON, delta=demo.DELTA
    )
    full, cheap, _ = staged.declare(epochs=mechanism.epochs)
    budget = {"compute": demo.RUNS.mean, "epsilon": demo.EPSILON, "delta": demo.DELTA}
    stages = staged.DESIGN.stages(staged.SPACE, full, **budget, cheap=cheap)
    found = []
    for seed in range(repetitions):
        one = dphypo.Study(demo.SPACE, tuned, demo.RUNS, delta=demo.DELTA, journal=None, entropy=Seeded(seed))
        two = dphypo.Stages(staged.SPACE, stages, delta=demo.DELTA, journal=None, entropy=Seeded(seed))
        models = one.run(progress=False).model, two.run(progress=False).model
        found.append((fixed(middle, seed=seed).score, *(held_out(model) for model in models)))
    chosen, searched, in_stages = np.array(found).T
    total = f"total ε = {demo.EPSILON:g} at δ = {demo.DELTA:g}"
    print(f"held-out accuracy on the digits, {total}, {repetitions} repetitions")
    rows = {"one run mid-space": chosen, f"private search, {demo.RUNS.mean:g} runs": searched, "in stages": in_stages}
    for name, values in rows.items():
        print(f"  {name:<30} {values.mean():.3f} (from {values.min():.3f} to {values.max():.3f})")
    for name, difference in (("search less one run", searched - chosen), ("stages less search", in_stages - searched)):
        margin = stats.t.ppf(0.975, repetitions - 1) * stats.sem(difference)
        print(f"  {name:<30} {difference.mean():+.3f} ± {margin:.3f} (95 %)")


def _pair(records: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return records.inputs.numpy(), records.targets.numpy()


def _pair_of_score(mechanism: DPSGD) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    inputs, targets = mechanism.score.data  # type: ignore[union-attr]
    return inputs, targets


def _example(name: str) -> Any:
    """A file of examples/ as a module: the example itself is what is measured."""
    path = Path(__file__).parents[1] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def main() -> None:
    speed()
    # accuracy() is not run: it was written for the demo as a study, which is a survey now, and must be written anew.


if __name__ == "__main__":
    part, *numbers = sys.argv[1:]
    {"speed": speed, "accuracy": accuracy}[part](*map(int, numbers))
