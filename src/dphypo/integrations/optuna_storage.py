"""What a survey writes into the storage of an Optuna study: its declaration, each last run that is begun, solved noise.

A storage may be shared by processes on several machines, and Optuna offers no lock. What it does offer is that trials
are created one after the other, each whole, and numbered in that order. So a last run is *claimed* by creating a trial
that says so: the first claims are good, and all processes agree which these are.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dphypo import errors
from dphypo.journal import Reservation

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

DECLARED = "dphypo survey"
_BY = "dphypo declared"
_LEDGER = "dphypo ledger"
_LAST = "dphypo last run"
_SOLVED = "dphypo solved"
_LATE = "(The last run was begun: the table that it is certified with is complete.)"
_AGAIN = "(The last run was begun before: declare last_runs=2 to allow for one that is lost.)"


def begin(study: Study, declared: Mapping[str, Any], reservation: Reservation | None = None) -> None:
    """Write the declaration into a new study; refuse a study that was not begun so. Reserve in the ledger, if any."""
    found = study.user_attrs.get(DECLARED)
    if found is None and not any(trial.state.name != "WAITING" for trial in study.trials):
        study.set_user_attr(_LEDGER, {} if reservation is None else reservation.begun({}))
        study.set_user_attr(DECLARED, dict(declared))
    elif found != declared:
        raise errors.NotThisStudy
    # Two processes with two declarations may both have found a new study: what was made by the other is not ours.
    if any(trial.user_attrs.get(_BY, digest(declared)) != digest(declared) for trial in study.trials):
        raise errors.NotThisStudy
    entry = study.user_attrs.get(_LEDGER, {})
    if reservation is not None:
        reservation.enter(entry)
    elif entry:
        raise errors.LedgerError("this survey was begun with a ledger: give the same ledger= to go on")


def begin_trial(trial: Trial, declared: Mapping[str, Any], reservation: Reservation | None = None) -> None:
    """Write by which declaration a trial is made, before it is made.

    The ledger has one place for each trial that was declared: of two copies of a study, one gets it.
    """
    if reservation is not None:
        reservation.claim(f"trial {trial.number}")
    trial.set_user_attr(_BY, digest(declared))


def trials(study: Study) -> list[FrozenTrial]:
    """The trials of the survey that were begun, in order."""
    return [trial for trial in study.trials if trial.state.name != "WAITING" and _LAST not in trial.user_attrs]


def refuse_late(study: Study) -> None:
    """Refuse more trials once a last run was begun."""
    if _claims(study) or study.user_attrs.get(_LAST):
        raise errors.TooManyTrials(_LATE)


def claim_last_run(study: Study, allowed: int, reservation: Reservation | None = None) -> None:
    """Count one more last run as begun; refused if ``allowed`` of them were begun before, by whatever process."""
    import optuna

    before = int(study.user_attrs.get(_LAST, 0))  # counted so by 0.2.0
    if before + len(_claims(study)) >= allowed:
        raise errors.TooManyTrials(_AGAIN)
    mine = secrets.token_hex(16)
    study.add_trial(optuna.trial.create_trial(state=optuna.trial.TrialState.FAIL, user_attrs={_LAST: mine}))
    claims = _claims(study)
    if mine not in claims[: allowed - before]:  # another process was faster
        raise errors.TooManyTrials(_AGAIN)
    if reservation is not None:
        reservation.claim(f"last run {claims.index(mine)}")


def _claims(study: Study) -> list[str]:
    found = sorted((trial for trial in study.trials if _LAST in trial.user_attrs), key=lambda trial: trial.number)
    return [str(trial.user_attrs[_LAST]) for trial in found]


def digest(declared: Mapping[str, Any]) -> str:
    """A short name of a public declaration."""
    return hashlib.sha256(json.dumps(declared, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class InStudy:
    """Keeps public numbers that take long to find in an Optuna study (a ``dphypo.journal.Keep``).

    Whoever can write to the storage can change them: what they are used for is accounted for afresh.
    """

    study: Study

    def __call__(self, question: Mapping[str, Any], solve: Callable[[], float]) -> float:
        key = f"{_SOLVED} {digest(question)}"
        found = self.study.user_attrs.get(key)
        if isinstance(found, (int, float)) and math.isfinite(found) and found > 0:
            return float(found)
        answer = solve()
        self.study.set_user_attr(key, answer)
        return answer
