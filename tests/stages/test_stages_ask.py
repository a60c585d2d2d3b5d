"""Ask and tell across stages: the search that ``run`` makes, several runs at a time, resumed, and what is refused."""

from __future__ import annotations

import dataclasses
import pickle
import re

import pytest
from support.stages_world import SEED, cheap, facts, make, stages
from support.study_world import train

from dphypo import errors
from dphypo.band import Band
from dphypo.entropy import SYSTEM, Seeded
from dphypo.journal.journal import Trial
from dphypo.laws import Pmf, Poisson
from dphypo.mechanisms import Outcome
from dphypo.search import PriorAround, Stage, Stages, Survey
from dphypo.search.release import Ending
from dphypo.search.study import StageTrial

FOUR = Pmf({4: 1.0})


def outcome(trial: StageTrial):
    return trial.mechanism(trial.params, seed=trial.seed)


def asked(search) -> list[StageTrial]:
    """All that is given out now."""
    trials = []
    while (trial := search.ask()) is not None:
        trials.append(trial)
    return trials


class FromPrior:
    """A proposer that does not adapt."""

    def propose(self, space, history, pending, entropy):
        return space.sample(entropy)


def plain(count: int = 2) -> list[Survey | Stage]:
    """Parts that do not adapt, so that their runs do not depend on when they are told."""
    survey = Survey(cheap, 4, FromPrior(), prior=PriorAround(spread=0.1), lag=3)
    return [survey] * (count - 1) + [Stage(train, FOUR)]


def told_one_by_one(search):
    seen = []
    while (trial := search.ask()) is not None:
        seen.append((trial.stage, trial.mechanism))
        search.tell(trial, outcome(trial))
    return seen


# The same search


def test_ask_and_tell_is_the_same_search():
    search = make()
    seen = told_one_by_one(search)
    assert seen == [(1, cheap)] * 2 + [(2, train)] * search.curator(2).total()
    release = search.release()
    assert facts(search) == facts(make())
    assert (release.params, release.score) == facts(make())[2:4]
    assert search.certificate.epsilon == release.certificate.epsilon


def test_several_are_asked_for_at_once_and_told_in_any_order_over_the_boundary():
    expected = facts(make(stages=plain(3)))
    search = make(stages=plain(3))
    for stage in (1, 2, 3):
        trials = asked(search)
        assert [trial.stage for trial in trials] == [stage] * 4
        assert [trial.params for trial in trials] == [row["params"] for row in expected[0][stage - 1][1]]
        for trial in reversed(trials):
            assert search.ask() is None, "no stage begins before every run of the one before it is told"
            assert len(search.released) == stage - 1
            with pytest.raises(errors.Refusal, match="nothing to release"):
                search.release()
            search.tell(trial, outcome(trial))
    assert search.ask() is None
    search.release()
    assert facts(search) == expected


def test_the_next_ask_makes_the_release_of_a_stage():
    search = make(stages=plain())
    for trial in asked(search):
        search.tell(trial, outcome(trial))
    assert search.ask().stage == 2
    (table,) = search.released
    assert [row.score for row in table.rows] == [row["score"] for row in search.curator(1).trials()]


def test_looking_at_what_was_released_takes_nothing_back(tmp_path):
    search = make(tmp_path / "stages.db", stages=plain())
    trials = asked(search)
    assert search.released == ()
    assert search.ask() is None, "all are under way"
    for trial in trials:
        search.tell(trial, outcome(trial))
    assert all(row["attempts"] == 1 for row in search.curator(1).trials())


def test_a_search_that_may_not_be_shredded_yet_takes_nothing_back(tmp_path):
    path = tmp_path / "stages.db"
    with make(path, stages=plain()) as search:
        trials = asked(search)
        with pytest.raises(errors.Refusal, match="shredded only after its release"):
            search.shred()
        assert search.ask() is None, "all are under way"
        for trial in trials:
            search.tell(trial, outcome(trial))
        assert all(row["attempts"] == 1 for row in search.curator(1).trials())
    idle = make(path, stages=plain())  # kept: it would let go when it is forgotten
    with pytest.raises(errors.Refusal, match="shredded only after its release"):
        idle.shred()
    assert make(path, stages=plain()).ask().stage == 2, "a search that was not under way lets go of the journal"


def test_a_trial_travels_to_another_process_and_back():
    search = make(stages=plain())
    for trial in asked(search):
        there = pickle.loads(pickle.dumps(trial))
        search.tell(pickle.loads(pickle.dumps(there)), outcome(there))
    assert search.ask().stage == 2


def test_a_survey_without_a_result_is_passed_by():
    search = make(stages=[Survey(cheap, 2), Stage(train, FOUR)])
    while (trial := search.ask()) is not None and trial.stage == 1:
        search.tell(trial, Outcome.failed())
    assert trial.stage == 2
    assert [row.score for row in search.released[0].rows] == [None, None]


def test_a_study_without_a_run_is_released_all_the_same():
    search = make(stages=[Survey(cheap, 1), Stage(train, Poisson(1e-9))])
    trial = search.ask()
    search.tell(trial, outcome(trial))
    assert search.ask() is None
    assert search.release().ending is Ending.NO_RUN


def test_the_help_of_ask_names_what_a_trial_has():
    trial = make(stages=plain()).ask()
    for name in ("params", "seed", "mechanism", "stage"):
        assert hasattr(trial, name)
        assert f"trial.{name}" in Stages.ask.__doc__


# Interrupted


@pytest.mark.parametrize("told", range(6))
def test_another_process_goes_on_where_the_first_was(tmp_path, told):
    path = tmp_path / "stages.db"
    with make(path) as search:
        for _ in range(told):
            trial = search.ask()
            search.tell(trial, outcome(trial))
        left = search.ask()
    with make(path) as search:
        again = search.ask()
        if left is not None:
            assert (again.stage, again.params, again.seed) == (left.stage, left.params, left.seed)
            search.tell(again, outcome(again))
        told_one_by_one(search)
        search.release()
    assert facts(make(path)) == facts(make())


def test_run_takes_over_what_ask_gave_out():
    for told in range(6):
        search = make()
        for _ in range(told):
            trial = search.ask()
            search.tell(trial, outcome(trial))
        late = search.ask()
        assert facts(search) == facts(make())
        if late is not None:
            with pytest.raises(errors.Refusal, match="already has an outcome"):
                search.tell(late, (1, 9.0))


# Refused


def test_an_earlier_stage_is_no_final_release():
    search = make(stages=plain())
    for trial in asked(search):
        search.tell(trial, outcome(trial))
    with pytest.raises(errors.Refusal, match="nothing to release"):
        search.release()
    assert search.released == ()
    assert search.ask().stage == 2


def test_a_trial_is_told_once_also_in_the_next_stage():
    search = make(stages=plain())
    trials = asked(search)
    for trial in trials:
        search.tell(trial, outcome(trial))
        with pytest.raises(errors.Refusal, match="already has an outcome"):
            search.tell(trial, outcome(trial))
    assert search.ask().stage == 2
    with pytest.raises(errors.Refusal, match="already has an outcome"):
        search.tell(trials[0], outcome(trials[0]))


def test_a_trial_of_another_search_or_stage_is_refused():
    search, other = make(stages=plain()), make(stages=plain(), entropy=Seeded(SEED + 1))
    foreign = other.ask()
    told_one_by_one(other)
    (mine,) = (search.ask(),)
    bare = Trial(mine.params, mine.seed, mine.number, mine.tie_key)
    for wrong in (foreign, dataclasses.replace(mine, stage=2), dataclasses.replace(mine, stage=0), bare):
        with pytest.raises(ValueError, match="does not belong to th"):
            search.tell(wrong, (1, 2.0))
    for trial in [mine, *asked(search)]:
        search.tell(trial, outcome(trial))
    second = search.ask()
    for wrong in (dataclasses.replace(second, stage=1), dataclasses.replace(mine, stage=2)):
        with pytest.raises((ValueError, errors.Refusal), match=r"does not belong to th|already has an outcome"):
            search.tell(wrong, (1, 2.0))
    assert [row["done"] for row in search.curator(2).trials()] == [False]
    search.tell(second, outcome(second))
    told_one_by_one(search)
    search.release()
    assert facts(search) == facts(make(stages=plain())), "no refusal has begun a stage before its prior was known"


def test_a_malformed_outcome_is_refused_and_the_trial_can_be_told_rightly():
    search = make(stages=plain())
    trial = search.ask()
    with pytest.raises(TypeError, match="Nothing was recorded"):
        search.tell(trial, 3)
    search.tell(trial, outcome(trial))
    assert [row["score"] is not None for row in search.curator(1).trials()] == [True]


def test_there_is_one_release_and_nothing_after_it():
    search = make()
    told_one_by_one(search)
    release = search.release()
    with pytest.raises(errors.Refusal, match="already made its release"):
        search.release()
    with pytest.raises(errors.Refusal, match="can execute no more runs"):
        search.ask()
    again = search.run(progress=False)
    assert (again.params, again.certificate) == (release.params, release.certificate)
    search.shred()
    with pytest.raises(errors.Refusal, match="reduced to its certificate"):
        search.ask()


def test_the_advice_of_a_refusal_is_for_stages():
    search = make()
    with pytest.raises(errors.Refusal, match=r"nothing to release.*run\(\).*ask\(\)") as unfinished:
        search.release()
    with pytest.raises(errors.Refusal, match=r"after its release.*run\(\)") as early:
        search.shred()
    told_one_by_one(search)
    search.release()
    with pytest.raises(
        errors.Refusal, match=r"already made its release.*run\(\) returns the same release again"
    ) as second:
        search.release()
    with pytest.raises(errors.Refusal, match=r"no more runs.*run\(\) returns the same release again") as after:
        search.ask()
    with pytest.raises(errors.SecretValue, match=r"curator\(\) shows the rest") as secret:
        search.trials  # noqa: B018
    for caught in (unfinished, early, second, after, secret):
        assert "study." not in str(caught.value)
        assert not re.search(r"\d", str(caught.value))


def test_what_was_declared_may_not_change_between_two_asks(tmp_path):
    path = tmp_path / "stages.db"
    with make(path) as search:
        search.ask()
    survey, study = stages()
    with make(path, stages=[survey, dataclasses.replace(study, band=Band(0.5, 4.0))]) as changed:
        for act in (changed.ask, changed.release):
            with pytest.raises(errors.ChangedStudy):
                act()


def test_no_refusal_and_no_repr_tells_a_secret():
    messages = set()
    for seed in range(6):
        search = make(stages=plain(), entropy=Seeded(seed))
        trials = asked(search)
        for trial in trials:
            with pytest.raises(errors.Refusal, match="nothing to release") as caught:
                search.release()
            messages.add(str(caught.value))
            search.tell(trial, outcome(trial))
            assert repr(trial) == "<trial of stage 1>"
        with pytest.raises(errors.Refusal, match="already has an outcome") as caught:
            search.tell(trial, (1, 2.0))
        messages.add(str(caught.value))
    assert len(messages) == 2
    assert not any(re.search(r"\d", message) for message in messages)


def test_a_private_search_is_asked_and_told_too():
    search = make(entropy=SYSTEM)
    told_one_by_one(search)
    assert search.release().certificate.warning is None
