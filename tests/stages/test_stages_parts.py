"""A part of your own: a subclass of ``Part`` can be a part of any search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from support.stages_world import FEW, make
from support.study_world import SPACE, train

from dphypo.accounting import verify
from dphypo.search import Part, PriorAround, Stage, Survey


@dataclass(frozen=True)
class Noted(Part):
    """A part that notes what it is asked and given; all the work is that of the part inside."""

    stage: Stage | Survey
    notes: list[Any]

    secret = True

    @property
    def mechanism(self):
        return self.stage.mechanism

    @property
    def lost_runs(self):
        return self.stage.lost_runs

    def terms(self, space, *, last, alone=False):
        self.notes.append(("terms", last))
        return self.stage.terms(space, last=last)  # as a study after a survey

    def publishes(self):
        return {"kind": "noted", **self.stage.publishes()}

    def search_rule(self):
        return self.stage.search_rule()

    def compute(self):
        return "Compute: a few runs."

    def read(self, record):
        return self.stage.read(record)

    def state(self, published):
        return {"noted": self.stage.state(published)}

    def next_prior(self, published, space):
        self.notes.append(("next_prior", published, space))
        return self.stage.next_prior(published, space)

    def begin(self, setting):
        self.notes.append(("begin", setting.published, setting.prior))
        return self.stage.begin(setting)

    def release(self, best, record, setting):
        return self.stage.release(best, record, setting)

    def __str__(self):
        return "a part of one's own"


def best(space, rows, *, maximize):
    return dict(max(rows, key=lambda row: row.score).params)


def test_a_part_of_ones_own_runs_in_a_search(tmp_path, capsys):
    first, last = [], []
    parts = [Noted(Survey(train, 2, pick=best, prior=PriorAround(spread=0.1)), first), Noted(Stage(train, FEW), last)]
    assert all(isinstance(part, Part) for part in parts)
    search = make(tmp_path / "stages.db", stages=parts)
    release = search.run()
    (published,) = search.released
    assert first[0] == ("terms", False)
    assert last[0] == ("terms", True)
    begun = ("begin", (published,), SPACE.around(best(SPACE, published.rows, maximize=True), spread=0.1))
    assert last[1] == begun, "it is given what was published, and the prior made from it"
    assert all(note[1:] == (published, SPACE) for note in first if note[0] == "next_prior")
    assert list(release.certificate.document["public"]["released"][0]) == ["noted"]
    assert not verify(release.certificate).problems
    assert "Part 2 of 2. Compute: a few runs." in capsys.readouterr().err
    assert repr(search) == "<stages: a part of one's own, then a part of one's own>"


def test_a_single_part_that_is_no_stage_is_a_search():
    release = make(stages=[Noted(Stage(train, FEW), [])]).run(progress=False)
    assert release.params is not None
    assert not verify(release.certificate).problems


def test_what_lacks_a_method_is_no_part():
    assert isinstance(Noted(Stage(train, FEW), []), Part)
    for wrong in (train, PriorAround(), object()):
        assert not isinstance(wrong, Part)
        with pytest.raises(ValueError, match="give a list of"):
            make(stages=[Survey(train, 2), wrong])
