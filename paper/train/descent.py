"""SGD with momentum and Adam for K models side by side, and averaged weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Memories:
    """How much of each average a step keeps: momentum alone, or Adam's two."""

    first: float = 0.0
    second: float | None = None


@dataclass
class Descent:
    """The directions of one optimiser, step by step, per unit of learning rate; PyTorch's definitions."""

    memories: Memories = field(default_factory=Memories)
    _steps: int = 0
    _first: list[Tensor] = field(default_factory=list)
    _second: list[Tensor] = field(default_factory=list)

    def directions(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Where to go after these mean gradients."""
        kept, squares = self.memories.first, self.memories.second
        self._steps += 1
        if not self._first:
            self._first = [gradient.new_zeros(gradient.shape) for gradient in gradients]
            self._second = [] if squares is None else [one.clone() for one in self._first]
        if squares is None:
            for average, gradient in zip(self._first, gradients, strict=True):
                average.mul_(kept).add_(gradient)
            return self._first
        found = []
        for average, spread, gradient in zip(self._first, self._second, gradients, strict=True):
            average.mul_(kept).add_(gradient, alpha=1 - kept)
            spread.mul_(squares).addcmul_(gradient, gradient, value=1 - squares)
            root = (spread / (1 - squares**self._steps)).sqrt_().add_(1e-8)
            found.append(average / (1 - kept**self._steps) / root)
        return found


@dataclass
class Average:
    """An exponential average of weights that keeps ``kept`` of itself at each step; the weights themselves if 0."""

    kept: float
    _steps: int = 0
    _sums: list[Tensor] = field(default_factory=list)

    def add(self, weights: Sequence[Tensor]) -> None:
        """After each step."""
        self._steps += 1
        if not self._sums:
            self._sums = [value.new_zeros(value.shape) for value in weights]
        for total, value in zip(self._sums, weights, strict=True):
            total.mul_(self.kept).add_(value, alpha=1 - self.kept)

    @property
    def values(self) -> list[Tensor]:
        """The average, as if it had begun with the first weights that it saw."""
        return [total / (1 - self.kept**self._steps) for total in self._sums]
