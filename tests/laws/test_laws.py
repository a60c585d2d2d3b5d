"""The laws of T: closed forms, scipy, errors, descriptions."""

from __future__ import annotations

import json
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import dphypo
from dphypo.entropy import Seeded
from dphypo.laws import Geometric, Law, Logarithmic, NegativeBinomial, Pmf, Poisson, from_dict

LAWS = [
    Geometric(mean=100),
    Logarithmic(gamma=0.01),
    NegativeBinomial(-0.5, mean=20),
    NegativeBinomial(8, mean=10),
    Poisson(10),
    Pmf({1: 0.25, 5: Fraction(1, 2), 20: 0.25}),
    Geometric(mean=100).capped(400),
    Poisson(3).capped(5),
]


def names(law: Law) -> str:
    return repr(law)


def test_top_level_names() -> None:
    assert dphypo.Geometric is Geometric
    assert dphypo.laws.Logarithmic is Logarithmic
    assert dphypo.NegativeBinomial is NegativeBinomial
    assert dphypo.Poisson is Poisson
    assert dphypo.Pmf is Pmf


@pytest.mark.parametrize("law", LAWS, ids=names)
def test_values(law: Law) -> None:
    assert isinstance(law, Law)
    again = from_dict(json.loads(json.dumps(law.to_dict())))
    assert again == law
    assert hash(again) == hash(law)
    assert again.mean == law.mean
    assert pickle.loads(pickle.dumps(law)) == law
    assert again.sample(Seeded(5)) == law.sample(Seeded(5))


def test_reprs() -> None:
    assert repr(LAWS[:4]) == (
        "[Geometric(mean=100), Logarithmic(mean=21.49757685), "
        "NegativeBinomial(shape=-0.5, mean=20), NegativeBinomial(shape=8, mean=10)]"
    )
    assert repr(LAWS[4:6]) == "[Poisson(mean=10), Pmf({1: 0.25, 5: 0.5, 20: 0.25})]"
    assert repr(Pmf(dict.fromkeys(range(8), 1 / 8))) == "Pmf({0: 0.125, 1: 0.125, 2: 0.125, ..., 6: 0.125, 7: 0.125})"


def test_equality() -> None:
    assert Geometric(gamma=0.25) == NegativeBinomial(1, mean=4)
    assert Geometric(mean=4) != Logarithmic(mean=4)
    assert Pmf({1: 0.5, 2: 0.5, 3: 0.0}) == Pmf({2: Fraction(1, 2), 1: Fraction(1, 2)})
    assert Poisson(3) == Poisson(3.0)
    with pytest.raises(AttributeError):
        Poisson(3).mean = 4  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Geometric(mean=3).gamma = 0.5  # type: ignore[misc]


@pytest.mark.parametrize("gamma", [0.9, 0.5, 0.01, 1e-6])
def test_geometric_against_scipy_and_closed_form(gamma: float) -> None:
    law, k = Geometric(gamma=gamma), np.arange(-2, 3000)
    np.testing.assert_allclose(law.pmf(k), stats.geom.pmf(k, gamma), rtol=1e-12, atol=1e-300)
    assert law.mean == pytest.approx(1 / gamma, rel=3e-16)
    x = np.linspace(0, 1, 101)
    np.testing.assert_allclose(law.pgf(x), gamma * x / (gamma + (1 - gamma) * (1 - x)), rtol=1e-13)
    slope = gamma / (gamma + (1 - gamma) * (1 - x)) ** 2
    np.testing.assert_allclose(np.exp(law.log_pgf_derivative(x)), slope, rtol=1e-13)
    assert law.shape == 1.0
    assert law.gamma == gamma


@pytest.mark.parametrize("gamma", [0.9, 0.5, 0.01, 1e-6])
def test_logarithmic_against_scipy_and_closed_form(gamma: float) -> None:
    law, k = Logarithmic(gamma=gamma), np.arange(-2, 3000)
    np.testing.assert_allclose(law.pmf(k), stats.logser.pmf(k, 1 - gamma), rtol=1e-9, atol=1e-300)
    x = np.linspace(0, 1, 101)
    np.testing.assert_allclose(law.pgf(x), np.log1p(-(1 - gamma) * x) / math.log(gamma), rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(np.exp(law.log_g(1 - x)), np.exp(law.log_pgf_derivative(x)), rtol=1e-12)


@pytest.mark.parametrize("shape", [0.5, 2.0, 8.0, 50.0])
@pytest.mark.parametrize("mean", [1.01, 30.0, 1e4])
def test_negative_binomial_against_scipy_given_a_run(shape: float, mean: float) -> None:
    law, k = NegativeBinomial(shape, mean=mean), np.arange(1, 2000)
    given_one = stats.nbinom.pmf(k, shape, law.gamma) / -math.expm1(shape * math.log(law.gamma))
    np.testing.assert_allclose(law.pmf(k), given_one, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("mean", [0.01, 1.0, 10.0, 1e4])
def test_poisson_against_scipy(mean: float) -> None:
    law, k = Poisson(mean), np.arange(-2, 2000)
    np.testing.assert_allclose(law.pmf(k), stats.poisson.pmf(k, mean), rtol=1e-9, atol=1e-300)
    x = np.linspace(0, 1, 11)
    np.testing.assert_allclose(law.pgf(x), np.exp(mean * (x - 1)), rtol=1e-9)
    np.testing.assert_allclose(law.log_g(1 - x), math.log(mean) - mean * (1 - x), rtol=1e-12, atol=1e-12)
    assert law.quantile(0.5) == stats.poisson.ppf(0.5, mean)


def test_capped_keeps_the_chance_of_no_run() -> None:
    law = Poisson(3).capped(5)
    assert law.pgf(0.0) == pytest.approx(stats.poisson.pmf(0, 3) / stats.poisson.cdf(5, 3), rel=1e-13)
    assert law.pmf(0) == law.pgf(0.0)
    assert Geometric(mean=3).capped(5).pgf(0.0) == 0.0


def test_capped_twice_takes_the_smaller() -> None:
    law = Geometric(mean=100)
    assert law.capped(50) == law.capped(50).capped(400)
    assert Pmf({1: 0.5, 9: 0.5}).capped(20) == Pmf({1: 0.5, 9: 0.5})
    assert Pmf({0: 0.5, 3: 0.25, 9: 0.25}).capped(5) == Pmf({0: Fraction(2, 3), 3: Fraction(1, 3)})


def test_capped_is_not_taken_for_the_law_it_was_cut_from() -> None:
    assert isinstance(Geometric(mean=10).capped(20), Pmf)


def test_capped_at_one_is_one_run() -> None:
    for law in (Geometric(mean=1e6), Logarithmic(mean=30), NegativeBinomial(50, mean=1e6)):
        one = law.capped(1)
        assert one.mean == pytest.approx(1, rel=1e-12)
        np.testing.assert_allclose(one.log_g([0.0, 0.3, 1.0]), 0, atol=1e-12)
        assert one.quantile(0.7) == 1
        assert one.sample(Seeded(1)) == 1


def test_continuous_at_shape_zero() -> None:
    at = Logarithmic(gamma=0.01)
    for shape in (1e-9, -1e-9, 1e-18, -1e-18, 5e-324, 1e-300):
        near = NegativeBinomial(shape, gamma=0.01)
        assert near.mean == pytest.approx(at.mean, rel=1e-7)
        np.testing.assert_allclose(near.pmf(np.arange(1, 50)), at.pmf(np.arange(1, 50)), rtol=1e-7)
        np.testing.assert_allclose(near.pgf([0.0, 0.3, 0.99, 1.0]), at.pgf([0.0, 0.3, 0.99, 1.0]), rtol=1e-7)
        assert NegativeBinomial(shape, mean=30).gamma == pytest.approx(Logarithmic(mean=30).gamma, rel=1e-7)


def test_pmf_law() -> None:
    law = Pmf({0: 0.25, 2: 0.25, 7: 0.5})
    assert law.mean == 4.0
    np.testing.assert_allclose(law.pmf([-1, 0, 1, 2, 7, 8]), [0, 0.25, 0, 0.25, 0.5, 0], rtol=1e-15)
    x = np.array([0.0, 0.2, 1.0])
    np.testing.assert_allclose(law.pgf(x), 0.25 + 0.25 * x**2 + 0.5 * x**7, rtol=1e-14)
    np.testing.assert_allclose(np.exp(law.log_pgf_derivative(x)), 0.5 * x + 3.5 * x**6, rtol=1e-14)
    assert law.log_pgf_derivative(1e-300) == pytest.approx(math.log(0.5) - 300 * math.log(10), rel=1e-14)
    assert [law.quantile(q) for q in (0, 0.25, 0.26, 0.5, 0.51, 1)] == [0, 0, 2, 2, 7, 7]
    assert Pmf({1: 1}).sample(Seeded(0)) == 1


def test_pmf_law_with_a_mass_too_small_for_a_float() -> None:
    tiny = Fraction(1, 10**400)
    law = Pmf({1: 1 - tiny, 2: tiny})
    assert law.log_pgf_derivative(0.5) == 0.0
    assert from_dict(law.to_dict()) == law
    assert law.quantile(1.0) == 2


def test_pmf_law_normalises_exactly() -> None:
    law = Pmf({1: 0.1, 2: 0.2, 3: 0.7000000001})
    assert sum(p for _, p in law.probabilities) == 1


def test_quantiles_at_ties() -> None:
    law = Geometric(gamma=0.5)
    assert [law.quantile(1 - 0.5**k) for k in range(1, 40)] == list(range(1, 40))
    assert [law.quantile(math.nextafter(1 - 0.5**k, 2)) for k in range(1, 10)] == list(range(1, 10))
    assert [law.quantile(1 - 0.5**k + 1e-9) for k in range(1, 10)] == list(range(2, 11))
    assert law.quantile(0.0) == 1
    assert Poisson(3).quantile(0.0) == 0
    assert law.capped(9).quantile(1.0) == 9


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Geometric(), "exactly one"),
        (lambda: Geometric(mean=3, gamma=0.3), "exactly one"),
        (lambda: Geometric(mean=1), r"mean = 1 is not valid: this law has T ≥ 1"),
        (lambda: Geometric(mean=0.5), "the mean must exceed 1"),
        (lambda: Geometric(mean=math.inf), "finite"),
        (lambda: Geometric(mean=math.nan), "finite"),
        (lambda: Geometric(gamma=0), r"gamma = 0.* must lie in"),
        (lambda: Geometric(gamma=1), r"gamma = 1.* must lie in"),
        (lambda: Geometric(gamma=math.nan), "gamma"),
        (lambda: NegativeBinomial(-1, mean=3), r"shape = -1 .* must lie in \(-1"),
        (lambda: NegativeBinomial(math.nan, mean=3), "shape"),
        (lambda: NegativeBinomial(1e7, mean=3), "Poisson"),
        (lambda: NegativeBinomial(-0.99, mean=1e6), "would need gamma below 1e-300"),
        (lambda: Poisson(0), "mean = 0"),
        (lambda: Poisson(-1), "must lie in"),
        (lambda: Poisson("ten"), "finite number"),  # type: ignore[arg-type]
        (lambda: Geometric(mean=3).capped(0), "limit = 0"),
        (lambda: Geometric(mean=1e6).capped(10**6), "more than 100000 values of T: give a smaller cap"),
        (lambda: Geometric(mean=3).capped(2.5), "limit = 2.5"),  # type: ignore[arg-type]
        (lambda: Geometric(mean=3).capped(5).capped(0), "limit = 0"),
        (lambda: Poisson(3).capped(0), "limit = 0"),
        (lambda: Pmf({1: 1.0}).capped(0), "limit = 0"),
        (lambda: Pmf({0: 0.5, 5: 0.5}).capped(4), "no value of T from 1"),
        (lambda: Pmf({}), "give a dict"),
        (lambda: Pmf([0.5, 0.5]), "give a dict"),  # type: ignore[arg-type]
        (lambda: Pmf({0: 1.0}), "must be 1 or greater"),
        (lambda: Pmf({1: 0.5, 2: 0.4}), "sum to 0.9"),
        (lambda: Pmf({1: 1.5, 2: -0.5}), "probabilities"),
        (lambda: Pmf({1: 0.5, 2: math.nan}), r"probabilities\[2\] = nan"),
        (lambda: Pmf({1: math.inf}), r"probabilities\[1\] = inf"),
        (lambda: Pmf({1: "1"}), r"probabilities\[1\]"),  # type: ignore[dict-item]
        (lambda: Pmf({1: None}), r"probabilities\[1\]"),  # type: ignore[dict-item]
        (lambda: Pmf({1.5: 1.0}), "value = 1.5"),  # type: ignore[dict-item]
        (lambda: Pmf({-1: 1.0}), "value = -1"),
        (lambda: Geometric(mean=3).quantile(1.0), "no largest value"),
        (lambda: Geometric(mean=3).quantile(-0.1), "q = -0.1"),
        (lambda: Pmf({1: 1.0}).quantile(1.1), "q = 1.1"),
        (lambda: Geometric(mean=3).pgf(1.1), "x = 1.1"),
        (lambda: Geometric(mean=3).log_g([0.5, math.nan]), "v = nan"),
        (lambda: Geometric(mean=3).log_g(-1e-9), "v = -1e-09"),
        (lambda: Geometric(mean=3).pmf(1.5), "k = 1.5"),
        (lambda: from_dict({"law": "uniform"}), "must be one of"),
        (lambda: from_dict(7), "must be one of"),  # type: ignore[arg-type]
        (lambda: from_dict({"law": "poisson"}), "also needs 'mean'"),
    ],
)
def test_errors(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


shapes = st.floats(-0.9, 50, exclude_min=True)
means = st.floats(1.01, 1e6)


@settings(max_examples=60, deadline=None)
@given(shape=shapes, mean=means, limit=st.integers(1, 10**3))
def test_properties(shape: float, mean: float, limit: int) -> None:
    law = NegativeBinomial(shape, mean=mean)
    assert mean <= law.mean <= mean * (1 + 1e-6)
    v = np.concatenate([[0.0, 1e-300], np.logspace(-12, 0, 50)])
    cut = law.capped(limit)
    for each in (law, cut):
        logs = each.log_g(v)
        assert np.isfinite(logs).all()
        assert (np.diff(logs) <= 1e-11 * np.maximum(1, abs(logs[1:]))).all()
        assert logs[0] == logs[1] == pytest.approx(math.log(each.mean), abs=1e-12)
        assert each.pgf(1.0) == pytest.approx(1, rel=1e-12)
    assert cut.mean <= min(law.mean, limit) * (1 + 1e-12)
    assert from_dict(law.to_dict()) == law
    assert from_dict(cut.to_dict()) == cut
    assert law.quantile(0.3) <= law.quantile(0.7)
    assert cut.quantile(1.0) == limit or cut.quantile(1.0) == law.quantile(1 - 2.0**-53)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.integers(0, 10**6), st.fractions(0, 1), min_size=1, max_size=8))
def test_pmf_properties(parts: dict[int, Fraction]) -> None:
    total = sum(parts.values())
    if not total or not any(p for k, p in parts.items() if k):
        return
    law = Pmf({k: p / total for k, p in parts.items()})
    assert law.mean == float(sum(k * p for k, p in law.probabilities))
    assert law.log_g(0.0) == pytest.approx(math.log(law.mean), abs=1e-12)
    assert from_dict(json.loads(json.dumps(law.to_dict()))) == law
    assert law.quantile(1.0) == law.probabilities[-1][0]
    assert law.sample(Seeded(0)) in dict(law.probabilities)
