"""What is shown and kept of runs in progress: cost, published runs, steps, the live file, the checkpoint.

A study shows its cost and nothing else: how many of its runs have ended is secret, and so are their durations. The
steps of surveys and last runs show times, which no guarantee covers: a log of them says so in its first line. Results
may be published, so they never share a log with times (:func:`rows`).

The **live file**, which ``dphypo watch`` reads, is next to the journal. For a search with a study it contains the cost
alone and no time, because its age would reveal the duration of the study.

The **checkpoint** of a last run is also next to the journal. It contains the run's state between two steps, streamed,
then the number of steps and a hash of everything before. It is as secret as the journal. A run that resumes from it
produces the same model, so nothing more is released or paid for.

Code that only displays a search never raises into it.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, cast

from dphypo import _files
from dphypo._files import Json
from dphypo._stderr import Shield, on_terminal, say, shielded
from dphypo.accounting import Certificate
from dphypo.accounting.profiles import show_delta, show_epsilon
from dphypo.executors.executor import Every
from dphypo.journal.journal import MAX_ATTEMPTS, Record, Trial
from dphypo.laws import Law
from dphypo.mechanisms import Mechanism, Outcome, Saver
from dphypo.mechanisms.mechanism import Follower, Pace, followed_by
from dphypo.search.release import OnRun, Row, SurveyTable, at_edge, table_of
from dphypo.space import Space

WATCH_SUFFIX = "-watch"
NEWEST = 100
"""The number of runs that the live file and its page hold."""
_SHORT, _SELDOM = 200, 20  # the first 200 runs are shown as they end, then every twentieth


@dataclass(frozen=True)
class LiveFile:
    """The file for ``dphypo watch``, if there is a place for one. It contains its time if it is ``timed``.

    Nothing here raises: a file that cannot be written, or is damaged, must not stop a search.
    """

    path: Path | None
    timed: bool = True
    _shield: Shield = field(
        default_factory=lambda: Shield("writing the file for dphypo watch"), init=False, compare=False, repr=False
    )

    def read(self) -> dict[str, Any] | None:
        """What the file says; None if no search runs, or it cannot be read."""
        found = shielded(self._content, otherwise=None)
        return found if isinstance(found, dict) else None

    def _content(self) -> Any:
        if self.path is None:
            return None
        return json.loads(_files.read(self.path, "file of a search", most=_files.MOST_TABLE_BYTES))

    def due(self, runs: int) -> bool:
        """Whether to show that this many runs have ended."""
        if self.path is None or (runs > _SHORT and runs % _SELDOM):
            return False
        return shielded(self.path.exists, otherwise=False)

    def update(self, **known: Any) -> None:
        """Add to what the file says."""
        if self.path is not None:
            self._shield(lambda: self._write(known), otherwise=None)

    def _write(self, known: dict[str, Any]) -> None:
        assert self.path is not None
        content = {**(self.read() or {}), **known} | ({"written": time.time()} if self.timed else {})
        _files.write(self.path, json.dumps(content).encode(), mode=0o600)
        if not self.timed:
            os.utime(self.path, (0, 0))

    def show(self, record: Record, *, maximize: bool) -> None:
        """Show the newest runs of a survey, and how many have ended. The cost does not grow with their number."""

        def newest() -> None:
            numbers = [
                *sorted(itertools.islice(reversed(record.results), NEWEST)),
                *([] if record.best is None else [record.best]),
            ]
            ended = [(record.trials[number].params, record.results[number]) for number in numbers]
            rows = [Row(params, one.score, one.metrics) for params, one in ended]
            table = SurveyTable(tuple(rows), maximize=maximize).to_dict()
            best = table["rows"].pop() if record.best is not None else None
            self._write({"table": table, "best": best, "ended": len(record.results), "total": record.total})

        self._shield(newest, otherwise=None)

    def erase(self) -> None:
        erase(self.path)


NOWHERE = LiveFile(None)
"""For a search that shows nothing, or whose journal is not a file."""


SCREEN_S, SOLVING_S, LOG_S, PAGE_S = 0.2, 2.0, 10.0, 1.0
"""Seconds between two updates of a terminal, before its line on the noise, before the first line of a log (six times
that between two of its lines), and between two updates of the file."""
PREPARING = "preparing: capturing the model, trying it on made-up records, then reading the data"
NOTE = "the next lines reveal how long runs take, which no guarantee covers: keep this log secret"
_ERASE = "\r\x1b[2K"


@dataclass
class LiveSteps(Follower):
    """Shows the steps of published runs, and writes the checkpoints of a last run."""

    what: str  # "survey", "last run", or the number of a part that is neither
    screen: bool = False  # whether to show them on a terminal
    log: bool = False  # whether to write lines if there is no terminal
    file: CheckpointFile | None = None  # where a run keeps its state
    live: LiveFile = NOWHERE  # where ``dphypo watch`` reads how far they are
    noted: set[str] = field(default_factory=set)  # what a log has of the whole search
    _said: set[str] = field(default_factory=set)
    _checkpoint: Shield = field(default_factory=lambda: Shield("writing a checkpoint of the run"))

    def prepare(self, mechanism: Mechanism) -> None:
        """Show, before the first run, what a training of this library does until its first step."""
        trains = mechanism.default_space() is not None  # your own function, or the scale of the inputs, has none
        if trains and PREPARING not in self._said:
            self._said.add(PREPARING)
            self._show(f"{self.what}: {PREPARING}")

    def begin(self, runs: Sequence[Pace]) -> IO[bytes] | None:
        """Show once what the runs are; return the stored state."""
        self._name = self.what if len(runs) == 1 else f"{self.what}, {len(runs)} runs at once"
        self._steps, self._began, self._shown, self._written = runs[0].steps, time.monotonic(), 0.0, 0.0
        self._first = -1  # the step at which the runs begin or resume; it is not known yet
        self._wait = SCREEN_S if on_terminal() else LOG_S
        if (about := describe(runs)) not in self._said:
            self._said.add(about)
            self._show(f"{self.what}: {about}", stays=True)
        return None if self.file is None else self.file.read()

    def step(self, made: int, state: Callable[[IO[bytes]], object] | None = None) -> None:
        """Show how far they are if it is time to; write a checkpoint if one is due."""
        if self._first < 0:
            self._first = made - 1
        passed = time.monotonic() - self._began
        speed = (made - self._first) / max(passed, 1e-9)
        left = (self._steps - made) / speed
        if passed >= self._shown + self._wait and made < self._steps:
            self._shown = passed
            if not on_terminal():
                self._wait = 6 * LOG_S
            shown = timedelta(seconds=round(left))
            self._show(f"{self._name}: step {made} of {self._steps}, {speed:.4g} steps/s, {shown} left")
        if passed >= self._written + PAGE_S:
            self._written = passed
            self.live.update(what=self._name, step=made, steps=self._steps, speed=speed, left=left)
        file = self.file
        if state is not None and file is not None and file.due(made):
            self._checkpoint(lambda: file.write(made, state), otherwise=None)

    def end(self) -> None:
        if self.screen and on_terminal():
            say(_ERASE, end="")

    def _show(self, text: str, *, stays: bool = False) -> None:
        if on_terminal():
            if self.screen:
                say(f"{_ERASE}{text}", end="\n" if stays else "")
        elif self.log:
            note = "" if NOTE in self.noted else f"{self.what}: {NOTE}\n"
            self.noted.add(NOTE)
            say(f"{note}{text}")


def describe(runs: Sequence[Pace]) -> str:
    """What is public of the training, in one line."""

    def between(values: Sequence[float], form: str = ".4g") -> str:
        low, high = format(min(values), form), format(max(values), form)
        return low if low == high else f"{low} to {high}"

    noise, rate = between([run.noise_multiplier for run in runs]), between([run.rate for run in runs])
    steps, batch = between([run.steps for run in runs], "d"), between([run.batch_size for run in runs])
    return f"σ = {noise}, sampling rate {rate}, {steps} steps, expected batch {batch}"


@dataclass(frozen=True)
class ReportsSteps(Mechanism):
    """A mechanism as executors see it, which reports the steps of its runs."""

    mechanism: Mechanism
    steps: LiveSteps

    @property
    def saver(self) -> Saver:
        return self.mechanism.saver

    @property
    def same_alone(self) -> bool:
        return self.mechanism.same_alone

    def __call__(self, params: Mapping[str, Any], *, seed: int) -> Any:
        shielded(lambda: self.steps.prepare(self.mechanism), otherwise=None)
        with followed_by(self.steps):
            return self.mechanism(params, seed=seed)

    def many(self, params: Sequence[Mapping[str, Any]], *, seeds: Sequence[int]) -> Sequence[Outcome]:
        shielded(lambda: self.steps.prepare(self.mechanism), otherwise=None)
        with followed_by(self.steps):
            return self.mechanism.many(params, seeds=seeds)


_QUANTILES = (0.5, 0.9, 0.99)


def cost(certificate: Certificate, computes: Sequence[str]) -> str:
    """What a search will cost: in privacy, and for each part in compute. It is the same before and after the search.

    All costs are printed first, because printing them later would reveal how long earlier parts took.
    """
    count = len(computes)
    parts = list(computes) if count == 1 else _of_parts(computes)
    if certificate.warning is not None:
        privacy = f"Privacy: {certificate.warning}. Whoever knows the seed can repeat every draw."
    else:
        total = f"ε = {show_epsilon(certificate.epsilon, 4)} at δ = {show_delta(certificate.delta)}"
        bound = certificate.document["bound"]
        privacy = f"Privacy: {total} for the whole search ({bound} bound), whatever happens in it."
    return "\n".join([privacy, *parts])


def say_made_before(journal: str | None, *, released: bool) -> None:
    """Say that a search was released or started before; without times or counts. A journal in memory is new."""
    if journal is not None:
        said = "released before. The same release is read again" if released else "started before. It resumes"
        say(f"This search was {said} from {journal}.")


def say_attempt(trial: Trial, called: str, *, last: bool) -> None:
    """Say that a published run is repeated or resumed. A log says it only of a part with one run."""
    if last or on_terminal():
        what = called if last else f"run {trial.number + 1}"
        if trial.attempts > 1:
            say(f"{what}: attempt {trial.attempts} of {MAX_ATTEMPTS} without progress")
        elif trial.steps:
            say(f"{what}: resumed after step {trial.steps}")


def _of_parts(computes: Sequence[str]) -> list[str]:
    """A line for each part; three parts in a row that cost the same, or more, have one line.

    >>> _of_parts(["Compute: 1 run.", *["Compute: 2 runs."] * 3])
    ['Part 1 of 4. Compute: 1 run.', 'Parts 2 to 4 of 4, each. Compute: 2 runs.']
    """
    lines, first, count = [], 1, len(computes)
    for one, same in itertools.groupby(computes):
        last = first + len(list(same)) - 1
        if last < first + 2:
            lines += [f"Part {number} of {count}. {one}" for number in range(first, last + 1)]
        else:
            lines.append(f"Parts {first} to {last} of {count}, each. {one}")
        first = last + 1
    return lines


def tell_fit(mechanism: Mechanism, space: Space, *, log: bool) -> None:
    """Say how many records fit: **secret**, and before anything is spent.

    On a terminal, and in a ``log`` that is for the curator alone, since it has lines with times. Nothing else may
    depend on it: neither a number nor an error leaves this function.
    """
    if not (log or on_terminal()):
        return

    def tell() -> None:
        if not (counts := mechanism.fitting_records(space).items()):
            return
        of = f"{mechanism.unit}s given to"
        found = ", ".join(f"{fit} of the {given} {of} {use}" for use, (fit, given) in counts)
        left = " The others are left out: their shape or type, a value that is not finite, or a label the model lacks."
        said = "" if on_terminal() else " Do not publish this log."
        fits = all(fit == given for _, (fit, given) in counts)
        say(f"SECRET, for the curator alone: {found} fit the declaration.{'' if fits else left}{said}")

    shielded(tell, otherwise=None)


def compute(law: Law) -> str:
    """What a study costs in runs, as the law of T has it."""
    half, most, nearly_all = (law.quantile(q) for q in _QUANTILES)
    return (
        f"Compute: {law.mean:.4g} runs expected; half of all studies execute at most {half}, 9 in 10 at most {most}, "
        f"99 in 100 at most {nearly_all}."
    )


@contextlib.contextmanager
def rows(
    record: Callable[[], Record], total: int, space: Json, on_run: OnRun | None, *, show: bool, public: bool
) -> Iterator[Callable[[Trial, Outcome], object]]:
    """Print a line for each published run, and a remark if the best is at the edge; yield what to call with a run.

    The number of runs and their scores are public. Durations are public only if declared. If not, only a terminal shows
    lines as runs end: in a log with times they would reveal how long each run took. A log receives all lines, and
    ``on_run`` is called, after the survey has ended, because results may be published. Lines about steps show times:
    they go to a log at once and say that it is for the curator.
    """
    at_once, callback, remarked = public or on_terminal(), Shield("on_run"), Shield("the remark on the best run")

    def tell(number: int, trial: Trial, outcome: Outcome, *, now: bool) -> None:
        if show and at_once is now:
            say(row(number, total, trial.params, outcome.score))
        if on_run is not None and public is now:
            callback(lambda: on_run(Row(trial.params, outcome.score, outcome.metrics)), otherwise=None)

    yield lambda trial, outcome: tell(len(record().results), trial, outcome, now=True)
    for number, trial in enumerate(record().trials, 1):
        tell(number, trial, record().results[trial.number], now=False)
    if show and (remark := remarked(lambda: at_edge(table_of(record()), space), otherwise="")):
        say(remark)


def row(number: int, total: int, params: Mapping[str, object], score: float | None) -> str:
    """One published run.

    >>> row(3, 20, {"lr": 0.123456, "optimizer": "sgd"}, 0.91234)
    'run  3 of 20: 0.9123  lr = 0.1235, optimizer = sgd'
    """
    shown = "failed" if score is None else f"{score:.4g}"
    values = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in params.items()}
    listed = ", ".join(f"{name} = {value}" for name, value in values.items())
    return f"run {number:{len(str(total))}} of {total}: {shown}  {listed}"


@contextlib.contextmanager
def solving(*, show: bool = True) -> Iterator[None]:
    """Show a line while noise is solved for, if that takes long; it disappears from a terminal at the end."""
    terminal, shown = on_terminal(), threading.Event()

    def tell() -> None:
        shown.set()
        say("solving for the noise, which depends on public values alone", end="" if terminal else "\n")

    line = threading.Timer(SOLVING_S if terminal else LOG_S, tell)
    line.daemon = True
    if show:
        line.start()
    try:
        yield
    finally:
        line.cancel()
        if show:
            line.join()
        if terminal and shown.is_set():
            say(_ERASE, end="")


_MARK = b"dphypo checkpoint 2\n"
_HASH_BYTES, _STEP_BYTES, _PIECE = 32, 8, 2**20
_NONE: tuple[int, IO[bytes] | None] = (0, None)


@dataclass
class CheckpointFile:
    """The checkpoint file of one run; ``every`` says how often it is written."""

    path: Path
    every: Every = None
    _made: int = field(default=0, init=False)  # steps when it was last written, and the time
    _time: float = field(default_factory=lambda: time.monotonic(), init=False)

    def due(self, made: int) -> bool:
        """Whether a checkpoint is due after this many steps; if so, it counts as written."""
        now, every = time.monotonic(), self.every
        steps = isinstance(every, int) and made - self._made >= every
        if steps or (isinstance(every, timedelta) and now - self._time >= every.total_seconds()):
            self._made, self._time = made, now
            return True
        return False

    def write(self, made: int, state: Callable[[IO[bytes]], object]) -> None:
        """Replace the checkpoint by the state after ``made`` steps, which ``state`` writes to a file."""
        with _files.writing(self.path, mode=0o600) as file:
            hashed = _Hashed(file)
            state(cast(IO[bytes], hashed))
            hashed.write(_MARK + made.to_bytes(_STEP_BYTES, "big"))
            file.write(hashed.digest.digest())

    def read(self) -> IO[bytes] | None:
        """The open file, which begins with the state; None if there is no checkpoint, or it is damaged."""
        return shielded(self._checked, otherwise=_NONE)[1]

    @property
    def steps(self) -> int:
        """The number of steps after which the checkpoint was written; 0 if there is none, or it is damaged."""
        steps, file = shielded(self._checked, otherwise=_NONE)
        if file is not None:
            file.close()
        return steps

    def _checked(self) -> tuple[int, IO[bytes] | None]:
        if not self.path.is_file():
            return _NONE
        file = self.path.open("rb")
        try:
            digest, left = hashlib.sha256(), os.fstat(file.fileno()).st_size - _HASH_BYTES
            end = b""
            while left > 0 and (piece := file.read(min(left, _PIECE))):
                digest.update(piece)
                left, end = left - len(piece), (end + piece)[-len(_MARK) - _STEP_BYTES :]
            if end.startswith(_MARK) and file.read() == digest.digest():
                file.seek(0)
                return int.from_bytes(end[len(_MARK) :], "big"), file
        except BaseException:
            file.close()
            raise
        file.close()
        return _NONE


class _Hashed:
    """A file for writing that hashes what is written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.digest = file, hashlib.sha256()

    def write(self, content: Any) -> int:
        self.digest.update(content)
        return self._file.write(content)

    def flush(self) -> None:
        self._file.flush()


def erase(path: Path | None) -> None:
    """Remove a file, and what a process left behind that was killed while writing it. Nothing is raised."""
    for one in [] if path is None else [path, *path.parent.glob(f".{glob.escape(path.name)}.*")]:
        with contextlib.suppress(OSError):
            one.unlink(missing_ok=True)
