"""Surveys and last runs as parts of a plan: what is published, what is not, and what is refused."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from functools import partial

import dp_accounting as dp
import numpy as np
import pytest
from scipy.stats import loguniform, norm
from support.survey_world import PRIVATE, SPACE, Descent

from dphypo import errors
from dphypo.accounting import Composition, Term, verify
from dphypo.accounting.composition import account_published
from dphypo.entropy import Seeded
from dphypo.laws import Pmf, Poisson
from dphypo.mechanisms import Outcome
from dphypo.mechanisms import mechanism as declare
from dphypo.mechanisms.mechanism import attempt
from dphypo.search import LastRun, PriorAround, Stage, Stages, Survey
from dphypo.search.proposer import SamplerProposer
from dphypo.search.release import Ending, Row, Status, load_release
from dphypo.space import Space

FULL = Descent(noise_multiplier=3.0, steps=40)
SHORT = FULL.at(fraction=0.25, match=True)


def stages(*parts, journal=None, **options):
    return Stages(SPACE, list(parts), delta=1e-6, journal=journal, entropy=Seeded(3), **options)


def run(*parts, **options):
    return stages(*parts, **options).run(progress=False)


def test_a_survey_and_one_run_find_a_good_learning_rate():
    release = run(Survey(SHORT, 12), LastRun(FULL))
    assert release.ending is Ending.MODEL
    assert release.model["steps"] == 40
    assert abs(release.model["weight"] - 0.7) < 0.1
    assert release.score is None
    table = release.survey
    assert len(table) == 12
    assert release.params not in [dict(row.params) for row in table.rows]  # the posterior mean's best, not a noisy row
    assert "one model with" in repr(release)


def test_the_certificate_covers_the_plan_and_has_the_hash_of_the_table(tmp_path):
    plan = stages(Survey(SHORT, 6), LastRun(FULL))
    before = plan.certificate
    release = plan.run(progress=False)
    assert release.certificate.epsilon == before.epsilon
    assert 0 <= before.epsilon - plan.guarantee.epsilon(1e-6) < 2e-5
    assert not verify(release.certificate).problems
    assert "7 runs were executed; all results of the first 6 are public" in release.certificate.statement()
    (listed,) = release.certificate.document["public"]["released"]
    assert listed == {"survey": 6, "failed": 0, "sha256": release.survey.hash}
    again = load_release(release.save(tmp_path / "release"))
    assert again.survey.rows == release.survey.rows
    assert again.survey.hash == listed["sha256"]
    assert again.score is None


def test_a_survey_alone_is_a_plan():
    plan = stages(Survey(SHORT, 5))
    release = plan.run(progress=False)
    assert release.ending is Ending.SURVEYED
    assert release.model is None
    assert set(release.params) == {"lr"}
    assert release.certificate.document["public"]["released"][0]["sha256"] == release.survey.hash
    assert not verify(release.certificate).problems
    assert "5 runs were executed; all results are public" in release.certificate.statement()
    assert plan.run(progress=False).survey.rows == release.survey.rows


@pytest.mark.slow
def test_a_survey_then_a_longer_one_then_one_run():
    longer = FULL.at(fraction=0.5, match=True)
    release = run(Survey(SHORT, 6, prior=PriorAround(spread=0.1)), Survey(longer, 4), LastRun(FULL))
    assert [len(table) for table in release.surveys] == [6, 4]
    with pytest.raises(AttributeError, match="2 surveys"):
        _ = release.survey
    assert "11 runs were executed; all results of the first 10 are public" in release.certificate.statement()
    assert not verify(release.certificate).problems


@pytest.mark.slow
def test_a_survey_then_a_search_around_what_it_found():
    plan = stages(Survey(SHORT, 10, prior=PriorAround(spread=0.02, floor=0.05)), Stage(FULL, Poisson(4)))
    release = plan.run(progress=False)
    assert len(release.survey) == 10
    assert not verify(release.certificate).problems
    assert "all results of 10 runs, and the best run of a search" in release.certificate.statement()
    centre = plan.prior(2).to_dict()["around"]["params"]["lr"]
    assert 1e-3 < centre < 10


def test_a_run_that_fails_is_published_as_failed_without_its_message(tmp_path):
    journal = tmp_path / "plan.db"
    plan = stages(Survey(replace(SHORT, fails=True), 3), LastRun(FULL), journal=journal)
    release = plan.run(progress=False)
    assert [row.status for row in release.survey.rows] == [Status.FAILED] * 3
    assert release.params == {"lr": pytest.approx(0.1, rel=1e-6)}
    shown = f"{release.survey.table()} {release.certificate.to_dict()} {release!r} {release.survey!r}"
    assert str(PRIVATE[0]) not in shown
    assert str(PRIVATE[0]) in plan.curator(1).trials()[0]["failure"]  # the curator may see it


def test_without_a_score_the_last_run_is_in_the_middle_of_the_prior():
    release = run(Survey(replace(SHORT, fails=True), 2), LastRun(FULL))
    assert release.params["lr"] == pytest.approx(0.1, rel=1e-6)
    assert run(LastRun(FULL)).params["lr"] == pytest.approx(0.1, rel=1e-6)


def test_a_last_run_that_fails_is_released_as_that():
    release = run(Survey(SHORT, 2), LastRun(replace(FULL, fails=True)))
    assert release.ending is Ending.ALL_FAILED
    assert release.model is None
    assert len(release.survey) == 2


def test_seeds_are_erased_from_the_file(tmp_path):
    journal = tmp_path / "plan.db"
    seen = []

    class Spy(Descent):
        def __call__(self, params, *, seed):
            seen.append(seed)
            return super().__call__(params, seed=seed)

    spied = Spy(noise_multiplier=3.0, steps=4)
    plan = stages(Survey(spied, 3), LastRun(spied), journal=journal)
    plan.run(progress=False)
    assert len(set(seen)) == 4
    assert [trial["seed"] for number in (1, 2) for trial in plan.curator(number).trials()] == [-1] * 4
    plan.close()
    with sqlite3.connect(journal) as connection:  # what is left is the last model and a key
        assert connection.execute("SELECT count(*) FROM dphypo_secret WHERE length(content) < 32").fetchone() == (0,)
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert not any(seed.to_bytes(8, "big") in stored for seed in seen)


def test_the_score_of_the_last_run_is_released_where_it_was_declared_and_paid_for():
    private = Silenced(noise_multiplier=3.0, steps=20, score_noise_multiplier=5.0)
    silent = stages(LastRun(private))
    heard = stages(LastRun(private, score=True))
    assert set(silent.guarantee.costs(1e-6)) == {"training"}
    assert set(heard.guarantee.costs(1e-6)) == {"training", "scoring"}
    assert silent.run(progress=False).score is None
    assert heard.run(progress=False).score is not None
    assert "score on" not in str(silent.certificate.to_dict()["public"])
    assert "taken on private records that did not train the model" in heard.certificate.statement()


class Silenced(Descent):
    """Training that can leave out its private score."""

    def without_score(self):
        return replace(self, score_noise_multiplier=None)


def test_a_private_score_that_a_mechanism_cannot_leave_out_is_paid_for_though_it_is_not_released():
    """A score that raises, or is not finite, fails the last run: whether it does is part of the release."""
    private = replace(FULL, score_noise_multiplier=5.0)
    plan = stages(LastRun(private))
    assert plan.guarantee.costs(1e-6) == stages(LastRun(private, score=True)).guarantee.costs(1e-6)
    assert plan.run(progress=False).score is None


def test_a_score_that_is_not_paid_for_is_not_computed_by_ask_and_tell_either():
    private = Silenced(noise_multiplier=3.0, steps=20, score_noise_multiplier=5.0)
    with stages(LastRun(private)) as plan:
        trial = plan.ask()
        assert trial.mechanism.score_event is None


def test_the_score_of_a_release_is_not_taken_on_records_that_may_have_trained_it():
    private = replace(FULL, score_noise_multiplier=5.0, split=None)
    with pytest.raises(ValueError, match="score = True is not valid: the mechanism states no split"):
        LastRun(private, score=True)
    assert LastRun(replace(private, score_noise_multiplier=None), score=True).score  # on public records


def test_models_are_published_where_that_was_declared():
    survey = run(Survey(SHORT, 3, models=True), LastRun(FULL)).survey
    assert [survey.model(number)["lr"] for number in range(3)] == [row.params["lr"] for row in survey.rows]


def test_models_of_runs_that_are_told_are_published_too():
    with stages(Survey(SHORT, 2, models=True)) as plan:
        while (trial := plan.ask()) is not None:
            plan.tell(trial, trial.mechanism(trial.params, seed=trial.seed))
        release = plan.release()
    assert len(release.survey.models) == 2
    assert None not in release.survey.models


class Recorded:
    """A proposer that remembers what it was told."""

    def __init__(self):
        self.told = []

    def propose(self, space, history, pending, entropy):
        self.told.append((len(history), len(pending)))
        return space.sample(entropy)


def test_runs_side_by_side_use_results_with_a_fixed_lag():
    sequential, parallel = Recorded(), Recorded()
    stages(Survey(SHORT, 6, sequential)).run(progress=False)
    assert sequential.told == [(number, 0) for number in range(6)]
    stages(Survey(SHORT, 6, parallel)).run(progress=False, workers=3, start_method="fork")
    assert parallel.told == [(0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (3, 2)]


def test_a_run_costs_the_same_after_any_number_of_runs(monkeypatch):
    """What proposers see of a run is made once: of all runs together it would grow with their square."""
    rows, to_unit = [], Space.to_unit

    def counted(self, params):
        rows.append(len(params))
        return to_unit(self, params)

    monkeypatch.setattr(Space, "to_unit", counted)
    survey = Survey(SHORT.at(steps=4), 100, Recorded())
    stages(survey).run(progress=False)
    assert sum(rows) < 5 * 100


class InOrder:
    """An executor on which, of the runs under way, the oldest ends first, or the youngest."""

    def __init__(self, mechanism, *, workers, youngest):
        self._mechanism, self._workers, self._youngest = mechanism, workers, youngest
        self._under_way = []

    @property
    def idle(self):
        return len(self._under_way) < self._workers

    @property
    def busy(self):
        return bool(self._under_way)

    def start(self, trial):
        self._under_way.append(trial)

    def wait(self):
        trial = self._under_way.pop(-1 if self._youngest else 0)
        return trial, attempt(self._mechanism, trial.params, trial.seed)

    def close(self):
        self._under_way.clear()


def test_the_table_does_not_depend_on_which_run_ends_first():
    tables = []
    for youngest in (False, True):
        executor = partial(InOrder, youngest=youngest)
        release = stages(Survey(SHORT, 9), LastRun(FULL)).run(progress=False, workers=3, executor=executor)
        tables.append(release.survey.rows)
    assert tables[0] == tables[1]


def test_runs_are_asked_for_one_at_a_time():
    told = Recorded()
    with stages(Survey(SHORT, 6, told)) as plan:
        first = plan.ask()
        assert plan.ask() is None  # until it is told
        plan.tell(first, Outcome({"weight": 0.0}, 0.5))
        assert plan.ask() is not None
        with pytest.raises(errors.Refusal, match="already has an outcome"):
            plan.tell(first, Outcome({"weight": 0.0}, 0.6))
    assert told.told == [(0, 0), (1, 0)]
    assert repr(plan).startswith("<stages: a survey of 6 runs")


def test_several_runs_are_asked_for_at_a_time_where_a_lag_is_given():
    told = Recorded()
    with stages(Survey(SHORT, 5, told, lag=2)) as plan:
        first = [plan.ask() for _ in range(3)]
        assert plan.ask() is None
        plan.tell(first[2], Outcome({"weight": 0.0}, 0.5))
        assert plan.ask() is None  # run 4 may use the result of run 1, which is still to come
        plan.tell(first[0], Outcome({"weight": 0.0}, 0.4))
        assert plan.ask() is not None
    assert told.told == [(0, 0), (0, 1), (0, 2), (1, 2)]


def test_results_are_used_as_they_arrive_where_durations_are_public():
    plan = stages(Survey(SHORT, 4, durations="public"), LastRun(FULL))
    assert "how long runs take was published and does not depend on the data" in plan.certificate.statement()
    assert plan.certificate.document["public"]["releases"][0]["durations"] == "public"
    assert len(plan.run(progress=False).survey) == 4


def test_no_more_runs_than_declared():
    plan = stages(Survey(SHORT, 2))
    plan.run(progress=False)
    with pytest.raises(errors.Refusal, match="can execute no more runs"):
        plan.ask()


def test_a_plan_that_was_declared_differently_is_refused(tmp_path):
    journal = tmp_path / "plan.db"
    with stages(Survey(SHORT, 3), LastRun(FULL), journal=journal) as plan:
        assert plan.ask() is not None
    costs = r"It was begun with ε = \S+ at δ = 1e-06, and would cost ε = \S+ at δ = 1e-06 now"
    with (
        stages(Survey(SHORT, 4), LastRun(FULL), journal=journal) as plan,
        pytest.raises(errors.ChangedStudy, match=costs),
    ):
        plan.ask()
    other = stages(Survey(SHORT, 3, SamplerProposer(start=1)), LastRun(FULL), journal=journal)
    assert len(other.run(progress=False).survey) == 3  # any proposer is allowed


def test_minimising():
    def loss(params, *, seed):
        return {"lr": params["lr"]}, abs(np.log(params["lr"]))

    from dphypo.mechanisms import Declared

    mechanism = Declared(loss, dp.GaussianDpEvent(9.0), dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    release = run(Survey(mechanism, 12), LastRun(mechanism), maximize=False)
    assert 0.3 < release.params["lr"] < 3
    assert release.survey.best.score == min(row.score for row in release.survey.rows)


def test_settings_compose_by_their_suprema():
    space = Space({"lr": loguniform(1e-3, 10.0), "batch": [40, 400]})
    noise = {40: 1.0, 400: 6.0}
    full, short = replace(FULL, noise_multiplier=noise), replace(SHORT, noise_multiplier={40: 2.0, 400: 12.0})
    plan = Stages(space, [Survey(short, 3), LastRun(full)], delta=1e-6, journal=None, entropy=Seeded(1))
    assert [len(term.releases.events) for term in plan.guarantee.terms] == [2, 2]
    assert not verify(plan.run(progress=False).certificate).problems


def test_what_may_not_be_run_is_not_and_costs_nothing():
    space = Space({"lr": loguniform(1e-3, 10.0), "batch": [40, 100, 400]})
    noise = {40: 1.0, 100: 2.0, 400: 0.01}  # the last would cost a fortune
    full = replace(FULL, noise_multiplier=noise)

    def within(params):
        return params["batch"] < 400

    parts = [Survey(full, 12, Recorded(), within=within), LastRun(full, within=within)]
    plan = Stages(space, parts, delta=1e-6, journal=None, entropy=Seeded(1))
    assert plan.guarantee.epsilon(1e-6) < 100
    release = plan.run(progress=False)
    assert {row.params["batch"] for row in release.survey.rows} == {40, 100}
    assert release.params["batch"] < 400
    with pytest.raises(ValueError, match="excludes every point"):
        Stages(space, [Survey(full, 2, within=lambda params: False)], delta=1e-6, journal=None)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Survey("train", 3), "mechanism"),
        (lambda: Survey(SHORT, 0), "runs = 0"),
        (lambda: Survey(SHORT, 3, proposer="tpe"), "proposer"),
        (lambda: Survey(SHORT, 3, durations="maybe"), "durations"),
        (lambda: Survey(SHORT, 3, pick=3), "pick"),
        (lambda: Survey(SHORT, 3, lag=-1), "lag = -1"),
        (lambda: LastRun("train"), "mechanism"),
        (lambda: LastRun(FULL, pick=3), "pick"),
        (lambda: stages(LastRun(FULL), Survey(SHORT, 3)), "end of the list"),
        (lambda: stages(Survey(SHORT, 3, prior=PriorAround())), "last part"),
        (lambda: stages(Stage(FULL, Pmf({1: 1.0}))), "Stage"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_a_proposer_that_leaves_the_space_is_refused():
    class Wild:
        def propose(self, space, history, pending, entropy):
            return {"lr": 1e9}

    with stages(Survey(SHORT, 2, Wild())) as plan, pytest.raises(ValueError, match="lr"):
        plan.ask()  # no run is given out


def test_progress_shows_every_run_and_no_seed(capsys):
    stages(Survey(SHORT, 3), LastRun(FULL)).run()
    shown = capsys.readouterr().err
    assert "Compute: 3 runs, all published." in shown
    assert "run 3 of 3: " in shown
    assert Row({"lr": 1.0}, 0.5).status is Status.DONE


def test_what_is_proposed_beyond_what_the_prior_draws_is_not_run():
    """A normal prior allows any number; what is accounted for are those that it can give."""

    class Reckless:
        def propose(self, space, history, pending, entropy):
            return {"noise": 0.01}

    relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE

    @declare(event=lambda params: dp.GaussianDpEvent(params["noise"]), relation=relation, monotone=["noise"])
    def noisy(params, *, seed):
        return None, 0.0

    plan = Stages(Space({"noise": norm(50, 5)}), [Survey(noisy, 1, Reckless())], delta=1e-6, journal=None)
    (row,) = plan.run(progress=False).survey.rows
    alone = Composition((Term(account_published(dp.GaussianDpEvent(row.params["noise"]), 1)),))
    assert alone.epsilon(1e-6) <= plan.guarantee.epsilon(1e-6)
