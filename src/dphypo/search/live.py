"""A search while it runs: lines about the steps of its runs, and the file that ``dphypo watch`` reads.

Runs of a study are not followed, because their number and durations are secret. What is shown of surveys and last runs
contains times, which the guarantee does not cover: it is for the curator, and a log says so in its first line. Results
may be published, so they never share a log with times (``progress.rows``).

The **live file** is next to the journal, which is locked while the search runs, and has the same permissions. For a
search with a study it contains the cost alone and no time, because its age would reveal the duration of the study. It
is erased when the search stops. Only ``run`` creates one.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

from dphypo import _files
from dphypo._stderr import Shield, on_terminal, say, shielded
from dphypo.journal.journal import Record
from dphypo.mechanisms import Mechanism, Outcome, Saver
from dphypo.mechanisms.attempt import Pace, followed_by
from dphypo.search.checkpoint import CheckpointFile, erase
from dphypo.search.release import Row, SurveyTable

ENDING = "-watch"
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


SCREEN_S, LOG_S, PAGE_S = 0.2, 10.0, 1.0
"""Seconds between two updates of a terminal, before the first line of a log, and between two updates of the file."""
NOTE = "the lines that follow reveal how long runs take. No guarantee covers that: this log is for the curator alone"
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
    _checkpoint: Shield = field(default_factory=lambda: Shield("writing a checkpoint of the run"))

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
                self._wait = max(LOG_S, min(600.0, passed / 10))
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
            note = "" if NOTE in self._said else f"{self.what}: {NOTE}\n"
            self._said.add(NOTE)
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
        with followed_by(self.steps):
            return self.mechanism(params, seed=seed)

    def many(self, params: Sequence[Mapping[str, Any]], *, seeds: Sequence[int]) -> Sequence[Outcome]:
        with followed_by(self.steps):
            return self.mechanism.many(params, seeds=seeds)
