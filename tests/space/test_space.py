"""The space: what may be written, what comes out, and that encoding and decoding are exact inverses."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import scipy.stats as st
from hypothesis import given, settings
from hypothesis import strategies as hs

import dphypo
from dphypo.entropy import SYSTEM, Seeded
from dphypo.space import Space
from dphypo.space import dimension as _unit


def encoded(space: Space, params: list[dict[str, Any]]) -> Any:
    return space.features(space.to_unit(params))


class _Ramp(st.rv_continuous):
    """A prior of one's own, by its CDF alone: scipy inverts it by root finding, on a scale near its tolerance."""

    def _cdf(self, x):
        return (x * 1e6) ** 2


RAMP = _Ramp(a=0, b=1e-6, name="ramp")

PRIORS = {
    "uniform": st.uniform(0.3, 5.7),
    "narrow": st.uniform(1e10, 1e-4),
    "loguniform": st.loguniform(1e-4, 10),
    "wide loguniform": st.loguniform(1e-300, 1e300),
    "norm": st.norm(-3, 1e-3),
    "truncnorm": st.truncnorm(0, np.inf, loc=2),
    "expon": st.expon(scale=5),
    "gamma": st.gamma(0.1, scale=1e-3),
    "beta": st.beta(0.5, 20),
    "cauchy": st.cauchy(),
    "t": st.t(3),
    "histogram": st.rv_histogram(np.histogram([1, 1, 2, 9.0], bins=7), density=False)(),
    "root finding": RAMP(),
    "randint": st.randint(1, 5),
    "long randint": st.randint(-(10**9), 10**12),
    "poisson": st.poisson(7.5),
    "geom": st.geom(0.2),
    "long geom": st.geom(1e-7),
    "binom": st.binom(100, 0.5),
    "zipf": st.zipf(4.0),
    "weighted integers": st.rv_discrete(values=([1, 5, 50], [0.2, 0.3, 0.5]))(),
    "integers": [256, 64, 128],
    "floats": [0.1, np.inf, -3.5, 2],
    "array": np.logspace(-4, 0, 5),
    "range": range(0, 100, 7),
    "constant": [64],
    "strings": ["sgd", "adam", "lion"],
    "mixed": [None, True, 1, 1.0, "1", (1, 2), (True, 2), ()],
    "one category": ["relu"],
    "informed": (["a", "b", "c"], [0.7, 0.2999, 0.0001]),
    "informed numbers": ([3, 1, 2], np.array([0.25, 0.25, 0.5])),
}
SPACE = Space(PRIORS)
words = hs.integers(0, 2**64 - 1) | hs.sampled_from([0, 1, 2**64 - 1, 2**63, 2**32])


def spelled(params):
    """Bits and types: 1, 1.0 and True differ, so do 0.0 and -0.0."""
    return [{name: (type(value), repr(value)) for name, value in row.items()} for row in params]


def params_at(space, rows):
    return space.from_unit(_unit.from_words(np.array(rows, dtype=np.uint64)))


@pytest.mark.parametrize("name", PRIORS)
@settings(max_examples=8, deadline=None)
@given(drawn=hs.lists(words, min_size=1, max_size=20))
def test_decoding_what_was_encoded_is_exact(name, drawn):
    space = Space({name: PRIORS[name]})
    params = params_at(space, [[word] for word in drawn])
    unit, features = space.to_unit(params), encoded(space, params)
    assert spelled(space.from_unit(unit)) == spelled(params)
    assert np.array_equal(space.to_unit(space.from_unit(unit)), unit)
    assert ((features >= 0) & (features <= 1)).all()
    for row in params:
        assert spelled(space.from_unit(space.to_unit([row]))) == spelled([row])  # one by one as well as together


positive = hs.floats(1e-6, 1e6)
shape = hs.floats(0.2, 50)
FAMILIES = hs.one_of(
    hs.builds(st.uniform, hs.floats(-1e6, 1e6), positive),
    hs.builds(st.norm, hs.floats(-1e6, 1e6), positive),
    hs.builds(lambda low, ratio: st.loguniform(low, low * ratio), positive, hs.floats(1.001, 1e9)),
    hs.builds(lambda scale: st.expon(scale=scale), positive),
    hs.builds(st.beta, shape, shape),
    hs.builds(st.gamma, shape),
    hs.builds(st.lognorm, hs.floats(0.1, 5)),
    hs.builds(st.weibull_min, shape),
    hs.builds(lambda low, count: st.randint(low, low + count), hs.integers(-(10**6), 10**6), hs.integers(1, 10**7)),
    hs.builds(st.poisson, hs.floats(0.01, 1e5)),
    hs.builds(st.geom, hs.floats(1e-8, 0.999)),
    hs.builds(st.nbinom, shape, hs.floats(0.001, 0.999)),
    hs.builds(st.binom, hs.integers(1, 10**6), hs.floats(0.01, 0.99)),
)


@settings(max_examples=60, deadline=None)
@given(prior=FAMILIES, drawn=hs.lists(words, min_size=1, max_size=10))
def test_decoding_is_exact_for_any_arguments(prior, drawn):
    space = Space({"x": prior})
    params = params_at(space, [[word] for word in drawn])
    assert spelled(space.from_unit(space.to_unit(params))) == spelled(params)
    low, high = prior.support()
    assert all(low <= row["x"] <= high and np.isfinite(row["x"]) for row in params)


def test_features_of_candidates_are_those_of_their_parameters():
    # Where floats, or scipy's quantiles, are coarser than 2³² cells, a value has many cells: those two are left out.
    exact = Space({name: prior for name, prior in PRIORS.items() if name not in ("narrow", "root finding")})
    candidates = exact.candidates(200, Seeded(3))
    params = [candidates.params(i) for i in range(len(candidates))]
    assert np.array_equal(encoded(exact, params), candidates.features)
    assert spelled(exact.from_unit(candidates.unit)) == spelled(params)
    assert spelled(exact.from_unit(exact.to_unit(params))) == spelled(params)


def test_values_are_plain_python():
    allowed = {bool, int, float, str, tuple, type(None)}
    for row in SPACE.from_unit(SPACE.candidates(64, Seeded(0)).unit):
        assert {type(value) for value in row.values()} <= allowed
        assert type(row["poisson"]) is int
        assert type(row["array"]) is float
    assert json.dumps(SPACE.sample(SYSTEM))


def test_the_corners_of_the_cube_have_finite_values_in_the_support():
    for corner in (0.0, 1.0):
        (row,) = SPACE.from_unit(np.full((1, len(SPACE.names)), corner))
        for name in ("norm", "cauchy", "expon", "loguniform", "gamma", "beta", "poisson", "long geom"):
            low, high = PRIORS[name].support()
            assert low <= row[name] <= high
            assert np.isfinite(row[name])


def test_numbers_are_features_in_their_own_order_and_categories_are_columns():
    space = Space({"batch": [256, 64, 128], "optimizer": ["sgd", "adam"]})
    rows = [{"batch": batch, "optimizer": "adam"} for batch in (64, 128, 256)]
    assert np.allclose(encoded(space, rows), [[1 / 6, 0, 1], [3 / 6, 0, 1], [5 / 6, 0, 1]])
    assert [space.grid().params(i)["batch"] for i in (0, 2, 4)] == [256, 64, 128]


def test_a_feature_is_the_cdf():
    space = Space({"lr": st.loguniform(1e-4, 10)})
    assert encoded(space, [{"lr": 0.1}])[0, 0] == pytest.approx(0.6, abs=2**-32)
    assert space.from_unit([[0.6]])[0]["lr"] == pytest.approx(0.1, rel=1e-8)


def test_points_of_the_cube_are_finite_rows_with_a_coordinate_for_each_parameter():
    space = Space({"lr": st.loguniform(1e-4, 10), "batch": [64, 128], "optimizer": ["sgd", "adam"]})
    assert space.from_unit([[7.0, -3.0, 0.2]]) == [{"lr": pytest.approx(10), "batch": 64, "optimizer": "sgd"}]
    with pytest.raises(ValueError, match="not finite"):
        space.from_unit([[np.nan, 0, 0]])
    for wrong in ([[0.5]], [0.5]):
        with pytest.raises(ValueError, match="give rows of 3 columns"):
            space.from_unit(wrong)


def test_what_a_journal_makes_of_a_value_is_understood():
    space = Space({"layers": [(64, 32), (128,)], "batch": [64, 128], "clip": st.uniform(0, 1)})
    params = space.sample(Seeded(5))
    read_back = json.loads(json.dumps(params))
    assert spelled(space.from_unit(space.to_unit([read_back]))) == spelled([params])
    assert np.array_equal(encoded(space, [{**params, "batch": np.float64(params["batch"])}]), encoded(space, [params]))
    assert encoded(space, [{**params, "clip": 1}])[0, -1] < 1


def test_no_rows():
    assert encoded(SPACE, []).shape[0] == 0
    assert SPACE.from_unit(SPACE.to_unit([])) == []


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("uniform", 6.1, "number between 0.3 and 6"),
        ("uniform", "1", "number between"),
        ("uniform", True, "number between"),
        ("uniform", float("nan"), "NaN"),
        ("norm", float("inf"), "finite number"),
        ("norm", 10**400, "finite number"),
        ("long geom", 1.5, "whole number"),
        ("long geom", 0, "whole number between 1 and inf"),
        ("randint", 5, "one of 1, 2, 3, 4"),
        ("strings", "rmsprop", "one of 'sgd', 'adam', 'lion'"),
        ("integers", True, "one of 256, 64, 128"),
        ("range", 8, "one of .*…"),
        ("mixed", {"a": 1}, "values are None"),
    ],
)
def test_values_outside_the_space_are_refused_by_name(name, value, message):
    params = SPACE.sample(Seeded(1)) | {name: value}
    with pytest.raises(ValueError, match=f"parameter '{name}' = .*{message}"):
        SPACE.to_unit([params])


def test_rows_that_do_not_fit_are_refused():
    space = Space({"lr": [1, 2], "batch": [3, 4]})
    with pytest.raises(ValueError, match=r"params\[1\] = .* lacks 'batch'"):
        space.to_unit([{"lr": 1, "batch": 3}, {"lr": 1}])
    with pytest.raises(ValueError, match=r"params\[0\] has 'lrr', which is none of"):
        space.to_unit([{"lr": 1, "batch": 3, "lrr": 1}])
    with pytest.raises(ValueError, match="give a list of dicts"):
        space.to_unit({"lr": 1, "batch": 3})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give a dict of name to prior"),
        ([1], "give a dict of name to prior"),
        ({1: [1]}, "parameter name 1 is not valid: names are non-empty strings"),
        ({"": [1]}, "names are non-empty strings"),
        ({"score": [1]}, "'score' is not valid: it is a column of the table"),
        ({"status": [1]}, "'status' is not valid: it is a column of the table"),
        ({"a\ud800": [1]}, r"'a\\ud800' is not valid: names are .* printable"),
        ({"a\n": [1]}, "printable"),
        ({"a\x1b[31m": [1]}, "printable"),
        ({"a\u202eb": [1]}, "printable"),
        ({"a": ["b\u2066c"]}, "printable"),
        ({"a": [("x", "\ud800")]}, "printable"),
        ({"x": []}, "parameter 'x' = .* at least one choice"),
        ({"x": [1, 2, 1.0]}, "1 is listed twice"),
        ({"x": ["a", "a"]}, "'a' is listed twice"),
        ({"x": [1, float("nan")]}, "NaN"),
        ({"x": [object()]}, "values are None"),
        ({"x": np.ones((2, 2))}, r"choices of shape \(2, 2\)"),
        ({"x": 0.1}, r"to fix a parameter write a list of one value, \[0.1\]"),
        ({"x": "adam"}, r"write a list of one value, \['adam'\]"),
        ({"x": {"a", "b"}}, "give a frozen distribution"),
        ({"x": ("a", "b")}, "a tuple is .choices, probabilities."),
        ({"x": (["a"], [1.0], [])}, "a tuple is .choices, probabilities."),
        ({"x": (["a", "b"], [1.0])}, "the probabilities of parameter 'x' has length 1: give 2"),
        ({"x": (["a", "b"], [0.5, 0.6])}, "the probabilities of parameter 'x' = .* must sum to 1, not 1.1"),
        ({"x": (["a", "b"], [1.0, 0.0])}, "leave out a choice whose probability is 0"),
        ({"x": (["a", "b"], [1.5, -0.5])}, "leave out"),
        ({"x": (["a", "b"], [np.nan, 1])}, "not finite"),
        ({"x": st.loguniform}, r"without its arguments: call it, as in loguniform\(...\)"),
        ({"x": st.loguniform(10, 1)}, "parameter 'x' has no usable prior: .* nan"),
        ({"x": st.uniform(1, 0)}, "no usable prior"),
        ({"x": st.norminvgauss(1.25, 0.5)}, "parameter 'x' has no usable prior: its quantiles raise .*solver"),
        ({"x": st.randint(5, 5)}, "no usable prior"),
        ({"x": st.uniform([0, 1], 1)}, "an array as argument"),
        ({"x": st.multivariate_normal([0, 0])}, "one dimension and a quantile function"),
        ({"x": st.Normal(mu=0.0, sigma=1.0)}, "one dimension and a quantile function"),
        ({"x": st.zipf(2.0)}, "without a finite variance"),
        ({"x": st.poisson(3, loc=0.5)}, "values that are not integers"),
        ({"x": None}, "list of one value"),
    ],
)
def test_spaces_that_make_no_sense_are_refused_by_name(given, message):
    with pytest.raises(ValueError, match=message):
        Space(given)


def test_names_that_people_can_read_are_accepted():
    assert Space({"λ": [1], "taille d'été": ["größe", "大きい"]}).names == ("λ", "taille d'été")
    with pytest.raises(ValueError, match="'score' is not valid"):
        Space({"a": [1, 2]}).when("a", 1, {"score": [1]})


@pytest.mark.parametrize("n", [0, -1, 1.5, True, 2**27])
def test_counts_of_candidates_are_checked(n):
    with pytest.raises(ValueError, match="n = "):
        SPACE.candidates(n, SYSTEM)


def test_sets_are_frozen_and_say_little():
    candidates = Space({"lr": st.uniform()}).candidates(5, SYSTEM)
    assert repr(candidates) == "Candidates(5 points of 1 parameters)"
    assert len(candidates) == 5
    assert candidates.features is candidates.features
    for array in (candidates.unit, candidates.masses, candidates.features):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(IndexError):
        candidates.params(5)


def test_the_description_is_json_and_tells_spaces_apart():
    description = SPACE.to_dict()
    assert json.loads(json.dumps(description, allow_nan=False)) == description
    by_name = {entry["name"]: entry for entry in description["parameters"]}
    assert by_name["loguniform"] == {
        "name": "loguniform",
        "distribution": "loguniform",
        "arguments": {"a": 0.0001, "b": 10},
    }
    assert by_name["truncnorm"]["arguments"] == {"a": 0, "b": "inf", "loc": 2}
    assert by_name["mixed"]["choices"] == [
        None, True, 1, 1.0, "1", {"tuple": [1, 2]}, {"tuple": [True, 2]}, {"tuple": []},
    ]  # fmt: skip
    assert by_name["floats"]["choices"] == [0.1, {"float": "inf"}, -3.5, 2]
    assert by_name["weighted integers"]["probabilities"] == pytest.approx([0.2, 0.3, 0.5])
    assert len(by_name["root finding"]["quantiles"]) == 63
    description["parameters"][0]["arguments"]["loc"] = 99
    assert SPACE.to_dict() != description


def test_equal_spaces():
    assert Space({"x": st.uniform(0, 2)}) == Space({"x": st.uniform(scale=2.0, loc=0)})
    assert hash(Space({"x": st.uniform(0, 2)})) == hash(Space({"x": st.uniform(scale=2.0)}))
    assert Space({"x": st.uniform(0, 2)}) != Space({"x": st.uniform(0, 3)})
    assert Space({"x": [1, 2]}) == Space({"x": ([1, 2], [0.5, 0.5])}) != Space({"x": ([1, 2], [0.4, 0.6])})
    assert Space({"x": [True, 2]}) != Space({"x": [2]})
    assert Space({"x": st.rv_discrete(values=([1, 2], [0.5, 0.5]))()}) != Space(
        {"x": st.rv_discrete(values=([1, 2], [0.4, 0.6]))()}
    )
    assert Space({"x": [1]}) != {"x": [1]}
    assert pickle.loads(pickle.dumps(SPACE)) == SPACE


def test_the_representation_is_what_was_written():
    space = Space({"lr": st.loguniform(1e-4, 10), "batch": [64, 128], "act": (["relu", None], [0.25, 0.75])})
    assert repr(space) == (
        "Space({'lr': loguniform(a=0.0001, b=10), 'batch': [64, 128], 'act': (['relu', None], [0.25, 0.75])})"
    )
    assert space.names == ("lr", "batch", "act")
    assert dphypo.Space is Space


def test_another_process_describes_the_space_the_same_way():
    program = (
        "import json, sys; import dphypo.space; assert 'scipy.stats' not in sys.modules; from scipy import stats as st;"
        "space = dphypo.space.Space({'lr': st.loguniform(1e-4, 10), 'x': ['b', 'a', None], 'k': st.poisson(3)});"
        "print(json.dumps(space.to_dict()))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    here = Space({"lr": st.loguniform(1e-4, 10), "x": ["b", "a", None], "k": st.poisson(3)})
    assert ran.stdout.strip() == json.dumps(here.to_dict())
