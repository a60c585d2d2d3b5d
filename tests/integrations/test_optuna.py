"""An existing Optuna study drives a survey: counted, then refused; failures without their messages."""

from __future__ import annotations

import json

import dp_accounting as dp
import optuna
import pytest
from support.optuna_survey import SURVEY, objective, study, survey
from support.solver_tries import watch

from dphypo import errors
from dphypo.accounting import Split, verify
from dphypo.accounting.composition import EVERYONE
from dphypo.errors import Refusal
from dphypo.optuna import PaidTrial

pytestmark = pytest.mark.filterwarnings("ignore:fraction = ")  # short runs are quick

SECRET = "record 17 is 0.25"


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)


def test_the_noise_of_both_runs_spends_the_budget():
    assert SURVEY.short.noise_multiplier == pytest.approx(SURVEY.full.noise_multiplier / 0.1**0.5)
    assert (SURVEY.full.steps, SURVEY.short.steps) == (400, 40)
    assert 3.999 <= SURVEY.guarantee.epsilon(1e-5) <= 4.0


def test_a_study_makes_the_declared_trials_and_no_more(tmp_path):
    storage = f"sqlite:///{tmp_path}/optuna.db"
    driven = study(storage=storage, study_name="tuned")
    SURVEY.optimize(driven, objective)
    assert len(driven.trials) == 8
    with pytest.warns(UserWarning, match="No trial is left"):
        SURVEY.optimize(driven, objective)
    assert len(driven.trials) == 8
    again = optuna.load_study(study_name="tuned", storage=storage)  # as the dashboard reads it
    assert [trial.value for trial in again.trials] == [trial.value for trial in driven.trials]
    assert all(trial.datetime_start is not None for trial in again.trials)
    model, params, certificate = SURVEY.last_run(again, lambda lr: {"lr": lr})
    assert model == params
    assert 0.1 < params["lr"] < 10
    assert not verify(certificate).problems
    assert certificate.document["public"]["released"][0]["sha256"] == SURVEY.table(again).hash
    assert "9 runs were executed; all results of the first 8 are public" in certificate.statement()
    assert "how long runs take was published" in certificate.statement()
    with pytest.raises(Refusal, match="last_runs=2"):
        SURVEY.last_run(again, lambda lr: {"lr": lr})


def test_a_finished_script_gets_its_release_back(tmp_path):
    driven, made = study(), []

    def last(lr):
        made.append(lr)
        return {"weights": [lr, 2.0]}

    SURVEY.optimize(driven, objective)
    first = SURVEY.last_run(driven, last, folder=tmp_path / "release")
    with pytest.warns(UserWarning, match="No trial is left"):
        SURVEY.optimize(driven, objective)
    again = SURVEY.last_run(driven, last, folder=tmp_path / "release")
    assert again[:2] == first[:2]
    assert len(made) == 1
    assert verify(tmp_path / "release")
    assert again[2].epsilon == first[2].epsilon
    other = study()
    SURVEY.optimize(other, objective)
    with pytest.raises(ValueError, match="holds the release of another survey"):
        SURVEY.last_run(other, last, folder=tmp_path / "release")
    with pytest.warns(UserWarning, match="was not saved, so save the model now"):
        model, _, _ = SURVEY.last_run(other, lambda lr: last, folder=tmp_path / "unsaved")
    assert model is last
    with pytest.raises(Refusal, match=r"folder=\.\.\.\) saves it, and returns it when called again"):
        SURVEY.last_run(other, last, folder=tmp_path / "unsaved")
    assert len(made) == 1


def test_functions_that_cannot_be_called_are_refused_before_anything_is_spent():
    driven = study()
    with pytest.raises(TypeError, match=r"objective is called as objective\(a trial\), and takes \(\)"):
        SURVEY.optimize(driven, lambda: 0.5)
    with pytest.raises(ValueError, match=r"objective = .* give a function"):
        SURVEY.optimize(objective, driven)
    with pytest.raises(ValueError, match="no trial was executed: call optimize first"):
        SURVEY.last_run(driven, lambda lr: lr)
    assert not driven.trials
    SURVEY.optimize(driven, objective)
    with pytest.raises(TypeError, match=r"train is called as train\(lr=\.\.\.\), and takes \(rate\)"):
        SURVEY.last_run(driven, lambda rate: rate)
    with pytest.raises(ValueError, match="give the study of Optuna first"):
        SURVEY.last_run(lambda lr: lr, driven)
    assert SURVEY.last_run(driven, lambda lr: lr)[0] > 0


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
    with pytest.raises(ValueError, match=r"fallback = None .* every trial failed, .* try the objective on made-up"):
        SURVEY.params(driven)
    assert SURVEY.params(driven, {"lr": 0.5}) == {"lr": 0.5}


@pytest.mark.parametrize("name", ["noise_multiplier", "batch_size", "steps", "num_epochs", "lot_size", "rate"])
def test_what_the_event_reads_cannot_be_suggested(name):
    with pytest.raises(Refusal, match=f"{name!r}, which the privacy event reads"):
        SURVEY.optimize(study(), lambda trial: trial.suggest_float(name, 0.1, 1.0))


def test_names_may_be_given_by_name():
    driven = study()

    def named(trial):
        whole = trial.suggest_int(name="layers", low=1, high=3)
        kind = trial.suggest_categorical(name="kind", choices=["a", "b"])
        return trial.suggest_float(name="lr", low=0.1, high=1.0, log=True) + whole + (kind == "a")

    SURVEY.optimize(driven, named)
    assert {trial.state.name for trial in driven.trials} == {"COMPLETE"}
    assert set(driven.trials[0].params) == {"layers", "kind", "lr"}
    with pytest.raises(Refusal, match="'epochs', which the privacy event reads"):
        SURVEY.optimize(study(), lambda trial: trial.suggest_float(name="epochs", low=0.1, high=1.0))


def test_other_studies_and_changed_declarations_are_refused():
    other = study()
    other.optimize(objective, n_trials=1)
    with pytest.raises(Refusal, match="not started by this survey"):
        SURVEY.optimize(other, objective)
    begun = study()
    begun.enqueue_trial({"lr": 1.0})  # not made yet: allowed
    SURVEY.optimize(begun, objective)
    with pytest.raises(Refusal, match="not started by this survey"):
        survey(runs=9).optimize(begun, objective)


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
    with pytest.raises(Refusal, match="more numbers"):
        survey(score_event=noisy, reports=1).optimize(study(), reports)
    paid = survey(score_event=noisy, reports=2, split=Split("odd numbers score").sides)
    paid.optimize(study(), reports)
    scores = [term.releases.count for term in paid.guarantee.terms if term.scores]
    assert scores == [8 * 3]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"durations": "secret"}, "durations"),
        ({"runs": 0}, "runs"),
        ({"fraction": 0.0}, "fraction"),
        ({"scores": None}, 'scores = None .* write scores="public"; .* score_event='),
        ({"scores": "private"}, "scores"),
        ({"scores": "public", "score_event": dp.GaussianDpEvent(40.0)}, "scores"),
    ],
)
def test_bad_declarations_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        survey(**changes)
    with pytest.raises(ValueError, match="n_trials"):
        SURVEY.optimize(study(), objective, n_trials=3)


def test_the_noise_is_kept_in_the_study_and_never_believed(tmp_path):
    driven, tried = study(storage=f"sqlite:///{tmp_path}/optuna.db", study_name="tuned"), []
    found = SURVEY.full.noise_multiplier
    with watch(tried.append):
        solved = survey(keep_in=driven).full.noise_multiplier
        first = len(tried)
        assert survey(keep_in=driven).full.noise_multiplier == solved == found
        assert len(tried) == first > 0, "the second start solves for nothing"
        assert survey(keep_in=driven, runs=9).full.noise_multiplier != solved, "another plan is another question"
    (key,) = [key for key, value in driven.user_attrs.items() if value == pytest.approx(solved, abs=1e-5)]
    for forged in (0.999 * solved, 1.05 * solved, "nan"):
        driven.set_user_attr(key, forged)
        again = survey(keep_in=driven)
        assert again.full.noise_multiplier == solved
        assert again.guarantee.epsilon(1e-5) <= 4.0
    survey(keep_in=driven).optimize(driven, objective)
    assert len(SURVEY.table(driven)) == 8


def test_all_records_train_where_scores_are_public():
    """Composed with a plan that scores on some of them, both sides pay for the survey."""
    assert {term.side for term in SURVEY.guarantee.terms} == {EVERYONE}
    paid = survey(score_event=dp.GaussianDpEvent(40.0))
    assert {term.side for term in paid.guarantee.terms} == {EVERYONE}, "nobody says that others score"


@pytest.mark.parametrize("name", ["score", "status", "a\u202eb", "a\ud800"])
def test_names_that_a_table_cannot_show_are_refused(name):
    with pytest.raises(errors.Refusal, match="table cannot show"):
        SURVEY.optimize(study(), lambda trial: trial.suggest_float(name, 0.1, 1.0))


NOISY = dp.GaussianDpEvent(30.0)


class Reads(optuna.samplers.RandomSampler):
    """A sampler that reads all that a trial holds."""

    def sample_relative(self, study, trial, search_space):
        held = [(one.user_attrs, one.system_attrs, one.intermediate_values) for one in study.get_trials()]
        self.seen = json.dumps(held, default=str)
        return {}


WRITES = {
    "report": lambda trial: trial.report(0.25, 1),
    "set_constraint": lambda trial: trial.set_constraint("loss", 0.25),
    "set_user_attr": lambda trial: trial.set_user_attr("loss", 0.25),
}


@pytest.mark.parametrize("name", WRITES)
def test_every_number_that_a_sampler_can_read_is_paid_for(name):
    def gives(trial):
        if name == "set_constraint" and not hasattr(optuna.trial.Trial, name):
            pytest.skip("Optuna 5")
        WRITES[name](trial)
        return objective(trial)

    unpaid, reads = survey(scores=None, score_event=NOISY), Reads()
    driven = optuna.create_study(sampler=reads, direction="maximize")
    with pytest.raises(Refusal, match=r"more numbers \(reports, constraints, user attributes\) than were declared"):
        unpaid.optimize(driven, gives)
    assert "0.25" not in json.dumps([one.system_attrs | one.user_attrs for one in driven.trials], default=str)
    driven = optuna.create_study(sampler=reads, direction="maximize")
    survey(scores=None, score_event=NOISY, reports=1).optimize(driven, gives)
    assert "0.25" in reads.seen
    free = optuna.create_study(sampler=reads, direction="maximize")
    survey(scores="public").optimize(free, gives)


def test_a_report_costs_whatever_it_is_written_as():
    few, more = (survey(scores=None, score_event=dp.GaussianDpEvent(8.0), reports=count) for count in (0, 2))
    assert more.full.noise_multiplier > few.full.noise_multiplier


def test_numbers_that_reach_the_storage_in_another_way_are_refused():
    driven, unpaid = study(), survey(scores=None, score_event=NOISY)

    def beside(trial):
        optuna.trial.Trial(driven, driven.trials[trial.number]._trial_id).set_user_attr("loss", 0.25)
        return objective(trial)

    unpaid.optimize(driven, beside)
    with pytest.raises(Refusal, match="than were declared"):
        unpaid.last_run(driven, lambda lr: lr)


@pytest.mark.parametrize("value", ["a text", [1.0, 2.0], {"a": 1}, None])
def test_an_attribute_that_is_not_one_number_is_refused_where_numbers_cost(value):
    def gives(trial):
        trial.set_user_attr("note", value)
        return objective(trial)

    with pytest.raises(Refusal, match=f"gives Optuna a {type(value).__name__}"):
        survey(scores=None, score_event=NOISY, reports=5).optimize(study(), gives)
    survey(scores="public").optimize(study(), gives)


def test_a_number_that_is_paid_for_holds_no_more_than_a_float():
    def gives(trial):
        trial.set_user_attr("note", 10**300 + 7)
        return objective(trial)

    driven = study()
    survey(scores=None, score_event=NOISY, reports=5).optimize(driven, gives)
    assert {type(trial.user_attrs["note"]) for trial in driven.trials} == {float}
    with pytest.raises(Refusal, match="a step that is not a whole number"):
        survey(scores=None, score_event=NOISY, reports=5).optimize(study(), lambda trial: trial.report(0.5, 0.25))


@pytest.mark.parametrize("attribute", ["study", "storage", "_trial_id", "_get_latest_trial"])
def test_an_objective_writes_by_declared_ways_alone(attribute):
    """Whatever a later version of Optuna adds to a trial is refused until it is looked at."""
    with pytest.raises(Refusal, match=f"uses trial.{attribute}"):
        SURVEY.optimize(study(), lambda trial: getattr(trial, attribute) and 1.0)
    driven = study()
    SURVEY.optimize(driven, lambda trial: trial.number + len(trial.params) + trial.should_prune() + objective(trial))
    assert {one.state.name for one in driven.trials} == {"COMPLETE"}
    with pytest.raises(AttributeError):
        _ = PaidTrial(driven.trials[0], None).nonsense


def test_a_study_of_several_objectives_is_refused():
    with pytest.raises(ValueError, match="several objectives"):
        SURVEY.optimize(optuna.create_study(directions=["maximize", "minimize"]), objective)
