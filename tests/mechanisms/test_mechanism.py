"""What one run is: outcomes, savers, the decorator, and the supremum of a functional event."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys

import dp_accounting as dp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import loguniform, norm, randint

import dphypo
from dphypo.accounting import PureDp
from dphypo.errors import UnboundedEvent
from dphypo.mechanisms import Declared, Outcome, Plain, Split, UnsupportedModelError, attempt, settle
from dphypo.mechanisms.over_space import by_side, events
from dphypo.space import Space

ADD_OR_REMOVE = dp.NeighboringRelation.ADD_OR_REMOVE_ONE


@dphypo.mechanism(event=dp.GaussianDpEvent(1.0), relation=ADD_OR_REMOVE)
def declared(params, *, seed):
    """Trains."""
    return params["x"], float(seed)


def made(event, **options):
    return dphypo.mechanism(event=event, relation=ADD_OR_REMOVE, **options)(lambda params, *, seed: (None, 0.0))


@pytest.mark.parametrize(
    "first",
    [
        "import dphypo; use = dphypo.mechanism",
        "import dphypo, dphypo.mechanisms; use = dphypo.mechanism",
        "import dphypo; from dphypo.mechanisms import Outcome; use = dphypo.mechanisms.mechanism",
        "from dphypo import mechanism as use; import dphypo",
        "from dphypo.mechanisms import mechanism as use; import dphypo",
    ],
)
def test_the_decorator_is_reached_by_every_path(first):
    code = f"{first}\nuse(event=1, relation=2)(print)\nassert dphypo.mechanisms.Outcome is dphypo.Outcome"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_a_declared_mechanism_is_still_the_function():
    assert declared({"x": 3}, seed=4) == (3, 4.0)
    assert declared.__doc__ == "Trains."
    assert declared.split is Split.DISJOINT
    assert isinstance(declared.saver, Plain)


def test_a_mechanism_travels_to_other_processes_by_name_and_else_by_value():
    assert pickle.loads(pickle.dumps(declared)) is declared
    by_value = Declared(math.sqrt, dp.GaussianDpEvent(2.0), ADD_OR_REMOVE, monotone=frozenset({"x"}))
    again = pickle.loads(pickle.dumps(by_value))
    assert again == by_value
    assert again.monotone == {"x"}


@pytest.mark.parametrize(
    "arguments",
    [
        {"train": 3},
        {"event": None},
        {"split": "neither"},
        {"saver": object()},
        {"monotone": "noise"},
        {"monotone": None},
        {"monotone": [1]},
        {"seeded": 1},
        {"seeded": np.array([1, 2])},
        {"score_event": []},
    ],
)
def test_a_wrong_declaration_is_refused(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments)) if "split" not in arguments else "neither"):
        Declared(**{"train": print, "event": dp.GaussianDpEvent(1.0), "relation": ADD_OR_REMOVE} | arguments)


@pytest.mark.parametrize(
    ("returned", "score"),
    [
        ((1, 0.5), 0.5),
        (Outcome(1, 0.5), 0.5),
        ((1, np.float32(0.5)), 0.5),
        ((1, True), 1.0),
        ((1, math.nan), None),
        ((1, math.inf), None),
        ((1, -math.inf), None),
        ((1, 10**400), None),
        ((1, "best"), None),
        ((1, "0.9"), None),
        ((1, b"0.9"), None),
        ((1, np.array("0.9")), None),
        ((1, np.complex128(0.9)), None),
        ((1, np.array(0.5)), 0.5),
        ((1, None), None),
        ((1, [1, 2]), None),
        ([1, 0.5], None),
        ((1, 2, 3), None),
        (None, None),
        (Outcome.failed("diverged"), None),
    ],
)
def test_what_a_run_returns_is_an_outcome(returned, score):
    result = settle(lambda: returned, Plain())
    assert result.score == score
    assert (result.model is None) == (result.failure is not None) == (score is None)
    if score is None:
        assert result.failure


@pytest.mark.parametrize("error", [ValueError("x"), MemoryError(), RecursionError(), StopIteration(), GeneratorExit()])
def test_an_exception_is_an_outcome(error):
    def train(params, *, seed):
        raise error

    result = attempt(Declared(train, 1, 2), {}, 0)
    assert result.score is None
    assert type(error).__name__ in result.failure


def test_leaving_the_process_is_an_outcome_first():
    def train(params, *, seed):
        sys.exit(3)

    result = attempt(Declared(train, 1, 2), {}, 0)
    assert result.failure
    assert result.leaving.code == 3


def test_an_interrupt_and_a_model_of_an_unknown_kind_are_not_outcomes():
    def interrupted(params, *, seed):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attempt(Declared(interrupted, 1, 2), {}, 0)
    with pytest.raises(UnsupportedModelError, match=r"'object'.*saver="):
        attempt(Declared(lambda params, *, seed: (object(), 1.0), 1, 2), {}, 0)


def test_a_saver_that_fails_on_one_model_is_an_outcome():
    class Broken:
        format = "x"

        def dump(self, model):
            raise OSError("too large")

        def load(self, data):
            return None

    assert "too large" in settle(lambda: (1, 1.0), Broken()).failure


def test_a_run_cannot_change_its_recorded_parameters():
    def train(params, *, seed):
        params["x"] = "changed"
        params["y"].append(1) if isinstance(params["y"], list) else None
        return 1, 1.0

    params = {"x": 1, "y": [0]}
    attempt(Declared(train, 1, 2), params, 0)
    assert params == {"x": 1, "y": [0]}


# Savers

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
MODELS = st.recursive(
    LEAVES, lambda x: st.lists(x) | st.lists(x).map(tuple) | st.dictionaries(st.text(), x), max_leaves=12
)


@given(MODELS)
def test_plain_models_come_back_as_they_were(model):
    def kinds(value):
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
        return [type(value), *map(kinds, inner)]

    again = Plain().load(Plain().dump(model))
    assert again == model
    assert kinds(again) == kinds(model)


@pytest.mark.parametrize(
    "array",
    [np.arange(6.0).reshape(2, 3), np.float32([1, 2]), np.array("x"), np.int8(3), np.zeros((0, 4)), np.array([True])],
)
def test_arrays_come_back_as_they_were(array):
    again = Plain().load(Plain().dump({"a": [array]}))["a"][0]
    assert again.dtype == array.dtype
    assert again.shape == array.shape
    assert type(again) is type(array)
    assert np.array_equal(again, array)


@pytest.mark.parametrize("model", [object(), {1: 2}, {"a": {1, 2}}, np.array([object()]), print, b"bytes"])
def test_what_would_need_pickle_is_refused(model):
    with pytest.raises(UnsupportedModelError):
        Plain().dump(model)


def test_saved_bytes_hold_no_time_and_no_pickle(monkeypatch):
    first = Plain().dump({"w": np.arange(4.0)})
    monkeypatch.setattr("time.time", lambda: 2e9)
    assert Plain().dump({"w": np.arange(4.0)}) == first
    with pytest.raises(ValueError, match="the model cannot be read"):
        Plain().load(_with_object_array())


def _with_object_array() -> bytes:
    """An archive like ours in which an array is a pickle, as an attacker would write it."""
    import io
    import zipfile

    member = io.BytesIO()
    np.lib.format.write_array(member, np.array([{}], dtype=object), allow_pickle=True)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("tree.json", '["array", 0]')
        file.writestr("0.npy", member.getvalue())
    return archive.getvalue()


# The supremum of a functional event

SPACE = Space(
    {
        "lr": loguniform(1e-4, 1),
        "epochs": randint(1, 4),
        "noise": loguniform(0.5, 2.0),
        "optimizer": ["sgd", "adam"],
    }
).when("optimizer", "adam", {"beta": [0.9, 0.99]})


def test_an_event_is_evaluated_at_every_value_it_reads():
    found = events(made(lambda p: dp.SelfComposedDpEvent(dp.GaussianDpEvent(1.0), p["epochs"])), SPACE)
    assert {event.count for event in found} == {1, 2, 3}


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
    with pytest.raises(UnboundedEvent, match=r"'lr'.*monotone"):
        events(made(event), SPACE)


def test_the_refusal_cannot_be_caught_by_the_event():
    def event(params):
        try:
            return dp.GaussianDpEvent(params["lr"])
        except Exception:
            return dp.GaussianDpEvent(100.0)

    with pytest.raises(UnboundedEvent):
        events(made(event), SPACE)


def test_too_many_combinations_are_refused():
    space = Space({name: list(range(100)) for name in "abc"})
    with pytest.raises(UnboundedEvent, match="combinations"):
        events(made(lambda p: dp.GaussianDpEvent(1.0 + p["a"] + p["b"] + p["c"])), space)


def test_a_name_that_is_no_parameter_is_the_events_own_error():
    with pytest.raises(KeyError):
        events(made(lambda p: dp.GaussianDpEvent(p["learning_rate"])), SPACE)


def test_scoring_costs_the_worse_on_other_records_and_the_sum_on_the_same():
    train, score = dp.GaussianDpEvent(1.0), dp.LaplaceDpEvent(2.0)
    assert events(made(train, score_event=score), SPACE) == [train, score]
    assert events(made(train, score_event=score, split="same"), SPACE) == [dp.ComposedDpEvent((train, score))]


def test_a_replaced_record_may_leave_training_and_enter_scoring():
    train, score = dp.GaussianDpEvent(1.0), dp.LaplaceDpEvent(2.0)
    replace = dp.NeighboringRelation.REPLACE_ONE
    run = Declared(lambda params, *, seed: (None, 0.0), train, replace, score)
    assert events(run, SPACE) == [dp.ComposedDpEvent((train, score))]


def test_the_events_of_each_side():
    train, score = dp.GaussianDpEvent(1.0), dp.LaplaceDpEvent(2.0)
    assert by_side(made(train, score_event=score), SPACE) == ([train], [score])
    assert by_side(made(train), SPACE) == ([train], [])
    assert by_side(made(train, score_event=score, split="same"), SPACE) == ([dp.ComposedDpEvent((train, score))], [])


def test_a_replaced_record_can_leave_training_and_enter_scoring():
    """Two Laplace counts, 1-DP each: D has one record more for the first, D′ one more for the second.

    P[first ≥ its count on D, second ≤ its count on D] is ¼ on D and ¼ e^−2 on D′.
    """
    replace_one = dp.NeighboringRelation.REPLACE_ONE
    run = dphypo.mechanism(event=PureDp(1.0), score_event=PureDp(1.0), relation=replace_one)(lambda p, *, seed: None)
    found = events(run, SPACE)
    claimed = dphypo.account(found, dphypo.Pmf({1: 1.0}), relation=replace_one).epsilon(1e-9)
    attack = math.log(0.25 / (0.25 * math.exp(-2.0)))
    assert attack - 1e-6 <= claimed <= attack + 1e-5
    blank = dp.NeighboringRelation.REPLACE_SPECIAL  # a blank record meets neither
    run = dphypo.mechanism(event=PureDp(1.0), score_event=PureDp(1.0), relation=blank)(lambda p, *, seed: None)
    assert events(run, SPACE) == [PureDp(1.0)]


def test_scoring_may_depend_on_the_parameters_too():
    found = events(
        made(
            lambda p: dp.GaussianDpEvent(float(p["epochs"])),
            score_event=lambda p: dp.LaplaceDpEvent(p.get("beta", 1.0)),
            split="same",
        ),
        SPACE,
    )
    pairs = {(event.events[0].noise_multiplier, event.events[1].noise_multiplier) for event in found}
    assert pairs == {(e, b) for e in (1.0, 2.0, 3.0) for b in (1.0, 0.9, 0.99)}


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
