"""Small models of every kind of layer, with records for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from dphypo.torch.engine.clipped_sum import Shape, Sums, combined
from dphypo.torch.engine.program import Program

CLASSES = 3


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


class Pooled(nn.Module):
    """Layers on [records, positions, features], the mean over positions, and a linear classifier."""

    def __init__(self, width: int, *layers: nn.Module) -> None:
        super().__init__()
        self.layers, self.last = nn.Sequential(*layers), nn.Linear(width, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(self.layers(inputs).mean(1))  # type: ignore[no-any-return]


class Tokens(nn.Module):
    """An embedding whose table is the classifier's weight too."""

    def __init__(self, tied: bool = True) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 6)
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 7, bias=False)
        if tied:
            self.last.weight = self.table.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.first(self.table(tokens).mean(1))))[:, :CLASSES]  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """Tokens with learnt positions and a class token, encoder layers with dropout, a classifier."""

    def __init__(self, dropout: float = 0.1, batch_first: bool = True) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(6, 8))
        self.batch_first = batch_first
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout, batch_first=batch_first)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.last = nn.Linear(8, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        inputs = torch.cat([self.token.expand(len(tokens), -1, -1), self.table(tokens)], 1) + self.places
        hidden = self.layers(inputs if self.batch_first else inputs.transpose(0, 1))
        return self.last(hidden[:, 0] if self.batch_first else hidden[0])  # type: ignore[no-any-return]


class Causal(nn.Module):
    """What GPT-2 is made of: a table of positions, b + x @ W, attention to earlier tokens that are not padding."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.table, self.places, self.shifts = nn.Embedding(11, 8), nn.Embedding(5, 8), nn.Embedding(5, 8)
        self.weight, self.bias = nn.Parameter(torch.randn(8, 24)), nn.Parameter(torch.randn(24))
        self.norm, self.last, self.dropout = nn.LayerNorm(8), nn.Linear(8, CLASSES), nn.Dropout(dropout)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        count = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.table(tokens) + self.places(count[None]) + self.shifts(count)
        parts = torch.addmm(self.bias, hidden.view(-1, 8), self.weight).view(*hidden.shape[:2], 24)
        heads = [part.unflatten(-1, (2, 4)).transpose(1, 2) for part in parts.chunk(3, -1)]
        causal = torch.ones(5, 5, dtype=torch.bool, device=tokens.device).tril()
        seen = (tokens != 0)[:, None, None, :] & causal  # a first 0 sees nothing
        dropped = self.dropout.p if self.training else 0.0
        made = functional.scaled_dot_product_attention(*heads, attn_mask=seen, dropout_p=dropped)
        return self.last(self.norm(hidden + made.transpose(1, 2).flatten(2))[:, -1])  # type: ignore[no-any-return]


class LowRank(nn.Module):
    """A frozen layer with a trained low-rank addition, written with ``@``."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(6, 5).requires_grad_(False)
        self.one, self.two = nn.Parameter(torch.randn(6, 2)), nn.Parameter(torch.randn(2, 5))
        self.scale, self.last = nn.Parameter(torch.ones(5)), nn.Linear(5, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(self.scale * (self.base(inputs) + inputs @ self.one @ self.two))  # type: ignore[no-any-return]


class Odd(nn.Module):
    """A parameter that no formula covers: a bilinear form."""

    def __init__(self) -> None:
        super().__init__()
        self.form, self.last = nn.Parameter(torch.randn(CLASSES, 6, 6)), nn.Linear(6, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bi,kij,bj->bk", inputs, self.form, inputs) + self.last(inputs)  # type: ignore[no-any-return]


class Frames(nn.Module):
    """A convolution of every frame of a record, which are the pictures of one call."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.outer = nn.Conv2d(2, 4, 3), nn.Linear(16, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        each = self.convolution(inputs.flatten(0, 1)).tanh()
        return self.outer(each.reshape(*inputs.shape[:2], -1).mean(1))  # type: ignore[no-any-return]


class Twice(nn.Module):
    """One linear layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(6, 6), nn.Linear(6, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.layer(torch.tanh(self.layer(inputs)))))  # type: ignore[no-any-return]


class Residual(nn.Module):
    """Convolutions around a frozen batch normalisation, with activations in place."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding="same", bias=False)
        self.fixed = nn.BatchNorm2d(4).requires_grad_(False).eval()
        self.norm, self.last = nn.GroupNorm(2, 4), nn.Linear(4, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = functional.relu(self.fixed(self.one(inputs)), inplace=True)
        hidden = hidden + functional.relu_(self.norm(self.two(hidden)))
        return self.last(hidden.mean((2, 3)))  # type: ignore[no-any-return]


class Recurrent(nn.Module):
    """A recurrent layer, and a classifier on its last output."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer, self.last = layer(3, 4, batch_first=True), nn.Linear(4, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(self.layer(inputs)[0][:, -1])  # type: ignore[no-any-return]


class Sign(torch.autograd.Function):
    """The sign, with the derivative of the identity."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        return values.sign()

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return slope


class StraightThrough(nn.Module):
    """Weights that are rounded to their sign, by a derivative of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.last = nn.Parameter(torch.randn(5, 6)), nn.Linear(5, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        signs = Sign.apply(self.weight)  # type: ignore[no-untyped-call]
        return self.last(functional.linear(inputs, signs))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Kind:
    """A factory, what its records look like, and the number of its tokens, if they are tokens."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    tokens: int | None = None

    def records(self, count: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> tuple[Any, Any]:
        generator = torch.Generator().manual_seed(seed)
        targets = torch.randint(0, CLASSES, (count,), generator=generator)
        if self.tokens is not None:
            return torch.randint(0, self.tokens, (count, *self.shape), generator=generator), targets
        return torch.randn(count, *self.shape, generator=generator, dtype=dtype), targets


def _flat(*layers: nn.Module, width: int) -> nn.Module:
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width, CLASSES))


KINDS = {
    "linear": Kind(lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Linear(5, CLASSES)), (6,)),
    "linear-without-bias": Kind(lambda: nn.Linear(6, CLASSES, bias=False), (6,)),
    "positions-ghost": Kind(lambda: Pooled(16, nn.Linear(12, 16), nn.Tanh()), (4, 12)),
    "positions-held": Kind(lambda: Pooled(4, nn.Linear(3, 4), nn.Tanh()), (9, 3)),
    "dropout": Kind(lambda: Pooled(5, nn.Linear(6, 5), nn.Dropout(0.4)), (4, 6)),
    "trained-bias": Kind(lambda: _trained_bias(), (6,)),
    "convolution": Kind(lambda: _flat(nn.Conv2d(2, 4, 3, 2, padding=1), nn.Tanh(), width=36), (2, 6, 6)),
    "wide-convolution": Kind(lambda: _flat(nn.Conv2d(8, 16, 3, 3), width=64), (8, 6, 6)),
    "dilated-groups": Kind(lambda: _flat(nn.Conv2d(4, 6, 3, dilation=2, groups=2), width=24), (4, 6, 6)),
    "line": Kind(lambda: _flat(nn.Conv1d(2, 4, 3, padding=2, stride=2), nn.Dropout1d(0.3), width=20), (2, 7)),
    "embedding": Kind(lambda: Tokens(tied=False), (5,), tokens=7),
    "padding": Kind(lambda: Pooled(4, nn.Embedding(7, 4, padding_idx=2)), (5,), tokens=7),
    "tied": Kind(Tokens, (5,), tokens=7),
    "layer-norm": Kind(lambda: Pooled(6, nn.LayerNorm(6), nn.Linear(6, 6), nn.LayerNorm((4, 6))), (4, 6)),
    "rms-norm": Kind(lambda: Pooled(6, nn.RMSNorm(6), nn.Linear(6, 6)), (4, 6)),
    "group-norm": Kind(lambda: _flat(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), width=64), (2, 6, 6)),
    "residual": Kind(Residual, (2, 6, 6)),
    "twice": Kind(Twice, (6,)),
    "low-rank": Kind(LowRank, (6,)),
    "transformer": Kind(Transformer, (5,), tokens=11),
    "transformer-places-first": Kind(lambda: Transformer(0.0, batch_first=False), (5,), tokens=11),
    "causal": Kind(Causal, (5,), tokens=11),
    "causal-with-dropout": Kind(lambda: Causal(0.3), (5,), tokens=11),
    "odd": Kind(Odd, (6,)),
    "odd-with-dropout": Kind(lambda: nn.Sequential(nn.Dropout(0.5), Odd()), (6,)),
    "recurrent": Kind(lambda: Recurrent(nn.LSTM), (5, 3)),
    "gated": Kind(lambda: Recurrent(nn.GRU), (5, 3)),
    "weight-norm": Kind(lambda: _flat(weight_norm(nn.Conv2d(2, 4, 3)), width=64), (2, 6, 6)),
    "transposed": Kind(lambda: _flat(nn.ConvTranspose2d(2, 3, 2, 2), width=108), (2, 3, 3)),
    "frames": Kind(Frames, (3, 2, 4, 4)),
    "straight-through": Kind(StraightThrough, (6,)),
}


def _trained_bias() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, CLASSES))
    model[0].weight.requires_grad_(False)
    return model


def gradients(program: Program, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[Any, Any, Any]:
    """Each record's gradient as the engine sums it, and its bounds."""
    rows, shape = program.layout.stacked([model], inputs.device), Shape(1, len(inputs))
    found = []
    with torch.no_grad():
        bound, keys = program.bound(rows, shape), torch.arange(len(inputs))[None]
        for record in range(len(inputs)):
            parts, _ = bound.parts(inputs, targets, keys)
            norms, spreads = combined(parts)
            weights, sums = torch.zeros_like(norms), Sums(rows)
            weights[0, record] = 1
            for part in parts:
                part.add(weights, sums)
            found.append(sums.rows[0])
    return torch.stack(found), norms[0], norms[0] if spreads is None else spreads[0]
