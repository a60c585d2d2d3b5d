"""Apply every mutant to a copy of the sources, one at a time, and demand that the tests it names fail.

    PYTHONPATH=tests python -m mutants.run                           all
    PYTHONPATH=tests python -m mutants.run "T off"                   those whose name contains a text
    PYTHONPATH=tests python -m mutants.run --processes 16 -o TABLE   in 16 processes; write the table to a file

First all the tests are run on an unchanged copy, where they must pass. A test that fails because the mutant does not
even run (a name that does not exist) does not count. The table says which tests of `make test` catch a mutant, and
which of `make test-long`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mutants.catalogue import MUTANTS
from mutants.mutant import ROOT, SOURCES, Mutant

TIMEOUT_S = 600
FAST, LONG = "not slow", "slow"
_NOT_RUN = ("NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError")
_NO_TESTS = 5  # pytest's exit status when every test is deselected


@dataclass(frozen=True)
class Verdict:
    """What came of one mutant: the named tests that failed in each suite, and why it counts as not caught, if so."""

    mutant: Mutant
    by_fast: tuple[str, ...]
    by_long: tuple[str, ...]
    problem: str | None

    @property
    def row(self) -> str:
        """The mutant's row of the table."""
        fast, long = (
            ", ".join(f"`{test.split('::')[-1]}`" for test in tests) for tests in (self.by_fast, self.by_long)
        )
        caught = f"{fast} | {long}" if self.problem is None else f"**NOT CAUGHT**: {self.problem} |"
        return f"| {self.mutant.name} | {self.mutant.property} | {caught} |"


def pytest(sources: Path, tests: Sequence[str], *options: str, timeout: float = TIMEOUT_S) -> tuple[int, str]:
    """Run tests against a copy of the sources: the exit status and what was printed."""
    nodes = [f"tests/{test}" for test in tests]
    command = ["-m", "pytest", "-p", "no:cacheprovider", "-q", "-rf", "--tb=line", *options, *nodes]
    return _python(sources, command, timeout)


def _python(sources: Path, command: Sequence[str], timeout: float) -> tuple[int, str]:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(sources), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "400",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def passes_unchanged(sources: Path, mutants: Sequence[Mutant], processes: int) -> str | None:
    """None if every test that a mutant names passes on the unchanged copy, each run once; else the output."""
    _, where = _python(sources, ["-c", "import dphypo; print(dphypo.__file__)"], TIMEOUT_S)
    if not Path(where.strip()).is_relative_to(sources):
        return f"the tests would not run on the copy, but on {where.strip()}"
    tests = list(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    workers = ["-n", str(min(processes, len(tests)))] if processes > 1 else []
    status, output = pytest(sources, tests, "-m", "", *workers, timeout=len(tests) * TIMEOUT_S)
    return None if status == 0 else output[-6000:]


def verdict(mutant: Mutant, folder: Path) -> Verdict:
    """Apply one mutant to a copy of its own and run its tests: first those of `make test`, then what is left."""
    caught: dict[str, tuple[str, ...]] = {FAST: (), LONG: ()}
    with tempfile.TemporaryDirectory(dir=folder) as place:
        sources = Path(place) / "src"
        shutil.copytree(SOURCES, sources)
        mutant.apply(sources)
        for suite in caught:
            left = [test for test in mutant.tests if test not in caught[FAST]]
            if not left:
                break
            first_is_enough = ["-x"] if len(left) == 1 else []
            try:
                status, output = pytest(sources, left, "-m", suite, *first_is_enough)
            except subprocess.TimeoutExpired:
                return Verdict(mutant, (), (), f"the tests took more than {TIMEOUT_S} s")
            if status not in (0, 1, _NO_TESTS):
                return Verdict(mutant, (), (), f"pytest ended with {status}")
            failures = [line for line in output.splitlines() if line.startswith("FAILED")]
            if any(f"{kind}:" in line for line in failures for kind in _NOT_RUN):
                return Verdict(mutant, (), (), "the mutant does not run: mend its text")
            nodes = re.findall(r"^FAILED tests/(\S+)", output, re.MULTILINE)
            caught[suite] = tuple(test for test in left if any(_is_of(node, test) for node in nodes))
    passed = [test for test in mutant.tests if test not in caught[FAST] + caught[LONG]]
    return Verdict(mutant, caught[FAST], caught[LONG], f"{passed[0]} passes" if passed else None)


def _is_of(node: str, test: str) -> bool:
    return node == test or node.startswith((f"{test}[", f"{test}::"))


def verdicts(mutants: Sequence[Mutant], folder: Path, processes: int) -> Iterator[Verdict]:
    """The verdict of each mutant in order, so many at a time."""
    with ThreadPoolExecutor(processes) as pool:
        yield from pool.map(lambda mutant: verdict(mutant, folder), mutants)


def chosen(texts: Sequence[str]) -> list[Mutant]:
    """The mutants whose name contains one of the texts; all if there are none.

    Raises:
        ValueError: if no name contains a text.
    """
    for text in texts:
        if not any(text in mutant.name for mutant in MUTANTS):
            raise ValueError(f"no mutant's name contains {text!r}: the names are those of tests/mutants/*.py")
    return [mutant for mutant in MUTANTS if not texts or any(text in mutant.name for text in texts)]


def main(arguments: Sequence[str]) -> int:
    """Print the table; 0 if every mutant was caught, and at least nine of ten by `make test`."""
    parser = argparse.ArgumentParser(prog="mutants.run", description="run the mutants; the tests must catch each one")
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="only mutants whose name contains a text")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="mutants at a time")
    parser.add_argument("-o", "--output", type=Path, help="a file for the table too")
    given = parser.parse_args(arguments)
    try:
        mutants = chosen(given.texts)
    except ValueError as error:
        parser.error(str(error))
    begun, lines = time.monotonic(), []

    def say(line: str) -> None:
        print(line, flush=True)
        lines.append(line + "\n")

    with tempfile.TemporaryDirectory(prefix="dphypo-mutants-") as place:
        unchanged = Path(place) / "unchanged"
        shutil.copytree(SOURCES, unchanged)
        if (output := passes_unchanged(unchanged, mutants, given.processes)) is not None:
            print(f"the tests do not pass without a mutant:\n{output}")
            return 2
        say("| mutant | property that it breaks | caught by `make test` | by `make test-long` |\n|---|---|---|---|")
        found = []
        for one in verdicts(mutants, Path(place), given.processes):
            found.append(one)
            say(one.row)
    caught = [one for one in found if one.problem is None]
    fast = sum(bool(one.by_fast) for one in caught)
    seconds = time.monotonic() - begun
    say(f"\n{len(caught)} of {len(found)} mutants caught, {fast} of them by `make test`, in {seconds:.0f} s")
    if given.output is not None:
        given.output.write_text("".join(lines), encoding="utf-8")
    return 0 if len(caught) == len(found) and (given.texts or fast >= 0.9 * len(found)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
