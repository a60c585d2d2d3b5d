"""Commands that read certificates: explain, compose, the ledger; and the version."""

from __future__ import annotations

import json
from pathlib import Path

import dp_accounting as dp
import pytest
from typer.testing import CliRunner

import dphypo
from dphypo.accounting import account
from dphypo.accounting.profiles import round_up
from dphypo.accounting.verify import guarantee_of
from dphypo.cli import app
from dphypo.errors import FileError
from dphypo.laws import Geometric

RUN = CliRunner()


@pytest.fixture
def certificates(tmp_path: Path) -> list[Path]:
    made = []
    for name, noise in (("first", 8.0), ("second", 12.0)):
        guarantee = account(dp.GaussianDpEvent(noise), Geometric(mean=4))
        made.append(guarantee.certificate(1e-5).save(tmp_path / f"{name}.json"))
    return made


def test_compose_says_what_both_cost_together(certificates: list[Path]) -> None:
    done = RUN.invoke(app, ["compose", *map(str, certificates)])
    expected = guarantee_of(certificates[0]).compose(guarantee_of(certificates[1])).epsilon(1e-5)
    assert done.exit_code == 0
    assert f"ε = {round_up(expected, 4):.4f} at δ = 1e-05 for 2 certificates together" in done.output
    assert "only if no search was chosen after seeing" in done.output


def test_account_compares_what_a_certificate_states_with_what_it_costs(certificates: list[Path]) -> None:
    path = certificates[0]
    document = json.loads(path.read_text())
    done = RUN.invoke(app, ["account", str(path)])
    assert done.exit_code == 0
    assert f"the certificate states ε = {document['epsilon']}\n" in done.output
    path.write_text(json.dumps({**document, "epsilon": document["epsilon"] / 2}))
    done = RUN.invoke(app, ["account", str(path)])
    assert done.exit_code == 0
    assert done.output.endswith(": TOO SMALL\n")


def test_compose_takes_delta_from_its_certificates_and_no_file_twice(certificates: list[Path], tmp_path: Path) -> None:
    guarantee = account(dp.GaussianDpEvent(8.0), Geometric(mean=4))
    stated = [guarantee.certificate(delta).save(tmp_path / f"{delta}.json") for delta in (1e-7, 1e-8)]
    done = RUN.invoke(app, ["compose", *map(str, stated)])
    assert f"ε = {round_up(guarantee.compose(guarantee).epsilon(1e-7), 4):.4f} at δ = 1e-07 for 2" in done.output
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / "certificate.json").symlink_to(certificates[0])
    for again in (certificates[0], tmp_path / "release"):
        done = RUN.invoke(app, ["compose", str(certificates[0]), str(again)])
        assert done.exit_code == 2
        assert "is given twice" in " ".join(done.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("public", "words"),
    [
        ({"warning": "no guarantee: seeded"}, "guarantees nothing: no guarantee: seeded"),
        ({"warning": "no guarantee: seeded", "entropy": "seeded"}, "guarantees nothing"),
        ({"unit": "person"}, "different units (record, person)"),
    ],
)
def test_what_guarantees_nothing_or_protects_another_unit_is_not_composed(
    certificates: list[Path], tmp_path: Path, public: dict[str, str], words: str
) -> None:
    guarantee = account(dp.GaussianDpEvent(8.0), Geometric(mean=4))
    other = guarantee.certificate(1e-5, **public).save(tmp_path / "other.json")
    done = RUN.invoke(app, ["compose", str(certificates[0]), str(other)])
    assert done.exit_code == 2
    assert words in " ".join(done.output.replace("│", " ").split())


def test_explain_says_what_is_assumed_and_what_would_break_it(certificates: list[Path]) -> None:
    done = RUN.invoke(app, ["explain", str(certificates[0])])
    assert done.exit_code == 0
    for words in ("What it guarantees", "What it assumes", "What would break it", "drawn once", "dphypo verify"):
        assert words in done.output
    assert "For a paper\n  All training runs, including those that chose the hyperparameters" in done.output


@pytest.mark.parametrize("damage", [{"statement": None}, {"public": {}}])
def test_explain_names_what_it_cannot_read(damage: dict[str, object], certificates: list[Path]) -> None:
    document = {**json.loads(certificates[0].read_text()), **damage}
    certificates[0].write_text(json.dumps({name: value for name, value in document.items() if value is not None}))
    done = RUN.invoke(app, ["explain", str(certificates[0])])
    assert done.output.startswith("THIS DOES NOT VERIFY: do not rely on it.")
    with pytest.raises(FileError, match="the certificate cannot be explained"):
        raise done.exception or AssertionError


def test_explain_marks_a_certificate_that_does_not_verify(certificates: list[Path]) -> None:
    document = json.loads(certificates[0].read_text())
    certificates[0].write_text(json.dumps({**document, "epsilon": document["epsilon"] / 2}))
    done = RUN.invoke(app, ["explain", str(certificates[0])])
    assert done.exit_code == 1
    assert done.output.startswith("THIS DOES NOT VERIFY: do not rely on it.")
    assert "epsilon: the certificate says" in done.output
    assert "What it guarantees" not in done.output
    assert "For a paper" not in done.output


def test_a_ledger_from_the_command_line(certificates: list[Path], tmp_path: Path) -> None:
    path = str(tmp_path / "ledger.db")
    assert RUN.invoke(app, ["ledger", "open", path, "--epsilon", "2", "--delta", "1e-6"]).exit_code == 0
    done = RUN.invoke(app, ["ledger", "reserve", path, str(certificates[0])])
    assert "first: ε = " in done.output
    assert "reserved under the key " in done.output
    for _ in range(2):
        kept = RUN.invoke(app, ["ledger", "reserve", path, str(certificates[0]), "--key", "chosen once"])
        assert kept.output.count("first: ε = ") == 2
    while (done := RUN.invoke(app, ["ledger", "reserve", path, str(certificates[0])])).exit_code == 0:
        pass
    assert "would exceed the total" in str(done.exception)
    assert "first: ε = " in RUN.invoke(app, ["ledger", "show", path]).output


def test_what_guarantees_nothing_is_not_reserved(tmp_path: Path) -> None:
    guarantee = account(dp.GaussianDpEvent(8.0), Geometric(mean=4))
    seeded = guarantee.certificate(1e-5, warning="no guarantee: seeded").save(tmp_path / "seeded.json")
    path = str(tmp_path / "ledger.db")
    RUN.invoke(app, ["ledger", "open", path, "--epsilon", "2", "--delta", "1e-6"])
    done = RUN.invoke(app, ["ledger", "reserve", path, str(seeded)])
    assert done.exit_code == 2
    assert "guarantees nothing" in done.output


def test_the_version() -> None:
    assert RUN.invoke(app, ["--version"]).output == f"dphypo {dphypo.__version__}\n"
