"""The published table: rows, frames, and a hash that a change does not survive."""

from __future__ import annotations

import sys

import optuna
import pandas
import pytest
from scipy.stats import loguniform, uniform

from dphypo.search.release import Row, Status, SurveyTable
from dphypo.space import Space

TABLE = SurveyTable((Row({"lr": 0.1, "layers": (8, 8)}, 0.9), Row({"lr": 1.0, "momentum": 0.5}, None)))


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
    again = SurveyTable.from_dict(TABLE.to_dict())
    assert again.rows == TABLE.rows
    assert again.hash == TABLE.hash
    changed = SurveyTable((Row(TABLE.rows[0].params, 0.91), TABLE.rows[1]))
    assert changed.hash != TABLE.hash
    assert SurveyTable(TABLE.rows[::-1]).hash != TABLE.hash


def test_a_failed_run_has_no_score_and_a_score_is_finite():
    assert Row({"lr": 1.0}, None).status is Status.FAILED
    with pytest.raises(ValueError, match="score"):
        Row({"lr": 1.0}, float("nan"))
    assert TABLE.best is TABLE.rows[0]
    assert SurveyTable((Row({}, 1.0), Row({}, 0.5)), maximize=False).best.score == 0.5
    assert SurveyTable((Row({}, None),)).best is None


@pytest.fixture
def published():
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    rows = [
        Row({"lr": 10.0**-power, "layers": (8, 8), "act": None if power % 2 else "relu", "width": power}, -power / 7)
        for power in range(5)
    ]
    failed = Row({"lr": 0.5, "layers": (4,), "act": True, "width": 3, "momentum": 0.9}, None)
    yield SurveyTable((*rows, failed), maximize=False)
    optuna.logging.set_verbosity(optuna.logging.INFO)


def test_a_study_of_optuna_has_every_row_and_what_has_failed(published):
    study = published.to_optuna()
    assert study.direction.name == "MINIMIZE"
    for row, trial in zip(published.rows, study.trials, strict=True):
        assert trial.params == {**row.params, "layers": repr(row.params["layers"])}
        assert trial.value == row.score
        assert trial.state.name == ("FAIL" if row.score is None else "COMPLETE")
    assert study.best_value == published.best.score


def test_axes_of_optuna_are_logarithmic_where_the_prior_is_or_else_by_the_values(published):
    kinds = published.to_optuna().trials[0].distributions
    assert (kinds["lr"].log, kinds["width"].log) == (True, False)
    assert kinds["width"].high == 4
    assert kinds["act"].choices == ("relu", None, True)
    plain = Space({"lr": uniform(0, 1), "act": ["relu"], "width": loguniform(1, 4)})
    kinds = published.to_optuna(plain).trials[0].distributions
    assert kinds["lr"].log is False
    assert kinds["width"].log is False  # a width of 0 was published: it has no logarithm


@pytest.mark.slow
def test_optunas_plots_and_storages_take_the_table(published, tmp_path):
    url = f"sqlite:///{tmp_path / 'survey.db'}"
    published.to_optuna(storage=url, name="digits")
    study = optuna.load_study(study_name="digits", storage=url)
    assert len(study.trials) == len(published)
    assert optuna.importance.get_param_importances(study, evaluator=optuna.importance.PedAnovaImportanceEvaluator())
