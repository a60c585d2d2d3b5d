"""The conformance suite of laws of T: all functions of a law describe the same law."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from dphypo import _validate, laws
from dphypo._validate import ensure
from dphypo.entropy import Entropy, Seeded
from dphypo.laws import Law

Array = npt.NDArray[np.float64]

_CLOSE = 1e-8  # what a correct law never misses by, and an error of consequence does
_MOST_LISTED = 100_000  # values of T that a cap may leave
_TERMS = 5000  # sums over k go this far


def check_law(
    law: Law,
    *,
    draws: int = 2000,
    restore: Callable[[dict[str, Any]], Law] = laws.from_dict,
    entropy: Entropy | None = None,
) -> None:
    """Raise an ``AssertionError`` that says what is wrong with a law of T, if anything is.

    The guarantee of a study rests on one law: the accountant computes with ``log_g``, ``mean`` and ``pgf(0)``, the
    study draws with ``sample``. What is checked is that all of a law's functions describe the same law. The draws are
    tested by the means of x^T at several x, two-sided, with Bernstein's inequality: a correct sampler fails with
    probability below 1e-6 (for a given seed it always passes or always fails).

    Args:
        law: what to check.
        draws: how many T to draw; 20 000 tell a γ that is off by a tenth.
        restore: makes the law again from ``law.to_dict()``.
        entropy: where the draws come from; by default a seeded source, so that a test repeats itself.

    >>> from dphypo.laws import Geometric
    >>> check_law(Geometric(mean=10).capped(40))
    """
    draws = _validate.integer(at_least=1, draws=draws)
    ensure(isinstance(law, Law), "it lacks a method of dphypo.laws.Law")
    ensure(math.isfinite(law.mean) and law.mean > 0, f"its mean {law.mean!r} is not a number above 0")
    _check_forms(law)
    _check_derivative(law)
    _check_masses(law)
    _check_quantiles(law)
    _check_capped(law)
    check_draws(law, law.sample, draws, Seeded(1) if entropy is None else entropy)
    _check_description(law, restore)


def check_draws(law: Law, sample: Callable[[Entropy], int], draws: int, entropy: Entropy) -> None:
    """Raise an ``AssertionError`` if ``sample`` does not draw from ``law``."""
    drawn = [sample(entropy) for _ in range(draws)]
    ensure(all(isinstance(k, int) and k >= 0 for k in drawn), "sample(entropy) must return whole numbers")
    t = np.array(drawn, dtype=np.float64)
    points = _points(law)
    budget = math.log(2 * len(points) / 1e-6)
    for x in points:
        mean, square = float(law.pgf(x)), float(law.pgf(x * x))
        # Bernstein: P[|average − mean| ≥ a] ≤ 2 exp(−n a²/(2(variance + a/3))) for values in [0, 1].
        third = budget / draws / 3
        allowed = third + math.sqrt(third**2 + 2 * budget / draws * max(0.0, square - mean**2))
        average = float(np.exp(t * math.log(x)).mean())
        told = f"the average of {x:.6g}^T over {draws} draws is {average:.6g}, and pgf says {mean:.6g}"
        ensure(abs(average - mean) <= allowed + _CLOSE, told)


def _points(law: Law) -> list[float]:
    """Points x at which f(x) is spread over (0, 1)."""
    v = np.logspace(-12, -1e-3, 400)
    f = np.asarray(law.pgf(1 - v))
    targets = float(f[-1]) + (1 - float(f[-1])) * np.array([0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98])
    return sorted({float(1 - v[np.argmin(abs(f - target))]) for target in targets})


def _check_forms(law: Law) -> None:
    """A number for a number, an array of its shape for an array; the same function under each name."""
    grid = np.array([[0.0, 1e-300, 1e-9], [0.25, 0.5, 1.0]])
    k = np.array([[0, 1], [2, 3]])
    for name, argument in (("log_g", grid), ("pgf", grid), ("log_pgf_derivative", grid), ("pmf", k)):
        whole = getattr(law, name)(argument)
        ensure(np.shape(whole) == argument.shape, f"{name} of an array of shape {argument.shape} has another shape")
        single = getattr(law, name)(argument[1, 1])
        ensure(np.ndim(single) == 0, f"{name} of a number is not a number")
        ensure(np.allclose(single, whole[1, 1], rtol=1e-12, atol=0), f"{name} of a number and of an array differ")
    x = 1 - np.array([0.0, 1e-12, 1e-3, 0.25, 0.5, 0.75])
    log_g = law.log_g(1 - x)
    ensure(np.allclose(log_g, law.log_pgf_derivative(x), atol=_CLOSE), "log_g(v) is not log_pgf_derivative(1 − v)")
    ensure(math.isclose(float(log_g[0]), math.log(law.mean), abs_tol=_CLOSE), "log_g(0) is not the log of the mean")
    ensure(float(law.log_g(1e-300)) == float(log_g[0]), "log_g(1e-300) differs from log_g(0): g is continuous")
    ensure(math.isclose(float(law.pgf(1.0)), 1.0, rel_tol=_CLOSE), "pgf(1) is not 1")
    ensure(math.isclose(float(law.pgf(0.0)), float(law.pmf(0)), rel_tol=_CLOSE), "pgf(0) is not P[T = 0]")
    rising = np.diff(law.log_g(np.linspace(0, 1, 1001)[:-1])) > 1e-9
    ensure(not rising.any(), "log_g rises somewhere: f′ grows with x, so that log_g falls with v")


def _check_derivative(law: Law) -> None:
    """f(x) − f(0) is the integral of f′ from 0 to x, by the trapezoidal rule in u with 1 − t/x = 1/(1 + e^(−u))."""
    u = np.arange(-40 - math.log(law.mean + 1), 40, 0.1)
    for v in (0.0, 1e-6, 1e-3, 0.1, 0.5):
        heights = np.exp(law.log_g(np.minimum(v + (1 - v) * special.expit(u), 1.0)))
        integral = 0.1 * (1 - v) * float((heights * special.expit(u) * special.expit(-u)).sum())
        told = f"pgf({1 - v:g}) − pgf(0) is not the integral of f′, which is {integral:.12g}"
        ensure(abs(float(law.pgf(1 - v)) - float(law.pgf(0.0)) - integral) <= _CLOSE, told)


def _check_masses(law: Law) -> None:
    k = np.arange(_TERMS)
    p = law.pmf(k)
    ensure((p >= 0).all() and p.sum() <= 1 + _CLOSE, "pmf is negative somewhere, or sums to more than 1")
    ensure((law.pmf([-1, -7]) == 0).all(), "pmf is not 0 below 0")
    for x in (1e-3, 0.1, 0.5, 0.9, 0.99):
        if _TERMS * x ** (_TERMS - 1) > 1e-10 * min(float(law.pgf(x)), float(np.exp(law.log_pgf_derivative(x)))):
            continue  # what the sum leaves out could be seen
        told = f"at x = {x} it is not the sum over k of"
        ensure(math.isclose(float((p * x**k).sum()), float(law.pgf(x)), rel_tol=_CLOSE), f"pgf: {told} pmf(k) x^k")
        slope = float((k[1:] * p[1:] * x ** (k[1:] - 1.0)).sum())
        told = f"f′: {told} k pmf(k) x^(k−1)"
        ensure(math.isclose(slope, float(np.exp(law.log_pgf_derivative(x))), rel_tol=_CLOSE), told)


def _check_quantiles(law: Law) -> None:
    below = 0
    for q in (1e-9, 0.01, 0.25, 0.5, 0.75, 0.99, 1 - 1e-9):
        k = law.quantile(q)
        ensure(isinstance(k, int) and k >= below, f"quantile({q}) is not a whole number, or below an earlier quantile")
        below = k
        if k < 10**6:
            p = law.pmf(np.arange(k + 1))
            right = p.sum() >= q - _CLOSE and p[:-1].sum() <= q + _CLOSE
            ensure(right, f"quantile({q}) = {k} is not the smallest k with P[T ≤ k] ≥ {q}")


def _check_capped(law: Law) -> None:
    limit = max(1, law.quantile(0.75))
    if limit > _MOST_LISTED:
        return  # it refuses such a cap
    cut = law.capped(limit)
    ensure(isinstance(cut, Law), f"capped({limit}) is not a law")
    ensure(cut.mean <= law.mean * (1 + _CLOSE), f"capped({limit}) has a larger mean")
    ensure((cut.pmf(limit + np.arange(1, 100)) == 0).all(), f"capped({limit}) has mass above {limit}")
    ensure(math.isclose(float(cut.pgf(1.0)), 1, rel_tol=_CLOSE), f"capped({limit}) does not sum to 1")
    k = np.arange(min(limit, _TERMS) + 1)
    whole, part = law.pmf(k), cut.pmf(k)
    top = int(np.argmax(whole))
    told = f"capped({limit}) is not the law given T ≤ {limit}"
    ensure(np.allclose(part * whole[top], whole * part[top], rtol=_CLOSE, atol=2.0**-50), told)


def _check_description(law: Law, restore: Callable[[dict[str, Any]], Law]) -> None:
    ensure(restore(json.loads(json.dumps(law.to_dict()))) == law, "to_dict() does not lead back to an equal law")
    try:
        again = pickle.loads(pickle.dumps(law))
    except Exception as error:
        raise AssertionError(f"it cannot be pickled: {error}") from error
    ensure(again == law and hash(again) == hash(law), "a pickled law is not equal to itself")
