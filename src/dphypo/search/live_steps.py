"""Runs of surveys and last runs are followed: how far they are is shown, and a last run keeps checkpoints.

Runs of a study are not followed: how many there are and how long they take is secret. What is shown of the others has
times in it, which the guarantee does not cover: it is for the curator, and says so before the first line of a log.
Results are there to be passed on, so they are not written among times (``progress.rows``).
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

from dphypo.mechanisms import Mechanism, Outcome, Saver, capabilities
from dphypo.mechanisms.steps import Pace, following
from dphypo.search.checkpoint import CheckpointFile, Clock
from dphypo.search.live_file import NOWHERE, LiveFile

SCREEN_S, LOG_S, PAGE_S = 0.2, 10.0, 1.0
"""Seconds between two looks at a terminal, before the first line of a log, and between two looks at a page."""
NOTE = "lines that tell how long runs take follow. No guarantee covers that: this log is for the curator alone"
_ERASE = "\r\x1b[2K"


@dataclass
class LiveSteps:
    """Follows the runs of a part.

    Args:
        what: "survey" or "last run".
        screen: whether to show them on a terminal.
        log: whether to write lines where there is no terminal.
        file: where a run keeps its state; None if it does not.
        live: where ``dphypo watch`` reads how far they are.
    """

    what: str
    screen: bool = False
    log: bool = False
    file: CheckpointFile | None = None
    live: LiveFile = NOWHERE
    _said: set[str] = field(default_factory=set)

    def begin(self, runs: Sequence[Pace]) -> bytes | None:
        """Say once what the runs are; give back the state that was kept."""
        self._name = self.what if len(runs) == 1 else f"{self.what}, {len(runs)} runs at once"
        self._steps, self._began, self._shown = runs[0].steps, time.monotonic(), 0.0
        self._written = 0.0
        self._first = -1  # the step at which the runs begin, or go on; it is not known yet
        self._wait = SCREEN_S if sys.stderr.isatty() else LOG_S
        self._clock = None if self.file is None else Clock(self.file.every, 0)
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
        if state is not None and self.file is not None and self._clock is not None and self._clock.due(made):
            try:
                self.file.write(state())
            except OSError as error:  # a disk that is full must not be the outcome of the run
                self._clock = None
                self._show(f"no checkpoint can be written ({error.strerror}): the run goes on without", stays=True)

    def end(self) -> None:
        """Clear the line."""
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
    """What is public of the training, in one line.

    >>> describe([Pace(0.63, 256 / 60000, 2344, 256.0), Pace(0.63, 512 / 60000, 1172, 512.0)])
    'σ = 0.63, sampling rate 0.004267 to 0.008533, 1172 to 2344 steps, expected batch 256 to 512'
    """

    def between(values: Sequence[float]) -> str:
        low, high = f"{min(values):.4g}", f"{max(values):.4g}"
        return low if low == high else f"{low} to {high}"

    noise, rate = between([run.noise_multiplier for run in runs]), between([run.rate for run in runs])
    steps, batch = [run.steps for run in runs], between([run.batch_size for run in runs])
    counted = str(steps[0]) if len(set(steps)) == 1 else f"{min(steps)} to {max(steps)}"
    return f"σ = {noise}, sampling rate {rate}, {counted} steps, expected batch {batch}"


@dataclass(frozen=True)
class Followed:
    """What executors use of a mechanism, with its runs followed."""

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
