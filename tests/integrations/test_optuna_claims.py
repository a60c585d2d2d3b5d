"""Trials of an Optuna study are claimed: those of copies, of other processes and of studies made again do not count."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace

import optuna
import pytest
from support.optuna_survey import SURVEY, objective, study, survey

from dphypo import Ledger, errors
from dphypo.accounting import verify
from dphypo.errors import Refusal
from dphypo.optuna import TrialClaims

pytestmark = pytest.mark.filterwarnings("ignore:fraction = ")  # short runs are quick


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)


def test_trials_beyond_the_declared_number_are_not_made_and_are_no_rows():
    """Another process may make the rest in the meantime."""
    driven, made = study(storage=optuna.storages.InMemoryStorage()), []
    other = optuna.load_study(study_name=driven.study_name, storage=driven._storage)

    def counted(trial):
        made.append(trial.number)
        if trial.number == 0:
            SURVEY.optimize(other, counted)
        return objective(trial)

    SURVEY.optimize(driven, counted)
    assert sorted(made) == list(range(8))
    surplus = [trial for trial in driven.trials if trial.number >= 8]
    assert [trial.state.name for trial in surplus] == ["PRUNED"]
    assert len(SURVEY.table(driven)) == 8
    assert all(row.score is not None for row in SURVEY.table(driven).rows)
    _, _, certificate = SURVEY.last_run(driven, lambda lr: lr)
    assert "all results of the first 8 are public" in certificate.statement()


def test_trials_that_were_made_outside_the_survey_are_refused():
    """Nobody has paid for them, and they are in the storage that is published."""
    driven = study()
    SURVEY.optimize(driven, objective, timeout=0.0)
    driven.optimize(objective, n_trials=1)
    with pytest.raises(Refusal, match="not started by this survey"):
        SURVEY.optimize(driven, objective)
    with pytest.raises(Refusal, match="not started by this survey"):
        SURVEY.last_run(driven, lambda lr: lr)


def test_a_copied_study_does_not_go_on(tmp_path):
    """One entry of a ledger pays for one survey."""
    first, second = (f"sqlite:///{tmp_path}/{name}.db" for name in "ab")
    driven = study(storage=first, study_name="tuned")

    def stops(trial):
        if trial.number == 3:
            raise KeyboardInterrupt
        return objective(trial)

    with pytest.raises(KeyboardInterrupt):
        SURVEY.optimize(driven, stops)
    optuna.copy_study(from_study_name="tuned", from_storage=first, to_storage=second)
    copied = optuna.load_study(study_name="tuned", storage=second)
    for refused in (lambda: SURVEY.optimize(copied, objective), lambda: SURVEY.last_run(copied, lambda lr: lr)):
        with pytest.raises(Refusal, match="not started by this survey"):
            refused()
    SURVEY.optimize(driven, objective)


def begun_and_deleted(storage, stopped=3):
    """A study under its name of before, made again after some trials."""
    driven = study(storage=storage, study_name="tuned")

    def stops(trial):
        if trial.number == stopped:
            raise KeyboardInterrupt
        return objective(trial)

    with pytest.raises(KeyboardInterrupt):
        SURVEY.optimize(driven, stops)
    optuna.delete_study(study_name="tuned", storage=storage)
    return study(storage=storage, study_name="tuned")


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
def test_a_study_that_is_deleted_and_made_again_does_not_go_on(tmp_path, backend):
    """Its trials have the numbers of those that were made before."""
    made = []
    remade = begun_and_deleted(
        optuna.storages.InMemoryStorage() if backend == "memory" else f"sqlite:///{tmp_path}/a.db"
    )
    for _ in range(2):
        with pytest.raises(Refusal, match=r"started by a survey and deleted.*another study_name"):
            SURVEY.optimize(remade, lambda trial: made.append(trial.number) or objective(trial))
        with pytest.raises(Refusal, match="started by a survey and deleted"):
            SURVEY.last_run(remade, lambda lr: made.append(lr), {"lr": 1.0})
        remade.optimize(objective, n_trials=4)  # now each of its trials has a number that was claimed
    assert made == []


def test_a_number_that_was_claimed_before_is_not_made_again():
    """A process that has begun goes on while another deletes the study and makes it again."""
    storage = optuna.storages.InMemoryStorage()
    driven, made = study(storage=storage, study_name="tuned"), []

    def claimed_again(trial):
        made.append(trial.number)
        claims = TrialClaims(driven, 8)
        with pytest.raises(Refusal, match="started by a survey and deleted"):
            claims.claim_run(trial.number)
        assert claims._counted() == [trial.number]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SURVEY.optimize(driven, claimed_again)
    assert made == [0]


def test_a_study_that_is_made_again_before_its_first_trial_goes_on():
    storage = optuna.storages.InMemoryStorage()
    SURVEY.optimize(study(storage=storage, study_name="tuned"), objective, timeout=0.0)
    optuna.delete_study(study_name="tuned", storage=storage)
    remade = study(storage=storage, study_name="tuned")
    SURVEY.optimize(remade, objective)
    assert len(SURVEY.table(remade)) == 8


def test_more_trials_are_refused_once_the_last_run_was_begun():
    driven = study()

    def stops(trial):
        if trial.number == 3:
            raise KeyboardInterrupt
        return objective(trial)

    with pytest.raises(KeyboardInterrupt):
        SURVEY.optimize(driven, stops)
    _, _, certificate = SURVEY.last_run(driven, lambda lr: lr)
    with pytest.warns(UserWarning, match="has closed the survey"):
        SURVEY.optimize(driven, objective)
    assert certificate.document["public"]["released"][0]["sha256"] == SURVEY.table(driven).hash
    assert len(SURVEY.table(driven)) == 4


def test_a_lost_last_run_can_be_made_again_where_two_were_declared():
    twice, driven = survey(last_runs=2), study()
    twice.optimize(driven, objective)

    def dies(lr):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        twice.last_run(driven, dies)
    model, _, certificate = twice.last_run(driven, lambda lr: {"lr": lr})
    assert model["lr"] > 0
    assert not verify(certificate).problems
    with pytest.raises(Refusal, match="started before, and one more would not be paid for"):
        twice.last_run(driven, lambda lr: {"lr": lr})


def test_of_two_declarations_that_begin_at_the_same_time_one_holds():
    """Both processes found a new study."""
    driven, other = study(), survey(runs=9)
    claims = TrialClaims(driven, 8)
    read, claims._all = claims._all, lambda kind: []  # what it reads was read before the other had begun
    other.optimize(driven, objective, timeout=0.0)
    with pytest.raises(IndexError):
        claims.begin(SURVEY._declared, None)
    claims._all = read
    with pytest.raises(Refusal, match="not started by this survey"):
        claims.begin(SURVEY._declared, None)
    with pytest.raises(Refusal, match="not started by this survey"):
        SURVEY.optimize(driven, objective)
    other.optimize(driven, objective)


def test_a_trial_that_begins_while_the_survey_is_closed_is_not_made():
    driven, made = study(), []

    def closes(trial):
        made.append(trial.number)
        if trial.number == 2:
            TrialClaims(driven, 8)._claim("close", {})
        return objective(trial)

    SURVEY.optimize(driven, closes)
    assert made == [0, 1, 2]
    assert len(SURVEY.table(driven)) == 3
    with pytest.warns(UserWarning, match="has closed the survey"):
        SURVEY.optimize(driven, objective)
    assert made == [0, 1, 2]


def test_the_last_run_waits_for_trials_that_run():
    driven, made = study(), []

    def impatient(trial):
        if trial.number == 2:
            with pytest.raises(ValueError, match="trial 2 is still running: wait for it"):
                SURVEY.last_run(driven, lambda lr: lr)
            with pytest.raises(ValueError, match="execute the last run first"):
                SURVEY.certificate(driven)
            made.append(trial.number)
        return objective(trial)

    SURVEY.optimize(driven, impatient)
    assert made == [2]
    assert len(SURVEY.table(driven)) == 8  # it was not closed


def test_a_process_that_claims_the_last_run_a_moment_later_is_refused():
    driven, made = study(), []
    SURVEY.optimize(driven, objective)
    late = TrialClaims(driven, 8)
    write = late._claim

    def overtaken(kind, content):
        if kind == "last":
            SURVEY.last_run(driven, lambda lr: made.append("other"))
        write(kind, content)

    late._claim = overtaken
    with pytest.raises(Refusal, match="started before"):
        late.claim_last_run(1)
    assert made == ["other"]


LAST_RUN = """
import sys, time
import optuna
from pathlib import Path
from dphypo.errors import Refusal
from dphypo.optuna import OptunaSurvey
from dphypo.optuna import TrialClaims
from support.plain_run import PlainRun

optuna.logging.set_verbosity(optuna.logging.CRITICAL)
storage, ready, go = sys.argv[1:]
backend = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(storage))
study = optuna.load_study(study_name="tuned", storage=backend)
survey = OptunaSurvey(PlainRun(), 4.0, 1e-5, durations="public", scores="public", runs=8, keep_in=study)
survey.full
Path(ready).touch()
while not Path(go).exists():
    time.sleep(0.001)
try:
    survey.last_run(study, lambda lr: print("trained"))
except Refusal as refusal:
    print("refused" if "started before" in str(refusal) else refusal)
"""


@pytest.mark.slow
def test_of_two_processes_one_makes_the_last_run_in_a_journal_of_optunas(tmp_path):
    storage = str(tmp_path / "optuna.log")
    backend = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(storage))
    driven = study(storage=backend, study_name="tuned")
    survey(keep_in=driven).optimize(driven, objective)
    go = tmp_path / "go"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", LAST_RUN, storage, str(tmp_path / f"ready{number}"), str(go)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for number in range(2)
    ]
    deadline = time.monotonic() + 120
    while not all((tmp_path / f"ready{number}").exists() for number in range(2)):
        assert time.monotonic() < deadline
        assert all(process.poll() is None for process in processes)
        time.sleep(0.01)
    go.touch()
    said = sorted(process.communicate(timeout=120)[0].strip() for process in processes)
    assert said == ["refused", "trained"]


def test_a_survey_reserves_in_a_ledger_before_its_first_trial(tmp_path):
    ledger = Ledger.open(tmp_path / "ledger.db", epsilon=6.0, delta=1e-4)
    kept = with_ledger(ledger)
    driven = study(study_name="tuned")
    kept.optimize(driven, lambda trial: objective(trial) if len(ledger.entries) == 1 else 1 / 0)
    assert all(trial.state.name == "COMPLETE" for trial in driven.trials)
    kept.last_run(driven, lambda lr: lr)
    assert [entry.name for entry in ledger.entries] == ["tuned"]
    assert "stays within epsilon = 6 at delta = 0.0001 together" in kept.certificate(driven).statement()
    with pytest.raises(errors.LedgerError, match="pass the same ledger="):
        SURVEY.last_run(driven, lambda lr: lr)
    other = study()
    while True:  # as often as it fits
        try:
            kept.optimize(other := study(), objective)
        except errors.LedgerError:
            break
    assert other.trials == []
    assert other.user_attrs == {}


def with_ledger(ledger):
    kept = replace(SURVEY, ledger=ledger)
    kept.__dict__["full"] = SURVEY.full  # solved for already: the ledger changes nothing of it
    return kept


@pytest.mark.parametrize("stopped", [0, 3])
def test_of_two_copies_of_a_storage_one_goes_on(tmp_path, stopped):
    """A backup that is restored pays nothing for what it makes."""
    ledger = Ledger.open(tmp_path / "ledger.db", epsilon=6.0, delta=1e-4)
    driven = study(storage=f"sqlite:///{tmp_path}/a.db", study_name="tuned")

    def stops(trial):
        if trial.number == stopped:
            raise KeyboardInterrupt
        return objective(trial)

    with pytest.raises(KeyboardInterrupt):
        with_ledger(ledger).optimize(driven, stops)
    shutil.copy(tmp_path / "a.db", tmp_path / "b.db")
    with_ledger(ledger).optimize(driven, objective)
    copied = optuna.load_study(study_name="tuned", storage=f"sqlite:///{tmp_path}/b.db")
    made = []
    with pytest.raises(errors.LedgerError, match="another copy of it has continued"):
        with_ledger(ledger).optimize(copied, lambda trial: made.append(trial.number) or objective(trial))
    assert made == []
    with_ledger(ledger).last_run(driven, lambda lr: lr, {"lr": 1.0})
    with pytest.raises(errors.LedgerError, match="another copy"):
        with_ledger(ledger).last_run(copied, lambda lr: made.append(lr), {"lr": 1.0})
    assert made == []
    assert len(ledger.entries) == 1
