"""``dphypo plan``: the price of a survey, to the digits of the published table."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from dphypo.cli.app import app


def planned(*options: str):
    task = ["plan", "--records", "60000", "--batch-size", "256", "--steps", "2344", "--json"]
    result = CliRunner().invoke(app, [*task, *options])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_the_price_of_twenty_runs_of_three_per_cent_of_the_steps():
    found = planned("--epsilon", "4.25", "--runs", "20", "--fraction", "0.03")
    assert found["noise_multiplier"] == pytest.approx(0.6270, abs=5e-4)
    assert found["noise_multiplier_without_tuning"] == pytest.approx(0.6268, abs=5e-4)
    assert found["compute"] == pytest.approx(1.6)
    assert found["survey"] == {"runs": 20, "steps": 71, "noise_multiplier": pytest.approx(3.62, abs=0.01)}
    assert 4.249 <= found["epsilon"] <= 4.25


def test_what_is_left_out_is_planned_and_said_in_words():
    command = ["plan", "--records", "10000", "--batch-size", "100", "--epochs", "4", "--epsilon", "3"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0
    assert "Tuning costs" in result.output
    assert "20 runs, 40 steps" in result.output


def test_one_of_epochs_and_steps_is_asked_for():
    result = CliRunner().invoke(app, ["plan", "--records", "10000", "--batch-size", "100", "--epsilon", "3"])
    assert result.exit_code != 0
    assert "epochs" in f"{result.output}{result.exception}"
