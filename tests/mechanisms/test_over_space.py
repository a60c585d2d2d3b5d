"""The supremum over λ of a functional event, and what training and scoring cost together."""

from __future__ import annotations

import math

import dp_accounting as dp
import numpy as np
import pytest
from scipy.stats import loguniform, norm, randint, uniform

import dphypo
from dphypo.accounting import PureDp, RoundedDp
from dphypo.errors import Refusal
from dphypo.mechanisms import Declared
from dphypo.mechanisms.over_space import by_side, events
from dphypo.space import Space

ADD_OR_REMOVE = dp.NeighboringRelation.ADD_OR_REMOVE_ONE


def made(event, **options):
    return dphypo.mechanism(event=event, relation=ADD_OR_REMOVE, **options)(lambda params, *, seed: (None, 0.0))


APART = dphypo.Split("odd numbers score")
SPACE = Space(
    {
        "lr": loguniform(1e-4, 1),
        "rounds": randint(1, 4),
        "noise": loguniform(0.5, 2.0),
        "optimizer": ["sgd", "adam"],
    }
).when("optimizer", "adam", {"beta": [0.9, 0.99]})


def test_an_event_is_evaluated_at_every_value_it_reads():
    found = events(made(lambda p: dp.SelfComposedDpEvent(dp.GaussianDpEvent(1.0), p["rounds"])), SPACE)
    assert {event.count for event in found} == {1, 2, 3}


def test_events_that_differ_in_the_middle_of_a_long_array_are_told_apart():
    def event(params):
        sensitivities, probabilities = np.linspace(0.0, 1.0, 1200), np.zeros(1200)
        sensitivities[600], probabilities[[0, 600]] = params["rounds"], 0.5
        return dp.dp_event.MixtureOfGaussiansDpEvent(1.0, sensitivities, probabilities)

    assert {event.sensitivities[600] for event in events(made(event), SPACE)} == {1.0, 2.0, 3.0}


def test_an_event_that_branches_is_followed():
    def event(params):
        if params["optimizer"] == "sgd":
            return dp.GaussianDpEvent(1.0)
        return dp.GaussianDpEvent(params["beta"])

    assert {event.noise_multiplier for event in events(made(event), SPACE)} == {1.0, 0.9, 0.99}


def test_an_inactive_parameter_is_absent():
    found = events(made(lambda p: dp.GaussianDpEvent(p.get("beta", 5.0))), SPACE)
    assert {event.noise_multiplier for event in found} == {0.9, 0.99, 5.0}
    found = events(made(lambda p: dp.GaussianDpEvent(2.0 if "beta" in p else 3.0)), SPACE)
    assert {event.noise_multiplier for event in found} == {2.0, 3.0}


def test_a_monotone_parameter_is_taken_at_the_ends_of_what_can_be_drawn():
    found = events(made(lambda p: dp.GaussianDpEvent(p["noise"]), monotone=["noise"]), SPACE)
    low, high = sorted(event.noise_multiplier for event in found)
    assert low == pytest.approx(0.5, rel=1e-8)
    assert high == pytest.approx(2.0, rel=1e-8)
    drawn = [SPACE.sample(dphypo.entropy.Seeded(i))["noise"] for i in range(200)]
    assert low <= min(drawn) <= max(drawn) <= high


def test_an_unbounded_prior_is_bounded_by_what_can_be_drawn():
    space = Space({"z": norm(0, 1)})
    found = events(made(lambda p: dp.GaussianDpEvent(10 + p["z"]), monotone=["z"]), space)
    assert len(found) == 2
    assert all(3 < event.noise_multiplier < 17 for event in found)


@pytest.mark.parametrize("event", [lambda p: dp.GaussianDpEvent(p["lr"]), lambda p: dp.GaussianDpEvent(len(dict(p)))])
def test_a_continuous_parameter_that_is_not_monotone_is_refused(event):
    with pytest.raises(Refusal, match=r"supremum cannot be computed.*'lr'.*monotone"):
        events(made(event), SPACE)


def test_the_refusal_cannot_be_caught_by_the_event():
    def event(params):
        try:
            return dp.GaussianDpEvent(params["lr"])
        except Exception:
            return dp.GaussianDpEvent(100.0)

    with pytest.raises(Refusal, match="supremum cannot be computed"):
        events(made(event), SPACE)


def test_too_many_combinations_are_refused():
    space = Space({name: list(range(100)) for name in "abc"})
    with pytest.raises(Refusal, match=r"supremum cannot be computed.*combinations"):
        events(made(lambda p: dp.GaussianDpEvent(1.0 + p["a"] + p["b"] + p["c"])), space)


def test_a_name_that_is_no_parameter_is_the_events_own_error():
    with pytest.raises(KeyError):
        events(made(lambda p: dp.GaussianDpEvent(p["learning_rate"])), SPACE)


def test_scoring_costs_the_worse_on_other_records_and_the_sum_on_the_same():
    train, score = dp.GaussianDpEvent(1.0), dp.LaplaceDpEvent(2.0)
    assert events(made(train, score_event=score, split=APART), SPACE) == [train, score]
    assert events(made(train, score_event=score), SPACE) == [dp.ComposedDpEvent((train, score))]
    assert events(made(train, score_event=score, split="same"), SPACE) == [dp.ComposedDpEvent((train, score))]


def test_a_replaced_record_may_leave_training_and_enter_scoring():
    train, score = dp.GaussianDpEvent(1.0), dp.LaplaceDpEvent(2.0)
    replace = dp.NeighboringRelation.REPLACE_ONE
    run = Declared(lambda params, *, seed: (None, 0.0), train, replace, score, APART.sides)
    assert events(run, SPACE) == [dp.ComposedDpEvent((train, score))]


def test_the_events_of_each_side():
    train, score = dp.GaussianDpEvent(1.0), dp.LaplaceDpEvent(2.0)
    assert by_side(made(train, score_event=score, split=APART), SPACE) == ([train], [score])
    assert by_side(made(train), SPACE) == ([train], [])
    assert by_side(made(train, score_event=score, split="same"), SPACE) == ([dp.ComposedDpEvent((train, score))], [])


def test_a_replaced_record_can_leave_training_and_enter_scoring():
    """Two Laplace counts, 1-DP each: D has one record more for the first, D′ one more for the second.

    P[first ≥ its count on D, second ≤ its count on D] is ¼ on D and ¼ e^−2 on D′.
    """
    replace_one = dp.NeighboringRelation.REPLACE_ONE
    run = dphypo.mechanism(event=PureDp(1.0), score_event=PureDp(1.0), relation=replace_one, split=APART)(
        lambda p, *, seed: None
    )
    found = events(run, SPACE)
    claimed = dphypo.account(found, dphypo.Pmf({1: 1.0}), relation=replace_one).epsilon(1e-9)
    attack = math.log(0.25 / (0.25 * math.exp(-2.0)))
    assert attack - 1e-6 <= claimed <= attack + 1e-5
    blank = dp.NeighboringRelation.REPLACE_SPECIAL  # a blank record meets neither
    run = dphypo.mechanism(event=PureDp(1.0), score_event=PureDp(1.0), relation=blank, split=APART)(
        lambda p, *, seed: None
    )
    assert events(run, SPACE) == [PureDp(1.0)]


def test_scoring_may_depend_on_the_parameters_too():
    found = events(
        made(
            lambda p: dp.GaussianDpEvent(float(p["rounds"])),
            score_event=lambda p: dp.LaplaceDpEvent(p.get("beta", 1.0)),
            split="same",
        ),
        SPACE,
    )
    pairs = {(event.events[0].noise_multiplier, event.events[1].noise_multiplier) for event in found}
    assert pairs == {(e, b) for e in (1.0, 2.0, 3.0) for b in (1.0, 0.9, 0.99)}


@pytest.mark.parametrize("split", ["same", APART])
def test_no_value_may_go_without_an_event(split):
    """An empty list at one λ left that λ out of the supremum: its runs were made, and not charged."""
    cheap = lambda p: [] if p["rounds"] == 3 else dp.GaussianDpEvent(9.0)  # noqa: E731
    for training, scoring in ((cheap, dp.GaussianDpEvent(9.0)), (dp.GaussianDpEvent(9.0), cheap)):
        for found in (events, by_side):
            with pytest.raises(ValueError, match="every λ"):
                found(made(training, score_event=scoring, split=split), SPACE)


@pytest.mark.parametrize("split", ["same", APART])
def test_a_class_of_ones_own_gives_sides_or_none(split):
    """Before, "same" counted as two sides, and training and scoring as the worse of the two."""
    own = made(dp.GaussianDpEvent(2.0), score_event=dp.GaussianDpEvent(2.0))
    object.__setattr__(own, "split", split)
    for found in (events, by_side):
        with pytest.raises(ValueError, match=r"Split\(how\)\.sides"):
            found(own, SPACE)


def test_pure_epsilons_add_up_on_the_same_records_and_other_mixtures_are_refused():
    added = events(made(PureDp(0.5), score_event=PureDp(0.25), split="same"), SPACE)
    assert added == [PureDp(0.75)]
    with pytest.raises(TypeError, match="cannot be composed"):
        events(made(PureDp(0.5), score_event=dp.GaussianDpEvent(1.0), split="same"), SPACE)


def test_an_end_of_a_monotone_parameter_that_may_not_be_run_counts_all_the_same():
    """Just inside the end that is excluded, a run is almost as bad."""
    noisy = made(lambda params: dp.GaussianDpEvent(params["noise"]), monotone=["noise"])
    space = Space({"noise": loguniform(0.5, 20.0), "batch": [1, 2]})
    for within in (lambda params: params["noise"] > 0.6, lambda params: 0.6 < params["noise"] < 10):
        found = [event.noise_multiplier for event in by_side(noisy, space, within)[0]]
        assert min(found) == pytest.approx(0.5, rel=1e-3)
    by_batch = made(lambda params: dp.GaussianDpEvent(params["noise"] * params["batch"]), monotone=["noise"])
    found = [event.noise_multiplier for event in by_side(by_batch, space, lambda params: params["batch"] > 1)[0]]
    assert min(found) == pytest.approx(1.0, rel=1e-3)


def test_all_values_of_a_monotone_parent_are_visited():
    """Before: certified 1.70 where a run at noise = 5 costs 15.95."""
    space = Space({"noise": [4.0, 5.0, 6.0]}).when("noise", 5.0, {"steps": [1, 100]})
    run = made(lambda p: dp.SelfComposedDpEvent(dp.GaussianDpEvent(p["noise"]), p.get("steps", 1)), monotone=["noise"])
    found = {(event.event.noise_multiplier, event.count) for event in events(run, space)}
    assert found == {(4.0, 1), (5.0, 1), (5.0, 100), (6.0, 1)}
    for within in (lambda params: params["noise"] == 5.0, lambda params: "steps" in params):
        (found, _) = by_side(run, space, within)
        assert {(event.event.noise_multiplier, event.count) for event in found} == {(5.0, 1), (5.0, 100)}


def test_training_and_scoring_that_are_monotone_in_opposite_directions_meet_at_both_ends():
    """Before: certified 1.634 where a run at x = 0.5 costs 1.871."""

    def train(params):
        return dp.GaussianDpEvent(4 * params["x"] ** -0.25)

    def score(params):
        return dp.GaussianDpEvent(4 * (1 - params["x"]) ** -0.25)

    law, space = dphypo.Geometric(mean=10), Space({"x": uniform(0.01, 0.98)})
    found = events(made(train, score_event=score, monotone=["x"]), space)
    worst = dp.ComposedDpEvent((train({"x": 0.5}), score({"x": 0.5})))
    assert len(found) == 4
    certified = dphypo.account(found, law, relation=ADD_OR_REMOVE).epsilon(1e-6)
    assert certified >= dphypo.account([worst], law, relation=ADD_OR_REMOVE).epsilon(1e-6)


def test_training_and_scoring_agree_on_what_is_not_monotone():
    space = Space({"noise": loguniform(0.5, 2.0), "batch": [1, 2]})

    def event(params):
        return dp.GaussianDpEvent(params["noise"] * params["batch"])

    def score(params):
        return dp.LaplaceDpEvent(params["batch"])

    found = events(made(event, score_event=score, monotone=["noise"]), space)
    pairs = {(round(event.events[0].noise_multiplier, 6), event.events[1].noise_multiplier) for event in found}
    assert pairs == {(0.5, 1), (2.0, 1), (1.0, 2), (4.0, 2)}
    constant = events(made(event, score_event=dp.LaplaceDpEvent(3.0), monotone=["noise"]), space)
    assert len(constant) == 4  # no more than the events of training


def test_a_private_score_under_replacement_is_refused() -> None:
    """Its event is stated for adding or removing a record; a replaced one moves two counts."""
    declared = dphypo.mechanism(
        event=dp.GaussianDpEvent(2.0),
        relation=dp.NeighboringRelation.REPLACE_ONE,
        score_event=RoundedDp(dp.GaussianDpEvent(5.0), 1e-12),
    )(lambda params, *, seed: (None, 0.0))
    with pytest.raises(ValueError, match="adding or removing one record"):
        dphypo.Study(dphypo.Space({"x": [1, 2]}), declared, dphypo.Poisson(mean=3), delta=1e-5, journal=None).account()
