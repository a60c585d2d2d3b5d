"""What a study refuses, and why."""

from __future__ import annotations

import inspect
import re

import dp_accounting as dp
import numpy as np
import pytest
from support.study_world import LAW, SPACE, make, mechanism, train

import dphypo
from dphypo import errors
from dphypo.accounting import PureDp
from dphypo.band import Band
from dphypo.entropy import SYSTEM
from dphypo.journal.journal import Journal
from dphypo.journal.store import open_store
from dphypo.laws import Geometric
from dphypo.samplers import Uniform
from dphypo.search import refusals
from dphypo.space import Space


def test_a_released_study_gives_the_same_release_and_no_other():
    study = make()
    release = study.run(progress=False)
    for again in (study.run(progress=False), study.released()):
        assert (again.params, again.score, again.model["seed"]) == (
            release.params,
            release.score,
            release.model["seed"],
        )
    with pytest.raises(errors.Refusal, match=r"covers that output.*run\(\) returns the same"):
        study.release()
    with pytest.raises(errors.Refusal, match=r"fixed before the first.*run\(\) returns the same"):
        study.ask()


def test_nothing_is_released_before_the_end():
    study = make()
    assert study.released() is None
    with pytest.raises(errors.Refusal, match="stopped at a good score or when time is up"):
        study.release()


@pytest.mark.parametrize("option", sorted(refusals.OPTIONS))
def test_options_of_other_optimisers_are_explained(option):
    with pytest.raises(errors.Refusal, match=re.escape(f"{refusals.OPTIONS[option]} (run was given {option}=.)")):
        make().run(**{option: 3})


def test_an_unknown_option_is_a_plain_error():
    with pytest.raises(TypeError, match="colour"):
        make().run(colour="red")
    with pytest.raises(TypeError, match="Did you mean 'checkpoint_every'"):
        make().run(checkpoint_evry=5)


def test_a_study_keeps_no_checkpoints():
    with pytest.raises(ValueError, match="checkpoint_every = 5 is not valid: a study keeps no checkpoints"):
        make().run(checkpoint_every=5)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("space", {"space": Space({"lr": SPACE.parameters[0].dimension.prior, "depth": [1, 2, 4]})}),
        ("parts", {"runs": Geometric(mean=5)}),
        ("parts", {"band": Band(0.5, 4.0)}),
        ("parts", {"mechanism": mechanism(train.train, event=dp.GaussianDpEvent(5.0))}),
        ("parts", {"mechanism": mechanism(train.train, score_event=PureDp(9.0))}),
        ("parts", {"mechanism": mechanism(train.train, relation=dp.NeighboringRelation.REPLACE_ONE)}),
        ("direction", {"maximize": False}),
        ("entropy", {"entropy": SYSTEM}),
    ],
)
def test_what_a_study_was_declared_by_cannot_change(tmp_path, name, change):
    make(tmp_path / "study.db").ask()
    changed = make(tmp_path / "study.db", **change)
    for act in (
        changed.ask,
        lambda: changed.run(progress=False),
        changed.release,
        changed.released,
        changed.curator().trials,
    ):
        with pytest.raises(errors.ChangedStudy, match=rf"Different: {name}.*study\.db, {name}.* was .* now"):
            act()
    make(tmp_path / "study.db").run(progress=False)


def test_the_search_rule_may_change(tmp_path):
    asked = make(tmp_path / "study.db").ask()
    changed = make(
        tmp_path / "study.db", sampler=Uniform(), projection=dphypo.band.KL(), candidates=16, policy="anything"
    )
    release = changed.run(progress=False)
    trials = changed.curator().trials()
    assert trials[0]["params"] == asked.params, "what was drawn stays drawn"
    assert release.score == max(trial["score"] for trial in trials)


@pytest.mark.parametrize("name", sorted(refusals.SECRETS))
def test_trials_are_shown_to_the_curator_alone(name):
    study = make()
    study.run(progress=False)
    with pytest.raises(errors.SecretValue, match=r"curator\(\) shows the rest"):
        getattr(study, name)
    assert not hasattr(study, name)


def test_the_curators_view_says_that_there_is_no_guarantee():
    curator = make().curator()
    assert "no privacy guarantee" in repr(curator)
    assert "guarantee" in inspect.getdoc(type(curator))
    assert "guarantee" in inspect.getdoc(dphypo.Study.curator)


def test_shredding_is_for_released_studies_and_ends_them(tmp_path):
    study = make(tmp_path / "study.db")
    study.ask()
    with pytest.raises(errors.Refusal, match="several searches"):
        study.shred()
    release = study.run(progress=False)
    release.save(tmp_path / "out")
    study.shred()
    for act in (study.release, study.released, lambda: study.run(progress=False)):
        with pytest.raises(errors.Refusal, match="reduced to its certificate"):
            act()
    with pytest.raises(errors.Refusal, match="can execute no more runs"):
        study.ask()
    assert study.curator().total() is None
    assert study.curator().trials() == []
    assert dphypo.load_release(tmp_path / "out").params == release.params


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"mechanism": train.train}, "mechanism"),
        ({"sampler": object()}, "sampler"),
        ({"delta": 1.0}, "delta"),
        ({"candidates": 0}, "candidates"),
        ({"runs": 10}, "runs"),
        ({"band": (0.5, 2, 3)}, r"band = .* dphypo.Band\(0.75, 2\), or the pair \(0.75, 2\)"),
        ({"band": None}, "band"),
        ({"band": (2, 0.5)}, "c = 2"),
        ({"band": ("0.5", 2)}, "c = '0.5'"),
        ({"grid": {"lrr": 3}}, "lrr"),
        ({"grid": {"lr": None}}, "lr"),
        ({"grid": 3}, "grid"),
        ({"grid": {1: 3}}, "grid"),
        ({"space": {}}, "dphypo.Space"),
        ({"space": {"lr": [0.1]}}, "dphypo.Space"),
        ({"maximize": "minimize"}, "maximize"),
        ({"maximize": 1}, "maximize"),
        ({"delta": "1e-6"}, "delta"),
        ({"entropy": 7}, "entropy"),
        ({"entropy": None}, "entropy"),
        ({"data_name": 3}, "data_name"),
        ({"data_name": ""}, "data_name"),
        ({"data_name": "a" * 201}, "data_name"),
        ({"data_name": "a\nb"}, "data_name"),
        ({"candidates": "many"}, "candidates"),
        ({"candidates": 10**400}, "candidates"),
        ({"lost": np.array([1, 2])}, "lost"),
        ({"projection": 3}, "projection"),
        ({"projection": "nothing"}, "projection"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_happens(change, match):
    with pytest.raises((ValueError, TypeError), match=match):
        make(**change)


def test_repr_shows_public_values_only():
    study = make()
    before = repr(study)
    study.run(progress=False)
    assert repr(study) == before
    assert repr(LAW) in before


def test_a_number_of_runs_that_the_law_never_gives_is_refused():
    store = open_store(None)
    study = make(store)
    Journal(store, "study", shared=True).begin(study.declaration.to_dict(), lambda: 99)
    with pytest.raises(errors.JournalError, match="the law of T never gives"):
        study.ask()


@pytest.mark.parametrize(
    "words",
    [
        *(refusals.SECOND_RELEASE, refusals.RUNS_AFTER_RELEASE, refusals.UNFINISHED, refusals.CHANGED_STUDY),
        *(refusals.OPTIONS["target"], refusals.OPTIONS["timeout"], refusals.SHREDDED, refusals.NOT_RELEASED),
        refusals.OTHER_THREAD,
    ],
)
def test_what_a_survey_can_raise_does_not_speak_of_a_number_that_it_never_draws(words):
    """A survey declares how many runs it makes: T is named as what a study has instead, or not at all."""
    assert "T" not in words.replace("the law of T", "").replace("law of T", "").split()
