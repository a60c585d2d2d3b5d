"""The rule between two stages: it sees the release and nothing else."""

from __future__ import annotations

import dataclasses
import gc

import pytest
import scipy.stats as st
from support.stages_world import FEW, cheap, make, stages
from support.study_world import RELATION, SPACE

import dphypo
from dphypo import errors
from dphypo.accounting import PureDp
from dphypo.search import LastRun, PriorAround, Stage, Stages, Survey
from dphypo.search.part import Released
from dphypo.search.release import Ending
from dphypo.space import Space

ANY = {"delta": 1e-6, "journal": None}


def test_the_rule_is_given_the_release_and_nothing_else():
    seen = []

    def rule(*arguments):
        seen.append(arguments)
        return arguments[1]

    for publish in (False, True):
        search = make(stages=stages(prior=rule, release_score=publish))
        search.run(progress=False)
        released, space = seen[-1]
        assert space == SPACE
        assert type(released) is Released
        assert [field.name for field in dataclasses.fields(released)] == ["params", "score", "ending"]
        score = max(trial["score"] for trial in search.curator(1).trials())
        assert released.score == (score if publish else None)
        with pytest.raises(dataclasses.FrozenInstanceError):
            released.score = 1.0
        with pytest.raises(TypeError):
            released.params["lr"] = 1.0
        assert reachable(released) <= {"Released", "mappingproxy", "dict", "str", "float", "int", "Ending", "NoneType"}


def reachable(value) -> set[str]:
    """The types of all that hangs together with an object, classes and modules apart."""
    found, todo = set(), [value]
    seen = set()
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, type):
            continue
        seen.add(id(one))
        found.add(type(one).__name__)
        if not isinstance(one, Ending):
            todo += gc.get_referents(one)
    return found


def test_a_rule_may_return_a_space_of_its_own():
    search = make(stages=stages(prior=lambda released, space: Space({"lr": [released.params["lr"]], "depth": [1]})))
    release = search.run(progress=False)
    assert release.params == {"lr": search.released[0].params["lr"], "depth": 1}


def test_a_rule_that_leaves_what_was_accounted_for_is_refused_and_can_be_mended(tmp_path):
    @dphypo.mechanism(event=lambda params: PureDp(0.25 * params["depth"]), relation=RELATION)
    def deep(params, *, seed):
        return 1, 1.0

    wide = [True]

    def rule(released, space):
        return Space({"lr": [0.1], "depth": [1, 4]}) if wide else space

    chain = [Stage(cheap, FEW, prior=rule), Stage(deep, FEW)]
    with pytest.raises(errors.Refusal, match=r"leaves the declared one.*'depth' was not declared with the value 4"):
        make(tmp_path / "stages.db", stages=chain).run(progress=False)
    wide.clear()
    search = make(tmp_path / "stages.db", stages=chain)
    assert search.run(progress=False).params is not None
    with pytest.raises(ValueError, match=r"must return a dphypo\.Space"):
        make(stages=stages(prior=lambda released, space: {})).run(progress=False)


SMALL = Space({"lr": st.uniform(0, 2), "depth": [1, 2, 3]})
TREE = Space({"optimizer": ["sgd", "adam"], "lr": st.uniform(0, 2)}).when("optimizer", "sgd", {"momentum": [0.0, 0.9]})


@pytest.mark.parametrize(
    ("space", "prior"),
    [
        (SMALL, Space({"lr": [3.0], "depth": [1]})),
        (SMALL, Space({"lr": st.uniform(0, 2.1), "depth": [1]})),
        (SMALL, Space({"lr": st.uniform(-0.5, 1), "depth": [1]})),
        (SMALL, Space({"lr": ["0.1"], "depth": [1]})),
        (SMALL, Space({"lr": [0.1], "depth": [1, 4]})),
        (SMALL, Space({"lr": [0.1], "depth": st.randint(1, 3)}).around({"lr": 0.1, "depth": 1})),
        (SMALL, Space({"lr": [0.1], "depth": st.uniform(1, 1)})),
        (SMALL, Space({"lr": [0.1]})),
        (SMALL, Space({"lr": [0.1], "depth": [1], "width": [3]})),
        (TREE, Space({"optimizer": ["sgd", "adam"], "lr": [1.0], "momentum": [0.9]})),
        (TREE, Space({"optimizer": ["sgd", "adam"], "lr": [1.0]}).when("optimizer", "adam", {"momentum": [0.9]})),
    ],
)
def test_a_rule_that_leaves_the_space_is_refused_though_the_event_is_constant(space, prior):
    """The event is a bound for every value of the declared space, and says nothing about others."""

    @dphypo.mechanism(event=PureDp(0.25), relation=RELATION)
    def constant(params, *, seed):
        return 1, 1.0

    allowed = (SMALL, Space({"lr": [0.1], "depth": st.randint(1, 3)}).around({"lr": 0.1, "depth": 1}))
    search = Stages(space, [Stage(constant, FEW, prior=lambda *_: prior), Stage(constant, FEW)], **ANY)
    if (space, prior) == allowed:
        assert search.run(progress=False).params["depth"] in (1, 2)
        return
    with pytest.raises(errors.Refusal, match="leaves the declared one"):
        search.run(progress=False)


NARROW = Space({"lr": st.uniform(0.5, 0.1), "depth": [3]})


@pytest.mark.parametrize("fallback", [None, {"lr": 2.0, "depth": 1}])
@pytest.mark.parametrize(
    "first", [Survey(cheap, 6, prior=lambda *_: NARROW), Stage(cheap, FEW, prior=lambda *_: NARROW)]
)
def test_a_last_run_is_made_in_a_prior_that_does_not_hold_what_was_published(first, fallback):
    """Before, an error after the survey was paid for."""
    search = Stages(SMALL, [first, LastRun(cheap, fallback=fallback)], **ANY)
    release = search.run(progress=False)
    assert 0.5 <= release.params["lr"] <= 0.6
    assert release.params["depth"] == 3


@pytest.mark.parametrize(
    ("name", "prior", "shift", "released", "expected"),
    [
        ("x", st.uniform(0, 2), 0.5, 1.0, 0.5),
        ("x", st.uniform(0, 2), 5.0, 1.0, 2.0),
        ("x", st.uniform(0, 2), lambda value: -value, 1.0, 0.0),
        ("x", st.randint(1, 10**6), 0.3, 10, 3),
        ("x", [64, 128, 256], 1.4, 128, 128),
        ("x", [64, 128, 256], 4, 128, 256),
        ("x", ["a", "b"], lambda value: "b", "a", "b"),
    ],
)
def test_shifts_stay_in_the_space(name, prior, shift, released, expected):
    shaped = PriorAround(shift={name: shift})(Released({name: released}), Space({name: prior}))
    assert shaped.to_dict()["around"]["params"][name] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (PriorAround(spread={"lrr": 0.1}), "none of the parameters"),
        (PriorAround(shift={"lrr": 2}), "the parameters are lr, depth"),
        (PriorAround(spread=3.0), "spread"),
    ],
)
def test_a_rule_that_does_not_fit_the_space_is_refused_before_anything_runs(rule, message):
    with pytest.raises(ValueError, match=message):
        make(stages=stages(prior=rule))
    with pytest.raises(ValueError, match="floor"):
        PriorAround(floor=0)
    with pytest.raises(ValueError, match="shift"):
        PriorAround(shift={"lr": -1})
    with pytest.raises(ValueError, match="categories have no factor"):
        PriorAround(shift={"x": 2}).check(Space({"x": ["a", "b"]}))
