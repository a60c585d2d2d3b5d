"""The conformance suite of laws: it passes the package's laws and rejects broken ones, saying what is wrong."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from support.law_conformance import check_draws, check_law

from dphypo.entropy import SYSTEM, Seeded
from dphypo.laws import Geometric, Law, Logarithmic, NegativeBinomial, Pmf, Poisson

SLOW = {  # to draw from: the other checks of these laws are quick
    NegativeBinomial(1e-300, mean=7): 20,
    NegativeBinomial(50, mean=1e6): 20,
    NegativeBinomial(1e4, mean=700): 20,
    NegativeBinomial(50, mean=1e6).capped(500): 5,
}


@pytest.mark.parametrize(
    "law",
    [
        Geometric(mean=1 + 1e-9),
        Geometric(mean=1e6),
        Logarithmic(mean=30),
        NegativeBinomial(-0.9, mean=1e6),
        NegativeBinomial(-0.5, mean=20),
        NegativeBinomial(50, mean=7),
        NegativeBinomial(2000, mean=5),
        Poisson(0.01),
        Poisson(3),
        Poisson(1e6).capped(1000),
        Geometric(mean=1e6).capped(10),
        NegativeBinomial(-0.9, mean=1e6).capped(10**4),
        *(pytest.param(law, marks=pytest.mark.slow) for law in SLOW),
        Pmf({0: 0.5, 5: 0.5}),
        Pmf({1: 1.0}),
        Pmf({1000: 0.5, 10**6: 0.5}),
    ],
    ids=repr,
)
def test_the_laws_of_the_package(law: Law) -> None:
    check_law(law, draws=SLOW.get(law, 200))


@pytest.mark.slow
@pytest.mark.parametrize("law", SLOW, ids=repr)
def test_draws_that_take_long(law: Law) -> None:
    check_draws(law, law.sample, 200, Seeded(1))


def test_with_system_entropy() -> None:
    check_law(Geometric(mean=5), draws=200, entropy=SYSTEM)


@dataclasses.dataclass(frozen=True)
class Changed(Law):
    """A law with some of its functions replaced; names are pairs so that it stays hashable."""

    law: Any
    changes: tuple[tuple[str, Any], ...]

    def __getattribute__(self, name: str) -> Any:
        changes = dict(object.__getattribute__(self, "changes"))
        if name in changes:
            return changes[name]
        if name in ("law", "changes") or name.startswith("__"):
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "law"), name)


LAW = Geometric(mean=20)
OTHER = Geometric(gamma=LAW.gamma * 1.1)
BREAKS: list[tuple[str, Any, str]] = [
    ("mean", OTHER.mean, "log_g\\(0\\) is not the log of the mean"),
    ("mean", 0.0, "not a number above 0"),
    ("log_g", OTHER.log_g, "log_g\\(v\\) is not log_pgf_derivative"),
    ("log_g", lambda v: LAW.log_g(np.asarray(v).ravel()), "another shape"),
    ("log_g", lambda v: np.atleast_1d(LAW.log_g(v)), "not a number"),
    ("log_g", lambda v: LAW.log_g(v) + (np.asarray(v) == 1e-300) * 1e-6, "continuous"),
    ("log_g", lambda v: LAW.log_g(v) + (abs(np.asarray(v) - 0.3) < 0.01), "rises somewhere"),
    ("log_pgf_derivative", OTHER.log_pgf_derivative, "log_g\\(v\\) is not"),
    ("pgf", OTHER.pgf, "is not the integral"),
    ("pgf", lambda x: LAW.pgf(x) * 1.01, "pgf\\(1\\) is not 1"),
    ("pgf", lambda x: LAW.pgf(x) * 0.99 + 0.01, "P\\[T = 0\\]"),
    ("pmf", OTHER.pmf, "is not the sum over k"),
    ("pmf", lambda k: LAW.pmf(k) * 1.01, "sums to more than 1"),
    ("quantile", OTHER.quantile, "is not the smallest k"),
    ("quantile", lambda q: float(LAW.quantile(q)), "not a whole number"),
    ("capped", lambda limit: LAW, "has mass above"),
    ("capped", OTHER.capped, "is not the law given"),
    ("capped", lambda limit: None, "is not a law"),
    ("sample", lambda entropy: float(LAW.sample(entropy)), "whole numbers"),
    ("sample", lambda entropy: 20, "the average of"),
    ("sample", lambda entropy: min(LAW.sample(entropy), 22), "the average of"),
    ("to_dict", LAW.to_dict, "cannot be pickled"),
    ("to_dict", OTHER.to_dict, "does not lead back"),
]


@pytest.mark.parametrize(("name", "change", "message"), BREAKS, ids=[f"{i}-{b[0]}" for i, b in enumerate(BREAKS)])
def test_broken_laws_are_rejected(name: str, change: Any, message: str) -> None:
    broken = Changed(LAW, ((name, change),))

    if message == "cannot be pickled":
        broken = Changed(broken, (("note", lambda: None),))

    def restore(description: dict[str, Any]) -> Any:
        return broken if description == LAW.to_dict() else None

    with pytest.raises(AssertionError, match=message):
        check_law(broken, draws=2000, restore=restore)  # type: ignore[arg-type]


def test_something_else_is_rejected() -> None:
    with pytest.raises(AssertionError, match="lacks a method"):
        check_law(7)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_a_gamma_off_by_a_tenth_is_rejected(factor: float) -> None:
    with pytest.raises(AssertionError, match="the average of"):
        check_draws(LAW, Geometric(gamma=LAW.gamma * factor).sample, 16_000, Seeded(2))
