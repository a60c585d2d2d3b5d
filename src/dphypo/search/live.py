"""Runs that are under way: the checkpoint of a last run, what ``dphypo watch`` reads, and lines about steps.

Runs of a study are not followed: their number and durations are secret. What is shown of surveys and last runs has
times in it, which the guarantee does not cover: it is for the curator, and says so before the first line of a log.
Results may be published, so they never share a log with times (``progress.rows``).

Two files stand beside the journal, with its permissions. The **checkpoint** holds a last run between two steps: weights
that are not published, and what the optimiser remembers. The run that goes on from it has the same seed, so that it is
the same run, made once: nothing more is released or paid. It is erased when the outcome is committed. The **live file**
is for ``dphypo watch``, since the journal is locked. Of a search with a study it holds the cost alone, and no time: its
age would be the duration of the study. It is erased when the search stops; only ``run`` begins one."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

from dphypo import _files
from dphypo.errors import FileError
from dphypo.executors.executor import Every
from dphypo.mechanisms import Mechanism, Outcome, Saver, capabilities
from dphypo.mechanisms.outcome import Pace, following

_HEAD = b"dphypo checkpoint 1\n"


@dataclass
class CheckpointFile:
    """The file of one run; ``every`` says how often it is written."""

    path: Path
    every: Every
    _made: int = field(default=0, init=False)  # steps when it was written last, and the time then
    _time: float = field(default_factory=lambda: time.monotonic(), init=False)

    def due(self, made: int) -> bool:
        """Whether it is due after this many steps; if so, it counts as written."""
        now, every = time.monotonic(), self.every
        steps = isinstance(every, int) and made - self._made >= every
        if steps or (isinstance(every, timedelta) and now - self._time >= every.total_seconds()):
            self._made, self._time = made, now
            return True
        return False

    def read(self) -> bytes | None:
        """What was written last; None if there is nothing, or it is damaged: the run then begins anew."""
        try:
            content = _files.read(self.path, "checkpoint", most=_files.MOST_MODEL_BYTES)
        except FileError:
            return None
        head, state = content[: len(_HEAD) + 32], content[len(_HEAD) + 32 :]
        return state if head == _HEAD + hashlib.sha256(state).digest() else None

    def write(self, state: bytes) -> None:
        _files.write(self.path, _HEAD + hashlib.sha256(state).digest() + state, mode=0o600)


def erase(path: Path | None) -> None:
    """Remove a file, if there is a place for one, and what a process left that was killed while it wrote."""
    for one in [] if path is None else [path, *path.parent.glob(f".{glob.escape(path.name)}.*")]:
        with contextlib.suppress(OSError):
            one.unlink(missing_ok=True)


ENDING = "-watch"
_SHORT = 200  # runs


@dataclass(frozen=True)
class LiveFile:
    """The file for ``dphypo watch``, if there is a place for one. It tells when it was written if it is ``timed``."""

    path: Path | None
    timed: bool = True

    def read(self) -> dict[str, Any] | None:
        """What is known; None if no search runs."""
        if self.path is None:
            return None
        try:
            found = json.loads(_files.read(self.path, "file of a search", most=_files.MOST_TABLE_BYTES))
        except (FileError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def due(self, runs: int) -> bool:
        """Whether to show a table of this many runs: a long one seldom, so that each run costs the same."""
        return self.path is not None and (runs <= _SHORT or runs % _SHORT == 0) and self.path.exists()

    def update(self, **known: Any) -> None:
        """Add to what is known. A file that cannot be written must not stop a search."""
        if self.path is not None:
            with contextlib.suppress(OSError):
                content = {**(self.read() or {}), **known} | ({"written": time.time()} if self.timed else {})
                _files.write(self.path, json.dumps(content).encode(), mode=0o600)
                if not self.timed:
                    os.utime(self.path, (0, 0))

    def erase(self) -> None:
        erase(self.path)


NOWHERE = LiveFile(None)
"""For a search that shows nothing, or whose journal is not a file."""


SCREEN_S, LOG_S, PAGE_S = 0.2, 10.0, 1.0
"""Seconds between two looks at a terminal, before the first line of a log, and between two looks at a page."""
NOTE = "lines that tell how long runs take follow. No guarantee covers that: this log is for the curator alone"
_ERASE = "\r\x1b[2K"


@dataclass
class LiveSteps:
    """Shows the steps of published runs, and writes the checkpoints of a last run."""

    what: str  # "survey" or "last run"
    screen: bool = False  # whether to show them on a terminal
    log: bool = False  # whether to write lines where there is no terminal
    file: CheckpointFile | None = None  # where a run keeps its state
    live: LiveFile = NOWHERE  # where ``dphypo watch`` reads how far they are
    _said: set[str] = field(default_factory=set)

    def begin(self, runs: Sequence[Pace]) -> bytes | None:
        """Show once what the runs are; return the stored state."""
        self._name = self.what if len(runs) == 1 else f"{self.what}, {len(runs)} runs at once"
        self._steps, self._began, self._shown, self._written = runs[0].steps, time.monotonic(), 0.0, 0.0
        self._first = -1  # the step at which the runs begin, or go on; it is not known yet
        self._wait = SCREEN_S if sys.stderr.isatty() else LOG_S
        self._writes = self.file is not None
        if (about := describe(runs)) not in self._said:
            self._said.add(about)
            self._show(f"{self.what}: {about}", stays=True)
        return None if self.file is None else self.file.read()

    def step(self, made: int, state: Callable[[], bytes] | None = None) -> None:
        """Show how far they are if it is time to; write a checkpoint if one is due."""
        if self._first < 0:
            self._first = made - 1
        passed = time.monotonic() - self._began
        speed = (made - self._first) / max(passed, 1e-9)
        left = (self._steps - made) / speed
        if passed >= self._shown + self._wait and made < self._steps:
            self._shown = passed
            if not sys.stderr.isatty():
                self._wait = max(LOG_S, min(600.0, passed / 10))
            shown = timedelta(seconds=round(left))
            self._show(f"{self._name}: step {made} of {self._steps}, {speed:.4g} steps/s, {shown} left")
        if passed >= self._written + PAGE_S:
            self._written = passed
            self.live.update(what=self._name, step=made, steps=self._steps, speed=speed, left=left)
        if state is not None and self.file is not None and self._writes and self.file.due(made):
            try:
                self.file.write(state())
            except OSError as error:  # a disk that is full must not be the outcome of the run
                self._writes = False
                self._show(f"no checkpoint can be written ({error.strerror}): the run goes on without", stays=True)

    def end(self) -> None:
        if self.screen and sys.stderr.isatty():
            self._print(_ERASE)

    def _show(self, text: str, *, stays: bool = False) -> None:
        if sys.stderr.isatty():
            if self.screen:
                self._print(f"{_ERASE}{text}" + ("\n" if stays else ""))
        elif self.log:
            note = "" if NOTE in self._said else f"{self.what}: {NOTE}\n"
            self._said.add(NOTE)
            self._print(f"{note}{text}\n")

    def _print(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a closed pipe must not be the outcome of the run
            sys.stderr.write(text)
            sys.stderr.flush()


def describe(runs: Sequence[Pace]) -> str:
    """What is public of the training, in one line."""

    def between(values: Sequence[float], form: str = ".4g") -> str:
        low, high = format(min(values), form), format(max(values), form)
        return low if low == high else f"{low} to {high}"

    noise, rate = between([run.noise_multiplier for run in runs]), between([run.rate for run in runs])
    steps, batch = between([run.steps for run in runs], "d"), between([run.batch_size for run in runs])
    return f"σ = {noise}, sampling rate {rate}, {steps} steps, expected batch {batch}"


@dataclass(frozen=True)
class Followed:
    """A mechanism as executors see it, which reports the steps of its runs."""

    mechanism: Mechanism
    following: LiveSteps

    event: ClassVar[None] = None
    relation: ClassVar[None] = None
    score_event: ClassVar[None] = None
    split: ClassVar[None] = None
    monotone: ClassVar[frozenset[str]] = frozenset()

    @property
    def saver(self) -> Saver:
        return self.mechanism.saver

    @property
    def same_alone(self) -> bool:
        return isinstance(self.mechanism, capabilities.ManyAtOnce) and self.mechanism.same_alone

    def __call__(self, params: Mapping[str, Any], *, seed: int) -> Any:
        with following(self.following):
            return self.mechanism(params, seed=seed)

    def many(self, params: Sequence[Mapping[str, Any]], *, seeds: Sequence[int]) -> Sequence[Outcome]:
        assert isinstance(self.mechanism, capabilities.ManyAtOnce)
        with following(self.following):
            return self.mechanism.many(params, seeds=seeds)
