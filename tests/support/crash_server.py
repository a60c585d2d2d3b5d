"""Runs the searches of the tests in processes that are killed, much faster than by starting Python each time.

One server imports everything once and forks for each order; it has no threads, so that is safe. Run as a program it
reads orders, one JSON a line, and answers with how each process ended.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

KILLS = [("before", 4), ("before", 1), ("after", 1)]
"""The moments at which tests kill a process, and how many commits lie between two of them."""
KILLS_AFTER = [("after", 4), ("after", 1), ("before", 1)]
"""The same, beginning with commits that were made and not heard of."""


class Server:
    """The side of the tests."""

    def __init__(self, process: subprocess.Popen[str], world: str) -> None:
        self._process = process
        self._world = world

    def run(self, journal: str, **order: Any) -> int:
        """Run the search of the world on a journal; the exit status of its process, negative if a signal ended it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"world": self._world, "journal": journal, **order}) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@contextmanager
def serve(world: str = "study_world") -> Iterator[Server]:
    """The server, for the search of a module of the tests: one for all tests of a process, ended with it."""
    yield Server(started("support.crash_server", "-W", "error"), world)


@cache
def started(module: str, *options: str) -> subprocess.Popen[str]:
    """A module of the tests run as a program that reads orders: one for all tests of a process, ended with it."""
    process = subprocess.Popen(
        [sys.executable, *options, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    atexit.register(_end, process)
    return process


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.kill()  # the end of its input would not reach it while a process that was forked here lives
    process.wait()
    process.stdin.close()
    process.stdout.close()


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        world = _prepared(order["world"])
        child = os.fork()
        if child == 0:
            try:
                _obey(world, order)
            except BaseException:
                if "file_limit" in order:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
                Path(order.get("errors", os.devnull)).write_text(traceback.format_exc())
                os._exit(1)
            os._exit(0)
        if "kill_after_s" in order:
            time.sleep(order["kill_after_s"])
            os.kill(child, signal.SIGKILL)
        for seconds in order.get("kill_workers_after_s", ()):
            time.sleep(seconds)
            _kill_a_worker(child)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


@cache
def _prepared(name: str) -> Any:
    """The module of a world. What can be computed once is computed before the first fork."""
    world = importlib.import_module(f"support.{name}")
    world.make().run(progress=False)
    return world


def _kill_a_worker(parent: int) -> None:
    """The oldest child of a process, if it has any."""
    with contextlib.suppress(OSError, IndexError):
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)


def _obey(world: Any, order: dict[str, Any]) -> None:
    if "file_limit" in order:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["file_limit"], -1))
    _die_at_commit(**order.get("at", {}))
    mechanism = getattr(world, order.get("mechanism", "train"))
    study = world.make(order["journal"], mechanism, name=order.get("name", "study"), **order.get("settings", {}))
    _die_at_checkpoint(**order.get("at_checkpoint", {}))
    study.run(progress=False, workers=order.get("workers", 1), start_method="fork", **order.get("run", {}))
    if "log" in order:
        Path(order["log"]).write_text(str(_commits[0]))


_commits = [0]


def _die_at_commit(before: int = 0, after: int = 0) -> None:
    """Count the commits of this process, and die just before or just after one of them."""
    from sqlalchemy.engine.default import DefaultDialect

    original = DefaultDialect.do_commit

    def do_commit(self: Any, connection: Any) -> None:
        _commits[0] += 1
        if _commits[0] == before:
            os.kill(os.getpid(), signal.SIGKILL)
        original(self, connection)
        if _commits[0] == after:
            os.kill(os.getpid(), signal.SIGKILL)

    DefaultDialect.do_commit = do_commit  # type: ignore[method-assign]


def _die_at_checkpoint(before: int = 0, within: int = 0, after: int = 0) -> None:
    """Count the checkpoints of this process, and die just before, within or just after one of them."""
    from dphypo.search.progress import CheckpointFile

    original, count = CheckpointFile.write, [0]

    def write(self: Any, made: int, state: Any) -> None:
        count[0] += 1
        if count[0] == before:
            os.kill(os.getpid(), signal.SIGKILL)
        if count[0] == within:
            os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        original(self, made, state)
        if count[0] == after:
            os.kill(os.getpid(), signal.SIGKILL)

    CheckpointFile.write = write  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
