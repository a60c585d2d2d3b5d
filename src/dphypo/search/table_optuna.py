"""A published table as a study of Optuna."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from dphypo.space import Space

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage
    from optuna.study import Study

_WIDE = 30.0  # without a space, numbers whose largest is this many times the smallest may be on a logarithmic scale
_LOG = ("loguniform", "reciprocal", "lograndint")


def to_study(
    rows: Sequence[tuple[Mapping[str, Any], float | None]],
    *,
    maximize: bool,
    space: Space | None = None,
    storage: str | BaseStorage | None = None,
    name: str | None = None,
) -> Study:
    """One trial for each (params, score); one without a score has failed."""
    from optuna import create_study
    from optuna.trial import TrialState, create_trial

    params = [{name: _value(value) for name, value in chosen.items()} for chosen, _ in rows]
    spans = _distributions(params, space)
    trials = [
        create_trial(
            state=TrialState.FAIL if score is None else TrialState.COMPLETE,
            value=score,
            params=chosen,
            distributions={name: spans[name] for name in chosen},
        )
        for (_, score), chosen in zip(rows, params, strict=True)
    ]
    study = create_study(storage=storage, study_name=name, direction="maximize" if maximize else "minimize")
    study.add_trials(trials)
    return study


def _value(value: Any) -> Any:
    """A value as Optuna can keep it: of a tuple, its text."""
    return repr(value) if isinstance(value, tuple) else value


def _distributions(params: Sequence[dict[str, Any]], space: Space | None) -> dict[str, BaseDistribution]:
    """For each parameter the distribution that spans its values."""
    names = dict.fromkeys(name for chosen in params for name in chosen)
    priors = {} if space is None else {one.name: one.description.get("distribution") for one in space.parameters}
    logs = {name: prior in _LOG for name, prior in priors.items()}
    return {name: _span([chosen[name] for chosen in params if name in chosen], logs.get(name)) for name in names}


def _span(values: list[Any], log: bool | None) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if not all(type(value) in (int, float) and math.isfinite(value) for value in values):
        return CategoricalDistribution(_distinct(values))
    low, high = min(values), max(values)
    log = low > 0 and (_spans_decades(values, low, high) if log is None else log)
    if all(isinstance(value, int) for value in values):
        return IntDistribution(low, high, log=log)
    return FloatDistribution(low, high, log=log)


def _spans_decades(values: list[float], low: float, high: float) -> bool:
    """Whether the median is nearer to the middle of a logarithmic scale than of a plain one."""
    if high < _WIDE * low:
        return False
    middle = median(values)
    plain, by_log = (middle - low) / (high - low), math.log(middle / low) / math.log(high / low)
    return abs(by_log - 0.5) < abs(plain - 0.5)


def _distinct(values: Iterable[Any]) -> list[Any]:
    """The values without repeats; True, 1 and 1.0 are three."""
    return list({(type(value), value): value for value in values}.values())
