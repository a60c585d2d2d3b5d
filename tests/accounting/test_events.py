"""The gate: an accountant never sees a value that it could misread."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import dp_accounting
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from dphypo.accounting import ApproximateDp, PureDp, RdpCurve, account, events
from dphypo.accounting.events import canonical
from dphypo.errors import UnaccountableError
from dphypo.laws import Pmf

ONCE = Pmf({1: 1.0})
DELTA = 1e-5
REPLACE_ONE = dp_accounting.NeighboringRelation.REPLACE_ONE
REPLACE_SPECIAL = dp_accounting.NeighboringRelation.REPLACE_SPECIAL
ADD = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
Gaussian, Poisson = dp_accounting.GaussianDpEvent, dp_accounting.PoissonSampledDpEvent
Repeated, Composed = dp_accounting.SelfComposedDpEvent, dp_accounting.ComposedDpEvent

# Every kind, made of a real number x, a rate q and a whole number n, with a relation under which it can be accounted.
KINDS = {
    "pure": (lambda x, q, n: PureDp(x), ADD),
    "approximate": (lambda x, q, n: ApproximateDp(x, q), ADD),
    "rdp": (lambda x, q, n: RdpCurve([2, x, 100], [x, x, 50]), ADD),
    "nothing": (lambda x, q, n: dp_event.NoOpDpEvent(), ADD),
    "gaussian": (lambda x, q, n: Gaussian(x), ADD),
    "laplace": (lambda x, q, n: dp_event.LaplaceDpEvent(x), ADD),
    "discrete laplace": (lambda x, q, n: dp_event.DiscreteLaplaceDpEvent(x, n), ADD),
    "randomised response": (lambda x, q, n: dp_event.RandomizedResponseDpEvent(q, n), REPLACE_ONE),
    "mixture": (lambda x, q, n: dp_event.MixtureOfGaussiansDpEvent(x, [0, 1], [1 - q, q]), ADD),
    "zcdp": (lambda x, q, n: dp_event.ZCDpEvent(x, q), ADD),
    "truncated": (lambda x, q, n: dp_event.TruncatedSubsampledGaussianDpEvent(n, q, n, x), ADD),
    "tree": (lambda x, q, n: dp_event.SingleEpochTreeAggregationDpEvent(x, n), REPLACE_SPECIAL),
    "trees": (lambda x, q, n: dp_event.SingleEpochTreeAggregationDpEvent(x, [n, n]), REPLACE_SPECIAL),
    "repeated": (lambda x, q, n: Repeated(Gaussian(x), n), ADD),
    "composed": (lambda x, q, n: Composed([Gaussian(x), dp_event.LaplaceDpEvent(x)]), ADD),
    "sampled": (lambda x, q, n: Poisson(q, Gaussian(x)), ADD),
    "sampled once": (lambda x, q, n: Poisson(q, Repeated(Gaussian(x), n)), ADD),
    "sampled composition": (lambda x, q, n: Poisson(q, Composed([Gaussian(x), Repeated(Gaussian(x), n)])), ADD),
    "without replacement": (
        lambda x, q, n: dp_event.SampledWithoutReplacementDpEvent(n, n, Repeated(Gaussian(x), n)),
        REPLACE_ONE,
    ),
    "with replacement": (lambda x, q, n: dp_event.SampledWithReplacementDpEvent(n, n, Gaussian(x)), REPLACE_ONE),
    "selected": (lambda x, q, n: dp_event.RepeatAndSelectDpEvent(Gaussian(x), x, q), ADD),
}
REALS = {
    "int": int,
    "float32": np.float32,
    "float64": np.float64,
    "float16": np.float16,
    "longdouble": np.longdouble,
    "int8": np.int8,
    "uint64": np.uint64,
    "fraction": Fraction,
    "bool": bool,
    "numpy bool": np.bool_,
    "text": str,
    "complex": complex,
    "array": lambda x: np.array([x]),
}


def passed(kind: str, x: object, q: object, n: object) -> object:
    """What the gate makes of a kind of event with these arguments, or how it refuses it."""
    try:
        return canonical(KINDS[kind][0](x, q, n))
    except (ValueError, TypeError) as error:
        return type(error)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", REALS)
def test_whatever_type_a_number_has_it_means_the_same_or_is_refused(kind, number):
    make = REALS[number]
    for changed in ({"x": make(3)}, {"n": make(4)}, {"q": make(1)}, {"x": make(3), "n": make(4)}):
        expected = passed(kind, 3.0, 1.0 if "q" in changed else 0.25, 4)
        found = passed(kind, **{"x": 3.0, "q": 0.25, "n": 4, **changed})
        assert isinstance(expected, (dp_event.DpEvent, PureDp, ApproximateDp, RdpCurve, type))
        assert found == expected or found in (ValueError, TypeError, UnaccountableError), (changed, found)
        assert isinstance(found, type) or plain_numbers(found)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_costs_the_same_with_whole_numbers(kind):
    make, relation = KINDS[kind]
    if kind == "with replacement":  # no accountant knows it
        with pytest.raises(UnaccountableError, match="cannot be accounted"):
            account(make(3, 0.25, 4), ONCE, relation=relation)
        return
    assert account(make(3, 0.25, 4), ONCE, relation=relation).epsilon(DELTA) == account(
        make(np.float32(3.0), Fraction(1, 4), np.int8(4)), ONCE, relation=relation
    ).epsilon(DELTA)


def test_every_kind_of_dp_accounting_is_tried():
    made = {type(make(3.0, 0.25, 4)) for make, _ in KINDS.values()}
    known = {kind for kind in vars(dp_event).values() if isinstance(kind, type) and issubclass(kind, dp_event.DpEvent)}
    assert known <= made | {dp_event.DpEvent, dp_event.NonPrivateDpEvent, dp_event.UnsupportedDpEvent}


def test_integer_noise_inside_a_sampled_composition_is_not_skipped():
    """dp_accounting's RDP accountant takes it for no event at all: ε = 0.60 instead of 2.92."""
    wrong = Poisson(0.3, Repeated(Gaussian(3), 9))
    epsilon = account(wrong, ONCE).epsilon(DELTA)  # first: guarantees are remembered, and 3 == 3.0
    assert epsilon == pytest.approx(2.92, abs=0.01)
    assert account(Poisson(0.3, Repeated(Gaussian(3.0), 9)), ONCE).epsilon(DELTA) == epsilon
    # The truth at the wrong ε: one record is sampled with probability 0.3 and then seen by a Gaussian of noise 1.
    order = (math.expm1(0.6) + 0.3) / 0.3
    true_delta = 0.3 * (ndtr(0.5 - math.log(order)) - order * ndtr(-0.5 - math.log(order)))
    assert true_delta > 0.02
    # Without the gate, the accountant still believes it: when this fails, dp_accounting has mended it.
    assert RdpAccountant(neighboring_relation=ADD).compose(wrong).get_epsilon(DELTA) < 1.0


@pytest.mark.parametrize("rate", [30, 1.5, -0.2, math.nan, math.inf, "0.1", None, True])
@pytest.mark.parametrize(
    "around",
    [
        lambda step: step,
        lambda step: Repeated(step, 100),
        lambda step: Composed([Gaussian(1.0), step]),
        lambda step: Poisson(0.5, Repeated(step, 3)),
    ],
)
def test_a_sampling_rate_outside_its_range_is_refused_wherever_it_stands(rate, around):
    with pytest.raises(ValueError, match=r"PoissonSampledDpEvent.sampling_probability = "):
        account(around(Poisson(rate, Gaussian(1.0))), ONCE)


def test_a_rate_too_small_for_floating_point_is_refused_and_a_small_delta_is_not():
    with pytest.raises(ValueError, match="at least 1e-15"):
        canonical(Poisson(1e-100, Gaussian(1.0)))
    assert canonical(ApproximateDp(1.0, 1e-20)) == ApproximateDp(1.0, 1e-20)


@pytest.mark.parametrize("noise", [-1.0, math.nan, math.inf, -math.inf, True, "2", None, 1 + 0j, np.array([2.0])])
def test_noise_that_is_no_positive_number_is_refused(noise):
    with pytest.raises(ValueError, match=r"GaussianDpEvent.noise_multiplier = "):
        account(Repeated(Gaussian(noise), 3), ONCE)


@pytest.mark.parametrize("count", [0, -1, 2.0, 2.5, True, math.inf, "3", None])
def test_a_count_that_is_no_positive_whole_number_is_refused(count):
    with pytest.raises(ValueError, match=r"SelfComposedDpEvent.count = "):
        account(Repeated(Gaussian(1.0), count), ONCE)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (dp_event.NonPrivateDpEvent(), "not private"),
        (Composed([Gaussian(1.0), dp_event.NonPrivateDpEvent()]), "not private"),
        (Gaussian(0), "without noise"),
        (dp_event.RandomizedResponseDpEvent(0.0, 2), "without noise"),
        (dp_event.UnsupportedDpEvent(), "UnsupportedDpEvent is not supported"),
        (Composed([]), "one or more"),
        (Composed("ab"), "one or more"),
        (Repeated(PureDp(1.0), 3), "only events of dp_accounting"),
        (Composed([PureDp(1.0)]), "only events of dp_accounting"),
        (dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.5]), "one for each sensitivity"),
        (dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.5, 0.4]), "sum to 1"),
        (dp_event.SampledWithoutReplacementDpEvent(10, 11, Gaussian(1.0)), "at most source_dataset_size"),
    ],
)
def test_an_event_that_makes_no_sense_is_refused(event, words):
    with pytest.raises(ValueError, match=words):
        account(event, ONCE)


def test_what_is_no_event_is_refused():
    for wrong in (3.0, None, "GaussianDpEvent", {"type": "GaussianDpEvent"}, GaussianSubclass(1.0)):
        with pytest.raises((TypeError, UnaccountableError)):
            account(wrong, ONCE)


class GaussianSubclass(dp_event.GaussianDpEvent):
    """An accountant may look at the class: a subclass could be anything."""


def test_an_event_nested_too_deeply_is_refused_and_not_a_recursion_error():
    event = Gaussian(1.0)
    for _ in range(5000):
        event = Composed([event])
    with pytest.raises(ValueError, match="nested at most"):
        canonical(event)
    data = {"type": "NoOpDpEvent"}
    for _ in range(500):
        data = {"type": "ComposedDpEvent", "events": [data]}
    with pytest.raises(ValueError, match="nested deeper"):
        events.from_dict(data)


numbers = st.floats(0.01, 100.0) | st.integers(1, 100) | st.fractions(Fraction(1, 100), 100)
rates = (
    st.floats(1e-12, 1.0)
    | st.fractions(Fraction(1, 1000), 1)
    | st.sampled_from([0, 1, np.float32(0.1), np.float64(0.5)])
)
whole = st.integers(1, 1000) | st.integers(1, 100).map(np.int16)
leaves = st.one_of(
    st.builds(Gaussian, numbers),
    st.builds(dp_event.LaplaceDpEvent, numbers),
    st.builds(dp_event.ZCDpEvent, numbers),
    st.just(dp_event.NoOpDpEvent()),
)
nested = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Repeated, inner, whole),
        st.builds(Composed, st.lists(inner, min_size=1, max_size=3)),
        st.builds(Poisson, rates, inner),
    ),
    max_leaves=5,
)


@given(nested)
@settings(max_examples=200, deadline=None)
def test_the_canonical_form_is_plain_and_its_own_and_survives_json(event):
    found = canonical(event)
    assert canonical(found) == found
    assert hash(found) == hash(canonical(event))
    assert events.from_dict(json.loads(json.dumps(events.event_to_dict(event)))) == found
    assert plain_numbers(found)


def plain_numbers(value: object) -> bool:
    """Whether an event holds Python floats and integers and nothing else."""
    if isinstance(value, dp_event.DpEvent):
        fields = [getattr(value, name) for name in getattr(value, "__slots__", ()) if name != "__weakref__"]
        return all(plain_numbers(field) for field in fields)
    if isinstance(value, (PureDp, ApproximateDp, RdpCurve)):
        return all(plain_numbers(field) for field in vars(value).values())
    if isinstance(value, tuple):
        return all(plain_numbers(item) for item in value)
    return type(value) in (int, float)


@pytest.mark.parametrize("noise", [1e-3, 1e-300])
def test_noise_that_no_number_can_speak_for_is_refused_at_once(noise: float) -> None:
    with pytest.raises(ValueError, match=r"noise_multiplier = .* is not valid: give at least 0.01"):
        account(dp_accounting.GaussianDpEvent(noise), Pmf({1: 1.0}))
