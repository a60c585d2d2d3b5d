"""A study belongs to one data set and one model, and a release that is read again says so."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from support import stages_world
from support.study_world import EVENT, RELATION, SEED, SPACE, make, mechanism, train

import dphypo
from dphypo import errors
from dphypo.entropy import Seeded
from dphypo.mechanisms import Mechanism, Plain


@dataclass
class Network(Mechanism):
    """A mechanism with an architecture, in few words."""

    text: str
    event: object = EVENT
    relation: object = RELATION
    score_event: object = None
    split: None = None
    monotone: frozenset[str] = frozenset()
    saver: Plain = field(default_factory=Plain)
    seeded: bool = True

    def architecture(self, space):
        return f"{self.text} over {', '.join(space.names)}"

    def __call__(self, params, *, seed):
        return train(params, seed=seed)


@pytest.mark.parametrize("world", ["study", "stages"])
def test_a_journal_of_other_data_is_refused(tmp_path, world):
    path = tmp_path / "journal.db"
    search = make if world == "study" else stages_world.make
    release = search(path, data_name="patients 2024").run(progress=False)
    assert release.certificate.document["data_set"] == "patients 2024"
    assert search(None).run(progress=False).certificate.document["data_set"] is None
    for other in ("patients 2025", None):
        with pytest.raises(errors.ChangedStudy, match=r"Different: data\."):
            search(path, data_name=other).run(progress=False)
    assert search(path, data_name="patients 2024").run(progress=False).params == release.params


@pytest.mark.parametrize("world", ["study", "stages"])
def test_a_journal_of_another_model_is_refused(tmp_path, world):
    path = tmp_path / "journal.db"
    search = make if world == "study" else stages_world.make
    release = search(path, Network("two layers")).run(progress=False)
    with pytest.raises(errors.ChangedStudy, match=r"Different: model\."):
        search(path, Network("three layers")).run(progress=False)
    assert search(path, Network("two layers")).run(progress=False).params == release.params
    with open(path, "rb") as file:
        assert b"two layers" not in file.read(), "a hash is enough"


def test_a_journal_without_the_hash_of_its_model_is_another_search(tmp_path):
    path = tmp_path / "study.db"
    with make(path) as study:
        study.ask()
    with pytest.raises(errors.ChangedStudy, match="model was not there"):
        make(path, Network("two layers")).run(progress=False)


def shares():
    """A training, declared anew by every call."""

    @mechanism
    def scored(params, *, seed):
        model, found = train(params, seed=seed)
        return model, 1 * found

    return scored


@mechanism
def per_cent(params, *, seed):
    """The same, with scores in other units: its runs beat all of the other, or lose to them."""
    model, found = train(params, seed=seed)
    return model, 100 * found


@pytest.mark.parametrize("world", ["study", "stages"])
def test_a_study_is_not_resumed_with_another_training(tmp_path, world):
    """If the first 20 of about 100 runs are of one training and the others of another, ε of a run counts 20 times.

    The study is certified for 3 times: with randomised response as both, a run of the second wins only if the 20 lose.
    """
    path = tmp_path / "journal.db"
    search = make if world == "study" else stages_world.make
    with search(path, shares()) as begun:
        while (trial := begun.ask()).stage == 1 and world == "stages":
            begun.tell(trial, trial.mechanism(trial.params, seed=trial.seed))
    with pytest.raises(errors.ChangedStudy, match="not the training that the journal"):
        search(path, per_cent).run(progress=False)
    with pytest.raises(errors.ChangedStudy, match="not the training that the journal"):
        search(path, per_cent).ask()
    release = search(path, shares()).run(progress=False)
    assert search(path, per_cent).run(progress=False).params == release.params, "it is read again, and nothing is run"


def test_a_survey_is_resumed_with_another_training(tmp_path):
    """Each of its runs is published and paid for, whatever the others are."""

    def survey(mechanism):
        parts, path = [dphypo.Survey(mechanism, 3)], tmp_path / "survey.db"
        return dphypo.Stages(SPACE, parts, delta=1e-6, journal=path, entropy=Seeded(SEED))

    with survey(shares()) as begun:
        trial = begun.ask()
        begun.tell(trial, trial.mechanism(trial.params, seed=trial.seed))
    assert len(survey(per_cent).run(progress=False).survey.rows) == 3


@pytest.mark.parametrize("world", ["study", "stages"])
def test_a_release_that_is_read_again_says_so_and_from_where(tmp_path, world, capsys):
    path = tmp_path / "journal.db"
    search = make if world == "study" else stages_world.make
    first = search(path).run()
    assert first.read_from is None
    assert "again" not in repr(first)
    assert "again" not in capsys.readouterr().err
    again = search(path).run()
    assert again.read_from == str(path)
    assert repr(again) == repr(first)[:-1] + f"; it was released before and read again from {path}>"
    said = capsys.readouterr().err
    assert said == f"This search was released before. The same release is read again from {path}.\n"
    search(path).run(progress=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("world", ["study", "stages"])
def test_a_search_that_goes_on_says_so_and_from_where(tmp_path, world, capsys):
    path = tmp_path / "journal.db"
    search = make if world == "study" else stages_world.make
    with search(path) as begun:
        begun.ask()
    search(path).run()
    assert capsys.readouterr().err.startswith(f"This search was started before. It resumes from {path}.\n")


def test_a_release_in_memory_is_read_again_too():
    study = make()
    assert study.run(progress=False).read_from is None
    assert study.run(progress=False).read_from == "memory"
    assert study.released().read_from == "memory"
