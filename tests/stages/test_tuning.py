"""tune: one call that plans, prints what it costs, surveys, makes the last run, and goes on after an interrupt."""

from __future__ import annotations

import contextlib
import re
import signal
import sqlite3
from dataclasses import replace

import optuna
import pytest
from support.solver_tries import watch
from support.survey_world import SPACE, Descent

import dphypo
from dphypo.accounting import verify
from dphypo.entropy import Seeded
from dphypo.journal.journal import keeping
from dphypo.search import SurveyPlan
from dphypo.search.tune import _subject, plan_tuning

BUDGET = {"epsilon": 3.0, "delta": 1e-6, "progress": False}
FULL = Descent(steps=300)


def test_tuning_costs_what_was_asked_and_finds_a_good_run(capsys):
    release = dphypo.tune(SPACE, FULL, epsilon=3.0, delta=1e-6, price=0.2, journal=None, entropy=Seeded(1))
    assert 2.999 <= release.certificate.epsilon <= 3.0
    assert not verify(release.certificate).problems
    assert release.model["steps"] == 300
    assert abs(release.model["weight"] - 0.7) < 0.15
    assert len(release.survey) == 8
    shown = capsys.readouterr().err
    assert re.search(r"Tuning costs 3\.[89] % more noise and 0\.8 runs of compute", shown)
    assert "run 8 of 8" in shown


def test_the_mechanism_may_stand_alone_and_both_may_be_named():
    found = [_subject((SPACE, FULL), None, None), _subject((FULL,), SPACE, None), _subject((SPACE,), None, FULL)]
    assert all(one == (SPACE, FULL, False) for one in [*found, _subject((), SPACE, FULL)])
    with pytest.raises(ValueError, match="space = None is not valid: the mechanism has no default"):
        dphypo.tune(FULL, **BUDGET)
    with pytest.raises(TypeError, match="tune takes a space and a mechanism"):
        dphypo.tune(SPACE, SPACE, FULL, **BUDGET)
    with pytest.raises(ValueError, match="mechanism = None"):
        dphypo.tune(space=SPACE, **BUDGET)
    for wrong in ((SPACE,), (FULL, SPACE), (FULL, {"rate": [1.0]})):
        with pytest.raises(
            ValueError, match=r"mechanism = .*: the mechanism comes last: tune\(space, mechanism, \.\.\.\)"
        ):
            dphypo.tune(*wrong, **BUDGET)


def test_an_interrupted_call_goes_on_where_it_was(tmp_path):
    class Interrupted(Descent):
        left = 3

        def __call__(self, params, *, seed):
            if Interrupted.left == 0:
                signal.raise_signal(signal.SIGINT)
            Interrupted.left -= 1
            return super().__call__(params, seed=seed)

    journal = tmp_path / "tune.db"
    options = {**BUDGET, "survey": 6, "journal": journal, "entropy": Seeded(1)}
    with pytest.raises(KeyboardInterrupt):
        dphypo.tune(SPACE, Interrupted(steps=300), **options)
    release = dphypo.tune(SPACE, FULL, **options)
    whole = dphypo.tune(SPACE, FULL, **{**options, "journal": None})
    assert release.survey.rows == whole.survey.rows
    assert release.model == whole.model
    again = dphypo.tune(SPACE, FULL, **options)  # the same release, at no further cost
    assert again.model == release.model


def test_a_call_that_goes_on_solves_for_nothing_again(tmp_path):
    private = replace(FULL, score_noise_multiplier="calibrate")
    options = {**BUDGET, "survey": 4, "journal": tmp_path / "tune.db", "entropy": Seeded(1)}
    first: list[float] = []
    with watch(first.append):
        release = dphypo.tune(SPACE, private, **options)
    assert first
    again: list[float] = []
    with watch(again.append):
        same = dphypo.tune(SPACE, private, **options)
        assert same.certificate == release.certificate  # the noise of every part is in it
        assert again == []
        other = {**options, "name": "other", "journal": tmp_path / "other.db", "epsilon": 2.9}
        dphypo.tune(SPACE, private, **other)
    assert again


@pytest.mark.parametrize("factor", [0.9, 1.2])
def test_noise_that_was_put_into_the_journal_is_not_believed(tmp_path, factor):
    private, found = FULL.at(score_noise_multiplier="calibrate"), []
    for _ in range(2):
        with keeping(tmp_path / "tune.db", "tune") as keep:
            tuning = plan_tuning(SPACE, private, epsilon=3.0, delta=1e-6, survey=4, keep=keep)
        found.append((tuning.full.noise_multiplier, tuning.full.score_noise_multiplier))
        with contextlib.closing(sqlite3.connect(tmp_path / "tune.db")) as connection, connection:
            changed = connection.execute("UPDATE dphypo_solved SET answer = ? * answer", (factor,))
            assert changed.rowcount == 4  # one run, the run alone, the plan, the scores
    assert found[0] == found[1]


def test_options_of_the_survey_are_passed_on():
    plan = SurveyPlan(
        runs=5,
        fraction=0.2,
        proposer=optuna.samplers.TPESampler(seed=3),
        pick=lambda space, rows, *, maximize: dict(rows[0].params),
        models=True,
    )
    release = dphypo.tune(SPACE, FULL, **BUDGET, survey=plan, journal=None)
    assert release.params == dict(release.survey.rows[0].params)
    assert all(release.survey.model(number) is not None for number in range(5))


def test_private_scores_cost_no_more_than_training():
    private = replace(FULL, score_noise_multiplier="calibrate")
    release = dphypo.tune(SPACE, private, **BUDGET, survey=8, journal=None)
    assert release.certificate.epsilon <= 3.0
    sides = {one["part"] for term in release.certificate.document["terms"] for one in term["reads"]}
    assert sides == {"training", "scoring"}
    assert "Each record was used either to train or to score, never both." in release.certificate.statement()


def test_workers_make_the_runs():
    release = dphypo.tune(SPACE, FULL, **BUDGET, survey=6, journal=None, workers=2, start_method="fork")
    assert len(release.survey) == 6
