"""Canonical events: statements about the privacy of one run.

Every event passes :func:`canonical` before an accountant sees it, and certificates are written from what it returns.
An accountant may treat 3 and 3.0 differently, or ignore an event whose sampling rate is 30. Canonical events hold only
Python floats and integers within their ranges, tuples, and the kinds of event listed here, four of which are ours.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import dp_accounting
import numpy as np
import numpy.typing as npt
from dp_accounting import dp_event

from dphypo import _validate
from dphypo.errors import UnaccountableError

MOST_DEPTH = 32  # of events inside events
MOST_PARTS = 100_000  # events that one event is made of
_LEAST_NOISE = 0.01


def real(name: str, value: object) -> float:
    """A number as a float; a boolean is not a number here."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise _validate.fail(name, value, "give a number")
    try:
        return float(value)
    except OverflowError:
        raise _validate.fail(name, value, "it is larger than any floating-point number") from None


def _numbers(name: str, values: object) -> npt.NDArray[np.float64]:
    listed = list(values) if isinstance(values, (Sequence, np.ndarray)) and not isinstance(values, str) else []
    return np.array([real(name, value) for value in listed], dtype=np.float64)


@dataclass(frozen=True)
class PureDp:
    """A run that is ``epsilon``-DP (δ = 0), if nothing else is known about it."""

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _validate.non_negative(epsilon=real("epsilon", self.epsilon)))


@dataclass(frozen=True)
class ApproximateDp:
    """A run that is (``epsilon``, ``delta``)-DP. A search pays δ for every run; state the event if you know it."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _validate.non_negative(epsilon=real("epsilon", self.epsilon)))
        object.__setattr__(self, "delta", _validate.delta(delta=real("delta", self.delta)))


@dataclass(frozen=True)
class RdpCurve:
    """A run that is (α, ε(α))-RDP at each of the given orders α, in both directions of the neighbouring relation.

    Args:
        orders: the orders α ≥ 1.
        epsilons: ε(α) at each order (infinite where nothing is known), or the function α ↦ ε(α).

    >>> RdpCurve((2.0, 4.0), lambda alpha: 0.1 * alpha).epsilons
    (0.2, 0.4)
    """

    orders: tuple[float, ...]
    epsilons: tuple[float, ...]

    def __init__(self, orders: Sequence[float], epsilons: Sequence[float] | Callable[[float], float]) -> None:
        alphas = _numbers("orders", orders)
        try:
            values = [epsilons(a) for a in alphas.tolist()] if callable(epsilons) else epsilons
        except TypeError as error:
            raise _validate.fail("epsilons", epsilons, "give numbers, or a function of one order") from error
        curve = _numbers("epsilons", values)
        if len(alphas) == 0 or not np.isfinite(alphas).all() or (alphas < 1).any():
            raise _validate.fail("orders", orders, "give one or more finite orders, each 1 or greater")
        if curve.shape != alphas.shape:
            raise ValueError(f"epsilons has {curve.size} values for {alphas.size} orders: give one for each order")
        if np.isnan(curve).any() or (curve < 0).any():
            raise _validate.fail("epsilons", values, "Rényi divergences are 0 or greater (infinite where unknown)")
        if not np.isfinite(curve[alphas > 1]).any():
            raise _validate.fail("epsilons", values, "at least one must be finite, at an order greater than 1")
        rank = np.argsort(alphas)
        alphas, curve = alphas[rank], curve[rank]
        if (np.diff(alphas) == 0).any():
            raise _validate.fail("orders", orders, "an order is given twice")
        for at in np.flatnonzero(curve[1:] < curve[:-1] * (1 - 1e-9)):
            raise ValueError(
                f"epsilons decrease from {curve[at]:g} at order {alphas[at]:g} to {curve[at + 1]:g} at order "
                f"{alphas[at + 1]:g}: a Rényi divergence never decreases in its order, so the curve is wrong"
            )
        object.__setattr__(self, "orders", tuple(alphas.tolist()))
        object.__setattr__(self, "epsilons", tuple(curve.tolist()))


@dataclass(frozen=True)
class RoundedDp:
    """A run within total variation ``slack`` of one with the given event, on every data set: its arithmetic is exact.

    A certificate says that a run that is not ``exact``, or states no slack, takes floating-point noise as real numbers.

    >>> RoundedDp(dp_accounting.GaussianDpEvent(2.0), 1e-18).slack
    1e-18
    """

    event: Any
    slack: float
    exact: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "slack", _validate.probability(slack=real("slack", self.slack)))
        object.__setattr__(self, "exact", _validate.flag(exact=self.exact))


def ideal(event: Any) -> Any:
    """The event without its slack."""
    return event.event if isinstance(event, RoundedDp) else event


Event: TypeAlias = dp_accounting.DpEvent | PureDp | ApproximateDp | RdpCurve | RoundedDp
"""A statement about one run that can be accounted."""


def canonical(event: object) -> Event:
    """The event with plain, validated values, however deeply it is nested; anything else in it is refused by name.

    Numbers become floats (integers and numpy scalars too), counts become integers, sequences become tuples. Noise is
    finite and positive, a rate lies in [0, 1], a count is 1 or greater. A boolean is never a number here.

    >>> canonical(dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(3), np.int8(9)))
    SelfComposedDpEvent(event=GaussianDpEvent(noise_multiplier=3.0), count=9)
    >>> canonical(dp_accounting.PoissonSampledDpEvent(30, dp_accounting.GaussianDpEvent(1.0)))
    Traceback (most recent call last):
    ValueError: PoissonSampledDpEvent.sampling_probability = 30.0 is not valid: it must lie in [0, 1]
    """
    return _Gate().event("event", event)


def event_to_dict(event: Event) -> dict[str, Any]:
    """An event as a JSON object whose "type" is its class.

    >>> event_to_dict(dp_accounting.GaussianDpEvent(2))
    {'type': 'GaussianDpEvent', 'noise_multiplier': 2.0}
    """
    return cast(dict[str, Any], _written(canonical(event)))


def from_dict(data: Mapping[str, Any]) -> Event:
    """The event that :func:`event_to_dict` wrote. Only the kinds of event listed here can be made."""
    return canonical(_read(data, 1))


_Check: TypeAlias = "Callable[[_Gate, str, object], Any]"


class _Gate:
    """One check of an event and all events inside it, which it counts."""

    parts = 0
    depth = 0

    def event(self, name: str, event: object) -> Event:
        self.parts += 1
        self.depth += 1
        if self.parts > MOST_PARTS or self.depth > MOST_DEPTH:
            raise ValueError(
                f"the event is too large: at most {MOST_PARTS} events, nested at most {MOST_DEPTH} deep, are allowed: "
                "write equal events as one SelfComposedDpEvent"
            )
        kind = type(event)
        if kind not in _KINDS:
            raise _unknown(name, event)
        values = {at: check(self, f"{kind.__name__}.{at}", getattr(event, at)) for at, check in _KINDS[kind].items()}
        self.depth -= 1
        _check_together(kind, values)
        return cast(Event, kind(**values))


def _unknown(name: str, event: object) -> Exception:
    if isinstance(event, dp_event.NonPrivateDpEvent):
        return UnaccountableError(f"the event {event!r} is not private: ε is infinite at every δ < 1. Add noise")
    if isinstance(event, dp_accounting.DpEvent):
        return UnaccountableError(
            f"{name} = {event!r} cannot be accounted: {type(event).__name__} is not supported. "
            f"Supported are {', '.join(kind.__name__ for kind in _KINDS)}"
        )
    return TypeError(
        f"{name} = {event!r} is not a privacy event: give a dp_accounting.DpEvent, an RdpCurve, a PureDp, an "
        "ApproximateDp, or a list of these"
    )


def _noise(gate: _Gate, name: str, value: object) -> float:
    if (number := real(name, value)) == 0:
        raise UnaccountableError(f"{name} = {value!r}: without noise the event is not private; give a positive number")
    number = _validate.positive(**{name: number})
    if number < _LEAST_NOISE:
        raise _validate.fail(name, value, f"give at least {_LEAST_NOISE:g}: with less, ε is in the thousands")
    return number


def _rate(gate: _Gate, name: str, value: object) -> float:
    rate = _validate.probability(**{name: real(name, value)})
    if 0 < rate < 1e-15:
        raise _validate.fail(name, value, "give 0, or at least 1e-15: smaller rates are lost in floating point")
    return rate


def _not_negative(gate: _Gate, name: str, value: object) -> float:
    return _validate.non_negative(**{name: real(name, value)})


def _mean(gate: _Gate, name: str, value: object) -> float:
    if (number := _validate.number(**{name: real(name, value)})) < 1:
        raise _validate.fail(name, value, "it must be 1 or greater")
    return number


def _shape(gate: _Gate, name: str, value: object) -> float:
    return math.inf if isinstance(value, float) and value == math.inf else _not_negative(gate, name, value)


def _count(gate: _Gate, name: str, value: object) -> int:
    return _validate.integer(at_least=1, **{name: cast(int, value)})


def _each(check: _Check) -> _Check:
    def checked(gate: _Gate, name: str, values: object) -> tuple[Any, ...]:
        if not isinstance(values, (list, tuple, np.ndarray)) or len(values) == 0:
            raise _validate.fail(name, values, "give a list of one or more")
        return tuple(check(gate, f"{name}[{i}]", value) for i, value in enumerate(values))

    return checked


def _count_or_counts(gate: _Gate, name: str, value: object) -> object:
    return _each(_count)(gate, name, value) if isinstance(value, (list, tuple)) else _count(gate, name, value)


def _as_it_is(gate: _Gate, name: str, value: object) -> object:
    return value  # these kinds validate what they are made of


_SAMPLE: dict[str, _Check] = {"source_dataset_size": _count, "sample_size": _count, "event": _Gate.event}
_KINDS: dict[type, dict[str, _Check]] = {
    PureDp: {"epsilon": _as_it_is},
    ApproximateDp: {"epsilon": _as_it_is, "delta": _as_it_is},
    RdpCurve: {"orders": _as_it_is, "epsilons": _as_it_is},
    RoundedDp: {"event": _Gate.event, "slack": _as_it_is, "exact": _as_it_is},
    dp_event.NoOpDpEvent: {},
    dp_event.GaussianDpEvent: {"noise_multiplier": _noise},
    dp_event.LaplaceDpEvent: {"noise_multiplier": _noise},
    dp_event.DiscreteLaplaceDpEvent: {"noise_parameter": _noise, "sensitivity": _count},
    dp_event.RandomizedResponseDpEvent: {"noise_parameter": _rate, "num_buckets": _count},
    dp_event.MixtureOfGaussiansDpEvent: {
        "standard_deviation": _noise,
        "sensitivities": _each(_not_negative),
        "sampling_probs": _each(_rate),
    },
    dp_event.ZCDpEvent: {"rho": _not_negative, "xi": _not_negative},
    dp_event.TruncatedSubsampledGaussianDpEvent: {
        "dataset_size": _count,
        "sampling_probability": _rate,
        "truncated_batch_size": _count,
        "noise_multiplier": _noise,
    },
    dp_event.SingleEpochTreeAggregationDpEvent: {"noise_multiplier": _noise, "step_counts": _count_or_counts},
    dp_event.SelfComposedDpEvent: {"event": _Gate.event, "count": _count},
    dp_event.ComposedDpEvent: {"events": _each(_Gate.event)},
    dp_event.PoissonSampledDpEvent: {"sampling_probability": _rate, "event": _Gate.event},
    dp_event.SampledWithReplacementDpEvent: _SAMPLE,
    dp_event.SampledWithoutReplacementDpEvent: _SAMPLE,
    dp_event.RepeatAndSelectDpEvent: {"event": _Gate.event, "mean": _mean, "shape": _shape},
}
_NAMES = {kind.__name__: kind for kind in _KINDS}


def _check_together(kind: type, values: Mapping[str, Any]) -> None:
    """Checks that involve several fields."""
    name = kind.__name__
    for inner in (*values.get("events", ()), *([values["event"]] if "event" in values else [])):
        if isinstance(inner, RoundedDp) or not (kind is RoundedDp or isinstance(inner, dp_accounting.DpEvent)):
            raise _validate.fail(name, inner, "only events of dp_accounting can be inside another event")
    if kind is dp_event.SampledWithoutReplacementDpEvent and values["sample_size"] > values["source_dataset_size"]:
        raise _validate.fail(f"{name}.sample_size", values["sample_size"], "it must be at most source_dataset_size")
    if kind is dp_event.RandomizedResponseDpEvent and values["noise_parameter"] == 0 and values["num_buckets"] > 1:
        raise UnaccountableError(f"{name}.noise_parameter = 0: without noise the event is not private")
    if kind is dp_event.MixtureOfGaussiansDpEvent:
        probs = values["sampling_probs"]
        if len(probs) != len(values["sensitivities"]) or abs(math.fsum(probs) - 1.0) > 1e-9:
            raise _validate.fail(f"{name}.sampling_probs", probs, "give one for each sensitivity; they must sum to 1")


def _written(value: Any) -> Any:
    """A canonical value as JSON."""
    if type(value) in _KINDS:
        return {"type": type(value).__name__} | {at: _written(getattr(value, at)) for at in _KINDS[type(value)]}
    if isinstance(value, tuple):
        return [_written(item) for item in value]
    return str(value) if isinstance(value, float) and math.isinf(value) else value  # JSON has no infinity


def _read(value: Any, depth: int) -> Any:
    """An event, or a value inside one, as JSON states it; :func:`canonical` checks it afterwards."""
    if depth > MOST_DEPTH:
        raise ValueError(f"the event is nested deeper than {MOST_DEPTH}")
    if isinstance(value, Mapping):
        kind = _NAMES.get(value["type"]) if isinstance(value.get("type"), str) else None
        if kind is None:
            raise ValueError(f"type = {value.get('type')!r} is not an event that a certificate can hold")
        given = {key: _read(item, depth + 1) for key, item in value.items() if key != "type"}
        if set(given) != set(_KINDS[kind]):
            raise ValueError(f"a {kind.__name__} has the fields {sorted(_KINDS[kind])}, not {sorted(map(str, given))}")
        return kind(**given)
    if isinstance(value, list):
        return [_read(item, depth + 1) for item in value]
    return math.inf if value == "inf" else value
