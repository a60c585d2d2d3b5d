"""Making one run: whatever happens inside it is its outcome."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dphypo.errors import UnsupportedModelError
from dphypo.mechanisms.mechanism import Mechanism
from dphypo.mechanisms.outcome import Outcome
from dphypo.mechanisms.savers import Saver


def attempt(mechanism: Mechanism, params: Mapping[str, Any], seed: int) -> Outcome:
    """Train once; the outcome's model is in bytes.

    An exception is an outcome with the lowest score, and so is running out of memory. Two things pass through: an
    interrupt from the keyboard, and a model of a kind that cannot be saved, which is an error in the declaration.
    """
    return settle(lambda: mechanism(copy.deepcopy(dict(params)), seed=seed), mechanism.saver)


def settle(returned: Callable[[], Any], saver: Saver) -> Outcome:
    """What a run returned, checked, its model in bytes."""
    try:
        outcome = Outcome.of(returned())
        return replace(outcome, model=bytes(saver.dump(outcome.model))) if outcome.ok else outcome
    except (KeyboardInterrupt, UnsupportedModelError):
        raise
    except SystemExit as error:
        return Outcome.failed("the run ended its process", error)
    except BaseException as error:
        return Outcome.failed(_reason(error))


def _reason(error: BaseException) -> str:
    """For the curator, through the journal. Formatting may fail when memory has run out."""
    try:
        return "".join(traceback.format_exception(error))
    except Exception:
        return type(error).__name__
