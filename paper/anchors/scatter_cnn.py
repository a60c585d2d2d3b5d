"""Tramèr and Boneh's small network on scattering features, one run at a time, gradients clipped record by record.

Convolutions are written as matrix products of patches, so that every layer is inputs times weights, and the patches of
the features are made once. Autograd gives the gradients of the layers' outputs. The norm of a layer's gradient for one
record follows from the products of its rows of inputs and of its rows of gradients, and the clipped sum is one more
product. On a GPU the factors of products are bfloat16: this measures utility.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from paper.anchors import tasks
from paper.anchors.normalise import Normaliser, recipe
from paper.anchors.tasks import Task
from paper.anchors.trainer import Floats, Records, Runs
from paper.data.sets import Bytes, Images
from paper.train.descent import Average, Descent

WIDTH = 64
PIECE = 4096  # records at once


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
    """Features (views, n, channels, side, side) of the private records and of the test, and which private ones score.

    A view is the picture, or its mirror image. A step takes one view of each record, at random; logits are their mean.
    """

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
        """Of all records: (views, n, positions, columns)."""
        parts = [self.rows(part) for view in self.features for part in torch.split(view, PIECE)]
        return torch.stack(torch.cat(parts).chunk(len(self.features)))

    @cached_property
    def products(self) -> Tensor:
        """Of each record's rows of inputs with each other: (views, n, positions, positions)."""
        parts = (one.float() for one in torch.split(self.inputs.flatten(0, 1), PIECE))
        return torch.stack(torch.cat([part @ part.mT for part in parts]).chunk(len(self.features)))

    def initial(self, generator: torch.Generator) -> list[Tensor]:
        """PyTorch's uniform law of each layer, biases among the weights."""
        channels, side = self.features.shape[2:4]
        shapes = ((9 * channels + 1, WIDTH), (9 * WIDTH + 1, WIDTH), (WIDTH * side * side // 4 + 1, 10))
        draws = [torch.rand(shape, generator=generator, device=self.features.device) for shape in shapes]
        return [(2 * unit - 1) / (len(unit) - 1) ** 0.5 for unit in draws]

    def train(self, runs: Runs) -> list[Tensor]:
        """The weights of one run."""
        if len(runs) != 1:
            raise ValueError(f"runs: a network is trained one run at a time, not {len(runs)}")
        generator = torch.Generator(self.features.device).manual_seed(runs.seed)
        weights = self.initial(generator)
        descent, average = Descent(runs.memories), Average(runs.average)
        used = torch.ones_like(self.scores) if runs.records is Records.ALL else ~self.scores
        if runs.subset < 1:
            used &= torch.rand(len(used), generator=generator, device=used.device) < runs.subset
        rate, clip, noise = (float(one[0]) for one in (runs.learning_rate, runs.clip, runs.noise))
        for step in range(runs.steps):
            drawn, view = self.drawn(used, runs.rate, generator)
            sums = self.noisy_sum(weights, drawn, view, clip, noise, generator)
            for value, direction in zip(weights, descent.directions([one / runs.batch for one in sums]), strict=True):
                value.sub_(runs.factor(step) * rate * direction)
            average.add(weights)
        return average.values

    def drawn(self, used: Tensor, rate: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """A Poisson batch, and which view of each of its records."""
        unit = torch.rand(len(used), generator=generator, device=used.device)
        drawn = (used & (unit < rate)).nonzero()[:, 0]
        return drawn, torch.randint(len(self.features), drawn.shape, generator=generator, device=drawn.device)

    def noisy_sum(
        self, weights: list[Tensor], drawn: Tensor, view: Tensor, clip: float, noise: float, generator: torch.Generator
    ) -> list[Tensor]:
        """The clipped sum with Gaussian noise."""
        sums = self.clipped_sum(weights, drawn, view, clip)
        for total in sums:
            total += noise * clip * torch.randn(total.shape, generator=generator, device=total.device)
        return sums

    @torch.no_grad()
    def losses(self, weights: list[Tensor], drawn: Tensor, view: Tensor, bound: Tensor) -> Tensor:
        """Sum of the drawn records' losses, each cut off at the bound."""
        total = torch.zeros_like(bound)
        for piece, seen in zip(torch.split(drawn, PIECE), torch.split(view, PIECE), strict=True):
            logits = forward(self.inputs[seen, piece], weights)[-1][1][:, 0]
            total += F.cross_entropy(logits, self.labels[piece], reduction="none").minimum(bound).sum()
        return total

    def clipped_sum(self, weights: list[Tensor], drawn: Tensor, view: Tensor, clip: float) -> list[Tensor]:
        """Sum of the gradients of one view of each drawn record, each clipped as a whole."""
        total = [torch.zeros_like(one) for one in weights]
        for piece, seen in zip(torch.split(drawn, PIECE), torch.split(view, PIECE), strict=True):
            values = [one.detach().requires_grad_() for one in weights]
            layers = forward(self.inputs[seen, piece], values)
            loss = F.cross_entropy(layers[-1][1][:, 0], self.labels[piece], reduction="sum")
            back = torch.autograd.grad(loss, [output for _, output in layers])
            with torch.no_grad():
                known = [self.products[seen, piece], *(inputs.float() @ inputs.float().mT for inputs, _ in layers[1:])]
                squares = [(one * (grad @ grad.mT)).sum(dim=(1, 2)) for one, grad in zip(known, back, strict=True)]
                scale = (clip / torch.stack(squares).sum(dim=0).sqrt().clamp_min(1e-12)).clamp_max(1.0)[:, None, None]
                for layer, (inputs, _), grad in zip(total, layers, back, strict=True):
                    layer += inputs.flatten(0, 1).mT @ (scale * grad).flatten(0, 1).to(inputs.dtype)
        return total

    @torch.no_grad()
    def correct(self, models: list[Tensor], *, test: bool) -> Floats:
        """How many records of the test, or of the scoring side, the model gets right, as an array of one."""
        views, labels = self.test, self.test_labels
        if not test:
            views, labels = self.features[:, self.scores], self.labels[self.scores]
        right = torch.zeros(1, device=views.device)
        for part, wanted in zip(torch.split(views, PIECE, dim=1), torch.split(labels, PIECE), strict=True):
            logits = torch.stack([forward(self.rows(view), models)[-1][1][:, 0] for view in part]).mean(dim=0)
            right += (logits.argmax(1) == wanted).sum()
        return right.double().cpu().numpy()  # type: ignore[no-any-return,unused-ignore]


def network(task: Task, images: Images, share: float, device: str, seed: int) -> Network:
    """The trainer of networks on a task's features; where the recipe is mirrored, both views have features."""
    how = recipe(task.recipe)
    found = Normaliser(replace(how, mirrored=False), task.statistics, device, seed).fitted(images.train)

    def views(pictures: Bytes) -> Tensor:
        both = (pictures, pictures[..., ::-1].copy()) if how.mirrored else (pictures,)
        return torch.stack([found.of(one) for one in both])

    labels, test_labels = (torch.tensor(one, device=device).long() for one in (images.train_labels, images.test_labels))
    scores = torch.as_tensor(tasks.sides(len(labels), share), device=device)
    return Network(views(images.train), labels, scores, views(images.test), test_labels)
