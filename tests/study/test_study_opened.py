"""A journal that is opened without the declaration of its study."""

from __future__ import annotations

import pytest
from support import stages_world
from support.study_world import make

import dphypo
from dphypo import errors
from dphypo.entropy import SYSTEM
from dphypo.errors import faults, refusals
from dphypo.journal.store import open_store
from dphypo.search.release import Ending


def test_a_released_study_shows_what_is_public(tmp_path):
    path = tmp_path / "study.db"
    with make(path) as study:
        release = study.run(progress=False)
        rows = study.curator().trials()
    with dphypo.open_journal(path) as journal:
        assert journal.name == "study"
        assert journal.certificate == release.certificate
        assert (journal.params, journal.score, journal.ending) == (release.params, release.score, Ending.MODEL)
        again = journal.release()
        assert again.model["seed"] == release.model["seed"]
        assert again.read_from == str(path)
        assert journal.curator().trials() == rows
        assert journal.curator().total() == len(rows)
        assert repr(journal) == "<journal of 'study'>"


def test_an_unreleased_study_shows_nothing_but_to_the_curator(tmp_path):
    path = tmp_path / "study.db"
    with make(path) as study:
        study.ask()
    with dphypo.open_journal(path) as journal:
        assert (journal.certificate, journal.params, journal.score, journal.ending) == (None,) * 4
        for act in (journal.release, journal.shred):
            with pytest.raises(errors.NotReleased):
                act()
        assert len(journal.curator().trials()) == 1
    make(path).run(progress=False)


def test_shredding_needs_no_declaration(tmp_path):
    path = tmp_path / "study.db"
    release = make(path).run(progress=False)
    with dphypo.open_journal(path) as journal:
        journal.shred()
        assert journal.certificate == release.certificate
        assert journal.params is None
        with pytest.raises(refusals.Shredded):
            journal.release()
        assert journal.curator().trials() == []
    assert b"weights" not in path.read_bytes()


def test_a_search_in_stages_is_opened_as_one(tmp_path):
    path = tmp_path / "stages.db"
    release = stages_world.make(path).run(progress=False)
    with dphypo.open_journal(path) as journal:
        assert journal.certificate == release.certificate
        assert journal.params == release.params
    with dphypo.open_journal(path, "stages") as journal:
        journal.shred()
    with pytest.raises(refusals.Shredded):
        stages_world.make(path).run(progress=False)
    with dphypo.open_journal(path, "stages, stage 1") as journal:
        assert journal.curator().trials() == []


def test_several_studies_are_told_apart_by_name(tmp_path):
    path = tmp_path / "study.db"
    store = open_store(path)
    made = {name: make(store, name=name, entropy=SYSTEM).run(progress=False) for name in ("one", "two")}
    store.close()
    for name, release in made.items():
        with dphypo.open_journal(path, name) as journal:
            assert journal.params == release.params
    for wrong in (None, "three"):
        with pytest.raises(ValueError, match="the journal holds 'one', 'two'"):
            dphypo.open_journal(path, wrong)


def test_what_is_no_journal_is_refused_and_left_alone(tmp_path):
    with pytest.raises(faults.JournalMissingError):
        dphypo.open_journal(tmp_path / "nothing.db")
    assert not list(tmp_path.iterdir())
    for wrong in (None, 3, b"study.db"):
        with pytest.raises(ValueError, match="journal"):
            dphypo.open_journal(wrong)
