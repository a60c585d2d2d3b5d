"""A journal that is opened without the declaration of its study."""

from __future__ import annotations

import dp_accounting
import pytest
from support import stages_world
from support.study_world import RELATION, SPACE, make

import dphypo
from dphypo import errors
from dphypo.entropy import SYSTEM
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
        with pytest.raises(errors.Refusal, match="nothing to release"):
            journal.release()
        with pytest.raises(errors.Refusal, match="shredded only after its release"):
            journal.shred()
        assert len(journal.curator().trials()) == 1
    make(path).run(progress=False)


def test_shredding_needs_no_declaration(tmp_path):
    path = tmp_path / "study.db"
    release = make(path).run(progress=False)
    with dphypo.open_journal(path) as journal:
        journal.shred()
        assert journal.certificate == release.certificate
        assert journal.params is None
        with pytest.raises(errors.Refusal, match="reduced to its certificate"):
            journal.release()
        assert journal.curator().trials() == []
    assert b'["weights"' not in path.read_bytes(), "the model is gone"


def test_a_journal_with_a_certificate_that_cannot_be_read_can_be_shredded(tmp_path, monkeypatch):
    path = tmp_path / "study.db"
    make(path).run(progress=False)

    def of_another_version(document):
        raise errors.FileError("another format")

    monkeypatch.setattr(dphypo.Certificate, "from_dict", of_another_version)
    with dphypo.open_journal(path) as journal:
        with pytest.raises(errors.FileError):
            _ = journal.certificate
        journal.shred()
        assert journal.curator().trials() == []


def test_a_search_in_stages_is_opened_as_one(tmp_path):
    path = tmp_path / "stages.db"
    release = stages_world.make(path).run(progress=False)
    with dphypo.open_journal(path) as journal:
        assert journal.certificate == release.certificate
        assert journal.params == release.params
    with dphypo.open_journal(path, "stages") as journal:
        journal.shred()
    with pytest.raises(errors.Refusal, match="reduced to its certificate"):
        stages_world.make(path).run(progress=False)
    with dphypo.open_journal(path, "stages, stage 1") as journal:
        assert journal.curator().trials() == []


def noisy(params, *, seed):
    return {"weights": params["lr"]}, 0.123456789


def paid(training: float, score: float | None = None) -> dphypo.Mechanism:
    event = None if score is None else dp_accounting.GaussianDpEvent(score)
    split = None if score is None else dphypo.Split(how="by hash", data="records")
    event_of_run = dp_accounting.GaussianDpEvent(training)
    return dphypo.mechanism(event=event_of_run, score_event=event, split=split, relation=RELATION, seeded=True)(noisy)


def test_a_score_that_is_not_released_is_not_shown(tmp_path):
    """It would cost much more than the certificate says."""
    path, parts = tmp_path / "tune.db", [dphypo.Survey(paid(40.0, 100.0), 3), dphypo.LastRun(paid(5.0, 0.05))]
    release = dphypo.Stages(SPACE, parts, delta=1e-6, journal=path).run(progress=False)
    with dphypo.open_journal(path) as journal:
        assert journal.score is None
        assert journal.params == release.params
        assert journal.release() == release
        assert journal.release().surveys == release.surveys


def test_a_survey_alone_releases_its_table(tmp_path):
    path, parts = tmp_path / "tune.db", [dphypo.Survey(paid(40.0), 3)]
    release = dphypo.Stages(SPACE, parts, delta=1e-6, journal=path).run(progress=False)
    with dphypo.open_journal(path) as journal:
        again = journal.release()
        assert (journal.params, journal.score, journal.ending) == (None, None, Ending.SURVEYED)
        assert (again.model, again.surveys, again.certificate) == (None, release.surveys, release.certificate)


def test_only_surveys_are_tables(tmp_path):
    """Whichever parts are named, and whatever else the journal holds, no table is that of a study."""
    path = tmp_path / "tune.db"
    law = dphypo.Geometric(mean=5)
    alone = dphypo.Study(SPACE, paid(40.0), law, delta=1e-6, journal=path, name="x").run(progress=False)
    parts = [dphypo.Survey(paid(40.0), 3), dphypo.Stage(paid(40.0), law)]
    release = dphypo.Stages(SPACE, parts, delta=1e-6, journal=path, name="x").run(progress=False)
    with dphypo.open_journal(path, "x, stage 2") as journal:
        assert (journal.release().surveys, journal.params) == ((), release.params)
    with dphypo.open_journal(path, "x") as journal:
        assert (journal.release().surveys, journal.certificate) == ((), alone.certificate)
    with pytest.raises(ValueError, match="the journal holds 'x', 'x, stage 1', 'x, stage 2'"):
        dphypo.open_journal(path)


def test_a_last_run_that_fails_has_released_its_parameters(tmp_path):
    def fails(params, *, seed):
        raise RuntimeError

    last = dphypo.mechanism(event=dp_accounting.GaussianDpEvent(5.0), relation=RELATION, seeded=True)(fails)
    path, parts = tmp_path / "tune.db", [dphypo.Survey(paid(40.0), 3), dphypo.LastRun(last)]
    release = dphypo.Stages(SPACE, parts, delta=1e-6, journal=path).run(progress=False)
    with dphypo.open_journal(path) as journal:
        assert release.ending is Ending.ALL_FAILED
        assert journal.release() == release


def test_a_search_is_not_released_before_its_last_part(tmp_path):
    """Shredded, it would be an unfinished search among which one could choose."""
    path = tmp_path / "stages.db"
    with stages_world.make(path) as search:
        while len(search.released) < 1:
            trial = search.ask()
            search.tell(trial, trial.mechanism(trial.params, seed=trial.seed))
    for name in ("stages", "stages, stage 1"):
        with dphypo.open_journal(path, name) as journal:
            assert (journal.certificate, journal.params, journal.score, journal.ending) == (None,) * 4
            with pytest.raises(errors.Refusal, match="nothing to release"):
                journal.release()
            with pytest.raises(errors.Refusal, match="shredded only after its release"):
                journal.shred()
    assert stages_world.make(path).run(progress=False).model is not None


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
    with pytest.raises(errors.JournalMissingError):
        dphypo.open_journal(tmp_path / "nothing.db")
    assert not list(tmp_path.iterdir())
    for wrong in (None, 3, b"study.db"):
        with pytest.raises(ValueError, match="journal"):
            dphypo.open_journal(wrong)
