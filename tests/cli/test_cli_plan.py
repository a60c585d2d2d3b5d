"""``dphypo plan``: the comparison."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from dphypo.cli import app

TASK = ["plan", "--records", "20000", "--batch-size", "500", "--steps", "320", "--epsilon", "2", "--compute", "1.3"]


def invoke(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def planned(*options: str):
    result = invoke(*TASK, "--json", *options)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.slow
def test_a_survey_that_is_asked_for_is_compared():
    found = planned("--runs", "9", "--fraction", "0.03")
    row = next(row for row in found["designs"] if row["design"] == "survey, 9 runs of 0.03")
    assert row["compute"] == pytest.approx(1.27)
    assert 1.99 <= row["epsilon"] <= 2.0
    assert row["price"] < 0.01
    assert [term["published"] for term in row["terms"]] == [9, 1]


@pytest.mark.slow
def test_it_ends_with_a_recommendation_and_the_line_that_runs_it():
    result = invoke(*TASK)
    assert result.exit_code == 0, result.output
    assert "Recommended: " in result.output
    assert "Run it: release = dphypo.tune(mechanism, epsilon=" in result.output
    assert "What a larger batch buys" in result.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--epochs", "3"], "give either epochs or steps"),
    ],
)
def test_bad_options_are_named(options, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke(*TASK, *options)
    assert result.exit_code != 0
    assert words in f"{result.output}{result.exception}"


def test_a_file_and_options_that_describe_a_search_exclude_each_other(tmp_path):
    result = invoke("account", str(tmp_path / "certificate.json"), "--mean", "3")
    assert result.exit_code != 0
    assert "remove the options" in result.output


def test_a_certificate_is_accounted_for_too(tmp_path):
    path = tmp_path / "certificate.json"
    options = ["--sampling-rate", "1", "--noise-multiplier", "4", "--mean", "5"]
    first = invoke("account", *options, "--certificate", str(path), "--json")
    again = invoke("account", str(path), "--json")
    assert json.loads(again.output)["epsilon"] == pytest.approx(json.loads(first.output)["epsilon"])
    assert invoke("account", str(tmp_path / "gone.json")).exit_code != 0
