"""Runs short scripts in processes of their own, without starting Python for each.

A server imports the package once and forks for each script. The child is the script then: it ends as Python ends one,
by an exception, a signal or its last line, with all that is called at exit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.crash_server import started


def run(code: str, *arguments: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a script as ``python -c`` would, in a folder; what it wrote to both streams comes with its status."""
    said = [cwd.with_name(f".{cwd.name}-{stream}") for stream in ("stdout", "stderr")]
    order = {"code": code, "arguments": arguments, "cwd": str(cwd), "env": {**os.environ, **(env or {})}}
    server = started("support.scripts")
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(order | {"said": [str(path) for path in said]}) + "\n")
    server.stdin.flush()
    status = int(server.stdout.readline())
    return subprocess.CompletedProcess(code, status, *(path.read_text() for path in said))


def _script() -> dict[str, Any] | None:
    """In a child, the order that it is to obey; None in the server, at its end."""
    from support.study_world import make  # what most scripts need, imported before the first fork

    with make(None) as study:
        study.run(progress=False)
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        child = os.fork()
        if child == 0:
            return order
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    return None


def main() -> None:
    if (order := _script()) is not None:
        files = [os.open(os.devnull, os.O_RDONLY), *(os.open(path, os.O_WRONLY | os.O_CREAT) for path in order["said"])]
        for stream, file in enumerate(files):
            os.dup2(file, stream)
        os.chdir(order["cwd"])
        os.environ.clear()
        os.environ.update(order["env"])
        sys.argv = ["-c", *order["arguments"]]
        exec(compile(order["code"], "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main()
