"""What the tests of executors share."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _watchers_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Submitit waits for no process that watches over a job of this machine: the collector would warn of it later."""
    local = pytest.importorskip("submitit.local.local")
    watchers: list[subprocess.Popen[bytes]] = []

    def start(*arguments: Any, original: Any = local.start_controller, **options: Any) -> subprocess.Popen[bytes]:
        watchers.append(original(*arguments, **options))
        return watchers[-1]

    monkeypatch.setattr(local, "start_controller", start)
    yield
    for watcher in watchers:
        try:
            watcher.wait(60)
        except subprocess.TimeoutExpired:
            watcher.kill()
            watcher.wait()
