"""The command line, as people type it."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from dphypo.cli import app, main

RUN = ["--noise-multiplier", "0.71", "--sampling-rate", "256/60000", "--steps", "2344"]
SEARCH = ["--runs", "geometric", "--mean", "100", "--band", "0.75", "2", "--delta", "1e-5"]
run = CliRunner()


def invoke(*arguments: str):
    return run.invoke(app, list(arguments))


def test_account_prints_json_with_the_promised_keys():
    result = invoke("account", *RUN, *SEARCH, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert set(found) == {"epsilon", "delta", "bound", "bounds", "one_run", "runs"}
    assert found["epsilon"] == pytest.approx(6.94, abs=0.02)
    assert found["bound"] == "profile"
    assert found["bounds"]["paper"] == pytest.approx(11.151, abs=1e-3)
    assert set(found["one_run"]) == {"rdp", "pld"}
    assert found["runs"]["mean"] == pytest.approx(100)
    assert found["runs"]["quantiles"]["0.5"] == 69


def test_account_prints_a_table_for_people():
    result = invoke("account", *RUN, *SEARCH)
    assert result.exit_code == 0
    assert "by the profile bound" in result.stdout
    assert "does not cover the search" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["--runs", "poisson", "--mean", "5"],
        ["--runs", "negative-binomial", "--shape", "3", "--mean", "5"],
        ["--runs", "geometric", "--mean", "5"],
    ],
)
def test_every_kind_of_law(arguments):
    result = invoke("account", "--noise-multiplier", "5", "--sampling-rate", "1", *arguments, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["epsilon"] > 0


def test_calibrate_prints_the_noise_and_what_the_paper_would_charge():
    search = ["--sampling-rate", "0.02", "--steps", "100", "--mean", "10", "--epsilon", "3"]
    result = invoke("calibrate", *search, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert 3 - 1e-3 <= found["epsilon"] <= 3
    assert found["bounds"]["paper"] > 3
    table = invoke("calibrate", *search)
    assert "noise multiplier" in table.stdout


def test_a_certificate_is_written_and_verified(tmp_path):
    path = tmp_path / "certificate.json"
    arguments = ["--sampling-rate", "1", "--noise-multiplier", "5", "--mean", "5", "--certificate", str(path)]
    assert invoke("account", *arguments).exit_code == 0
    good = invoke("verify", str(path))
    assert good.exit_code == 0
    assert good.stdout.startswith("yes")
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "epsilon": 0.1}))
    bad = invoke("verify", str(path))
    assert bad.exit_code == 1
    assert "epsilon" in bad.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["account", "--noise-multiplier", "1", "--sampling-rate", "1/0", "--mean", "5"], "ratio"),
        (["account", "--noise-multiplier", "1", "--mean", "5"], "--sampling-rate"),
        (["account", "--sampling-rate", "0.1", "--mean", "5"], "--noise-multiplier"),
        (["account", *RUN], "--mean"),
        (["account", *RUN, "--runs", "poisson"], "--mean"),
        (["account", *RUN, "--runs", "negative-binomial", "--mean", "5"], "--shape"),
        (["calibrate", "--mean", "5", "--epsilon", "1"], "--sampling-rate"),
        (["account", *RUN, "--runs", "geometric", "--shape", "8", "--mean", "5"], "--shape does not apply"),
    ],
)
def test_what_is_missing_or_out_of_place_is_named(arguments, words):
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert words in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["account", *RUN, "--mean", "0.5"], "mean"),
        (
            ["account", *RUN, "--mean", "5", "--band", "0.5", "1"],
            "(0.5, 1.0) is not valid: this band contains only the prior",
        ),
        (
            ["calibrate", "--records", "10", "--batch-size", "20", "--epochs", "1", "--mean", "5", "--epsilon", "2"],
            "--batch-size 20 is not valid: it must be at most",
        ),
    ],
)
def test_bad_values_end_with_one_clear_line(arguments, words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["dphypo", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("dphypo: ")
    assert said.count("\n") == 1
    assert words in said


def test_a_command_that_takes_long_says_that_it_is_still_at_work(monkeypatch, capsys):
    monkeypatch.setattr("dphypo.cli._PATIENCE", (0.01, 0.02))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    anew = ["0.7321" if one == "0.71" else one for one in RUN]  # what was accounted before would take no time
    monkeypatch.setattr(sys, "argv", ["dphypo", "account", *anew, *SEARCH])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)
    assert "dphypo: still computing after " in capsys.readouterr().err


def test_help_names_the_commands():
    result = invoke("--help")
    assert result.exit_code == 0
    for command in ("account", "calibrate", "verify"):
        assert command in result.stdout


def test_json_has_no_infinity_that_json_does_not_have():
    result = invoke(
        "account", "--noise-multiplier", "5", "--sampling-rate", "1", "--mean", "5", "--delta", "1e-40", "--json"
    )
    assert result.exit_code == 0, result.output

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    found = json.loads(result.stdout, parse_constant=refuse)
    assert "inf" in found["bounds"].values()


# Numbers out of range

SEARCHED = ["--mean", "10"]
SGD = ["--sampling-rate", "256/60000", "--steps", "2344"]


OUT_OF_RANGE = [
    ["account", "--noise-multiplier", "1", "--sampling-rate", "1e400", *SEARCHED],
    ["account", "--noise-multiplier", "1", "--sampling-rate", "1e-999999999", *SEARCHED],
    ["account", "--noise-multiplier", "1", "--sampling-rate", "1e400/1e400", *SEARCHED],
    ["account", "--noise-multiplier", "0.001", *SGD, *SEARCHED],
    ["account", "--noise-multiplier", "nan", *SGD, *SEARCHED],
    ["account", "--noise-multiplier", "1", *SGD, "--mean", "inf"],
    ["account", "--noise-multiplier", "1", *SGD, *SEARCHED, "--delta", "0.9999999999"],
    ["account", "--noise-multiplier", "1", *SGD, *SEARCHED, "--band", "nan", "2"],
    ["account", "--noise-multiplier", "0.1", "--sampling-rate", "1", "--steps", "100000", *SEARCHED],
    ["calibrate", "--epsilon", "1e10", *SGD, *SEARCHED],
    ["calibrate", "--epsilon", "3", *SGD, *SEARCHED, "--delta", "0.9999999999"],
    ["calibrate", "--epsilon", "3", "--sampling-rate", "0.1", "--steps", "1000000000", *SEARCHED],
    ["plan", "--records", "1" + "0" * 30, "--batch-size", "200", "--epochs", "1", "--epsilon", "4"],
]
LATE = ("100000", "--band")  # refused by what makes the event or the band


def test_a_number_out_of_range_is_a_sentence_before_any_work():
    """The work would take hours, or all memory: no accountant is even imported. In one process, one after the other."""
    code = (
        "import contextlib, io, json, sys\nfrom dphypo.cli import main\n"
        "for line in json.load(sys.stdin):\n"
        "    sys.argv, said = ['dphypo', *line], io.StringIO()\n"
        "    try:\n"
        "        with contextlib.redirect_stderr(said):\n            main()\n"
        "    except SystemExit as ended:\n"
        "        print(json.dumps([ended.code, said.getvalue(), 'scipy' in sys.modules]))\n"
    )
    arguments = sorted(OUT_OF_RANGE, key=lambda line: any(word in line for word in LATE))
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(arguments), capture_output=True, text=True, check=True
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for line, (code, said, worked) in zip(arguments, answers, strict=True):
        assert code == 2, line
        assert re.search(r"out of range: give|not a private run|is not a whole number", said.splitlines()[-1]), line
        assert not worked or any(word in line for word in LATE), line


def test_a_wrong_choice_ends_with_the_choices(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["dphypo", "account", *RUN, "--runs", "poison", "--mean", "5"])
    with pytest.raises(SystemExit, match="2"):
        main()
    said = capsys.readouterr().err.splitlines()[-1]
    choices = "'geometric', 'negative-binomial', 'poisson'."
    assert said == f"dphypo: Invalid value for '--runs': 'poison' is not one of {choices}"


def test_every_number_has_a_range():
    """Numbers are read by a parser that refuses what is out of range; those of the band by what makes the band."""
    import inspect
    import typing

    for command in app.registered_commands:
        hints = typing.get_type_hints(command.callback, include_extras=True)
        for name in inspect.signature(command.callback).parameters:
            kind, *options = typing.get_args(hints[name]) or (hints[name],)
            if kind is not bool and {float, int} & {kind, *typing.get_args(kind)} and name != "band":
                assert all(option.parser is not None for option in options), f"{name} of {command.callback.__name__}"
