"""What one run is: the decorator, and outcomes."""

from __future__ import annotations

import math
import pickle
import signal
import subprocess
import sys

import dp_accounting as dp
import numpy as np
import pytest
from support.slow import mostly_slow

import dphypo
from dphypo.accounting import PureDp
from dphypo.errors import UnsupportedModelError
from dphypo.mechanisms import Declared, Outcome, Plain
from dphypo.mechanisms.mechanism import attempt, outcome_of

ADD_OR_REMOVE = dp.NeighboringRelation.ADD_OR_REMOVE_ONE


@dphypo.mechanism(event=dp.GaussianDpEvent(1.0), relation=ADD_OR_REMOVE)
def declared(params, *, seed):
    """Trains."""
    return params["x"], float(seed)


@pytest.mark.parametrize(
    "first",
    mostly_slow(
        [
            "import dphypo; use = dphypo.mechanism",
            "import dphypo, dphypo.mechanisms; use = dphypo.mechanism",
            "import dphypo; from dphypo.mechanisms import Outcome; use = dphypo.mechanisms.mechanism",
            "from dphypo import mechanism as use; import dphypo",
            "from dphypo.mechanisms import mechanism as use; import dphypo",
        ]
    ),
)
def test_the_decorator_is_reached_by_every_path(first):
    declared = "use(event=1, relation=2)(lambda params, *, seed: None)"
    code = f"{first}\n{declared}\nassert dphypo.mechanisms.Outcome is dphypo.Outcome"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_a_declared_mechanism_is_still_the_function():
    assert declared({"x": 3}, seed=4) == (3, 4.0)
    assert declared.__doc__ == "Trains."
    assert declared.split is None
    assert isinstance(declared.saver, Plain)


def _by_value(params, *, seed):
    return params, 0.5


def by_value_alone(params, *, seed):
    return params, 0.5


def test_a_mechanism_travels_to_other_processes_by_name_and_else_by_value():
    assert pickle.loads(pickle.dumps(declared)) is declared
    by_value = Declared(_by_value, dp.GaussianDpEvent(2.0), ADD_OR_REMOVE, monotone=frozenset({"x"}))
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
        {"split": dphypo.Split("neither even nor odd numbers")},
    ],
)
def test_a_wrong_declaration_is_refused(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments)) if "split" not in arguments else "neither"):
        Declared(**{"train": _by_value, "event": dp.GaussianDpEvent(1.0), "relation": ADD_OR_REMOVE} | arguments)


def test_an_event_that_covers_the_score_counts_for_every_record():
    """On the records that train alone, a survey of it and one of ``both`` would cost 1.1; records that score pay 2."""
    apart = dphypo.Split("even numbers score")
    with pytest.raises(ValueError, match="score_event is None, so the event bounds whatever a run reads"):
        Declared(_by_value, PureDp(1.0), ADD_OR_REMOVE, split=apart)
    both = Declared(_by_value, PureDp(0.1), ADD_OR_REMOVE, PureDp(1.0), apart)
    parts = [dphypo.Survey(one, 1) for one in (Declared(_by_value, PureDp(1.0), ADD_OR_REMOVE), both)]
    guarantee = dphypo.Stages(dphypo.Space({"x": [1]}), parts, delta=0.0, journal=None).guarantee
    assert guarantee.costs(0.0) == pytest.approx({"training": 1.1, "scoring": 2.0})


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
    result = outcome_of(lambda: returned, Plain())
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


def test_a_run_that_exits_has_failed():
    def train(params, *, seed):
        sys.exit(3)

    assert "SystemExit: 3" in attempt(Declared(train, 1, 2), {}, 0).failure


def test_a_signal_and_a_model_of_an_unknown_kind_are_not_outcomes():
    def interrupted(params, *, seed):
        signal.raise_signal(signal.SIGINT)

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

    assert "too large" in outcome_of(lambda: (1, 1.0), Broken()).failure


def test_a_run_cannot_change_its_recorded_parameters():
    def train(params, *, seed):
        params["x"] = "changed"
        params["y"].append(1) if isinstance(params["y"], list) else None
        return 1, 1.0

    params = {"x": 1, "y": [0]}
    attempt(Declared(train, 1, 2), params, 0)
    assert params == {"x": 1, "y": [0]}
