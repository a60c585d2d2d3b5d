"""What is shown while noise is solved for: nothing at first, then a line on a terminal that goes at the end."""

from __future__ import annotations

import io
import sys
import time

import pytest
from support.screen import screen

from dphypo.accounting.calibrate import Knob
from dphypo.search import progress
from dphypo.search.progress import solving


class Stream(io.StringIO):
    """A stream that is a terminal, or is not."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def solve() -> None:
    Knob(float, lambda value: 1 / value, start=1.0, smallest=0.1, largest=8.0).spend(0.5, 1e-6, "")


def seen(stream: Stream, text: str) -> bool:
    """Whether the text is shown within a minute."""
    for _ in range(600):
        if text in stream.getvalue():
            return True
        time.sleep(0.1)
    return False


def terminal_for(monkeypatch: pytest.MonkeyPatch) -> Stream:
    """A terminal in the place of standard error. Not a fixture: pytest sets its own after those."""
    stream = Stream(True)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    return stream


def test_what_takes_long_shows_a_line_that_goes(monkeypatch):
    terminal = terminal_for(monkeypatch)
    monkeypatch.setattr(progress, "SOLVING_S", 0.0)
    with solving():
        assert seen(terminal, "solving for the noise")
        solve()
    assert "".join(screen(terminal.getvalue())).strip() == ""


def test_what_is_quick_shows_nothing(monkeypatch):
    terminal = terminal_for(monkeypatch)
    with solving():
        solve()
    assert "solving" not in terminal.getvalue()


@pytest.mark.parametrize(("is_terminal", "show"), [(False, True), (True, False)])
def test_nothing_is_shown_elsewhere_or_where_it_is_not_wanted(monkeypatch, is_terminal, show):
    stream = Stream(is_terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "SOLVING_S", 0.0)
    with solving(show=show):
        solve()
    assert stream.getvalue() == ""


def test_a_log_says_what_takes_long(monkeypatch):
    stream = Stream(False)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "LOG_S", 0.0)
    with solving():
        assert seen(stream, "solving for the noise, which depends on public values alone\n")
