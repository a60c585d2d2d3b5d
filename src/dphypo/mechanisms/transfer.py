"""From the hyperparameters of a full run to those of a short one: the transfer rule of each optimiser.

λ always means the full run's hyperparameters. A run with the fraction f of the steps has noise σ/√f
(:func:`dphypo.mechanisms.dp_sgd.matched`), and its learning rate is η·f^(-a), with an exponent a of the optimiser's.
SGD moves the weights by the gradient itself, and with matched noise its best learning rate stays. An optimiser whose
step does not depend on the size of the gradient (Adam) needs about η·steps to stay instead.

The exponents are measured: how far the best learning rate of runs with 15 and 30 per cent of the steps lies from that
of the full run, where short runs learn something. They were set on made-up clusters, with a small network of 180 steps,
and agree with what is measured on scikit-learn's digits, on which the rule was judged (``python -m paper transfer``,
± 0.1; paper/RESULTS.md). On MNIST, with 70 steps and more, that of SGD is zero.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dphypo import _validate

Rule = Callable[[Mapping[str, Any], float], Mapping[str, Any]]
"""A rule of one's own: hyperparameters of the full run and the fraction, to those of the short run."""

# Learning rate of the short run over that of the full run: f**-exponent.
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

# What the event of a run depends on: a rule that changed it would change what the run costs.
FIXED = frozenset({"batch_size", "epochs", "steps", "noise_multiplier"})


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


def batch_exponent(rule: Rule) -> float:
    """By which power of the fraction a rule scales the batch of short runs; 0 if it does not."""
    return float(getattr(rule, "batch_exponent", 0.0))


def apply(rule: Rule, params: Mapping[str, Any], fraction: float) -> dict[str, Any]:
    """The hyperparameters of a short run; an error if the rule changes what the run costs.

    >>> apply(PowerRule(), {"optimizer": "sgd", "learning_rate": 0.5, "batch_size": 64}, 0.1)["batch_size"]
    64
    """
    mapped = dict(rule(dict(params), fraction))
    for name in FIXED & (params.keys() | mapped.keys()):
        if mapped.get(name) != params.get(name):
            raise _validate.fail(
                name, mapped.get(name), "a transfer rule may not change it: the event of a run depends on it"
            )
    return mapped


def stated(rule: Rule | None, fraction: float) -> dict[str, Any]:
    """How the hyperparameters of a full run become those of a short one, in values that a certificate can hold.

    >>> stated(None, 0.1)
    {'fraction': 0.1, 'noise_multiplier': 'full / sqrt(fraction)'}
    """
    scales = rule is not None and batch_exponent(rule) > 0
    noise = "full / sqrt(fraction ** (1 - batch_exponent))" if scales else "full / sqrt(fraction)"
    return {"fraction": fraction, "noise_multiplier": noise, **({} if rule is None else describe(rule))}


def describe(rule: Rule) -> dict[str, Any]:
    """A rule in values that a certificate can hold; one of the user's by its name."""
    own = getattr(rule, "describe", None)
    if own is not None:
        return dict(own())
    return {"rule": f"{getattr(rule, '__module__', '')}.{getattr(rule, '__qualname__', type(rule).__name__)}"}
