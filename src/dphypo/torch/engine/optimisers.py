"""Optimisers on rows of numbers, one row per run, each run with its own learning rate and options.

They use only the noisy gradient, so whatever they compute is post-processing. SGD, Adam, AdamW, RMSprop and Adagrad are
implemented for all runs together, with PyTorch's definitions. They process ranges of the parameters, so that only their
state is as large as the weights. PyTorch's other optimisers are used as they are, run by run.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch

from dphypo import _validate
from dphypo.torch.engine.clipped_sum import Layout

Options = Sequence[Mapping[str, Any]]


class GradientOptimiser(Protocol):
    """An optimiser, which changes the rows in place."""

    def step(self, rows: torch.Tensor, gradient: torch.Tensor, rates: torch.Tensor) -> None:
        """One step; ``rates`` are the learning rates, [runs, 1]. The gradient may be in double precision."""


_RANGE, _RANGE_CUDA = 2**16, 2**22  # parameters of a run in a range


def ranges(rows: torch.Tensor) -> Iterator[slice]:
    """Ranges of the parameters, so small that intermediate results fit into a processor's cache."""
    size = _RANGE_CUDA if rows.is_cuda else _RANGE
    yield from (slice(start, start + size) for start in range(0, rows.shape[1], size))


class _Options:
    """The options of all runs as columns, [runs, 1]; applies those of every optimiser: maximisation, weight decay."""

    def __init__(self, options: Options, like: torch.Tensor, *, decoupled: bool = False, **defaults: Any) -> None:
        self._options, self._like = [defaults | dict(one) for one in options], like
        self.decoupled = decoupled or self.any("decoupled_weight_decay") is not None
        self.decay, self._maximise = self.any("weight_decay"), self.any("maximize")

    def column(self, name: str, part: int | None = None) -> torch.Tensor:
        values = [one.get(name, 0.0) for one in self._options]
        numbers = [float(value if part is None else value[part]) for value in values]
        return torch.tensor(numbers, dtype=self._like.dtype, device=self._like.device)[:, None]

    def any(self, name: str) -> torch.Tensor | None:
        """A column, or None if it is zero for all runs."""
        column = self.column(name)
        return column if bool(column.any()) else None

    def gradient(self, rows: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient to descend; weight decay is a part of it unless the weights themselves decay."""
        gradient = gradient.to(rows.dtype)
        if self._maximise is not None:
            gradient = gradient * (1 - 2 * self._maximise)
        return gradient if self.decay is None or self.decoupled else gradient + rows * self.decay


class SGD:
    """v ← μv + (1 − dampening)g, then θ ← θ − ηv; Nesterov's form takes g + μv."""

    def __init__(self, rows: torch.Tensor, options: Options) -> None:
        self._given = given = _Options(options, rows)
        self._momentum = given.any("momentum")
        self._share, self._nesterov = 1 - given.column("dampening"), given.any("nesterov")
        self._velocity: torch.Tensor | None = None

    def step(self, rows: torch.Tensor, gradient: torch.Tensor, rates: torch.Tensor) -> None:
        first = self._velocity is None
        if first and self._momentum is not None:
            self._velocity = torch.zeros_like(rows)
        for some in ranges(rows):
            weights = rows[:, some]
            given = self._given.gradient(weights, gradient[:, some])
            if self._momentum is not None and self._velocity is not None:
                velocity = self._velocity[:, some]
                if first:
                    velocity.copy_(given)
                else:
                    velocity.mul_(self._momentum).add_(given * self._share)
                given = velocity if self._nesterov is None else given + self._momentum * velocity
            weights.addcmul_(rates, given, value=-1)


class Adam:
    """m ← β₁m + (1 − β₁)g, v ← β₂v + (1 − β₂)g², θ ← θ − η·m̂/(√v̂ + ε); AdamW decays the weights themselves."""

    def __init__(self, rows: torch.Tensor, options: Options, *, decoupled: bool = False) -> None:
        usual: dict[str, Any] = {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01 if decoupled else 0.0}
        self._given = given = _Options(options, rows, decoupled=decoupled, **usual)
        self._first, self._second, self._eps = given.column("betas", 0), given.column("betas", 1), given.column("eps")
        self._mean, self._square = torch.zeros_like(rows), torch.zeros_like(rows)
        self._largest = torch.zeros_like(rows) if given.any("amsgrad") is not None else None
        self._powers = [torch.ones_like(column, dtype=torch.float64) for column in (self._first, self._second)]

    def step(self, rows: torch.Tensor, gradient: torch.Tensor, rates: torch.Tensor) -> None:
        for power, beta in zip(self._powers, (self._first, self._second), strict=True):
            power.mul_(beta)
        first, second = (1 - power for power in self._powers)
        rate, scale = (rates / first).to(rows.dtype), second.sqrt().to(rows.dtype)
        for some in ranges(rows):
            weights, mean, square = rows[:, some], self._mean[:, some], self._square[:, some]
            if self._given.decoupled and self._given.decay is not None:
                weights.mul_(1 - rates * self._given.decay)
            given = self._given.gradient(weights, gradient[:, some])
            mean.mul_(self._first).add_(given * (1 - self._first))
            square.mul_(self._second).add_(given.square() * (1 - self._second))
            if self._largest is not None:
                largest = self._largest[:, some]
                square = largest.copy_(torch.maximum(largest, square))
            root = square.sqrt().div_(scale).add_(self._eps)
            weights.sub_((mean * rate).div_(root))


class RMSprop:
    """v ← αv + (1 − α)g², θ ← θ − η·g/(√v + ε), with momentum on the step; centred, v is a variance."""

    def __init__(self, rows: torch.Tensor, options: Options) -> None:
        self._given = given = _Options(options, rows, alpha=0.99, eps=1e-8)
        self._alpha, self._eps, self._momentum = given.column("alpha"), given.column("eps"), given.any("momentum")
        self._square = torch.zeros_like(rows)
        self._velocity = None if self._momentum is None else torch.zeros_like(rows)
        self._mean = torch.zeros_like(rows) if given.any("centered") is not None else None

    def step(self, rows: torch.Tensor, gradient: torch.Tensor, rates: torch.Tensor) -> None:
        for some in ranges(rows):
            weights, square = rows[:, some], self._square[:, some]
            given = self._given.gradient(weights, gradient[:, some])
            square.mul_(self._alpha).add_(given.square() * (1 - self._alpha))
            variance = square
            if self._mean is not None:
                mean = self._mean[:, some].mul_(self._alpha).add_(given * (1 - self._alpha))
                variance = variance - mean.square()
            move = given / variance.sqrt().add_(self._eps)
            if self._momentum is not None and self._velocity is not None:
                move = self._velocity[:, some].mul_(self._momentum).add_(move)
            weights.sub_(rates * move)


class Adagrad:
    """v ← v + g², θ ← θ − η/(1 + t·decay)·g/(√v + ε)."""

    def __init__(self, rows: torch.Tensor, options: Options) -> None:
        self._given = given = _Options(options, rows, eps=1e-10)
        self._eps, self._slower = given.column("eps"), given.column("lr_decay")
        self._square = torch.zeros_like(rows) + given.column("initial_accumulator_value")
        self._steps = torch.zeros((), dtype=rows.dtype, device=rows.device)

    def step(self, rows: torch.Tensor, gradient: torch.Tensor, rates: torch.Tensor) -> None:
        rates = rates / (1 + self._steps * self._slower)
        for some in ranges(rows):
            weights, square = rows[:, some], self._square[:, some]
            given = self._given.gradient(weights, gradient[:, some])
            square.add_(given.square())
            weights.sub_(given * rates / (square.sqrt() + self._eps))
        self._steps.add_(1)


class Foreign:
    """One of PyTorch's optimisers for each run, on views of its row."""

    def __init__(self, rows: torch.Tensor, options: Options, name: str, layout: Layout) -> None:
        self._values, self._layout = [[value.detach() for value in layout.each(row)] for row in rows], layout
        self.made = [known()[name](some, lr=1.0, **one) for some, one in zip(self._values, options, strict=True)]

    def step(self, rows: torch.Tensor, gradient: torch.Tensor, rates: torch.Tensor) -> None:
        for values, one, row, rate in zip(self._values, self.made, gradient, rates, strict=True):
            for group in one.param_groups:
                group["lr"] = float(rate)
            for value, given in zip(values, self._layout.each(row.to(rows.dtype)), strict=True):
                value.grad = given
            one.step()


def state(optimiser: GradientOptimiser) -> dict[str, Any]:
    """The state of an optimiser."""
    if isinstance(optimiser, Foreign):
        return {"made": [one.state_dict() for one in optimiser.made]}
    return {name: value for name, value in vars(optimiser).items() if not isinstance(value, _Options)}


def restore(optimiser: GradientOptimiser, remembered: Mapping[str, Any]) -> None:
    """Restore the state of an optimiser of the same kind."""
    if isinstance(optimiser, Foreign):
        for one, kept in zip(optimiser.made, remembered["made"], strict=True):
            one.load_state_dict(kept)
    else:
        vars(optimiser).update(remembered)


# These need the loss more than once per step, or gradients of another kind.
_UNSUITABLE = {"LBFGS", "SparseAdam", "Muon", "Optimizer"}


@functools.cache
def known() -> dict[str, Any]:
    """PyTorch's optimisers that use one noisy gradient per step, by their names in lower case."""
    return {
        name.lower(): value
        for name, value in vars(torch.optim).items()
        if inspect.isclass(value) and issubclass(value, torch.optim.Optimizer) and name not in _UNSUITABLE
    }


_OURS: dict[str, Callable[[torch.Tensor, Options], GradientOptimiser]] = {
    **{kind.__name__.lower(): kind for kind in (SGD, Adam, RMSprop, Adagrad)},
    "adamw": functools.partial(Adam, decoupled=True),
}


def build(name: str, rows: torch.Tensor, options: Options, layout: Layout) -> GradientOptimiser:
    """The named optimiser; options that it does not take are ignored."""
    kinds, kind = known(), name.lower()
    if kind not in kinds:
        raise _validate.fail("optimizer", name, f"give one of {', '.join(sorted(kinds))}")
    takes = inspect.signature(kinds[kind]).parameters
    taken = [{key: value for key, value in one.items() if key in takes} for one in options]
    return _OURS[kind](rows, taken) if kind in _OURS else Foreign(rows, taken, kind, layout)
