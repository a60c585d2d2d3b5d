"""Runs command lines in processes of their own, with limits, without starting Python for each.

A server imports everything once and forks for each order. Run as a program it reads orders, one JSON a line, and
answers with how each process ended.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MEMORY = 4 * 2**30


@dataclass(frozen=True)
class Ended:
    """How a command line ended. ``status`` is negative if a signal ended it; ``hung`` if its time was up."""

    status: int
    seconds: float
    said: str
    hung: bool


class Server:
    """The side of the tests."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, *arguments: str, limit_s: float = 30.0, encoding: str = "utf-8") -> Ended:
        """Run ``dphypo`` with these arguments, and with this encoding of its output."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"arguments": arguments, "limit_s": limit_s, "encoding": encoding}) + "\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))


@contextmanager
def serve() -> Iterator[Server]:
    process = subprocess.Popen(
        [sys.executable, "-m", "support.call_server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "200"},
    )
    yield Server(process)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.wait()
    process.stdout.close()


def main() -> None:
    from dphypo.accounting import PureDp, account  # what every command needs, imported before the first fork
    from dphypo.cli import main as command_line
    from dphypo.laws import Geometric

    account(PureDp(0.1), Geometric(mean=2)).epsilon(1e-6)
    for line in sys.stdin:
        order = json.loads(line)
        with tempfile.TemporaryFile() as said:
            begun = time.monotonic()
            child = os.fork()
            if child == 0:
                _obey(command_line, order, said.fileno())
            status, hung = _wait(child, begun + order["limit_s"])
            seconds = time.monotonic() - begun
            said.seek(0)
            text = said.read().decode("utf-8", "replace")[-4000:]
        print(json.dumps({"status": status, "seconds": seconds, "said": text, "hung": hung}), flush=True)


def _obey(command_line: Any, order: dict[str, Any], said: int) -> None:
    status = 70
    try:
        for stream in (1, 2):
            os.dup2(said, stream)
        sys.stdout.reconfigure(encoding=order["encoding"], errors="strict")
        sys.stderr.reconfigure(encoding=order["encoding"])
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        sys.argv = ["dphypo", *order["arguments"]]
        command_line()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _wait(child: int, deadline: float) -> tuple[int, bool]:
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), False
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -signal.SIGKILL, True
        time.sleep(0.005)


if __name__ == "__main__":
    main()
