"""What only watches a search never changes it: every call of every watcher raises every kind of exception."""

from __future__ import annotations

import io
import json
import logging
import sys

import pytest
import torch
from support import study_world
from support.checkpoint_world import make

import dphypo
from dphypo import _files, _stderr
from dphypo.errors import Stopped
from dphypo.mechanisms.mechanism import Pace, current_follower, followed_by
from dphypo.search import progress
from dphypo.search.progress import CheckpointFile, LiveFile, LiveSteps
from dphypo.search.runner import Terminated

PACE = Pace(1.25, 0.5, 100, 30)


class OfMyOwn(BaseException):
    """Not an ``Exception``, as some frameworks raise them."""


KINDS = [
    *(OSError, BrokenPipeError, ValueError, AttributeError, MemoryError, RuntimeError, RecursionError),
    *(UnicodeError, StopIteration, SystemExit, GeneratorExit, OfMyOwn),
]
CALLS = {
    "LiveSteps.begin": (LiveSteps, "begin"),
    "LiveSteps.step": (LiveSteps, "step"),
    "LiveSteps.end": (LiveSteps, "end"),
    "LiveFile.read": (LiveFile, "_content"),
    "LiveFile.write": (LiveFile, "_write"),
    "CheckpointFile.due": (CheckpointFile, "due"),
    "CheckpointFile.write": (CheckpointFile, "write"),
    "CheckpointFile.read": (CheckpointFile, "_checked"),
    "torch.save": (torch, "save"),
    "_files.writing": (_files, "writing"),
    "describe": (progress, "describe"),
    "at_edge": (progress, "at_edge"),
    "log": (_stderr.log, "info"),
}


def bits(release):
    return torch.cat([value.flatten() for value in release.model.state_dict().values()])


@pytest.fixture(scope="module")
def undisturbed():
    release = make().run(progress=False)
    return release.params, bits(release), release.survey.hash, release.certificate.to_dict()


def assert_undisturbed(journal, undisturbed, **options):
    release = make(journal).run(checkpoint_every=1, **options)
    assert release.params == undisturbed[0]
    assert torch.equal(bits(release), undisturbed[1])
    assert (release.survey.hash, release.certificate.to_dict()) == undisturbed[2:]


def kinds(*fast):
    """All kinds, of which some are tried in every run of the tests."""
    return [kind if kind in fast else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", kinds(MemoryError, SystemExit))
def test_a_watcher_that_raises_changes_nothing(kind, call, undisturbed, tmp_path, monkeypatch):
    raised = []

    def fail(*_, **__):
        raised.append(kind)
        raise kind

    monkeypatch.setattr(*CALLS[call], fail)
    monkeypatch.setattr(progress, "PAGE_S", 0.0)
    assert_undisturbed(tmp_path / "tune.db", undisturbed)
    assert raised, "it was called"


class Stream(io.StringIO):
    """Standard error, one of whose methods raises."""

    def __init__(self, method: str, kind: type[BaseException], *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

        def fail(*_: object) -> None:
            raise kind

        setattr(self, method, fail)

    def isatty(self) -> bool:
        return self._terminal


class NoTerminal:
    """The usual recipe that sends what is printed to a log."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


def closed():
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("made", [lambda: None, closed, NoTerminal, object], ids=["None", "closed", "logger", "object"])
@pytest.mark.parametrize("shown", [False, True])
def test_standard_error_that_is_missing_or_closed_changes_nothing(made, shown, undisturbed, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", made())
    assert_undisturbed(tmp_path / "tune.db", undisturbed, progress=shown)


@pytest.mark.parametrize("made", [lambda: None, closed], ids=["None", "closed"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_may_print_where_standard_error_is_missing_or_closed(made, workers, monkeypatch):
    def talks(params, *, seed):
        sys.stderr.write("a progress bar")
        return study_world.train(params, seed=seed)

    mechanism = dphypo.mechanism(event=study_world.EVENT, relation=study_world.RELATION, seeded=True)(talks)
    monkeypatch.setattr(sys, "stderr", missing := made())
    study = study_world.make(None, mechanism)
    assert study.run(workers=workers, start_method="fork").model is not None
    assert all(trial["failure"] is None for trial in study.curator().trials())
    assert sys.stderr is missing


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("method", ["write", "flush", "isatty"])
@pytest.mark.parametrize("kind", kinds(BrokenPipeError))
def test_standard_error_that_raises_changes_nothing(method, kind, terminal, undisturbed, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Stream(method, kind, terminal=terminal))
    assert_undisturbed(tmp_path / "tune.db", undisturbed)


@pytest.mark.parametrize("kind", kinds(ValueError))
def test_on_run_that_raises_is_reported_once_and_called_for_every_run(kind, undisturbed, tmp_path, capsys):
    rows = []

    def on_run(row):
        rows.append(row)
        raise kind("with a text that may quote a record")

    assert_undisturbed(tmp_path / "tune.db", undisturbed, progress=False, on_run=on_run)
    assert len(rows) == 2
    shown = capsys.readouterr().err
    assert shown == f"dphypo: on_run failed ({kind.__name__}). The search continues without it.\n"


def test_a_handler_of_the_log_that_raises_changes_nothing(undisturbed, tmp_path):
    class Fails(logging.Handler):
        def emit(self, record):
            raise OfMyOwn

    handler, logger = Fails(), logging.getLogger("dphypo")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        assert_undisturbed(tmp_path / "tune.db", undisturbed, progress=False)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@pytest.mark.parametrize("damage", [b'{"table":' + b"[" * 200_000, b"{", b"\xff", b"[]", b'{"table": 7, "cost": null}'])
def test_a_damaged_live_file_changes_nothing(damage, undisturbed, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "PAGE_S", 0.0)
    original = LiveFile._write

    def write_and_damage(self, known):
        original(self, known)
        self.path.write_bytes(damage)

    monkeypatch.setattr(LiveFile, "_write", write_and_damage)
    assert_undisturbed(tmp_path / "tune.db", undisturbed, progress=False)


def test_a_failing_checkpoint_is_reported_once_without_its_text(undisturbed, tmp_path, monkeypatch, capsys):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CheckpointFile, "write", fail)
    assert_undisturbed(tmp_path / "tune.db", undisturbed, progress=False)
    expected = "dphypo: writing a checkpoint of the run failed (OSError). The search continues without it.\n"
    assert capsys.readouterr().err == expected


def test_a_failure_is_logged_where_standard_error_is_missing(undisturbed, tmp_path, monkeypatch, caplog):
    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(CheckpointFile, "write", fail)
    monkeypatch.setattr(sys, "stderr", None)
    assert_undisturbed(tmp_path / "tune.db", undisturbed, progress=False)
    assert [record.levelname for record in caplog.records if "checkpoint" in record.message] == ["WARNING"]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, Stopped])
def test_an_interrupt_passes(interrupt):
    class Interrupted:
        def begin(self, runs):
            raise interrupt

        def end(self):
            pass

    with pytest.raises(interrupt), followed_by(Interrupted()):
        current_follower().begin([PACE])


def test_an_interrupt_that_a_watcher_turns_into_an_error_passes():
    """It is the same interrupt, which says by which signal the process must end."""
    sent = Terminated(15, None)

    def watcher():
        try:
            raise sent
        finally:
            raise ValueError

    with pytest.raises(Terminated) as caught:
        _stderr.shielded(watcher, otherwise=None)
    assert caught.value is sent


def test_text_that_cannot_be_encoded_is_shown_escaped(monkeypatch):
    buffer = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(buffer, encoding="ascii", errors="strict"))
    assert _stderr.say("ε = 4")
    assert buffer.getvalue() == b"\\u03b5 = 4\n"


def test_a_checkpoint_is_written_and_read_in_pieces(tmp_path):
    """No part of the state is held twice: each piece goes straight to the file."""
    file, pieces = CheckpointFile(tmp_path / "checkpoint", 1), [bytes([n]) * 2**20 for n in range(5)]

    def state(target):
        for piece in pieces:
            before = sum(path.stat().st_size for path in tmp_path.iterdir())
            target.write(piece)
            target.flush()
            assert sum(path.stat().st_size for path in tmp_path.iterdir()) == before + len(piece)

    file.write(7, state)
    assert file.steps == 7
    with file.read() as stored:
        assert stored.read(5 * 2**20) == b"".join(pieces)
    content = file.path.read_bytes()
    for spoilt in (content[:-1], content[1:], content + b"x", content[:100] + b"x" + content[101:], b"", content[-60:]):
        file.path.write_bytes(spoilt)
        assert (file.read(), file.steps) == (None, 0)


def test_memory_for_a_checkpoint_does_not_grow_with_the_state(tmp_path):
    import tracemalloc

    tensors = {"rows": torch.zeros(2**22)}  # 16 MiB, outside of what tracemalloc sees
    file = CheckpointFile(tmp_path / "checkpoint", 1)
    tracemalloc.start()
    try:
        file.write(1, lambda target: torch.save(tensors, target))
        with file.read() as stored:
            assert torch.equal(torch.load(stored, weights_only=True)["rows"], tensors["rows"])
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


def test_the_live_file_holds_the_newest_hundred_runs(tmp_path):
    from dphypo.journal.journal import Record, Trial
    from dphypo.mechanisms import Outcome

    trials = [Trial({"lr": float(n)}, 0, n, b"") for n in range(300)]
    results = {n: Outcome(None, float(-abs(n - 7))) for n in range(250)}
    record = Record(total=300, trials=trials, results=results, best=7)
    file = LiveFile(tmp_path / "tune.db-watch")
    file.show(record, maximize=True)
    known = file.read()
    assert [row["params"]["lr"] for row in known["table"]["rows"]] == list(range(150, 250))
    assert (known["best"]["params"]["lr"], known["ended"], known["total"]) == (7.0, 250, 300)
    assert len(json.dumps(known)) < 20_000
