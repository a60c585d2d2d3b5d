"""Tramèr and Boneh's small network on scattering features, one run at a time, gradients clipped record by record.

Convolutions are written as matrix products of patches, so that every layer is inputs times weights, and the patches of
the features are made once. Autograd gives the gradients of the layers' outputs. The norm of a layer's gradient for one
record follows from the products of its rows of inputs and of its rows of gradients, and the clipped sum is one more
product. On a GPU the factors of products are bfloat16: this measures utility.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from paper.anchors import tasks
from paper.anchors.linear import Linear
from paper.anchors.tasks import Task
from paper.anchors.trainer import Floats, Records, Runs
from paper.data.sets import Images
from paper.train.descent import Average, Descent

WIDTH = 64
PIECE = 2048  # records at once


def patches(pictures: Tensor) -> Tensor:
    """3 × 3 neighbourhoods with a one for the bias: (n, c, h, w) to (n, h·w, 9 c + 1)."""
    rows = (
        F.pad(pictures, (1, 1, 1, 1)).unfold(2, 3, 1).unfold(3, 3, 1).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
    )
    return torch.cat([rows, torch.ones_like(rows[..., :1])], dim=2)


def forward(inputs: Tensor, weights: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Inputs (n, positions, columns), which are given for the first, and outputs of the three layers."""
    side, kind = math.isqrt(inputs.shape[1]), inputs.dtype
    first = (inputs @ weights[0].to(kind)).float()
    pooled = F.max_pool2d(first.tanh().mT.reshape(len(inputs), WIDTH, side, side), 2)
    middle = patches(pooled).to(kind)
    second = (middle @ weights[1].to(kind)).float()
    top = second.tanh().mT.flatten(1)
    top = torch.cat([top, torch.ones_like(top[:, :1])], dim=1)[:, None]
    return [(inputs, first), (middle, second), (top, top @ weights[2])]


@dataclass(frozen=True, eq=False)
class Network:
    """Features (n, channels, side, side) of the private records and of the test, and which private ones score."""

    features: Tensor
    labels: Tensor
    scores: Tensor
    test: Tensor
    test_labels: Tensor

    def rows(self, pictures: Tensor) -> Tensor:
        """Inputs of the first layer."""
        return patches(pictures).to(torch.bfloat16 if pictures.is_cuda else torch.float32)

    @cached_property
    def inputs(self) -> Tensor:
        """Of all records."""
        return torch.cat([self.rows(part) for part in torch.split(self.features, PIECE)])

    @cached_property
    def products(self) -> Tensor:
        """Of each record's rows of inputs with each other: (n, positions, positions)."""
        return torch.cat([part @ part.mT for part in (one.float() for one in torch.split(self.inputs, PIECE))])

    def initial(self, generator: torch.Generator) -> list[Tensor]:
        """PyTorch's uniform law of each layer, biases among the weights."""
        channels, side = self.features.shape[1:3]
        shapes = ((9 * channels + 1, WIDTH), (9 * WIDTH + 1, WIDTH), (WIDTH * side * side // 4 + 1, 10))
        draws = [torch.rand(shape, generator=generator, device=self.features.device) for shape in shapes]
        return [(2 * unit - 1) / (len(unit) - 1) ** 0.5 for unit in draws]

    def train(self, runs: Runs) -> list[Tensor]:
        """The weights of one run."""
        if len(runs) != 1 or runs.subset != 1:
            raise ValueError("a network is trained one run at a time, on all records of its side")
        generator = torch.Generator(self.features.device).manual_seed(runs.seed)
        weights = self.initial(generator)
        descent, average = Descent(runs.memories), Average(runs.average)
        used = torch.ones_like(self.scores) if runs.records is Records.ALL else ~self.scores
        rate, clip, noise = (float(one[0]) for one in (runs.learning_rate, runs.clip, runs.noise))
        for step in range(runs.steps):
            unit = torch.rand(len(used), generator=generator, device=used.device)
            drawn = (used & (unit < runs.rate)).nonzero()[:, 0]
            sums = self.clipped_sum(weights, drawn, clip)
            for total in sums:
                total += noise * clip * torch.randn(total.shape, generator=generator, device=total.device)
            for value, direction in zip(weights, descent.directions([one / runs.batch for one in sums]), strict=True):
                value.sub_(runs.factor(step) * rate * direction)
            average.add(weights)
        return average.values

    def clipped_sum(self, weights: list[Tensor], drawn: Tensor, clip: float) -> list[Tensor]:
        """Sum of the drawn records' gradients, each clipped as a whole."""
        total = [torch.zeros_like(one) for one in weights]
        for piece in torch.split(drawn, PIECE):
            values = [one.detach().requires_grad_() for one in weights]
            layers = forward(self.inputs[piece], values)
            loss = F.cross_entropy(layers[-1][1][:, 0], self.labels[piece], reduction="sum")
            back = torch.autograd.grad(loss, [output for _, output in layers])
            with torch.no_grad():
                known = [self.products[piece], *(inputs.float() @ inputs.float().mT for inputs, _ in layers[1:])]
                squares = [(one * (grad @ grad.mT)).sum(dim=(1, 2)) for one, grad in zip(known, back, strict=True)]
                scale = (clip / torch.stack(squares).sum(dim=0).sqrt().clamp_min(1e-12)).clamp_max(1.0)[:, None, None]
                for layer, (inputs, _), grad in zip(total, layers, back, strict=True):
                    layer += inputs.flatten(0, 1).mT @ (scale * grad).flatten(0, 1).to(inputs.dtype)
        return total

    @torch.no_grad()
    def correct(self, models: list[Tensor], *, test: bool) -> Floats:
        """How many records of the test, or of the scoring side, the model gets right, as an array of one."""
        rows, labels = (self.test, self.test_labels) if test else (self.features[self.scores], self.labels[self.scores])
        right = torch.zeros(1, device=rows.device)
        for part, wanted in zip(torch.split(rows, 2048), torch.split(labels, 2048), strict=True):
            right += (forward(self.rows(part), models)[-1][1][:, 0].argmax(1) == wanted).sum()
        return right.double().cpu().numpy()  # type: ignore[no-any-return,unused-ignore]


def network(task: Task, images: Images, share: float, device: str, seed: int) -> Network:
    """The trainer of networks on a task's features: those of the linear model, in their places."""
    flat: Linear = tasks.linear(task, images, share, device, seed)
    side = images.train.shape[-1] // 4

    def pictures(rows: Tensor) -> Tensor:
        return rows[:, :-1].reshape(len(rows), -1, side, side)

    return Network(pictures(flat.features), flat.labels, flat.scores, pictures(flat.test), flat.test_labels)
