"""An existing Optuna study drives a survey: counted, then refused; failures without their messages."""

from __future__ import annotations

import json

import dp_accounting as dp
import numpy as np
import optuna
import pytest

from dphypo import errors
from dphypo.accounting import verify
from dphypo.errors import DeclaredParameter, NotThisStudy, TooManyTrials, UndeclaredReport
from dphypo.integrations.optuna import OptunaSurvey
from dphypo.mechanisms import DpSgd

RUN = DpSgd.of(records=5_000, batch_size=250, epochs=20, noise_multiplier=1.0)
SECRET = "record 17 is 0.25"


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)


def survey(**changes):
    settings = {"epsilon": 4.0, "delta": 1e-5, "durations": "public", "runs": 8, **changes}
    return OptunaSurvey(RUN, settings.pop("epsilon"), settings.pop("delta"), **settings)


SURVEY = survey()


def objective(trial):
    lr = trial.suggest_float("lr", 1e-3, 10.0, log=True)
    return -abs(np.log(lr))


def study(**options):
    return optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=1), **options)


def test_the_noise_of_both_runs_spends_the_budget():
    assert SURVEY.short.noise_multiplier == pytest.approx(SURVEY.full.noise_multiplier / 0.1**0.5)
    assert (SURVEY.full.steps, SURVEY.short.steps) == (400, 40)
    assert 3.999 <= SURVEY.guarantee.epsilon(1e-5) <= 4.0


def test_a_study_makes_the_declared_trials_and_no_more(tmp_path):
    storage = f"sqlite:///{tmp_path}/optuna.db"
    driven = study(storage=storage, study_name="tuned")
    SURVEY.optimize(driven, objective)
    assert len(driven.trials) == 8
    with pytest.raises(TooManyTrials):
        SURVEY.optimize(driven, objective)
    again = optuna.load_study(study_name="tuned", storage=storage)  # as the dashboard reads it
    assert [trial.value for trial in again.trials] == [trial.value for trial in driven.trials]
    assert all(trial.datetime_start is not None for trial in again.trials)
    model, params, certificate = SURVEY.last_run(again, lambda lr: {"lr": lr})
    assert model == params
    assert 0.1 < params["lr"] < 10
    assert verify(certificate)
    assert certificate.document["public"]["released"][0]["sha256"] == SURVEY.table(again).hash
    assert "9 runs were made; all results of the first 8 are public" in certificate.statement()
    assert "how long runs take, which was published" in certificate.statement()
    with pytest.raises(TooManyTrials, match="last_runs=2"):
        SURVEY.last_run(again, lambda lr: {"lr": lr})


def test_an_interrupted_study_goes_on_and_counts_what_was_begun():
    driven = study()

    def stops(trial):
        if trial.number == 3:
            raise KeyboardInterrupt
        return objective(trial)

    with pytest.raises(KeyboardInterrupt):
        SURVEY.optimize(driven, stops)
    SURVEY.optimize(driven, objective)
    assert len(driven.trials) == 8  # the interrupted one among them
    assert sum(trial.state.name == "COMPLETE" for trial in driven.trials) == 7
    assert len(SURVEY.table(driven)) == 8


def test_a_failed_trial_leaves_no_message():
    driven = study()

    def fails(trial):
        objective(trial)
        raise RuntimeError(SECRET)

    SURVEY.optimize(driven, fails)
    kept = json.dumps([[trial.user_attrs, trial.system_attrs] for trial in driven.trials], default=str)
    assert SECRET not in kept
    assert [row.score for row in SURVEY.table(driven).rows] == [None] * 8
    with pytest.raises(ValueError, match="fallback"):
        SURVEY.params(driven)
    assert SURVEY.params(driven, {"lr": 0.5}) == {"lr": 0.5}


@pytest.mark.parametrize("name", ["noise_multiplier", "batch_size", "steps"])
def test_what_the_event_reads_cannot_be_suggested(name):
    with pytest.raises(DeclaredParameter, match=name):
        SURVEY.optimize(study(), lambda trial: trial.suggest_float(name, 0.1, 1.0))


def test_other_studies_and_changed_declarations_are_refused():
    other = study()
    other.optimize(objective, n_trials=1)
    with pytest.raises(NotThisStudy):
        SURVEY.optimize(other, objective)
    begun = study()
    begun.enqueue_trial({"lr": 1.0})  # not made yet: allowed
    SURVEY.optimize(begun, objective)
    with pytest.raises(NotThisStudy):
        survey(runs=9).optimize(begun, objective)
    assert issubclass(NotThisStudy, errors.Refusal)


def test_trials_beyond_the_declared_number_are_not_made():
    """Another process may have made the rest in the meantime."""
    driven, made = study(), []

    def counted(trial):
        made.append(trial.number)
        if len(made) == 1:
            for _ in range(7):
                driven.tell(driven.ask(), 0.0)
        return objective(trial)

    SURVEY.optimize(driven, counted)
    assert made == [0]


def test_intermediate_scores_are_declared_where_they_cost():
    def reports(trial):
        trial.report(0.5, 1)
        trial.report(0.6, 2)
        if trial.should_prune():
            raise optuna.TrialPruned
        return objective(trial)

    free = study(pruner=optuna.pruners.ThresholdPruner(lower=0.7))
    SURVEY.optimize(free, reports)
    assert {trial.state.name for trial in free.trials} == {"PRUNED"}
    noisy = dp.GaussianDpEvent(40.0)
    with pytest.raises(UndeclaredReport):
        survey(score_event=noisy, reports=1).optimize(study(), reports)
    paid = survey(score_event=noisy, reports=2)
    paid.optimize(study(), reports)
    scores = [term.releases.count for term in paid.guarantee.terms if term.sides == {"scoring"}]
    assert scores == [8 * 3]


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"durations": "secret"}, "durations"), ({"runs": 0}, "runs"), ({"fraction": 0.0}, "fraction")],
)
def test_bad_declarations_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        survey(**changes)
    with pytest.raises(ValueError, match="n_trials"):
        SURVEY.optimize(study(), objective, n_trials=3)
