"""The learning rate in units of noise; transfer rules, from the hyperparameters of a full run to those of a short one.

λ always means the full run's hyperparameters. A run with the fraction f of the steps has noise σ/√f
(:func:`dphypo.mechanisms.sampled_gaussian.match_noise`): what accumulates in the weights of plain SGD is then the same,
and its best learning rate stays. :class:`NoiseRehearsal` asks the same of any optimiser. :class:`SmallerBatches` cuts
the batch too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dphypo import _validate

if TYPE_CHECKING:
    from dphypo.mechanisms.sampled_gaussian import SampledGaussian

Floats = npt.NDArray[np.float64]

COSTS = frozenset({"batch_size", "lot_size", "sampling_rate", "sample_rate", "subsample", "noise_multiplier"})
COSTS |= {"epochs", "num_epochs", "steps", "num_steps", "iterations", "fraction"}
"""Usual names of hyperparameters that change what a run costs."""

Transfer = Callable[[Mapping[str, Any], float], Mapping[str, Any]]
"""A rule: from the hyperparameters of the full run and the fraction to those of the short run."""

Walk = Callable[[Mapping[str, Any], Iterable[Floats], int], Floats]
"""An optimiser: of hyperparameters, gradients and their number, to the weights after them, from zero.

It has the schedule of a run of that many steps, and averages weights if the run does.
"""


CAP = 5.0
"""The largest learning rate of a network with hidden layers, for gradients of norm one and without momentum."""


def rate_of_drift(
    drift: float,
    run: SampledGaussian,
    *,
    batch_size: float,
    max_grad_norm: float = 1.0,
    momentum: float = 0.0,
    schedule: Callable[[float], float] | None = None,
    hidden: bool = False,
    adam: bool = False,
) -> float:
    """The learning rate with which noise alone gives every weight this standard deviation by the end of a run.

    A step adds noise of deviation η·σ·C/B to a weight, momentum μ makes it 1/(1 − μ) times as large, and T steps add up
    to √T times that: η = drift·B·(1 − μ)/(σ·C·√T). With a schedule √T is the root of the sum of its squares. A step in
    a network with hidden layers must not be too large, however little noise there is: η is at most 5·(1 − μ)/C.

    Adam divides a gradient by its size, so that noise takes a weight as far as √T steps of length η: η = drift/√T.

    >>> from dphypo.mechanisms import SampledGaussian
    >>> run = SampledGaussian(rate=0.1, steps=400, noise_multiplier=2.0)
    >>> [round(rate_of_drift(c, run, batch_size=256, hidden=True), 6) for c in (0.2, 2.0)]
    [1.28, 5.0]
    """
    _validate.positive(drift=drift)
    squares = run.steps if schedule is None else sum(schedule(at / run.steps) ** 2 for at in range(run.steps))
    if adam:
        return drift / math.sqrt(max(squares, 1e-12))
    kept = 1.0 - _validate.within(0.0, 1.0, closed="left", momentum=momentum)
    rate = drift * batch_size * kept / (run.noise_multiplier * max_grad_norm * math.sqrt(max(squares, 1e-12)))
    return min(rate, CAP * kept / max_grad_norm) if hidden else rate


@dataclass(frozen=True)
class SmallerBatches:
    """Short runs of plain SGD with smaller batches, for spaces with batch sizes.

    A run of the fraction f has the batch B·f^b, f^(1-b) of the steps, noise σ/√(f^(1-b)) and the learning rate η·f^b:
    what accumulates in the weights stays, and so do the examples processed. With the full batch, runs with a large one
    make too few short steps to learn anything, and surveys favour small ones. 0.3 was read off MNIST; on CIFAR-10,
    which judged it, it gained 0.012 (paper/RESULTS.md).

    Args:
        exponent: b, at least 0 and below 1.

    >>> short = SmallerBatches()({"learning_rate": 0.5}, 0.1)  # DPSGD takes the batch of a short run from the rule
    >>> round(short["learning_rate"], 3)
    0.251
    """

    exponent: float = 0.3

    def __post_init__(self) -> None:
        _validate.within(0.0, 1.0, closed="left", exponent=self.exponent)

    def __call__(self, params: Mapping[str, Any], fraction: float) -> Mapping[str, Any]:
        name = str(params.get("optimizer", "sgd")).lower()
        if name != "sgd" or params.get("momentum"):
            _validate.warn(f"smaller batches were measured for plain SGD alone, not for {name}: leave the rule out")
        return {**params, "learning_rate": params["learning_rate"] * fraction**self.exponent}

    def describe(self) -> dict[str, Any]:
        """The rule in values that a certificate can hold."""
        return {
            "rule": "learning_rate * fraction ** batch_exponent",
            "batch_exponent": self.exponent,
            "noise_multiplier": "full / sqrt(fraction ** (1 - batch_exponent))",
        }


_WEIGHTS = 1024
_CLOSE = 1e-3
_TRIES = 20


@dataclass(frozen=True)
class NoiseRehearsal:
    """The learning rate of a short run by a rehearsal of the optimiser on pure noise; it needs no data.

    η_short is the learning rate with which weights that are driven by noise alone end as far out as in the full run.
    Both runs are simulated, each with its noise, on made-up weights. For plain SGD η stays. The rule is public and
    takes milliseconds; on which tasks it was judged is in paper/ANCHORS.md.

    Args:
        walk: the optimiser.
        run: the full run.
        deviation: of the noise on a weight's mean gradient in the full run, σ·C/batch size. Optimisers do not depend
            on it but for the small number that they add to a root.

    >>> from dphypo.mechanisms import SampledGaussian
    >>> def momentum(params, gradients, steps):
    ...     weights = velocity = 0.0
    ...     for gradient in gradients:
    ...         velocity = params["momentum"] * velocity + gradient
    ...         weights = weights - params["learning_rate"] * velocity
    ...     return weights
    >>> rule = NoiseRehearsal(momentum, SampledGaussian(rate=0.1, steps=180, noise_multiplier=1.0))
    >>> round(rule({"learning_rate": 0.1, "momentum": 0.9}, 0.15)["learning_rate"], 2)
    0.13
    """

    walk: Walk
    run: SampledGaussian
    deviation: float = 1.0

    def __post_init__(self) -> None:
        _validate.positive(deviation=self.deviation)

    def __call__(self, params: Mapping[str, Any], fraction: float) -> Mapping[str, Any]:
        short = self.run.at(fraction=fraction, match=True)
        target = self._drift(params, self.run)
        mapped = dict(params)
        for _ in range(_TRIES):  # one suffices unless the step is not proportional to the learning rate
            drift = self._drift(mapped, short)
            if not (0 < drift < math.inf and 0 < target < math.inf):
                break
            if abs(drift / target - 1) < _CLOSE:
                return mapped
            mapped["learning_rate"] *= target / drift
        remedy = (
            f"no learning rate takes the weights as far in {short.steps} steps of noise as in {self.run.steps}. "
            "Give a rule of your own with transfer_rule=..., a function of (hyperparameters, fraction)"
        )
        raise _validate.fail("learning_rate", params["learning_rate"], remedy)

    @staticmethod
    def describe() -> dict[str, Any]:
        """The rule in values that a certificate can hold."""
        return {"rule": "noise alone takes the weights as far as in the full run"}

    def _drift(self, params: Mapping[str, Any], run: SampledGaussian) -> float:
        """How far noise takes the weights, relative to the sum of the noise, which is known: few weights suffice."""
        noise = self.deviation * run.noise_multiplier / self.run.noise_multiplier
        total = np.zeros(_WEIGHTS)

        def gradients() -> Iterator[Floats]:
            random = np.random.default_rng(0)  # the same in every rehearsal
            for _ in range(run.steps):
                gradient = noise * random.standard_normal(_WEIGHTS)
                np.add(total, gradient, out=total)
                yield gradient

        end = self.walk(params, gradients(), run.steps)
        return float(noise * np.sqrt(run.steps * np.mean(np.square(end)) / np.mean(np.square(total))))


def batch_exponent(rule: Transfer | None) -> float:
    """By which power of the fraction a rule scales the batch of short runs; 0 if it does not."""
    return rule.exponent if isinstance(rule, SmallerBatches) else 0.0


def apply(rule: Transfer, params: Mapping[str, Any], fraction: float) -> dict[str, Any]:
    """The hyperparameters of a short run; an error if the rule changes what the run costs."""
    mapped = dict(rule(dict(params), fraction))
    for name in COSTS & (params.keys() | mapped.keys()):
        if (value := mapped.get(name)) != params.get(name):
            raise _validate.fail(name, value, "a transfer rule may not change it: the event of a run depends on it")
    return mapped
