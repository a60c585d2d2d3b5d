"""The kinds of event that are not dp_accounting's: runs known by ε, (ε, δ) or Rényi divergences, and rounded ones."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dphypo import _validate

# The orders of dp_accounting's RDP accountant reach from just above 1 to 1024; these do too.
DEFAULT_ORDERS: tuple[float, ...] = (*(1 + x / 10.0 for x in range(1, 100)), *range(11, 64), 128, 256, 512, 1024)


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
    """A run that is ``epsilon``-DP, δ = 0, and about which nothing else is known."""

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _validate.non_negative(epsilon=real("epsilon", self.epsilon)))


@dataclass(frozen=True)
class ApproximateDp:
    """A run that is (``epsilon``, ``delta``)-DP, and about which nothing else is known.

    The search then pays δ in full for every run: E[T] · δ. State the event of the run instead wherever it is known.
    """

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
            values = [epsilons(float(a)) for a in alphas] if callable(epsilons) else epsilons
        except TypeError as error:
            raise _validate.fail("epsilons", epsilons, "give numbers, or a function of one order") from error
        curve = _numbers("epsilons", values)
        if len(alphas) == 0 or not np.isfinite(alphas).all() or (alphas < 1).any():
            raise _validate.fail("orders", orders, "give one or more finite orders, each 1 or greater")
        if curve.shape != alphas.shape:
            raise ValueError(f"epsilons has {curve.size} values for {alphas.size} orders: give one for each order")
        if np.isnan(curve).any() or (curve < 0).any():
            raise _validate.fail("epsilons", values, "Rényi divergences are 0 or greater (infinite where unknown)")
        if not (alphas > 1).any():
            raise _validate.fail("orders", orders, "at least one order must be greater than 1")
        if not np.isfinite(curve[alphas > 1]).any():
            raise _validate.fail("epsilons", values, "at least one must be finite, at an order greater than 1")
        rank = np.argsort(alphas)
        alphas, curve = alphas[rank], curve[rank]
        if (np.diff(alphas) == 0).any():
            raise _validate.fail("orders", orders, "an order is given twice")
        drop = np.flatnonzero(curve[1:] < curve[:-1] * (1 - 1e-9))
        if len(drop):
            at = int(drop[0])
            raise ValueError(
                f"epsilons decrease from {curve[at]:g} at order {alphas[at]:g} to {curve[at + 1]:g} at order "
                f"{alphas[at + 1]:g}: a Rényi divergence never decreases in its order, so the curve is wrong"
            )
        object.__setattr__(self, "orders", tuple(float(a) for a in alphas))
        object.__setattr__(self, "epsilons", tuple(float(e) for e in curve))


@dataclass(frozen=True)
class RoundedDp:
    """A run within total variation ``slack`` of one with the given event, on every data set: its arithmetic is exact.

    A run that is not ``exact``, or states no slack, takes floating-point noise as real numbers, and its certificate
    says so.

    >>> import dp_accounting
    >>> RoundedDp(dp_accounting.GaussianDpEvent(2.0), 1e-18).slack
    1e-18
    """

    event: Any
    slack: float
    exact: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "slack", _validate.probability(slack=real("slack", self.slack)))


def ideal(event: Any) -> Any:
    """The event without its slack."""
    return event.event if isinstance(event, RoundedDp) else event
