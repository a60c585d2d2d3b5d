"""Runs that a mechanism makes at once: groups in surveys and studies, and what becomes of a group that is lost."""

from __future__ import annotations

import os
import signal

import pytest
from support import study_world
from support.crash_server import KILLS_AFTER, serve
from support.survey_plan_world import Together, attempted, facts, make, together
from support.survey_world import SPACE

from dphypo.entropy import Seeded
from dphypo.executors.executor import Groups
from dphypo.journal.journal import Trial
from dphypo.laws import Pmf
from dphypo.mechanisms import Outcome
from dphypo.mechanisms.mechanism import attempt_many
from dphypo.search import LastRun, Stages, Study, Survey

KILLED = -signal.SIGKILL
SHORT = together.at(fraction=0.25, match=True)


@pytest.fixture(autouse=True)
def sizes():
    Together.sizes.clear()
    return Together.sizes


class Recorded:
    """A proposer that remembers how many results and pending runs it was told of."""

    def __init__(self):
        self.told = []

    def propose(self, space, history, pending, entropy):
        self.told.append((len(history), len(pending)))
        return space.sample(entropy)


def survey(mechanism, runs, proposer=None, **options):
    return Stages(SPACE, [Survey(mechanism, runs, proposer, **options)], delta=1e-6, journal=None, entropy=Seeded(3))


def test_half_of_a_survey_is_made_at_once_and_then_a_fifth_at_a_time(sizes):
    told = Recorded()
    release = survey(SHORT, 10, told).run(progress=False)
    assert told.told == [*((0, pending) for pending in range(5)), (5, 0), (5, 1), (7, 0), (7, 1), (9, 0)]
    assert sizes == [5, 2, 2, 2], "the last group is padded"
    assert len(release.survey) == 10


def test_runs_of_a_group_are_those_that_are_made_alone():
    search = survey(SHORT, 10)
    rows = search.run(progress=False).survey.rows
    trials = search.curator(1).trials()
    alone = survey(SHORT, 10, Fixed(rows))
    assert alone.run(progress=False, executor="in_process").survey.rows == rows
    assert [row["score"] for row in alone.curator(1).trials()] == [row["score"] for row in trials]


class Fixed:
    """Proposes the λ of published rows again."""

    def __init__(self, rows):
        self._rows = rows

    def propose(self, space, history, pending, entropy):
        return dict(self._rows[len(history) + len(pending)].params)


def test_who_names_an_executor_or_a_lag_has_no_groups(sizes):
    survey(SHORT, 6).run(progress=False, executor="in_process")
    survey(SHORT, 6, lag=1).run(progress=False)
    assert sizes == []


def test_a_survey_makes_groups_of_bounded_size(sizes):
    survey(SHORT, 200, Recorded()).run(progress=False)
    assert sizes == [64, 40, 40, 40, 40]


class SomeFail(Together):
    """Runs with a small learning rate fail; with a large one, so does the group."""

    def __call__(self, params, *, seed):
        if params["lr"] < 0.1:
            raise RuntimeError("a record is 0.7")
        return super().__call__(params, seed=seed)


class GroupFails(SomeFail):
    def many(self, params, *, seeds):
        super().many(params, seeds=seeds)
        raise MemoryError


@pytest.mark.parametrize("kind", [SomeFail, GroupFails])
def test_a_run_or_a_group_that_fails_leaves_the_other_runs_alone(kind):
    mechanism = kind(noise_multiplier=3.0, steps=5)
    rows = survey(mechanism, 10).run(progress=False).survey.rows
    assert {row.score is None for row in rows if row.params["lr"] < 0.1} == {True}
    assert {row.score is None for row in rows if row.params["lr"] >= 0.1} == {False}


class Interrupted(Together):
    """The second group is interrupted from the keyboard, once."""

    def many(self, params, *, seeds):
        if len(self.sizes) == 1:
            self.sizes.append(0)
            os.kill(os.getpid(), signal.SIGINT)
        return super().many(params, seeds=seeds)


def test_an_interrupted_group_is_made_again_and_the_attempt_is_not_counted(sizes):
    search, whole = survey(Interrupted(steps=5), 10), survey(together.at(steps=5, noise_multiplier=4.0), 10)
    with pytest.raises(KeyboardInterrupt):
        search.run(progress=False)
    assert {row["attempts"] for row in search.curator(1).trials()[5:]} == {0}
    assert search.run(progress=False).survey.rows == whole.run(progress=False).survey.rows
    assert sizes[:5] == [5, 0, 2, 2, 2]


@pytest.mark.slow
@pytest.mark.parametrize(("moment", "step"), KILLS_AFTER)
def test_a_process_killed_at_any_commit_of_a_group_changes_nothing(tmp_path, moment, step):
    whole = facts(make(mechanism=together))
    with serve("survey_plan_world") as server:
        assert server.run(str(tmp_path / "whole.db"), mechanism="together", log=str(tmp_path / "count")) == 0
        for commit in range(2, int((tmp_path / "count").read_text()) + 1, step):
            journal = str(tmp_path / f"{commit}.db")
            assert server.run(journal, mechanism="together", at={moment: commit}) == KILLED
            with make(journal, together) as search:
                assert facts(search) == whole, f"killed {moment} commit {commit}"


def study(mechanism, **options):
    law = Pmf({7: 1.0})
    return Study(SPACE, mechanism, law, sampler=study_world.Nearest(), band=(0.5, 2), delta=1e-6, journal=None,
                 entropy=Seeded(5), **options)  # fmt: skip


def test_a_study_makes_as_many_at_once_as_it_has_workers_with_the_same_lag(sizes):
    groups, processes = study(together.at(steps=5)), study(together.at(steps=5))
    groups.run(progress=False, workers=3)
    assert sizes == [3, 3, 3]
    processes.run(progress=False, workers=3, start_method="fork", executor="processes")
    hidden = {"attempts"}
    one, other = ([{k: v for k, v in row.items() if k not in hidden} for row in found.curator().trials()]
                  for found in (groups, processes))  # fmt: skip
    assert one[:3] == other[:3]
    assert len(one) == len(other) == 7


def test_a_study_makes_no_groups_where_a_run_may_be_another_among_others(sizes):
    class Blurred(Together):
        same_alone = False

    study(Blurred(steps=5)).run(progress=False, workers=2, start_method="fork")
    study(together.at(steps=5, seeded=False)).run(progress=False, workers=2, start_method="fork")
    study(together.at(steps=5)).run(progress=False)
    assert sizes == []


def test_a_lost_run_of_a_study_is_made_again_alone():
    """Else one that ends its process again and again would be the end of the others."""
    trials = [Trial({"lr": 0.3}, seed, seed, b"", attempts) for seed, attempts in ((0, 2), (1, 2))]
    made = Groups([SHORT], lambda number: 4, alone=True)
    for trial in trials:
        assert made.idle
        made.start(trial)
        assert not made.idle
        assert made.wait()[0] == trial
    assert Together.sizes == [1, 1]
    published = Groups([SHORT], lambda number: 4)
    for trial in trials:
        published.start(trial)
    assert published.idle
    assert [published.wait()[0] for _ in trials] == trials
    assert Together.sizes == [1, 1, 4]


def test_a_mechanism_that_returns_too_few_outcomes_has_its_runs_made_one_by_one():
    class Few(Together):
        def many(self, params, *, seeds):
            return [attempted(self, params[0], seeds[0])]

    made = attempt_many(Few(steps=5), [{"lr": 0.2}, {"lr": 0.3}], [1, 2], 2)
    assert [outcome.ok for outcome in made] == [True, True]
    assert isinstance(made[0], Outcome)
    assert made[0] != made[1]


def test_a_last_run_is_made_alone(sizes):
    plan = [Survey(SHORT, 4), LastRun(together)]
    Stages(SPACE, plan, delta=1e-6, journal=None, entropy=Seeded(3)).run(progress=False)
    assert sizes == [2, 1, 1]
