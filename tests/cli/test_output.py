"""What the command line prints: every letter in every encoding, and no message without end."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

import dphypo
from dphypo.cli import main

RUN = ["--sampling-rate", "1", "--noise-multiplier", "5", "--mean", "5"]
COMMANDS = {  # in this order: later ones read what earlier ones wrote
    "account": ["account", *RUN, "--certificate", "FOLDER/one.json"],
    "calibrate": ["calibrate", "--sampling-rate", "1", "--mean", "5", "--epsilon", "1"],
    "explain": ["explain", "FOLDER/one.json"],
    "verify": ["verify", "FOLDER/one.json"],
    "compose": ["compose", "FOLDER/one.json"],
    "plot": ["plot", "FOLDER/one.json", "--out", "FOLDER/ε.svg"],
    "ledger open": ["ledger", "open", "FOLDER/ε.db", "--epsilon", "4", "--delta", "1e-5"],
    "ledger reserve": ["ledger", "reserve", "FOLDER/ε.db", "FOLDER/one.json", "--name", "λ中"],
    "ledger show": ["ledger", "show", "FOLDER/ε.db"],
    **{f"{name} --help": [name, "--help"] for name in ("account", "plan", "watch", "ledger", "report", "sign")},
    "--help": ["--help"],
}


def run(arguments: list[str], encoding: str, monkeypatch: pytest.MonkeyPatch) -> tuple[object, str, str]:
    """The status of a command line, what it prints, and what it says on standard error."""
    written = [io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in "ab"]
    for name, stream in zip(("stdout", "stderr"), written, strict=True):
        monkeypatch.setattr(sys, name, stream)
    monkeypatch.setattr(sys, "argv", ["dphypo", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    for stream in written:
        stream.flush()
    # Typer prints its help as UTF-8 where the encoding is ASCII.
    out, err = (s.buffer.getvalue().decode(encoding, "replace" if "--help" in arguments else "strict") for s in written)
    return ended.value.code, out, err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437", "utf-8"])
def test_every_command_prints_in_every_encoding(encoding, tmp_path, monkeypatch) -> None:
    for name, arguments in COMMANDS.items():
        given = [one.replace("FOLDER", str(tmp_path)) for one in arguments]
        status, out, err = run(given, encoding, monkeypatch)
        assert (status, err) == (0, ""), (name, status, err)
        assert out.strip(), name
    assert str(dphypo.Ledger(tmp_path / "ε.db")).count("λ") == 1


def test_letters_that_cannot_be_encoded_are_spelt(tmp_path, monkeypatch) -> None:
    _, out, _ = run(["account", *RUN], "ascii", monkeypatch)
    assert "epsilon of the search" in out
    assert "at delta = 1e-05" in out
    _, out, _ = run(["account", *RUN], "utf-8", monkeypatch)
    assert "ε of the search" in out
    _, out, _ = run(["verify", str(tmp_path / "\udcff中")], "latin-1", monkeypatch)
    assert "\\udcff\\u4e2d" in out


LONG = "x" * 5000


@pytest.mark.parametrize(
    "arguments",
    [
        [LONG],
        ["account", LONG],
        ["account", f"--{LONG}"],
        ["account", *RUN, "--runs", LONG],
        ["account", *RUN, "--band", LONG, "2"],
        ["account", *RUN, "--delta", LONG],
        ["account", *RUN, "--certificate", LONG],
        ["account", "--from", LONG],
        ["verify", LONG],
        ["explain", LONG],
        ["compose", LONG],
        ["sign", LONG, "--key", LONG],
        ["report", LONG],
        ["plot", LONG, "--out", "a.svg"],
        ["watch", LONG],
        ["ledger", LONG],
        ["ledger", "open", LONG, "--epsilon", "1", "--delta", "1e-5"],
        ["plan", "--epsilons", LONG, "--records", "100", "--batch-size", "10", "--epochs", "1"],
    ],
    ids=lambda given: " ".join(one[:12] for one in given),
)
def test_no_message_repeats_a_long_value(arguments, monkeypatch) -> None:
    status, out, err = run(arguments, "utf-8", monkeypatch)
    assert status in (1, 2)
    assert "x" * 20 in out + err, "it is named"
    assert len(out + err) < 1200
    assert "[Errno" not in out + err


@pytest.mark.parametrize("band", [("x", "y"), ("1", "nan"), ("0.5", "1e9"), ("2", "0.5"), ("1/0", "2")])
def test_a_wrong_end_of_the_band_is_named(band, monkeypatch) -> None:
    _, _, err = run(["account", *RUN, "--band", *band], "utf-8", monkeypatch)
    assert "--band" in err
    assert any(end in err for end in band)


def test_a_folder_that_is_missing_is_named(tmp_path: Path, monkeypatch) -> None:
    given = ["account", *RUN, "--certificate", str(tmp_path / "none" / "one.json")]
    status, _, err = run(given, "utf-8", monkeypatch)
    assert status == 2
    assert "there is no folder" in err
