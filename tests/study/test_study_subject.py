"""A study belongs to one data set and one model, and a release that is read again says so."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from support import stages_world
from support.study_world import EVENT, RELATION, make, train

from dphypo import errors
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
