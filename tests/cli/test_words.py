"""The same thing has the same word in every command, and a what-if takes everything else from the certificate."""

from __future__ import annotations

import json
from pathlib import Path

import dp_accounting as dp
import pytest
import typer
from typer.testing import CliRunner

import dphypo
from dphypo.accounting import account, verify
from dphypo.band import Band
from dphypo.cli import app
from dphypo.laws import Geometric, NegativeBinomial

RUN = CliRunner()
LENGTH = {"--records", "--batch-size", "--epochs", "--sampling-rate", "--steps"}
OTHER_WORDS = {"--rate", "--q", "--sigma", "--noise", "--n", "--num-records", "--batch", "--lot-size", "--eps", "--c"}
FREE = {"name", "path", "plan", "certificate", "certificates", "key"}  # arguments, each of its own command


def commands() -> dict[str, list[object]]:
    found = {}
    root = typer.main.get_command(app)
    for name, command in root.commands.items():
        for inner, one in getattr(command, "commands", {"": command}).items():
            found[f"{name} {inner}".strip()] = one.params
    return found


def options() -> list[tuple[str, object]]:
    return [(command, one) for command, params in commands().items() for one in params if one.name not in FREE]


def test_the_walk_sees_the_commands():
    assert {"account", "calibrate", "plan", "verify", "ledger open", "compose"} <= set(commands())


def test_one_name_is_one_option_with_one_meaning():
    """Python's name, the option and what it takes agree wherever a name occurs."""
    seen: dict[str, tuple[str, object]] = {}
    for command, one in options():
        if command == "plan" and one.name in ("runs", "design"):  # a number of short runs; the name of a design
            continue
        said = (tuple(one.opts), one.nargs, one.is_flag if hasattr(one, "is_flag") else False)
        assert seen.setdefault(one.name, (command, said))[1] == said, f"{one.name}: {command} and {seen[one.name][0]}"


def test_no_option_has_another_word_for_a_known_thing():
    for command, one in options():
        assert not OTHER_WORDS & set(one.opts), f"{command}: {one.opts}"


@pytest.mark.parametrize("command", ["account", "calibrate"])
def test_a_run_is_given_in_either_way(command):
    given = {option for one in commands()[command] for option in one.opts}
    assert given >= LENGTH


def test_both_ways_to_give_a_run_cost_the_same():
    search = ["--noise-multiplier", "2", "--mean", "3", "--json"]
    first = RUN.invoke(app, ["account", "--records", "1000", "--batch-size", "100", "--epochs", "2", *search])
    second = RUN.invoke(app, ["account", "--sampling-rate", "100/1000", "--steps", "20", *search])
    assert first.exit_code == 0, first.output
    assert json.loads(first.stdout) == json.loads(second.stdout)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--records", "1000", "--batch-size", "100"], "together"),
        (["--records", "1000", "--batch-size", "100", "--epochs", "1", "--steps", "9"], "together"),
        (
            ["--records", "1000", "--batch-size", "100", "--epochs", "1", "--sampling-rate", "0.1"],
            "give either --sampling-rate",
        ),
    ],
)
def test_half_a_run_or_two_are_refused(given, words):
    for command in (["account", "--noise-multiplier", "2"], ["calibrate", "--epsilon", "2"]):
        done = RUN.invoke(app, [*command, *given, "--mean", "3"])
        assert done.exit_code == 2
        assert words in done.output


def test_what_if_takes_an_event_that_no_option_expresses_from_the_certificate(tmp_path: Path):
    event = dp.ComposedDpEvent([dp.GaussianDpEvent(6.0), dp.LaplaceDpEvent(9.0)])
    before = account(event, NegativeBinomial(8, mean=6), Band(0.5, 2), grid=1e-3)
    path = before.certificate(1e-5).save(tmp_path / "certificate.json")
    same = json.loads(RUN.invoke(app, ["account", "--from", str(path), "--json"]).stdout)
    assert same["epsilon"] == pytest.approx(before.epsilon(1e-5), rel=1e-6)
    new = ["--band", "0.5", "4", "--mean", "20", "--delta", "1e-6", "--json"]
    found = json.loads(RUN.invoke(app, ["account", "--from", str(path), *new]).stdout)
    expected = account(event, NegativeBinomial(8, mean=20), Band(0.5, 4), grid=1e-3)
    assert found["epsilon"] == pytest.approx(expected.epsilon(1e-6), rel=1e-6)
    other = RUN.invoke(app, ["account", "--from", str(path), "--runs", "geometric", "--mean", "4", "--json"])
    assert json.loads(other.stdout)["runs"]["mean"] == pytest.approx(4, rel=1e-3)


def test_what_if_refuses_an_event_beside_the_certificate_and_certificates_of_several_parts(tmp_path: Path):
    one = account(dp.GaussianDpEvent(9.0), Geometric(mean=3))
    alone = one.certificate(1e-5).save(tmp_path / "alone.json")
    done = RUN.invoke(app, ["account", "--from", str(alone), "--noise-multiplier", "3"])
    assert done.exit_code == 2
    assert "remove options that describe a run" in done.output
    both = one.compose(one).certificate(1e-5).save(tmp_path / "both.json")
    assert "has several parts" in RUN.invoke(app, ["account", "--from", str(both), "--mean", "3"]).output


def test_what_if_reads_strangers_files_with_care(tmp_path: Path):
    path = tmp_path / "bad.json"
    path.write_text('{"epsilon": 1, "epsilon": 2}')
    assert RUN.invoke(app, ["account", "--from", str(path)]).exit_code != 0
    document = account(dp.GaussianDpEvent(9.0), Geometric(mean=3)).certificate(1e-5).to_dict()
    document["terms"][0]["runs"]["law"]["gamma"] = 1e-300
    path.write_text(json.dumps(document))
    done = RUN.invoke(app, ["account", "--from", str(path)])
    assert isinstance(done.exception, ValueError), done.output


def test_calibrate_writes_a_certificate_that_verifies(tmp_path: Path):
    path = tmp_path / "certificate.json"
    search = ["--sampling-rate", "1", "--mean", "3", "--epsilon", "2", "--certificate", str(path)]
    assert RUN.invoke(app, ["calibrate", *search]).exit_code == 0
    assert verify(path)


def test_verify_takes_the_folder_of_a_release(tmp_path: Path):
    @dphypo.mechanism(event=dp.GaussianDpEvent(9.0), relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    def train(params, *, seed):
        return {"width": params["width"]}, 0.5

    study = dphypo.Study(dphypo.Space({"width": [8]}), train, Geometric(mean=3), delta=1e-5, journal=None)
    study.run(progress=False).save(tmp_path / "release")
    assert RUN.invoke(app, ["verify", str(tmp_path / "release")]).stdout.startswith("yes")
    model = next(path for path in (tmp_path / "release").iterdir() if path.name.startswith("model"))
    model.write_bytes(model.read_bytes() + b" ")
    assert RUN.invoke(app, ["verify", str(tmp_path / "release")]).exit_code == 1


def test_a_ledger_is_shown_by_its_name_alone(tmp_path: Path):
    path = str(tmp_path / "data.db")
    opened = RUN.invoke(app, ["ledger", "open", path, "--epsilon", "2", "--delta", "1e-6"])
    shown = RUN.invoke(app, ["ledger", path])
    assert shown.output == opened.output == RUN.invoke(app, ["ledger", "show", path]).output
    assert "only the total is guaranteed" in shown.output
