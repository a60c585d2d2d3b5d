"""What leaves the curator's side, saved and loaded."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from support.journal_world import read_certificate
from support.study_world import EVENT, RELATION, make, train

import dphypo
from dphypo.search.release import Ending


@pytest.fixture(scope="module")
def release():
    return make().run(progress=False)


def test_a_release_comes_back_as_it_was(release, tmp_path):
    again = dphypo.load_release(release.save(tmp_path / "a" / "b"))
    assert again.params == release.params
    assert again.score == release.score
    assert again.ending is Ending.MODEL
    assert np.array_equal(again.model["weights"], release.model["weights"])
    tied = again.certificate.to_dict()
    assert tied["release"] is not None  # the folder's certificate names the model and parameters that it lies beside
    assert tied | {"release": None} == release.certificate.to_dict() | {"release": None}


def test_the_folder_holds_no_pickle_and_nothing_but_the_release(release, tmp_path):
    folder = release.save(tmp_path / "out")
    assert sorted(path.name for path in folder.iterdir()) == ["certificate.json", "model.npz", "release.json"]
    described = json.loads((folder / "release.json").read_text())
    assert set(described) == {"ending", "params", "score", "format"}


def test_a_release_is_not_written_over_another(release, tmp_path):
    release.save(tmp_path / "out")
    assert release.save(tmp_path / "out") == tmp_path / "out"  # a finished script, executed again
    with pytest.raises(FileExistsError, match="new folder"):
        replace(release, score=0.5).save(tmp_path / "out")
    (tmp_path / "out" / "notes.txt").touch()
    with pytest.raises(FileExistsError, match="new folder"):
        release.save(tmp_path / "out")


class Text:
    format = "txt"

    def dump(self, model):
        return str(model).encode()

    def load(self, data):
        return data.decode()


def test_a_saver_of_ones_own_is_needed_again(tmp_path):
    mechanism = dphypo.mechanism(event=EVENT, relation=RELATION, saver=Text())(lambda params, *, seed: ("m", 1.0))
    folder = make(mechanism=mechanism).run(progress=False).save(tmp_path / "out")
    assert (folder / "model.txt").read_bytes() == b"m"
    assert dphypo.load_release(folder, Text()).model == "m"
    with pytest.raises(ValueError, match="'txt'"):
        dphypo.load_release(folder)


def test_a_format_cannot_name_another_place(release, tmp_path):
    class Sly(Text):
        format = "/../../x"

    with pytest.raises(ValueError, match="letters and digits"):
        dphypo.mechanism(event=EVENT, relation=RELATION, saver=Sly())(train.train)
    with pytest.raises(ValueError, match="letters and digits"):
        replace(release, saver=Sly()).save(tmp_path / "out")


def test_the_certificate_can_be_read_from_the_journal_before_and_after_it_is_shredded(tmp_path):
    with make(tmp_path / "study.db") as study:
        with pytest.raises(FileNotFoundError):
            read_certificate(tmp_path / "study.db")
        study.ask()
        study.close()
        with pytest.raises(ValueError, match="no released study"):
            read_certificate(tmp_path / "study.db")
        certificate = study.run(progress=False).certificate
        assert read_certificate(str(tmp_path / "study.db")).to_dict() == certificate.to_dict()
        study.shred()
        study.close()
        assert read_certificate(tmp_path / "study.db").to_dict() == certificate.to_dict()
        assert study.certificate.to_dict() | {"declared": None} == certificate.to_dict() | {"declared": None}


def test_repr_shows_what_is_released_and_not_the_model(release):
    assert f"'lr': {release.params['lr']:.6g}, 'depth': {release.params['depth']}" in repr(release)
    assert "weights" not in repr(release)


def test_values_of_every_kind_come_back_as_they_were(tmp_path):
    space = dphypo.Space({"layers": [(64, 64), (32,)], "decay": [None, "exp"], "on": [True, False], "n": [1, 2, 3]})
    mechanism = dphypo.mechanism(event=EVENT, relation=RELATION)(lambda params, *, seed: (None, 1.0))
    release = make(space=space, mechanism=mechanism).run(progress=False)
    again = dphypo.load_release(release.save(tmp_path / "out"))
    assert again.params == release.params
    assert type(again.params["layers"]) is tuple
    assert again.model is None


def test_the_model_of_the_release_is_the_one_that_was_saved(release):
    model, score = train(release.params, seed=release.model["seed"])
    assert score == release.score
    assert np.array_equal(model["weights"], release.model["weights"])


def test_a_saver_of_your_own_is_given_when_its_release_is_loaded(tmp_path):
    class Reversed:
        format = "reversed"

        def dump(self, model):
            return model[::-1].encode()

        def load(self, data):
            return data.decode()[::-1]

    certificate = make().certificate
    folder = dphypo.Release({"lr": 0.1}, "model", 0.5, certificate, saver=Reversed()).save(tmp_path / "out")
    assert (folder / "model.reversed").read_bytes() == b"ledom"
    with pytest.raises(ValueError, match=r"saver=\.\.\."):
        dphypo.load_release(folder)
    assert dphypo.load_release(folder, saver=Reversed()).model == "model"
