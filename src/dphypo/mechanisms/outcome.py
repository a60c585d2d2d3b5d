"""How a run ended, the one type for it: a model and its score, or why there are none.

The same holds for one record that is read or computed alone (:func:`or_none`). A record that made a run fail would be
visible through any noise. While one record is handled alone, every exception is therefore the record's: it counts for
nothing, whether it raises ``ValueError``, ``MemoryError`` (a damaged header that announces 2⁵⁰ numbers) or something
that is no ``Exception`` (a panic of a Rust library). Only a signal passes through.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from dphypo.errors import Stopped, UnsupportedModelError
from dphypo.mechanisms.savers import Saver

Found = TypeVar("Found")

_ENDS = [number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]


def or_none(call: Callable[[], Found]) -> Found | None:
    """What ``call`` returns; None if it raises anything but a signal.

    >>> or_none(lambda: 1 / 0) is None
    True
    """
    try:
        return call()
    except BaseException as error:
        if is_signal(error):
            raise
        return None


def is_signal(error: BaseException) -> bool:
    """Whether a signal that ends the process raised an exception. Signals reach the main thread alone.

    During a run the library's own handler raises :class:`Stopped`. Elsewhere Python's raises ``KeyboardInterrupt``, and
    a handler that the user installed may raise anything.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    if Stopped.behind(error):
        return True
    handlers = [signal.getsignal(number) for number in _ENDS]
    if isinstance(error, KeyboardInterrupt) and signal.default_int_handler in handlers:
        return True
    codes = {getattr(handler, "__code__", None) for handler in handlers} - {None}
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code not in codes:
        trace = trace.tb_next
    return trace is not None


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
        metrics: further numbers of the run, by name: a survey publishes them with the score.
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
    """Check and return the outcome given to ``tell``. Errors have constant texts, since the outcome is secret."""
    pair = _pair(outcome)
    if pair is None:
        raise TypeError(f"tell() was given neither an Outcome nor a (model, score) pair. {_TELL_AGAIN}")
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
        raise TypeError(f"the score given to tell() is not a number. {_TELL_AGAIN}")
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
