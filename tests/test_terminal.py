"""The bar shows how many runs were made: it is gone from the terminal however the process stops or ends."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from support.screen import read_all, screen
from support.slow import mostly_slow

TESTS = str(Path(__file__).parent)
SEARCH = """
    import os, resource, signal, sys, time
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.path.insert(0, {tests!r})
    from support.study_world import EVENT, RELATION, make, train
    import dphypo
    from dphypo.laws import Pmf
    made = []
    def long(params, *, seed):
        made.append(seed)
        if len(made) > 2:
            {then}
        return train(params, seed=seed)
    study = make({journal!r}, dphypo.mechanism(event=EVENT, relation=RELATION)(long), runs=Pmf({{23: 1.0}}))
    study.run()
"""


def search(then: str = "time.sleep(60)", journal: str | None = None) -> tuple[subprocess.Popen, int, bytes]:
    """A search on a terminal, after two runs; the terminal, and what it was sent so far."""
    ours, theirs = pty.openpty()
    code = textwrap.dedent(SEARCH).format(tests=TESTS, then=then, journal=journal)
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "200"}
    # A group of its own, in the session of its parent: the system discards stops of groups that nobody could continue.
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=theirs, process_group=0)
    os.close(theirs)
    shown = b""
    while b" 2 runs (T" not in shown:
        shown += os.read(ours, 65536)
    return process, ours, shown


RARE_SIGNALS = (signal.SIGHUP, signal.SIGQUIT, signal.SIGXCPU, signal.SIGABRT, signal.SIGSEGV)


def left(shown: bytes) -> str:
    return "\n".join(screen(shown.decode()))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT, *RARE_SIGNALS])
def test_the_bar_does_not_outlive_the_process(number):
    process, terminal, shown = search()
    process.send_signal(number)
    shown += read_all(terminal).encode()
    assert process.wait() == -number
    assert "runs (T" not in left(shown)
    assert left(shown).startswith("Privacy: ")
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"runs (T"), "the cursor is shown again"


@pytest.mark.slow
@pytest.mark.parametrize("then", ["os.abort()", "os._exit(3)"])
def test_the_bar_does_not_outlive_a_crash_in_a_run(then):
    """No handler of Python's runs then."""
    process, terminal, shown = search(then)
    shown += read_all(terminal).encode()
    process.wait()
    assert "runs (T" not in left(shown)


@pytest.mark.slow
def test_the_bar_is_erased_while_the_process_is_stopped_and_comes_back():
    process, terminal, shown = search()
    process.send_signal(signal.SIGTSTP)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    os.set_blocking(terminal, False)
    time.sleep(0.2)
    shown += os.read(terminal, 1 << 20)
    assert "runs (T" not in left(shown)
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"runs (T")
    os.set_blocking(terminal, True)
    process.send_signal(signal.SIGCONT)
    again = b""
    while b" 2 runs (T" not in again:
        again += os.read(terminal, 65536)
    process.terminate()
    again += read_all(terminal).encode()
    assert process.wait() == -signal.SIGTERM
    assert "runs (T" not in left(shown + again)


@pytest.mark.parametrize("kept", mostly_slow([True, False]))
def test_an_interrupt_ends_in_two_lines(kept, tmp_path):
    """What was interrupted, and how to go on; no traceback. The process still ends as interrupted ones do."""
    journal = str(tmp_path / "study.db") if kept else None
    process, terminal, shown = search(journal=journal)
    process.send_signal(signal.SIGINT)
    shown += read_all(terminal).encode()
    assert process.wait() == -signal.SIGINT
    said = [line for line in left(shown).splitlines() if line.strip()][2:]  # after the cost
    assert len(said) == 2, said
    assert said[0].startswith("The search was interrupted: nothing is released")
    assert said[1].startswith("To go on, ")
    assert (journal is None) == ("in memory" in said[0])
    assert journal is None or journal in said[0]
