"""From the hyperparameters of a full run to those of a short one: transfer rules.

λ always means the full run's hyperparameters. A run with the fraction f of the steps has noise σ/√f
(:func:`dphypo.mechanisms.dp_sgd.matched`): what accumulates in the weights of plain SGD is then the same, and its best
learning rate stays. :class:`NoiseRehearsal` asks the same of any optimiser. :class:`PowerRule` multiplies the learning
rate by a power of f instead.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.mechanisms.dp_sgd import COSTS, DpSgd

Floats = npt.NDArray[np.float64]

Rule = Callable[[Mapping[str, Any], float], Mapping[str, Any]]
"""A rule of one's own: hyperparameters of the full run and the fraction, to those of the short run."""


@runtime_checkable
class Describes(Protocol):
    """A rule that says in values that a certificate can hold what it does."""

    def describe(self) -> Mapping[str, Any]: ...


# Learning rate of the short run over that of the full run: f**-exponent. Measured on made-up clusters with a small
# network, ± 0.1, with the same momentum in short runs.
EXPONENTS: Mapping[str, float] = {
    "sgd": 0.0,  # -0.15 and 0.06 measured
    "sgd with momentum": 0.4,  # 0.28 to 0.49 at momentum 0.9
    "adam": 0.6,  # 0.61, 0.63 and 0.77
    "adamw": 0.6,  # 0.63, 0.64 and 0.77
    "rmsprop": 0.15,  # 0.10 to 0.16
    "adagrad": 0.1,  # 0.04 to 0.10
}
# These kinds of optimiser follow the gradient's direction and not its size, as Adam does; nobody measured them here.
_LIKE_ADAM = frozenset({"nadam", "radam", "adamax"})
_MOMENTUM = 0.5


@dataclass(frozen=True)
class PowerRule:
    """The rule by exponents: η_short = η · f^(-a), a by the name of the optimiser.

    Args:
        exponents: for each optimiser; by default those that were measured.
        batch_exponent: with b > 0 a short run has the batch B·f^b as well, the learning rate η·f^b beside the rule's,
            f^(1-b) of the steps and noise σ/√(f^(1-b)): what accumulates in the weights stays, and so do the examples
            processed. For spaces with batch sizes, SGD: runs with a large batch make too few short steps to learn
            anything, so that surveys favour small ones. 0.3 was read off MNIST; on CIFAR-10, which judged it, it gained
            0.012 (paper/RESULTS.md). By default the batch stays.

    >>> rule = PowerRule()
    >>> round(rule({"optimizer": "adam", "learning_rate": 0.01}, 0.1)["learning_rate"], 3)
    0.04
    >>> rule({"optimizer": "sgd", "learning_rate": 0.5, "momentum": 0.0}, 0.1)["learning_rate"]
    0.5
    >>> scaled = PowerRule(batch_exponent=0.3)  # DPSGD takes the batch of a short run from it
    >>> round(scaled({"optimizer": "sgd", "learning_rate": 0.5}, 0.1)["learning_rate"], 3)
    0.251
    """

    exponents: Mapping[str, float] | None = None
    batch_exponent: float = 0.0

    def __post_init__(self) -> None:
        _validate.within(0.0, 1.0, closed="left", batch_exponent=self.batch_exponent)

    def __call__(self, params: Mapping[str, Any], fraction: float) -> Mapping[str, Any]:
        exponent = self.batch_exponent - self.exponent(params)
        return {**params, "learning_rate": params["learning_rate"] * fraction**exponent}

    def exponent(self, params: Mapping[str, Any]) -> float:
        """The exponent for these hyperparameters; an optimiser that nobody measured is warned of by name."""
        known = EXPONENTS if self.exponents is None else self.exponents
        name = str(params.get("optimizer", "sgd")).lower()
        if name == "sgd" and abs(params.get("momentum") or 0.0) >= _MOMENTUM and "sgd with momentum" in known:
            name = "sgd with momentum"
        if self.batch_exponent and name != "sgd":
            message = f"scaling the batch of short runs was measured for plain SGD, not for {name}: leave it out"
            warnings.warn(message, stacklevel=2)
        if name in known:
            return known[name]
        guess = EXPONENTS["adam"] if name in _LIKE_ADAM else 0.0
        warnings.warn(
            f"nobody has measured how the best learning rate of {name} moves in short runs: they use it times "
            f"fraction**-{guess:g}. Give a rule of your own with transfer_rule=PowerRule({{{name!r}: exponent}}), or "
            f"survey with another optimiser ({', '.join(EXPONENTS)})",
            stacklevel=2,
        )
        return guess

    def describe(self) -> dict[str, Any]:
        """The rule in values that a certificate can hold."""
        stated = {"rule": "learning_rate * fraction ** -exponent", "exponents": dict(self.exponents or EXPONENTS)}
        return stated | ({"batch_exponent": self.batch_exponent} if self.batch_exponent else {})


class Optimiser(Protocol):
    """An optimiser as a function, for a :class:`NoiseRehearsal`."""

    def memories(self, params: Mapping[str, Any]) -> Mapping[str, float | tuple[float, ...]]:
        """The hyperparameters that say how much of an average a step keeps, such as ``{"momentum": 0.9}``."""
        ...

    def walk(self, params: Mapping[str, Any], gradients: Iterable[Floats], steps: int) -> Floats:
        """The weights after ``steps`` gradients, from zero, with the schedule of a run of so many steps."""
        ...


_WEIGHTS = 1024
_CLOSE = 1e-3
_LEAST = 1e-9
_TRIES = 20


@dataclass(frozen=True)
class NoiseRehearsal:
    """The learning rate of a short run by a rehearsal of the optimiser on pure noise; it needs no data.

    1. What has a length in steps shrinks with the run, as a schedule does: an average that keeps β of itself at each
       step keeps 1 − (1 − β)/f, or nothing. Ten steps of momentum are little of a long run and a third of a short one.
    2. η_short is the learning rate with which weights that are driven by noise alone end as far out as in the full run.
       Both runs are made, with the noise of each, on made-up weights.

    For plain SGD η stays. The rule is public and takes milliseconds; where it was compared with the exponents of
    :class:`PowerRule` is in paper/ANCHORS.md.

    Args:
        optimiser: what is rehearsed.
        run: the full run.
        deviation: of the noise on a weight's mean gradient in the full run, σ·C/batch size. Optimisers do not depend
            on it but for the small number that they add to a root.

    >>> class Momentum:
    ...     def memories(self, params):
    ...         return {"momentum": params["momentum"]}
    ...
    ...     def walk(self, params, gradients, steps):
    ...         weights = velocity = 0.0
    ...         for gradient in gradients:
    ...             velocity = params["momentum"] * velocity + gradient
    ...             weights = weights - params["learning_rate"] * velocity
    ...         return weights
    >>> rule = NoiseRehearsal(Momentum(), DpSgd(rate=0.1, steps=180, noise_multiplier=1.0))
    >>> short = rule({"learning_rate": 0.1, "momentum": 0.9}, 0.2)
    >>> round(short["momentum"], 3), round(short["learning_rate"], 2)
    (0.5, 0.49)
    """

    optimiser: Optimiser
    run: DpSgd
    deviation: float = 1.0

    def __post_init__(self) -> None:
        _validate.positive(deviation=self.deviation)

    def __call__(self, params: Mapping[str, Any], fraction: float) -> Mapping[str, Any]:
        short = self.run.at(fraction=fraction, match=True)
        target = self._drift(params, self.run)
        mapped = {**params, **shortened(self.optimiser.memories(params), fraction)}
        for _ in range(_TRIES):  # one suffices unless the step is not proportional to the learning rate
            drift = self._drift(mapped, short)
            if not (0 < drift < math.inf and 0 < target < math.inf):
                break
            if abs(drift / target - 1) < _CLOSE:
                return mapped
            mapped["learning_rate"] *= target / drift
        raise ValueError(
            f"no learning rate of a run of {short.steps} steps takes the weights as far as learning_rate = "
            f"{params['learning_rate']!r} does in {self.run.steps} steps of noise. Give a rule of your own with "
            "transfer_rule=..., a function of (hyperparameters, fraction)"
        )

    @staticmethod
    def describe() -> dict[str, Any]:
        """The rule in values that a certificate can hold."""
        return {
            "rule": "noise alone takes the weights as far as in the full run",
            "memory": "1 - (1 - full) / fraction",
        }

    def _drift(self, params: Mapping[str, Any], run: DpSgd) -> float:
        """How far noise takes the weights: their root mean square, beside that of the noise's own sum, which is known.

        Both move together, so that few weights suffice, and for plain SGD one.
        """
        noise = self.deviation * run.noise_multiplier / self.run.noise_multiplier
        total = np.zeros(_WEIGHTS)

        def gradients() -> Iterator[Floats]:
            random = np.random.default_rng(0)  # the same in every rehearsal
            for _ in range(run.steps):
                gradient = noise * random.standard_normal(_WEIGHTS)
                np.add(total, gradient, out=total)
                yield gradient

        end = self.optimiser.walk(params, gradients(), run.steps)
        return noise * math.sqrt(run.steps) * _size(end) / _size(total)


def shortened(memories: Mapping[str, float | tuple[float, ...]], fraction: float) -> dict[str, Any]:
    """Memories of a run with this fraction of the steps; one that is not zero stays above zero (Nesterov's must).

    >>> shortened({"betas": (0.9, 0.999)}, 0.2)
    {'betas': (0.5, 0.995)}
    """

    def one(kept: float) -> float:
        return kept and round(max(_LEAST, 1 - (1 - kept) / fraction), 12)

    return {
        name: tuple(one(part) for part in kept) if isinstance(kept, tuple) else one(kept)
        for name, kept in memories.items()
    }


def _size(values: Floats) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def batch_exponent(rule: Rule | None) -> float:
    """By which power of the fraction a rule scales the batch of short runs; 0 if it does not."""
    return rule.batch_exponent if isinstance(rule, PowerRule) else 0.0


def apply(rule: Rule, params: Mapping[str, Any], fraction: float) -> dict[str, Any]:
    """The hyperparameters of a short run; an error if the rule changes what the run costs.

    >>> apply(PowerRule(), {"optimizer": "sgd", "learning_rate": 0.5, "batch_size": 64}, 0.1)["batch_size"]
    64
    """
    mapped = dict(rule(dict(params), fraction))
    for name in COSTS & (params.keys() | mapped.keys()):
        if mapped.get(name) != params.get(name):
            raise _validate.fail(
                name, mapped.get(name), "a transfer rule may not change it: the event of a run depends on it"
            )
    return mapped


def stated(rule: Rule | Describes | None, fraction: float) -> dict[str, Any]:
    """How the hyperparameters of a full run become those of a short one, in values that a certificate can hold.

    >>> stated(None, 0.1)
    {'fraction': 0.1, 'noise_multiplier': 'full / sqrt(fraction)'}
    """
    scales = isinstance(rule, PowerRule) and rule.batch_exponent > 0
    noise = "full / sqrt(fraction ** (1 - batch_exponent))" if scales else "full / sqrt(fraction)"
    return {"fraction": fraction, "noise_multiplier": noise, **({} if rule is None else describe(rule))}


def describe(rule: Rule | Describes) -> dict[str, Any]:
    """A rule in values that a certificate can hold; one of the user's by its name."""
    if isinstance(rule, Describes):
        return dict(rule.describe())
    return {"rule": f"{getattr(rule, '__module__', '')}.{getattr(rule, '__qualname__', type(rule).__name__)}"}
