"""WRN-16-4 from pixels, one run at a time: De and others (2022), several views of a record, averaged before clipping.

Convolutions have standardised weights and no biases, group normalisation has no parameters. Autograd gives the
gradients of the layers' outputs; a layer's gradient for one record is one product of its patches and those. On a GPU
the factors of products are bfloat16: this measures utility.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from paper.anchors import tasks
from paper.anchors.trainer import Floats, Records, Runs
from paper.data.sets import Images
from paper.train.descent import Average, Descent

GROUPS, EDGE = 16, 4  # of a normalisation; pixels by which a view is moved at most
WIDTHS = (16, 64, 128, 256)
PIECE = 1076  # records at once: a quarter of a batch that is larger than nearly all


def standardised(weight: Tensor) -> Tensor:
    """Weights (outputs, ...) of mean 0 and variance 1/inputs for every output."""
    rows = weight.flatten(1)
    spread, mean = torch.var_mean(rows, dim=1, correction=0, keepdim=True)
    return ((rows - mean) / (spread * rows.shape[1] + 1e-8).sqrt()).view_as(weight)


def _normalised(pictures: Tensor) -> Tensor:
    """Group normalisation and ReLU of pictures (n, h, w, channels)."""
    groups = pictures.float().reshape(*pictures.shape[:3], GROUPS, -1)
    spread, mean = torch.var_mean(groups, dim=(1, 2, 4), correction=0, keepdim=True)
    return F.relu((groups - mean) * (spread + 1e-5).rsqrt()).flatten(3).to(pictures.dtype)


@cache
def _compiled() -> Callable[[Tensor], Tensor]:
    return torch.compile(_normalised, dynamic=False)


def normalised(pictures: Tensor) -> Tensor:
    """Group normalisation and ReLU; compiled where a GPU makes gradients, in shapes that recur."""
    rows = pictures.permute(0, 2, 3, 1)
    made = _compiled()(rows) if rows.is_cuda and torch.is_grad_enabled() else _normalised(rows)
    return made.permute(0, 3, 1, 2)


def products(records: int, inputs: Tensor, gradients: Tensor, size: int, stride: int) -> Tensor:
    """The gradients of each record's weights, (records, outputs, size · size · inputs), summed over views.

    Both are padded to one grid, in which a shift of the kernel is a shift of rows: no patches are made.
    """
    inputs, gradients = inputs.permute(0, 2, 3, 1), gradients.permute(0, 2, 3, 1)
    if size == 1:
        inputs = inputs[:, ::stride, ::stride]
        return gradients.reshape(records, -1, gradients.shape[3]).mT @ inputs.reshape(records, -1, inputs.shape[3])
    if stride > 1:  # every other position of the unit stride has a gradient
        spread = gradients.new_zeros((*inputs.shape[:3], gradients.shape[3]))
        spread[:, ::stride, ::stride] = gradients
        gradients = spread
    wide = inputs.shape[2] + 2
    rows = F.pad(inputs, (0, 0, 1, 1, 1, 1)).reshape(records, -1, inputs.shape[3])
    columns = F.pad(gradients, (0, 0, 0, 2, 0, 2)).reshape(records, -1, gradients.shape[3])[:, : -2 * wide - 2].mT
    shifts = [down * wide + right for down in range(3) for right in range(3)]
    return torch.cat([columns @ rows[:, shift : shift + columns.shape[2]] for shift in shifts], dim=2)


class Pass:
    """One forward pass; ``layers`` notes inputs, output and the geometry of every layer with weights."""

    def __init__(self, weights: list[Tensor], kind: torch.dtype) -> None:
        self._weights, self._kind = iter(weights), kind
        self.layers: list[tuple[Tensor, Tensor, int, int]] = []

    def convolve(self, inputs: Tensor, stride: int = 1) -> Tensor:
        weight = standardised(next(self._weights)).to(self._kind)  # (outputs, size, size, inputs)
        size = weight.shape[1]
        inputs = inputs.contiguous(memory_format=torch.channels_last)
        output = F.conv2d(inputs, weight.permute(0, 3, 1, 2), stride=stride, padding=size // 2)
        return self._noted(inputs, output, size, stride)

    def _noted(self, inputs: Tensor, output: Tensor, size: int, stride: int) -> Tensor:
        output = output if output.requires_grad else output.requires_grad_()  # the first layer's inputs have none
        self.layers.append((inputs.detach(), output, size, stride))
        return output

    def block(self, inputs: Tensor, stride: int, *, wider: bool) -> Tensor:
        hidden = normalised(inputs)
        kept = self.convolve(hidden, stride) if wider else inputs
        return kept + self.convolve(normalised(self.convolve(hidden, stride)))

    def logits(self, pictures: Tensor) -> Tensor:
        hidden = self.convolve(pictures.to(self._kind))  # in memory (n, h, w, channels) from here on
        for stage in range(3):
            hidden = self.block(hidden, 1 if stage == 0 else 2, wider=True)
            hidden = self.block(hidden, 1, wider=False)
        top = normalised(hidden).mean(dim=(2, 3))
        top = torch.cat([top, torch.ones_like(top[:, :1])], dim=1)
        return self._noted(top, top @ next(self._weights).to(self._kind).mT, 0, 0).float()


def shapes() -> Iterator[tuple[int, ...]]:
    """Of all weights, in the order of a pass; the last layer has its bias among them."""
    yield WIDTHS[0], 3, 3, 3
    for inputs, width in itertools.pairwise(WIDTHS):
        yield from ((width, 1, 1, inputs), (width, 3, 3, inputs), *[(width, 3, 3, width)] * 3)
    yield 10, WIDTHS[-1] + 1


def moved(pictures: Tensor, generator: torch.Generator) -> Tensor:
    """A view of each picture: moved by a few pixels, its edges reflected, and mirrored half of the time."""
    count, device = len(pictures), pictures.device
    draws = torch.rand((3, count, 1), generator=generator, device=device)
    down, right = (draws[:2] * (2 * EDGE + 1)).long()
    places = torch.arange(32, device=device)
    across = torch.where(draws[2] < 0.5, places, places.flip(0)) + right
    rows, edges = torch.arange(count, device=device)[:, None, None], F.pad(pictures, (EDGE,) * 4, mode="reflect")
    return edges.permute(0, 2, 3, 1)[rows, (places + down)[:, :, None], across[:, None, :]].permute(0, 3, 1, 2)


@dataclass(frozen=True, eq=False)
class Wide:
    """Pictures (n, 3, 32, 32) of the private records and of the test as they are, and which private ones score."""

    pictures: Tensor
    labels: Tensor
    scores: Tensor
    test: Tensor
    test_labels: Tensor
    views: int = 4

    @property
    def kind(self) -> torch.dtype:
        return torch.bfloat16 if self.pictures.is_cuda else torch.float32

    @staticmethod
    def scaled(pictures: Tensor) -> Tensor:
        return pictures.float() / 64 - 2

    def initial(self, generator: torch.Generator) -> list[Tensor]:
        """Normal weights of variance 1/inputs; the last layer is zero."""
        device = self.pictures.device
        draws = [torch.randn(shape, generator=generator, device=device) for shape in shapes()]
        return [*(one / (one[0].numel()) ** 0.5 for one in draws[:-1]), torch.zeros_like(draws[-1])]

    def train(self, runs: Runs) -> list[Tensor]:
        """The weights of one run."""
        if len(runs) != 1:
            raise ValueError(f"runs: a network is trained one run at a time, not {len(runs)}")
        generator = torch.Generator(self.pictures.device).manual_seed(runs.seed)
        weights, descent, average = self.initial(generator), Descent(runs.memories), Average(runs.average)
        used = torch.ones_like(self.scores) if runs.records is Records.ALL else ~self.scores
        rate, clip, noise = (float(one[0]) for one in (runs.learning_rate, runs.clip, runs.noise))
        for step in range(runs.steps):
            unit = torch.rand(len(used), generator=generator, device=used.device)
            drawn = (used & (unit < runs.rate)).nonzero()[:, 0]
            sums = self.clipped_sum(weights, drawn, clip, generator)
            for total in sums:
                total += noise * clip * torch.randn(total.shape, generator=generator, device=total.device)
            for value, direction in zip(weights, descent.directions([one / runs.batch for one in sums]), strict=True):
                value.sub_(runs.factor(step) * rate * direction)
            average.add(weights)
        return average.values

    def clipped_sum(
        self, weights: list[Tensor], drawn: Tensor, clip: float, generator: torch.Generator | None
    ) -> list[Tensor]:
        """Sum of the drawn records' gradients, each the mean of its views' and clipped as a whole.

        Without a generator the views are the pictures themselves.
        """
        total = [torch.zeros_like(one) for one in weights]
        size = min(PIECE, max(1, len(drawn)))
        for piece in torch.split(drawn, size):
            counts = torch.arange(size, device=drawn.device) < len(piece)  # shapes recur: the rest counts zero
            piece = F.pad(piece, (0, size - len(piece)))
            pictures = self.scaled(self.pictures[piece]).repeat_interleave(self.views, 0)
            given = pictures if generator is None else moved(pictures, generator)
            passed = Pass(weights, self.kind)
            losses = F.cross_entropy(passed.logits(given), self.labels[piece].repeat_interleave(self.views, 0),
                                     reduction="sum") / self.views  # fmt: skip
            back = torch.autograd.grad(losses, [output for _, output, _, _ in passed.layers])
            with torch.no_grad():
                self._add_clipped(total, weights, passed.layers, back, counts, clip)
        return [one if one.dim() == 2 else _through(weight, one) for weight, one in zip(weights, total, strict=True)]

    @staticmethod
    def _add_clipped(
        total: list[Tensor], weights: list[Tensor], layers: list[tuple[Tensor, Tensor, int, int]],
        back: tuple[Tensor, ...], counts: Tensor, clip: float,
    ) -> None:  # fmt: skip
        found, squares, records = [], torch.zeros(len(counts), device=counts.device), len(counts)
        for weight, (inputs, _, size, stride), gradient in zip(weights, layers, back, strict=True):
            if size:
                one = products(records, inputs, gradient, size, stride)
                squares += _squares(weight, one)
            else:
                columns, rows = (part.reshape(records, -1, part.shape[1]) for part in (gradient, inputs))
                one = columns.mT @ rows
                squares += one.float().square().sum(dim=(1, 2))
            found.append(one)
        scale = counts * (clip / squares.clamp_min(1e-24).sqrt()).clamp_max(1.0)
        for sums, one in zip(total, found, strict=True):
            sums += (scale.to(one.dtype) @ one.flatten(1)).view_as(sums)

    @torch.no_grad()
    def correct(self, models: list[Tensor], *, test: bool) -> Floats:
        """How many records of the test, or of the scoring side, the model gets right, as an array of one."""
        pictures, labels = self.test, self.test_labels
        if not test:
            pictures, labels = self.pictures[self.scores], self.labels[self.scores]
        right = torch.zeros(1, device=pictures.device)
        for part, wanted in zip(torch.split(pictures, PIECE), torch.split(labels, PIECE), strict=True):
            right += (Pass(models, self.kind).logits(self.scaled(part)).argmax(1) == wanted).sum()
        return right.double().cpu().numpy()  # type: ignore[no-any-return,unused-ignore]


def _spread(weight: Tensor) -> Tensor:
    """The factor by which an output's weights are divided, (outputs, 1)."""
    rows = weight.flatten(1)
    return (rows.var(dim=1, correction=0, keepdim=True) * rows.shape[1] + 1e-8).sqrt()


def _squares(weight: Tensor, gradients: Tensor) -> Tensor:
    """Squared norms of records' gradients of the weights, from those of the standardised ones, (records, outputs, ...).

    Standardising takes away what a gradient has along the ones and along the standardised weights, which are
    orthogonal, and divides the rest.
    """
    rows = standardised(weight).flatten(1)
    count = rows.shape[1]
    whole = gradients.float().square().sum(dim=2)
    mean = gradients.sum(dim=2, dtype=torch.float32).square() / count
    along = torch.einsum("roi,oi->ro", gradients, rows.to(gradients.dtype)).float().square()
    return ((whole - mean - along).clamp_min(0) / _spread(weight)[:, 0].square()).sum(dim=1)


def _through(weight: Tensor, gradient: Tensor) -> Tensor:
    """A sum of gradients of the weights, from that of the standardised ones."""
    rows, unit = gradient.flatten(1), standardised(weight).flatten(1)
    rest = rows - rows.mean(dim=1, keepdim=True) - (rows * unit).sum(dim=1, keepdim=True) * unit
    return (rest / _spread(weight)).view_as(weight)


def wide(images: Images, share: float, device: str, views: int = 4) -> Wide:
    """The trainer on CIFAR-10."""
    pictures, test = (torch.as_tensor(one, device=device) for one in (images.train, images.test))
    labels, test_labels = (torch.tensor(one, device=device).long() for one in (images.train_labels, images.test_labels))
    scores = torch.as_tensor(tasks.sides(len(labels), share), device=device)
    return Wide(pictures, labels, scores, test, test_labels, views)
