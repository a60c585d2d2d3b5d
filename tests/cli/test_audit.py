"""The command audit: what is claimed, what the attack achieves and what the experiment proves, in that order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.slow import mostly_slow
from typer.testing import CliRunner

from dphypo.accounting import PureDp, account
from dphypo.cli.app import app
from dphypo.laws import Geometric

RUN = CliRunner()
FEW = ["audit", "--run-epsilon", "2", "--mean", "2", "--repetitions", "20", "--confidence", "0.999999"]


@pytest.mark.parametrize("band", mostly_slow([[], ["--band", "0.75", "2"]]), ids=["uniform", "band"])
def test_the_three_numbers_are_in_order(band: list[str]) -> None:
    """False alarms: 1e-6."""
    done = RUN.invoke(app, [*FEW, *band, "--json"])
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert 0 <= found["proven"] <= found["claimed_by_the_study"] <= found["claimed"]
    assert 0 < found["attack"] <= found["claimed"]
    if not band:
        assert found["claimed"] == pytest.approx(account(PureDp(2.0), Geometric(mean=2)).epsilon(1e-3))


@pytest.mark.slow
def test_it_says_what_came_of_it_and_draws_it(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = RUN.invoke(app, [*FEW, "--plot", str(tmp_path / "audit.png")])
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()[:3]] == ["claimed", "attack", "proven"]
    assert "the claims stand" in done.stdout
    assert (tmp_path / "audit.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "wrong",
    [["--repetitions", "3"], ["--delta", "0"], ["--mean", "5000"], ["--confidence", "1"], ["--run-epsilon", "0"]],
)
def test_numbers_out_of_range_are_refused(wrong: list[str]) -> None:
    done = RUN.invoke(app, [*FEW, *wrong])
    assert done.exit_code == 2
    assert wrong[0] in done.output
    assert "out of range" in done.output
