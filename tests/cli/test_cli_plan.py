"""``dphypo plan``: the comparison and the files it writes; ``dphypo audit``: claim, attack and proof, in that order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dphypo.accounting import PureDp, account
from dphypo.cli.app import app
from dphypo.laws import Geometric
from dphypo.search import PlanFile

FEW = ["audit", "--run-epsilon", "2", "--mean", "2", "--repetitions", "20", "--confidence", "0.999999"]
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
    assert row["parts"][0]["matched_to"] == row["parts"][1]["noise_multiplier"] == row["noise_multiplier"]


@pytest.mark.slow
def test_it_ends_with_a_recommendation_and_the_line_that_runs_it(tmp_path):
    path = tmp_path / "plan.json"
    result = invoke(*TASK, "--write", str(path))
    assert result.exit_code == 0, result.output
    assert "Recommended: " in result.output
    assert "dphypo.tune(space, mechanism" in result.output
    assert "What a larger batch buys" in result.output
    accounted = invoke("account", str(path))
    assert accounted.exit_code == 0
    assert "the file states ε = " in accounted.output
    assert PlanFile.load(path).epsilon <= 2
    verified = invoke("verify", str(path))
    assert verified.exit_code == 0, verified.output


@pytest.mark.slow
def test_any_design_can_be_written(tmp_path):
    path = tmp_path / "plan.json"
    assert invoke(*TASK, "--write", str(path), "--design", "1").exit_code == 0
    assert PlanFile.load(path).name == "no tuning"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--design", "2"], "give both"),
        (["--landscape", "imagenet"], "give one of mnist"),
        (["--epochs", "3"], "give one of epochs and steps"),
        pytest.param(
            ["--write", "x.json", "--design", "none such"],
            "give the number or the name of one of these",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_bad_options_are_named(options, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke(*TASK, *options)
    assert result.exit_code != 0
    assert words in f"{result.output}{result.exception}"


def test_a_file_and_options_that_describe_a_search_exclude_each_other(tmp_path):
    result = invoke("account", str(tmp_path / "plan.json"), "--mean", "3")
    assert result.exit_code != 0
    assert "leave out the options" in result.output


def test_a_certificate_is_accounted_for_too(tmp_path):
    path = tmp_path / "certificate.json"
    options = ["--event", "gaussian", "--noise-multiplier", "4", "--mean", "5"]
    first = invoke("account", *options, "--certificate", str(path), "--json")
    again = invoke("account", str(path), "--json")
    assert json.loads(again.output)["epsilon"] == pytest.approx(json.loads(first.output)["epsilon"])
    assert invoke("account", str(tmp_path / "gone.json")).exit_code != 0


# Audits


@pytest.mark.slow
@pytest.mark.parametrize("band", [[], ["--band", "0.75", "2"]], ids=["uniform", "band"])
def test_the_three_numbers_are_in_order(band: list[str]) -> None:
    """False alarms: 1e-6."""
    done = invoke(*FEW, *band, "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert 0 <= found["proven"] <= found["claimed_by_the_study"] <= found["claimed"]
    assert 0 < found["attack"] <= found["claimed"]
    if not band:
        assert found["claimed"] == pytest.approx(account(PureDp(2.0), Geometric(mean=2)).epsilon(1e-3))


@pytest.mark.slow
def test_it_says_what_came_of_it_and_draws_it(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = invoke(*FEW, "--plot", str(tmp_path / "audit.png"))
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()[:3]] == ["claimed", "attack", "proven"]
    assert "the claims stand" in done.stdout
    assert (tmp_path / "audit.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "wrong",
    [["--repetitions", "3"], ["--delta", "0"], ["--mean", "5000"], ["--confidence", "1"], ["--run-epsilon", "0"]],
)
def test_numbers_out_of_range_are_refused(wrong: list[str]) -> None:
    done = invoke(*FEW, *wrong)
    assert done.exit_code == 2
    assert wrong[0] in done.output
    assert "out of range" in done.output
