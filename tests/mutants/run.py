"""Apply every mutant to a copy of the sources, one at a time, and demand that the tests it names fail.

    PYTHONPATH=tests python -m mutants.run            all
    PYTHONPATH=tests python -m mutants.run "T off"    those whose name contains a text

First all the tests are run on an unchanged copy, where they must pass. A test that fails because the mutant does not
even run (a name that does not exist) does not count.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mutants.catalogue import MUTANTS
from mutants.mutant import ROOT, SOURCES, Mutant

TIMEOUT_S = 600
_NOT_RUN = ("NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError")


@dataclass(frozen=True)
class Verdict:
    """What came of one mutant: the tests that failed, and why it counts as not caught, if it does."""

    mutant: Mutant
    caught_by: tuple[str, ...]
    problem: str | None
    seconds: float


def pytest(sources: Path, tests: Sequence[str], *options: str) -> subprocess.CompletedProcess[str]:
    """Run tests against a copy of the sources."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rf", "--tb=line", *options]
    environment = os.environ | {
        "PYTHONPATH": str(sources),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "400",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        [*command, *(f"tests/{test}" for test in tests)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def passes_unchanged(sources: Path, mutants: Sequence[Mutant]) -> str | None:
    """None if every test that a mutant names passes on the unchanged copy, each run once; else the output."""
    script = "import dphypo; print(dphypo.__file__)"
    where = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(sources)},
        capture_output=True,
        text=True,
        check=True,
    )
    if not Path(where.stdout.strip()).is_relative_to(sources):
        return f"the tests would not run on the copy, but on {where.stdout.strip()}"
    tests = list(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    done = pytest(sources, tests)
    return None if done.returncode == 0 else done.stdout[-4000:] + done.stderr[-2000:]


def verdict(mutant: Mutant, folder: Path) -> Verdict:
    """Apply one mutant to a copy of its own and run its tests."""
    sources = folder / "src"
    shutil.copytree(SOURCES, sources)
    begun = time.monotonic()
    try:
        mutant.apply(sources)
        first_is_enough = ["-x"] if len(mutant.tests) == 1 else []
        return _read(mutant, pytest(sources, mutant.tests, *first_is_enough), time.monotonic() - begun)
    except subprocess.TimeoutExpired:
        return Verdict(mutant, (), f"the tests took more than {TIMEOUT_S} s", time.monotonic() - begun)
    finally:
        shutil.rmtree(sources)


def _read(mutant: Mutant, done: subprocess.CompletedProcess[str], seconds: float) -> Verdict:
    failed = re.findall(r"^FAILED tests/(\S+)", done.stdout, re.MULTILINE)
    missed = [test for test in mutant.tests if not any(_is_of(node, test) for node in failed)]
    problem = None
    if done.returncode != 1:
        problem = "the tests pass" if done.returncode == 0 else f"pytest ended with {done.returncode}"
    elif missed:
        problem = f"{missed[0]} passes"
    elif any(f"{kind}:" in line for line in done.stdout.splitlines() if line.startswith("FAILED") for kind in _NOT_RUN):
        problem = "the mutant does not run: mend its text"
    return Verdict(mutant, tuple(failed), problem, seconds)


def _is_of(node: str, test: str) -> bool:
    return node == test or node.startswith((f"{test}[", f"{test}::"))


def main(arguments: Sequence[str]) -> int:
    """Print the table; 0 if every mutant was caught."""
    chosen = [mutant for mutant in MUTANTS if not arguments or any(text in mutant.name for text in arguments)]
    with tempfile.TemporaryDirectory(prefix="dphypo-mutants-") as folder:
        unchanged = Path(folder) / "unchanged"
        shutil.copytree(SOURCES, unchanged)
        if (output := passes_unchanged(unchanged, chosen)) is not None:
            print(f"the tests do not pass without a mutant:\n{output}")
            return 2
        print("| mutant | property that it breaks | caught by |\n|---|---|---|", flush=True)
        verdicts = []
        for mutant in chosen:
            verdicts.append(one := verdict(mutant, Path(folder)))
            names = ", ".join(f"`{test.split('::')[-1]}`" for test in mutant.tests)
            caught = names if one.problem is None else f"**NOT CAUGHT**: {one.problem}"
            print(f"| {mutant.name} | {mutant.property} | {caught} |", flush=True)
    missed = sum(one.problem is not None for one in verdicts)
    print(f"\n{len(verdicts) - missed} of {len(verdicts)} mutants caught in {sum(v.seconds for v in verdicts):.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
