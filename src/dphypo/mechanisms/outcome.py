"""Making one run, or a dry run of it: whatever happens inside is its outcome, the one type for how a run ended.

A search says with :func:`followed_by` who follows the steps of the runs inside the block; training asks with
:func:`current_follower`. Nothing that a follower does changes what a run returns.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import IO, Any, Protocol

from dphypo._stderr import Shield
from dphypo.entropy import Seeded
from dphypo.errors import RehearsalError, Stopped, UnsupportedModelError
from dphypo.mechanisms.capabilities import DryRun, ManyAtOnce
from dphypo.mechanisms.mechanism import Mechanism, check_signature
from dphypo.mechanisms.savers import Saver
from dphypo.space import Space

_LONGEST_REASON = 4000
_TELL_AGAIN = (
    "Nothing was recorded: tell this trial again, with an Outcome, a (model, score) pair, or, if the run failed, "
    "Outcome.failed(reason)"
)


@dataclass(frozen=True, repr=False)
class Outcome:
    """What one run gives: the model, and the score by which runs are ranked; or the reason why there are none.

    A run that fails is an outcome too, with the lowest score, and so is one whose score is not a finite number: running
    it again would change the mechanism.

    Args:
        model: the model as the run returned it; its bytes once it is saved.
        score: the score; None in a failed run.
        failure: why a failed run has no score. Secret: it is for the curator.
        metrics: further numbers of the run, by name: a survey publishes them beside the score.
        leaving: set by the library if the run asked to end its process; the outcome is recorded first.
        started_with: set by the library: the hyperparameters and the seed of the run. A search compares them with those
            of the run that it started.

    >>> Outcome(model={"bias": 0.5}, score=0.9).ok
    True
    >>> Outcome(model=None, score=float("nan")).ok, Outcome.failed("diverged").ok
    (False, False)
    >>> Outcome(model=1, score=0.9)
    Outcome(secret)
    """

    model: Any
    score: float | None
    failure: str | None = None
    leaving: SystemExit | None = field(default=None, compare=False)
    metrics: Mapping[str, float] = field(default_factory=dict)
    started_with: tuple[Mapping[str, Any], int] | None = field(default=None, compare=False)

    @classmethod
    def failed(cls, reason: str = "failed", leaving: SystemExit | None = None) -> Outcome:
        """A run that gave no model. The reason is kept in the journal, for the curator."""
        # The reason may quote the data. Text that a database cannot store must not keep the outcome from counting.
        text = str(reason)[-_LONGEST_REASON:].encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
        return cls(None, None, text or "failed", leaving)

    @classmethod
    def of(cls, returned: object) -> Outcome:
        """What a training function returned, as an outcome: an ``Outcome``, or a ``(model, score)`` pair."""
        pair = _pair(returned)
        if pair is None:
            return cls.failed("the run returned neither an Outcome nor a (model, score) pair")
        if isinstance(returned, Outcome) and returned.failure is not None:
            return cls.failed(returned.failure)
        model, score = pair
        given = returned.metrics if isinstance(returned, Outcome) else {}
        try:
            value, metrics = _number(score), {str(name): _number(one) for name, one in given.items()}
        except (TypeError, ValueError):
            return cls.failed("the score is not a number")
        except OverflowError:
            value, metrics = math.inf, {}
        if not all(map(math.isfinite, (value, *metrics.values()))):
            return cls.failed("the score is not finite")
        return cls(model, value, metrics=metrics)

    @property
    def ok(self) -> bool:
        """Whether there is a model with a finite score."""
        return self.failure is None and self.score is not None and math.isfinite(self.score)

    def __repr__(self) -> str:
        return "Outcome(secret)"


def well_formed(outcome: Any) -> Any:
    """Return the outcome that was told, checked. Errors have constant texts, since the outcome is secret."""
    pair = _pair(outcome)
    if pair is None:
        raise TypeError(f"what was told is neither an Outcome nor a (model, score) pair. {_TELL_AGAIN}")
    if isinstance(outcome, Outcome) and outcome.failure is not None:
        return outcome
    number = True
    try:
        _number(pair[1])
    except OverflowError:
        pass  # a number that is not finite as a float: the run failed
    except Exception:
        number = False
    if not number:  # raised outside the handler, so that the caught error, which may quote the value, is not chained
        raise TypeError(f"the score that was told is not a number. {_TELL_AGAIN}")
    return outcome


def _pair(returned: Any) -> tuple[Any, Any] | None:
    if isinstance(returned, Outcome):
        return returned.model, returned.score
    if isinstance(returned, tuple) and len(returned) == 2:
        return returned
    return None


def _number(score: Any) -> float:
    """A score as a float. Text is not a number, nor are arrays of text, of dates or of complex numbers."""
    kind = getattr(getattr(score, "dtype", None), "kind", "f")
    if isinstance(score, (str, bytes, bytearray)) or kind not in "biuf":
        raise TypeError("not a number")
    return float(score)


def attempt(mechanism: Mechanism, params: Mapping[str, Any], seed: int) -> Outcome:
    """Train once; the outcome's model is in bytes.

    An exception is an outcome with the lowest score. Two things pass through: an interrupt that a signal caused, and a
    model that cannot be saved, which is an error in the declaration. A child that the run has forked ends here.
    """
    with _interruptible():
        outcome = settle(lambda: mechanism(copy.deepcopy(dict(params)), seed=seed), mechanism.saver)
    return replace(outcome, started_with=(dict(params), seed))


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Tell an interrupt from the keyboard from one that a run raises. A child that is forked here ends here."""
    process, before = os.getpid(), signal.getsignal(signal.SIGINT)
    # In other threads there are no signals, and somebody may have seen to them.
    ours = threading.current_thread() is threading.main_thread() and before is signal.default_int_handler

    def stop(number: int, frame: object) -> None:
        raise Stopped

    if ours:
        signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        if os.getpid() != process:
            os._exit(1)
        if ours:
            signal.signal(signal.SIGINT, before)


def attempt_many(
    mechanism: Mechanism, params: Sequence[Mapping[str, Any]], seeds: Sequence[int], size: int
) -> list[Outcome]:
    """Make several runs at once, as :func:`attempt` makes one, padded to ``size`` by repeats of the last.

    If the group as a whole fails, its runs are made one by one: a failure of one must not be an outcome of the others.
    """
    assert isinstance(mechanism, ManyAtOnce)
    more = size - len(params)
    try:
        with _interruptible():
            together = copy.deepcopy([*map(dict, params), *[dict(params[-1])] * more])
            made = mechanism.many(together, seeds=[*seeds, *[seeds[-1]] * more])
        if len(made) != size:
            raise ValueError(f"many() returned {len(made)} outcomes for {size} runs")
    except BaseException as error:
        if isinstance(error, UnsupportedModelError) or (isinstance(error, KeyboardInterrupt) and Stopped.behind(error)):
            raise
        return [attempt(mechanism, one, seed) for one, seed in zip(params, seeds, strict=True)]
    settled = [settle(partial(Outcome.of, one), mechanism.saver) for one in made[: len(params)]]
    runs = zip(settled, params, seeds, strict=True)
    return [replace(outcome, started_with=(dict(one), seed)) for outcome, one, seed in runs]


def settle(returned: Callable[[], object], saver: Saver) -> Outcome:
    """What a run returned, checked, its model in bytes."""
    try:
        outcome = Outcome.of(returned())
        return replace(outcome, model=bytes(saver.dump(outcome.model))) if outcome.ok else outcome
    except UnsupportedModelError:
        raise
    except SystemExit as error:
        return Outcome.failed("the run ended its process", error)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and Stopped.behind(error):
            raise
        reason = type(error).__name__
        with contextlib.suppress(Exception):  # formatting may fail when memory has run out
            reason = "".join(traceback.format_exception(error))
        return Outcome.failed(reason)


def rehearse(mechanism: Mechanism, space: Space) -> None:
    """Refuse a mechanism that cannot be called, or whose dry run fails, if it offers one.

    No private record is touched, so errors are shown as they are.
    """
    check_signature(mechanism, "seed")
    params = space.sample(Seeded(0))  # any λ will do, and this one is public
    if not isinstance(mechanism, DryRun) or (returned := mechanism.rehearse(params, seed=0)) is None:
        return
    outcome = Outcome.of(returned)
    if not outcome.ok:
        raise RehearsalError(f"a dry run of {mechanism!r} on made-up records failed at {params!r}: {outcome.failure}")
    mechanism.saver.load(bytes(mechanism.saver.dump(outcome.model)))


@dataclass(frozen=True)
class Pace:
    """What is public of a run's training."""

    noise_multiplier: float
    rate: float
    steps: int
    batch_size: float


class Follower(Protocol):
    """Is told of the steps of runs that are executed at once. What it raises never reaches the runs."""

    def begin(self, runs: Sequence[Pace]) -> IO[bytes] | None:
        """The runs begin. Returns a file with what :meth:`step` stored of a killed run, or None to begin at step 0."""

    def step(self, made: int, state: Callable[[IO[bytes]], object] | None = None) -> None:
        """This many steps are made; ``state`` writes all that is needed to resume after them to a file."""

    def end(self) -> None: ...


_follower: ContextVar[Follower | None] = ContextVar("follower", default=None)


def current_follower() -> Follower | None:
    """Who follows the runs that this block of code executes."""
    return _follower.get()


@contextlib.contextmanager
def followed_by(follower: Follower) -> Iterator[None]:
    """A block whose runs report their steps to ``follower``."""
    shielded = _ShieldedFollower(follower)
    token = _follower.set(shielded)
    try:
        yield
    finally:
        _follower.reset(token)
        shielded.end()


class _ShieldedFollower:
    """A follower that never raises: otherwise what only watches a run could become its outcome."""

    def __init__(self, follower: Follower) -> None:
        self._follower, self._shield = follower, Shield("what follows the steps of runs")

    def begin(self, runs: Sequence[Pace]) -> IO[bytes] | None:
        return self._shield(lambda: self._follower.begin(runs), otherwise=None)

    def step(self, made: int, state: Callable[[IO[bytes]], object] | None = None) -> None:
        self._shield(lambda: self._follower.step(made, state), otherwise=None)

    def end(self) -> None:
        self._shield(self._follower.end, otherwise=None)
