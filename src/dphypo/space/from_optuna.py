"""Optuna's distributions as priors, and the space of a study of Optuna, conditions included, from its trials."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
from scipy.stats import rv_discrete

from dphypo import _validate
from dphypo.space.dimension import MOST_LISTED, Array


class _LogRandInt(rv_discrete):  # type: ignore[misc]
    """A number log-uniform on [low − ½, high + ½], rounded."""

    def _get_support(self, low: Array, high: Array) -> tuple[Array, Array]:
        return low, high

    def _cdf(self, k: Array, low: Array, high: Array) -> Array:
        return np.log((np.floor(k) + 0.5) / (low - 0.5)) / np.log((high + 0.5) / (low - 0.5))

    def _ppf(self, q: Array, low: Array, high: Array) -> Array:
        return np.floor((low - 0.5) * np.exp(q * np.log((high + 0.5) / (low - 0.5))) + 0.5)


lograndint = _LogRandInt(name="lograndint", shapes="low, high")


def priors(distributions: Mapping[str, Any]) -> dict[str, Any]:
    """For each of Optuna's distributions the prior that its random sampler draws from."""
    if not isinstance(distributions, Mapping):
        raise _validate.fail("distributions", distributions, "give a dict of name to distribution of Optuna")
    return {name: _prior(f"parameter {name!r}", distribution) for name, distribution in distributions.items()}


def _prior(where: str, distribution: Any) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
    from scipy.stats import loguniform, randint, uniform

    if isinstance(distribution, CategoricalDistribution):
        return list(distribution.choices)
    if not isinstance(distribution, (FloatDistribution, IntDistribution)):
        raise _validate.fail(where, distribution, "give a distribution of optuna.distributions")
    low, high = distribution.low, distribution.high
    if distribution.single():
        return [low]
    if isinstance(distribution, FloatDistribution) and distribution.step is None:
        return loguniform(low, high) if distribution.log else uniform(low, high - low)
    if isinstance(distribution, IntDistribution) and distribution.step == 1:
        return lograndint(low, high) if distribution.log else randint(low, high + 1)
    assert distribution.step is not None  # without a step it was continuous
    return _steps(where, low, high, distribution.step)


def _steps(where: str, low: float, high: float, step: float) -> list[float]:
    """low, low + step, …: in decimals, so that 0.1 + 2·0.1 is 0.3."""
    start, stride = Decimal(repr(low)), Decimal(repr(step))
    count = int((Decimal(repr(high)) - start) / stride) + 1
    if count > MOST_LISTED:
        raise ValueError(f"{where} has {count} steps, more than {MOST_LISTED}: leave the step out and round in the run")
    return [type(low)(start + stride * position) for position in range(count)]


def parts(study: Any) -> tuple[dict[str, Any], list[tuple[str, list[Any], dict[str, Any]]]]:
    """Priors of the parameters that every trial has, then ``(parent, values, priors)`` for those that some have.

    A parameter is conditional on a categorical parent if it is there exactly when the parent has one of some values.
    """
    trials = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    if not trials:
        raise _validate.fail("study", study.study_name, "it has no complete trial: give a dict of distributions")
    distributions: dict[str, Any] = {}
    for trial in trials:
        for name, distribution in trial.distributions.items():
            if distributions.setdefault(name, distribution) != distribution:
                reason = f"parameter {name!r} has two distributions in the study: a space has one prior for each"
                raise ValueError(f"{reason}. Give a dict of name to distribution")
    prior, rows = priors(distributions), [trial.params for trial in trials]
    always = {name: given for name, given in prior.items() if all(name in row for row in rows)}
    if not always:
        raise _validate.fail("study", study.study_name, "no parameter is in every trial: give a dict of distributions")
    added: list[tuple[str, list[Any], dict[str, Any]]] = []
    known, left = list(always), [name for name in distributions if name not in always]
    while left:
        found = next(((name, when) for name in left if (when := _condition(name, known, distributions, rows))), None)
        if found is None:
            reason = f"parameter {left[0]!r} is in some trials, and no value of one categorical parameter says in which"
            raise ValueError(f"{reason}: make the space by hand with Space(...).when(parent, values, {{...}})")
        name, (parent, values) = found
        added.append((parent, values, {name: prior[name]}))
        known.append(name)
        left.remove(name)
    return always, added


def _condition(
    name: str, known: list[str], distributions: dict[str, Any], rows: list[dict[str, Any]]
) -> tuple[str, list[Any]] | None:
    """The parent, and its values, that decide whether a parameter is there."""
    for parent in known:
        choices = getattr(distributions[parent], "choices", ())
        values = [choice for choice in choices if any(name in row and row.get(parent) == choice for row in rows)]
        if values and all((name in row) == (parent in row and row[parent] in values) for row in rows):
            return parent, values
    return None
