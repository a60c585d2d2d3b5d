"""Damaged and hostile ledgers: read as they were, or refused by a LedgerError; written whole or not at all."""

from __future__ import annotations

import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import dp_accounting as dp
import pytest
from typer.testing import CliRunner

from dphypo import Ledger, account
from dphypo.cli import app
from dphypo.errors import LedgerError
from dphypo.journal.store import End, SQLite, Store, append
from dphypo.laws import Pmf

GAUSSIAN = account(dp.GaussianDpEvent(20.0), Pmf({1: 1.0}))


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    ledger = Ledger.open(path, epsilon=2.0, delta=1e-6)
    for name in ("first", "second"):
        key = ledger.reserve(GAUSSIAN, name=name)
        ledger.advance(key, "study", "", "a" * 64)
    ledger.close(key, "study", "a" * 64)
    return path.read_bytes()


def use(path: Path) -> list[object]:
    """All that is done with a ledger."""
    ledger = Ledger(path)
    shown = str(ledger)
    ledger.reserve(GAUSSIAN, name="third", key="third")
    return [shown, ledger.entries[:2]]


EDITS = {
    "a cost": "UPDATE dphypo_change SET content = replace(content, '[0.', '[-0.') WHERE number = 1",
    "a total": "UPDATE dphypo_change SET content = replace(content, '2.0', '9.0') WHERE number = 0",
    "an entry removed": "DELETE FROM dphypo_change WHERE number = 1",
    "the last entry removed": "DELETE FROM dphypo_change WHERE number = (SELECT max(number) FROM dphypo_change)",
    "all removed": "DELETE FROM dphypo_change",
    "the order": "UPDATE dphypo_change SET number = 99 WHERE number = 1",
    "the head": "UPDATE dphypo_book SET head = '0'",
    "the head is a number": "UPDATE dphypo_book SET head = 7",
    "the head is missing": "UPDATE dphypo_book SET head = x''",
    "the format": "UPDATE dphypo_book SET format = 99",
    "the name": "UPDATE dphypo_book SET name = 'other'",
    "the kind": "UPDATE dphypo_book SET kind = 'journal'",
    "no book": "DELETE FROM dphypo_book",
    "a blob": "UPDATE dphypo_change SET content = x'00ff' WHERE number = 1",
    "a text that is no UTF-8": "UPDATE dphypo_change SET content = CAST(x'ff' AS TEXT) WHERE number = 1",
    "no JSON": "UPDATE dphypo_change SET content = 'x' WHERE number = 1",
    "a closed part is open": "UPDATE dphypo_part SET closed = 0",
    "an open part is closed": "UPDATE dphypo_part SET closed = 1",
    "a place of nobody": "UPDATE dphypo_part SET entry = 'nobody' WHERE closed = 0",
    "a head that is none": "UPDATE dphypo_part SET head = 3",
    "a table less": "DROP TABLE dphypo_change",
    "a table of places less": "DROP TABLE dphypo_part",
    "a column less": "ALTER TABLE dphypo_book DROP COLUMN owner",
    "a secret": "INSERT INTO dphypo_secret VALUES ('ledger', 'ledger', 1, 0, x'00')",
    "the entry of a change": "UPDATE dphypo_change SET about = 'nobody' WHERE number = 1",
    "the head of a change": "UPDATE dphypo_change SET head = 'x' WHERE number = 1",
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_ledger_is_refused(whole, tmp_path, edit):
    path = tmp_path / "ledger.db"
    path.write_bytes(whole)
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(EDITS[edit]).rowcount != 0
    with pytest.raises(LedgerError):
        use(path)


def chained(path: Path, *contents: object) -> Path:
    """A ledger whose hashes are right, whatever it says."""

    def write(connection: Any) -> None:
        end: End | None = End("ledger", "ledger")
        for number, content in enumerate(contents):
            assert end is not None
            about = content[1] if number and isinstance(content, list) and len(content) > 1 else None
            end = append(connection, end, content, about=about)

    store = Store(SQLite(path), kind="ledger")
    store.commit(write)
    store.close()
    return path


TERMS = {
    "epsilon": 2.0,
    "delta": 1e-6,
    "relation": "ADD_OR_REMOVE_ONE",
    "orders": [8.0, 16.0],
    "id": "x",
}
STATED = {"name": "name", "renyi": [0.1, 0.2], "slack": 0.0, "epsilon": 0.5, "delta": 1e-6, "day": "2026-01-31"}
SPENT = {"renyi": [0.1, 0.2], "slack": 0.0}
ENTRY = ["reserve", "key", STATED, SPENT]


def test_what_is_written_by_hand_as_the_library_would_is_read(tmp_path):
    assert len(Ledger(chained(tmp_path / "ledger.db", ["terms", TERMS], ENTRY)).entries) == 1


@pytest.mark.parametrize(
    "costs", [[-5.0, 0.2], [-1e-300, 0.2], [float("nan"), 0.1], [True, "1"], [0.1], [], None, [1, 2, 3]]
)
def test_costs_that_enlarge_the_budget_are_refused_whatever_their_hashes(tmp_path, costs):
    for stated, spent in ((costs, costs), (costs, SPENT["renyi"]), (STATED["renyi"], costs)):
        entry = ["reserve", "key", STATED | {"renyi": stated}, SPENT | {"renyi": spent}]
        path = chained(tmp_path / "ledger.db", ["terms", TERMS], entry)
        with pytest.raises(LedgerError, match="was changed by something other than this library"):
            use(path)
        path.unlink()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", float("inf")),
        ("epsilon", -1),
        ("delta", 2),
        ("delta", "x"),
        ("relation", "EVERYTHING"),
        ("orders", []),
        ("orders", [1.0, 2.0]),
        ("orders", [16.0, 8.0]),
        ("orders", 3),
        ("id", "\x1b[31m"),
    ],
)
def test_terms_that_are_none_are_refused(tmp_path, name, value):
    path = chained(tmp_path / "ledger.db", ["terms", TERMS | {name: value}], ENTRY)
    with pytest.raises(LedgerError, match="was changed by something other than this library"):
        use(path)


@pytest.mark.parametrize(
    "contents",
    [
        [["terms"]],
        ["terms"],
        [7],
        [["terms", TERMS], ENTRY, ENTRY],
        [["terms", TERMS], ["release", "key", "part", SPENT]],
        [["terms", TERMS], ENTRY, ["release", "key", "part", SPENT]],
        [["terms", TERMS], ["dance"]],
        [["terms", TERMS], [*ENTRY[:2], STATED | {"name": "\x1b[2Jname"}, SPENT]],
        [["terms", TERMS], [*ENTRY[:2], STATED | {"day": "yesterday"}, SPENT]],
        [["terms", TERMS], [*ENTRY[:2], STATED | {"slack": 1e-9}, SPENT]],
    ],
)
def test_histories_that_no_ledger_has_are_refused(tmp_path, contents):
    with pytest.raises(LedgerError):
        use(chained(tmp_path / "ledger.db", *contents))


def flipped(whole: bytes, path: Path, rng: random.Random) -> None:
    changed = bytearray(whole)
    for _ in range(rng.choice([1, 1, 3])):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    if rng.random() < 0.2:
        del changed[rng.randrange(len(changed)) :]
    path.write_bytes(changed)


def check_flips(whole: bytes, folder: Path, count: int, seed: int) -> int:
    """How many damaged ledgers were refused; the others were read as they were."""
    rng, refused = random.Random(seed), 0
    (folder / "good.db").write_bytes(whole)
    expected = use(folder / "good.db")
    for number in range(count):
        path = folder / f"{number}.db"
        flipped(whole, path, rng)
        try:
            assert use(path) == expected
        except LedgerError:
            refused += 1
        path.unlink()
    return refused


def test_flipped_bits_are_refused_or_change_nothing(whole, tmp_path):
    assert 0 < check_flips(whole, tmp_path, 40, 1) < 40


@pytest.mark.slow
def test_many_flipped_bits_are_refused_or_change_nothing(whole, tmp_path):
    assert 0 < check_flips(whole, tmp_path, 1000, 2) < 1000


OTHERS = {
    "nothing": lambda path: path.touch(),
    "text": lambda path: path.write_text("not a database"),
    "a folder": lambda path: path.mkdir(),
    "a pipe": os.mkfifo,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a database": lambda path: sqlite3.connect(path).execute("CREATE TABLE t (x)").connection.close(),
    "an empty database": lambda path: sqlite3.connect(path).execute("VACUUM").connection.close(),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_no_ledger_is_refused_and_left_as_it_is(tmp_path, kind):
    path = tmp_path / "ledger.db"
    OTHERS[kind](path)
    before = path.lstat().st_mode, path.lstat().st_mtime_ns, path.lstat().st_size
    with pytest.raises(LedgerError):
        Ledger(path)
    with pytest.raises(LedgerError, match="already"):
        Ledger.open(path, epsilon=1.0, delta=1e-6)
    assert [file.name for file in tmp_path.iterdir()] == ["ledger.db"]
    assert (path.lstat().st_mode, path.lstat().st_mtime_ns, path.lstat().st_size) == before


@pytest.mark.parametrize("limit", [0, 4096, 8192, 20_000])
def test_a_full_disk_leaves_no_ledger_behind_or_the_old_one(whole, tmp_path, limit):
    path = tmp_path / "ledger.db"
    child = os.fork()
    if child == 0:
        status = 9
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, -1))
            Ledger.open(path, epsilon=1.0, delta=1e-6)
            status = 0
        except LedgerError:
            status = 1
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert list(tmp_path.iterdir()) == []
    Ledger.open(path, epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("call", ["fsync", "link"])
def test_a_process_that_is_killed_while_it_creates_a_ledger_leaves_nothing_behind(tmp_path, call):
    child = os.fork()
    if child == 0:
        setattr(os, call, lambda *given, **named: os.kill(os.getpid(), signal.SIGKILL))
        try:
            Ledger.open(tmp_path / "ledger.db", epsilon=1.0, delta=1e-6)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_nameless_files_holds_ledgers_too(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "O_TMPFILE")
    path = tmp_path / "ledger.db"
    Ledger.open(path, epsilon=1.0, delta=1e-6)
    with pytest.raises(LedgerError, match="already something"):
        Ledger.open(path, epsilon=1.0, delta=1e-6)
    assert [file.name for file in tmp_path.iterdir()] == ["ledger.db"]


def test_a_folder_that_is_missing_or_cannot_be_written_is_a_clear_error(tmp_path):
    with pytest.raises(LedgerError, match="cannot be created: No such file"):
        Ledger.open(tmp_path / "missing" / "ledger.db", epsilon=1.0, delta=1e-6)


def test_a_ledger_is_private_and_its_name_is_not_obeyed_by_the_terminal(tmp_path):
    old = os.umask(0)
    try:
        ledger = Ledger.open(tmp_path / "ledger.db", epsilon=2.0, delta=1e-6)
    finally:
        os.umask(old)
    assert (tmp_path / "ledger.db").stat().st_mode & 0o777 == 0o600
    for bad in ("\x1b[31mred", "a\nb", "", "x" * 501, 7, None, "\u202eabc"):
        with pytest.raises(ValueError, match=r"name = .* give a line of text"):
            ledger.reserve(GAUSSIAN, name=bad)
    with pytest.raises(ValueError, match=r"key = .* give a line of text"):
        ledger.reserve(GAUSSIAN, name="search", key="\x1b[31m")
    assert ledger.entries == ()


@pytest.mark.slow
@pytest.mark.parametrize("closed", [False, True])
def test_reserving_that_cannot_be_shown_is_reserved_and_says_so(tmp_path, closed):
    certificate = GAUSSIAN.certificate(1e-6).save(tmp_path / "first.json")
    ledger = Ledger.open(tmp_path / "ledger.db", epsilon=2.0, delta=1e-6)
    command = [sys.executable, "-m", "dphypo", "ledger", "reserve", str(ledger.path), str(certificate), "--key", "k"]
    if closed:
        subprocess.run(["bash", "-c", '"$@" >&- 2>/dev/full', "bash", *command], check=True)
    else:
        with open("/dev/full", "w") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "reserved under the key k" in done.stderr
    again = CliRunner().invoke(app, command[3:])
    assert again.exit_code == 0
    assert "reserved under the key k" in again.output
    assert [entry.key for entry in ledger.entries] == ["k"]
