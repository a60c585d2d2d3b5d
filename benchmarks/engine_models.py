"""What the engine is measured on and against: models, records of their shape that are made up, and Opacus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from opacus.validators import ModuleValidator
from torch import nn
from torch.nn import functional

from dphypo.torch.engine import Run, Tensors

CNN = "paper's CNN"
Show = Callable[..., None]
"""Shows a row: its name, and figures by name."""


def losses(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross entropy, one value a record."""
    return functional.cross_entropy(outputs, targets, reduction="none")


@dataclass(frozen=True)
class Task:
    """A factory, the shape of its records, how many there are, and the expected size of a batch."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    size: int
    batch: int
    tokens: int | None = None

    def records(self) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        targets = torch.randint(10, (self.size,), generator=generator)
        if self.tokens is None:
            return torch.rand((self.size, *self.shape), generator=generator), targets
        return torch.randint(self.tokens, (self.size, *self.shape), generator=generator), targets

    def example(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        kind = torch.float32 if self.tokens is None else torch.int64
        inputs = torch.zeros((1, *self.shape), dtype=kind, device=device)
        return inputs, torch.zeros(1, dtype=torch.int64, device=device)


def perceptron(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def convolutions() -> nn.Module:
    """The paper's network for MNIST."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 8, 2, padding=3), nn.Tanh(), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(16, 32, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1)),
        *(nn.Flatten(), nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10)),
    )


class Transformer(nn.Module):
    """Two encoder layers of width 128 on 64 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(1000, 128), nn.Embedding(64, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.last = nn.Linear(128, 10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        places = torch.arange(inputs.shape[1], device=inputs.device).expand_as(inputs)
        hidden = self.layers(self.tokens(inputs) + self.places(places))
        return self.last(hidden.mean(1))  # type: ignore[no-any-return]


class Block(nn.Module):
    """A residual block of a wide network, with group normalisation."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.one, self.two = nn.GroupNorm(16, inputs), nn.GroupNorm(16, outputs)
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.short = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs or stride > 1 else None

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = functional.relu(self.one(inputs))
        kept = inputs if self.short is None else self.short(hidden)
        return kept + self.second(functional.relu(self.two(self.first(hidden))))  # type: ignore[no-any-return]


def wide_residual() -> nn.Module:
    """WRN-16-4 for pictures of 32 × 32."""
    widths = [16, 64, 128, 256]
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1, bias=False)]
    for before, width, stride in zip(widths, widths[1:], (1, 2, 2), strict=False):
        layers += [Block(before, width, stride), Block(width, width, 1)]
    return nn.Sequential(
        *layers, nn.GroupNorm(16, 256), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10)
    )


MODELS = {
    "digits, batch 64, width 64": Task(lambda: perceptron(64), (64,), 1437, 64),
    "digits, batch 256, width 128": Task(lambda: perceptron(128), (64,), 1437, 256),
    CNN: Task(convolutions, (1, 28, 28), 60_000, 256),
    "transformer": Task(Transformer, (64,), 20_000, 256, tokens=1000),
    "WRN-16-4": Task(wide_residual, (3, 32, 32), 10_000, 64),
}


class Opacus:
    """Opacus, per-sample gradients by hooks, on Poisson batches; its steps are made with what they are given here."""

    def __init__(self, task: Task, records: Tensors, *, sigma: float = 1.0, limit: float = 1.0, rate: float = 0.1):
        device = records.inputs.device
        self._records, self._rate = records, task.batch / len(records)
        self.model = ModuleValidator.fix(task.build()).to(device).train()
        self._module = GradSampleModule(self.model)
        self._optimizer = DPOptimizer(
            torch.optim.SGD(self.model.parameters(), lr=rate),
            noise_multiplier=sigma,
            max_grad_norm=limit,
            expected_batch_size=task.batch,
        )

    def step(self) -> None:
        records = self._records
        coins = torch.rand(len(records), device=records.inputs.device)
        chosen = torch.nonzero(coins < self._rate).squeeze(1)
        self._optimizer.zero_grad()
        outputs = self._module(records.inputs[chosen])
        nn.functional.cross_entropy(outputs, records.targets[chosen]).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()


def value(
    task: Task, size: int, seed: int, steps: int, sigma: float = 1.0, limit: float = 1.0, rate: float = 0.1
) -> Run:
    return Run(
        seed=seed,
        records=size,
        rate=task.batch / size,
        steps=steps,
        batch_size=task.batch,
        noise_multiplier=sigma,
        max_grad_norm=limit,
        learning_rate=rate,
    )
