"""Making one run: whatever happens inside it is its outcome."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dphypo.mechanisms.mechanism import Mechanism, Outcome
from dphypo.mechanisms.savers import Saver, UnsupportedModelError

_LONGEST_REASON = 4000
_TELL_AGAIN = (
    "Nothing was recorded: tell this trial again, with an Outcome, a (model, score) pair, or, if the run failed, "
    "Outcome.failed(reason)"
)


@dataclass(frozen=True, repr=False)
class Attempt:
    """How a run ended: a score and a model in bytes, or the reason why there are none.

    ``leaving`` is set if the run asked to end the process: its outcome counts first.
    """

    score: float | None
    failure: str | None
    model: bytes | None
    leaving: SystemExit | None = None

    @classmethod
    def failed(cls, reason: str, leaving: SystemExit | None = None) -> Attempt:
        # The text may come from the data: what a database cannot store must not keep the outcome from counting.
        text = reason[-_LONGEST_REASON:].encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
        return cls(None, text, None, leaving)


def attempt(mechanism: Mechanism, params: Mapping[str, Any], seed: int) -> Attempt:
    """Train once. An exception is an outcome with the lowest score, and so is running out of memory.

    Only an interrupt from the keyboard passes through, and a model of a kind that cannot be saved, which is an error
    in the declaration and not in the run.
    """
    return settle(lambda: mechanism(copy.deepcopy(dict(params)), seed=seed), mechanism.saver)


def well_formed(outcome: Any) -> Any:
    """An outcome that somebody tells, as it is. One of the wrong kind is a slip of the caller's and no run's end.

    The errors are constants: what was told is secret.
    """
    if isinstance(outcome, Outcome):
        score: Any = outcome.score
    elif isinstance(outcome, tuple) and len(outcome) == 2:
        score = outcome[1]
    else:
        raise TypeError(f"what was told is neither an Outcome nor a (model, score) pair. {_TELL_AGAIN}")
    try:
        float(score)
    except OverflowError:
        pass  # a number, if one that is not finite as a float: the run failed
    except Exception:
        score = None
    if score is None:  # raised out here, where no other error with the value in it hangs on to this one
        raise TypeError(f"the score that was told is not a number. {_TELL_AGAIN}")
    return outcome


def settle(returned: Callable[[], Any], saver: Saver) -> Attempt:
    """What a run returned, checked and in bytes."""
    try:
        outcome = Outcome.of(returned())
        if not outcome.ok:
            return Attempt.failed(outcome.reason)
        return Attempt(outcome.score, None, bytes(saver.dump(outcome.model)))
    except (KeyboardInterrupt, UnsupportedModelError):
        raise
    except SystemExit as error:
        return Attempt.failed("the run ended its process", error)
    except BaseException as error:
        return Attempt.failed(_reason(error))


def _reason(error: BaseException) -> str:
    """For the curator, through the journal; with a fallback, for this may be memory running out."""
    try:
        return "".join(traceback.format_exception(error))
    except Exception:
        return type(error).__name__
