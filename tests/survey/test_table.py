"""The published table: rows, frames, and a hash that a change does not survive."""

from __future__ import annotations

import sys

import pandas
import pytest

from dphypo.survey import Row, Status, Surveyed

TABLE = Surveyed((Row({"lr": 0.1, "layers": (8, 8)}, 0.9), Row({"lr": 1.0, "momentum": 0.5}, None)))


def test_a_frame_has_a_column_for_every_parameter():
    frame = TABLE.table()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["lr", "layers", "momentum", "score", "status"]
    assert list(frame["status"]) == ["done", "failed"]


def test_without_pandas_there_are_rows(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert TABLE.table() == TABLE.records()
    assert TABLE.records()[1] == {"lr": 1.0, "layers": None, "momentum": 0.5, "score": None, "status": "failed"}


def test_the_table_survives_json_and_a_change_shows_in_the_hash():
    again = Surveyed.from_dict(TABLE.to_dict())
    assert again.rows == TABLE.rows
    assert again.hash == TABLE.hash
    changed = Surveyed((Row(TABLE.rows[0].params, 0.91), TABLE.rows[1]))
    assert changed.hash != TABLE.hash
    assert Surveyed(TABLE.rows[::-1]).hash != TABLE.hash


def test_a_failed_run_has_no_score_and_a_score_is_finite():
    assert Row({"lr": 1.0}, None).status is Status.FAILED
    with pytest.raises(ValueError, match="score"):
        Row({"lr": 1.0}, float("nan"))
    assert TABLE.best is TABLE.rows[0]
    assert Surveyed((Row({}, 1.0), Row({}, 0.5)), maximize=False).best.score == 0.5
    assert Surveyed((Row({}, None),)).best is None
