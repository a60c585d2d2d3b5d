"""A store is used by the process that opened it: a forked child commits nothing, and its parent goes on unharmed."""

from __future__ import annotations

import itertools
import os
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from support import scripts
from support.journal_world import trial
from support.ledger_world import make as make_paying
from support.slow import mostly_slow
from support.study_world import RELATION, SPACE, facts, make

import dphypo
from dphypo import Ledger
from dphypo.accounting import PureDp
from dphypo.band import Band
from dphypo.journal.journal import Journal
from dphypo.journal.store import open_store
from dphypo.laws import Pmf
from dphypo.mechanisms import Outcome

NAMES = (f"fork {number}" for number in itertools.count())


@pytest.fixture(params=["sqlite", "postgres", "memory"])
def where(request, tmp_path):
    if request.param == "postgres":
        return request.getfixturevalue("postgres")
    return tmp_path / "study.db" if request.param == "sqlite" else None


FORKED = "JournalError: this process was forked from the one that has the journal open"


def in_child(
    act: Callable[[], object], folder: Path, *, end: Callable[[int], object] = os._exit, patience: int = 600
) -> str:
    """What a forked child says when it has acted: how its error begins, or nothing. It may take so many seconds."""
    said = folder / "said"
    child = os.fork()
    if child == 0:
        status = 1
        signal.alarm(patience)  # ends it, unless it ends by itself
        try:
            act()
            said.write_text("")
            status = 0
        except BaseException as error:
            begins = f"{type(error).__name__}: {error}"[: len(FORKED)]
            said.write_text("\n".join((begins, *traceback.format_exception(error))))
        finally:
            end(status)
    assert not os.WIFSIGNALED(os.waitpid(child, 0)[1]), "the child hung"
    return said.read_text().partition("\n")[0]


def test_a_forked_child_commits_nothing(where, tmp_path):
    name = next(NAMES)
    journal = Journal(open_store(where), name)
    journal.begin({}, lambda: 3)
    journal.claim(trial(0))
    for act in (
        lambda: journal.finish(trial(0), Outcome(None, 1.0), b"child"),
        lambda: journal.claim(trial(1)),
        lambda: journal.record,
        journal.model,
        journal.shred,
        lambda: Journal(journal._store, name).begin({}, lambda: 9),
    ):
        assert in_child(act, tmp_path) == FORKED
    journal.finish(trial(0), Outcome(None, 2.0), b"parent")
    journal.claim(trial(1))
    assert journal.model() == b"parent"
    again = Journal(journal._store, name)
    again.begin({}, lambda: 9)
    assert [again.record.results[0].score, len(again.record.trials)] == [2.0, 2]
    journal._store.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", mostly_slow(["postgres", "sqlite"]))
def test_a_child_that_ends_as_scripts_do_leaves_the_parents_connection_alone(kind, request, tmp_path):
    """Interpreters that end collect what is left, and a collected connection says goodbye to its server."""
    import gc

    where = str(tmp_path / "study.db") if kind == "sqlite" else request.getfixturevalue("postgres")
    code = """
import os, sys, gc
from dphypo.journal.journal import Journal
from dphypo.journal.store import open_store
from dphypo.mechanisms import Outcome
from support import scripts
from support.journal_world import trial
journal = Journal(open_store(sys.argv[1]), sys.argv[2])
journal.begin({}, lambda: 3)
if os.fork() == 0:
    journal.rest()
    journal = None
    gc.collect()
    sys.exit(0)
os.wait()
journal.claim(trial(0))
journal.finish(trial(0), Outcome(None, 1.0), b"model")
assert journal.model() == b"model"
print("unharmed")
"""
    name = next(NAMES)
    done = scripts.run(code, where, name, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "unharmed\n"), done.stderr
    journal = Journal(open_store(where), name)
    assert journal.record.results[0].score == 1.0
    journal.rest()
    gc.collect()


def test_a_run_that_forks_and_whose_child_fails_is_made_once(tmp_path):
    """The child raises where the run would return, and goes on as if it were the coordinator."""
    said = tmp_path / "said"

    @dphypo.mechanism(event=PureDp(0.1), relation=RELATION, seeded=True)
    def forks(params, *, seed):
        child = os.fork()
        if child == 0:
            raise RuntimeError("in the child")
        os.waitpid(child, 0)
        return {"lr": params["lr"]}, float(params["depth"])

    study = dphypo.Study(SPACE, forks, Pmf({3: 1.0}), Band(1, 1), delta=1e-6, journal=tmp_path / "study.db")
    parent = os.getpid()
    try:
        release = study.run(progress=False)
    finally:
        if os.getpid() != parent:
            said.touch()
            os._exit(0)
    assert release.model is not None
    assert not said.exists(), "the child came out of its run"
    trials = study.curator().trials()
    assert [trial["failure"] for trial in trials] == [None] * 3
    study.close()


def test_a_child_may_go_on_once_its_parent_has_closed_the_journal(tmp_path, monkeypatch):
    monkeypatch.setattr("dphypo.journal.store._WAIT_S", 0.2)
    with make(tmp_path / "study.db") as study:
        study.ask()
        assert in_child(lambda: make(tmp_path / "study.db").run(progress=False), tmp_path).startswith(
            "JournalInUseError"
        )
    with make(tmp_path / "whole.db") as whole:
        whole.run(progress=False)
        expected = facts(whole)
    assert in_child(lambda: study.run(progress=False), tmp_path) == ""
    with make(tmp_path / "study.db") as after:
        after.run(progress=False)
        assert facts(after) == expected


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_ledgers_are_opened_by_each_process_for_itself(kind, request, tmp_path):
    where = tmp_path / "ledger.db" if kind == "sqlite" else request.getfixturevalue("postgres")
    ledger = Ledger.open(where, epsilon=2.0, delta=1e-6, name=next(NAMES))
    ledger.reserve(make_paying().guarantee, name="parent")
    assert in_child(lambda: ledger.reserve(make_paying().guarantee, name="child"), tmp_path) == ""
    ledger.reserve(make_paying().guarantee, name="parent again")
    assert [entry.name for entry in ledger.entries] == ["parent", "child", "parent again"]


def test_a_fork_while_another_thread_commits_does_not_hang_the_child(tmp_path):
    import threading

    journal = Journal(open_store(tmp_path / "study.db"), "study")
    journal.begin({}, lambda: 3)
    inside, go = threading.Event(), threading.Event()

    def slow(connection: object) -> None:
        inside.set()
        go.wait(30)

    thread = threading.Thread(target=lambda: journal._store.commit(slow))
    thread.start()
    inside.wait(30)
    began = time.monotonic()
    assert in_child(lambda: journal.claim(trial(0)), tmp_path) == FORKED
    assert in_child(journal.rest, tmp_path) == ""
    assert time.monotonic() - began < 20
    go.set()
    thread.join()
    journal.claim(trial(0))
    journal.rest()


@pytest.mark.parametrize("act", ["close", "ask", "run", "released"])
def test_a_child_forked_while_another_thread_searches_does_not_hang(act, tmp_path):
    import threading

    study = make(tmp_path / "study.db")
    study.ask()
    inside, go = threading.Event(), threading.Event()

    def search() -> None:
        with study._runner.turn.long(), study._runner.turn.look:
            inside.set()
            go.wait(60)

    def use() -> object:
        found = getattr(study, act)
        return found() if callable(found) else found

    thread = threading.Thread(target=search)
    thread.start()
    inside.wait(30)
    try:
        said = in_child(use, tmp_path, patience=20)
    finally:
        go.set()
        thread.join()
    assert said == ("" if act == "close" else FORKED)
    study.close()


def test_a_child_forked_while_another_thread_opens_the_journal_does_not_hang(tmp_path):
    import threading

    store = open_store(tmp_path / "study.db")
    inside, go = threading.Event(), threading.Event()

    def connect() -> None:
        with store.turn():
            inside.set()
            go.wait(60)

    thread = threading.Thread(target=connect)
    thread.start()
    inside.wait(30)
    try:
        said = in_child(lambda: Journal(store, "study").begin({}, lambda: 1), tmp_path, patience=20)
    finally:
        go.set()
        thread.join()
    assert said == ""
    store.close()
