"""A study keeps to what Theorem H asks of a search rule, or is certified for a rule that may look at anything."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from support.study_world import LAW, SPACE, make, train

import dphypo
from dphypo import errors
from dphypo.accounting.guarantee import PolicyClass
from dphypo.band import Greedy
from dphypo.entropy import Seeded
from dphypo.journal.store import open_store
from dphypo.samplers import GaussianProcess, History, Uniform


@dataclass(frozen=True)
class Peeks:
    """A rule that was given the data, or the clock, or T."""

    secret: object

    def weights(self, candidates, history):
        return candidates.masses * (1.0 + (hash(str(self.secret)) % 7))


@dataclass(frozen=True)
class Declared:
    """A rule of the user's own, declared to see only the history."""

    history_only: ClassVar[bool] = True

    def weights(self, candidates, history):
        return candidates.masses.copy()


@dataclass(frozen=True)
class Recorder:
    """Keeps what it was shown."""

    seen: list
    history_only: ClassVar[bool] = True

    def weights(self, candidates, history):
        self.seen.append(tuple(history.scores))
        return candidates.masses.copy()


@pytest.mark.parametrize("secret", [np.arange(3.0), time.monotonic, 12], ids=["data", "clock", "T"])
def test_a_rule_that_peeks_is_certified_for_anything_or_refused(secret):
    study = make(None, sampler=Peeks(secret))
    assert study.certificate.to_dict()["terms"][0]["policy"]["class"] == "anything"
    assert "history" not in study.guarantee.bounds(1e-6)
    with pytest.raises(ValueError, match="history_only"):
        make(None, sampler=Peeks(secret), policy="history")


def test_a_projection_that_may_peek_is_certified_for_anything_unless_its_author_says_otherwise():
    class Own:
        def ratios(self, problem):
            return Greedy().ratios(problem)

    class Promised:
        history_only = True

        def ratios(self, problem):
            return Greedy().ratios(problem)

    free, promised = (make(None, sampler=GaussianProcess(start=1), projection=rule) for rule in (Own(), Promised()))
    assert free.guarantee.terms[0].releases.policy is PolicyClass.ANYTHING
    assert "Promised, who declared" in str(promised.certificate.to_dict()["public"]["search rule"])
    with pytest.raises(ValueError, match="projection"):
        make(None, sampler=GaussianProcess(start=1), projection=Own(), policy="history")


def test_the_certificate_says_whose_word_it_is():
    ours, users = make(None, sampler=GaussianProcess(start=1)), make(None, sampler=Declared())
    assert "GaussianProcess, which is given the history" in str(ours.certificate.to_dict()["public"]["search rule"])
    assert "Declared, who declared" in str(users.certificate.to_dict()["public"]["search rule"])
    assert "saw only" in users.certificate.statement()
    assert not dphypo.verify(users.certificate).problems


def test_a_study_may_be_declared_for_anything():
    free = make(None, sampler=GaussianProcess(start=1), policy="anything")
    assert free.guarantee.terms[0].releases.policy is PolicyClass.ANYTHING
    assert free.guarantee.epsilon(1e-6) >= make(None, sampler=GaussianProcess(start=1)).guarantee.epsilon(1e-6)


def test_the_rule_sees_results_by_number_with_a_fixed_lag():
    """Three runs under way: the next λ waits for the first of them, whichever ended first."""
    seen: list = []
    study = make(None, sampler=Recorder(seen), lag=2)
    given = []
    while True:
        try:
            trial = study.ask()
        except errors.Refusal as refusal:
            if "Call tell() for the trials" not in str(refusal):
                raise
            last = given.pop()  # the latest run ends first
            study.tell(last, ({}, float(last.number)))
            continue
        if trial is None:
            break
        given.append(trial)
    for trial in given:
        study.tell(trial, ({}, float(trial.number)))
    assert seen  # the first runs have no history, and are drawn from the prior
    for shown in seen:
        assert shown == tuple(float(number) for number in range(len(shown)))
    # Run j sees the first j − 2 results, also when more are in.
    assert [len(shown) for shown in seen] == list(range(1, len(seen) + 1))


def test_a_study_that_is_resumed_with_other_workers_keeps_its_lag():
    first: list = []
    store = open_store(None)
    study = make(store, sampler=Recorder(first), lag=1)
    trial = study.ask()
    study.ask()
    with pytest.raises(errors.Refusal, match=r"Call tell\(\) for the trials"):
        study.ask()
    study.tell(trial, ({}, 0.5))
    again = make(store, sampler=Recorder(first))
    again.run(progress=False)
    assert max(len(shown) for shown in first) <= LAW.quantile(1.0) - 2


@pytest.mark.parametrize("change", [{}, {"policy": "anything"}])
def test_another_rule_on_the_way_is_refused(change):
    store = open_store(None)
    make(store, sampler=GaussianProcess(start=1)).ask()
    with pytest.raises(errors.ChangedStudy, match=r"fixed before the data are read.*search rule.* was "):
        make(store, sampler=Uniform(), **change).run(progress=False)


def test_a_study_for_any_rule_does_not_become_history_only():
    store = open_store(None)
    make(store, sampler=Uniform(), policy="anything").ask()
    with pytest.raises(errors.ChangedStudy, match="search rule was not there"):
        make(store, sampler=Uniform()).run(progress=False)


class Counting:
    """A rule with state that the history does not determine: how often it was asked."""

    def __init__(self):
        self.calls = 0

    def weights(self, candidates, history):
        self.calls += 1
        return candidates.masses * (1.0 + self.calls % 2)


def test_a_rule_with_state_that_the_history_does_not_determine_is_certified_for_anything_or_refused():
    study = make(None, sampler=Counting())
    assert study.certificate.to_dict()["terms"][0]["policy"]["class"] == "anything"
    with pytest.raises(ValueError, match="history_only"):
        make(None, sampler=Counting(), policy="history")


def test_a_rule_whose_state_has_changed_on_the_way_is_another_rule():
    """Its author said history_only, and the state shows: the study cannot be resumed with it as it is now."""

    class Promised(Counting):
        history_only = True
        weights = Counting.weights

    rule, store = Promised(), open_store(None)
    study = make(store, sampler=rule)
    for score in (0.1, 0.2):
        study.tell(study.ask(), ({}, score))
    study.close()
    assert rule.calls == 1
    with pytest.raises(errors.ChangedStudy, match="search rule"):
        make(store, sampler=rule).ask()
    assert (
        make(store, sampler=Promised()).run(progress=False).certificate.to_dict()["terms"][0]["policy"]["class"]
        == "history"
    )


def test_the_history_that_a_rule_is_shown_has_neither_t_nor_a_clock():
    shown = {field.name for field in dataclasses.fields(History)}
    assert shown == {"features", "unit", "scores", "failed", "params"}


def test_a_study_without_a_band_asks_for_nothing():
    study = dphypo.Study(SPACE, train, LAW, delta=1e-6, journal=None, entropy=Seeded(1))
    assert study.ask() is not None
    assert study.ask() is not None
