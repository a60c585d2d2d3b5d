"""What the processes of a survey claim in Optuna's storage, in an order on which all of them agree.

A storage may be shared by processes on several machines, and Optuna offers no lock. What it does offer is that trials
are created one after the other, each whole, and numbered in that order. So a claim is a trial in a study of its own
beside the one that is driven, named after it: "tuned (dphypo)". The first claim of a kind wins:

* ``begin``: the declaration, and the key in the ledger. The first one holds.
* ``run``: a trial is about to be made. The first ones count, as many as were declared, if nobody has closed before.
* ``close``: no trial is made any more.
* ``last``: a last run is about to be made. The first ones count, as many as were declared.

A study that was copied (``optuna.copy_study``) has no claims beside it, so it cannot go on. One that was deleted and
made again has claims of trials that are not its own, and is refused: the study has a mark that its ``begin`` names. Of
two copies of a whole database, or where the claims were deleted too, the ledger lets one go on.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dphypo import _validate, errors
from dphypo.journal.ledger import Reservation

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

_MARK = "dphypo survey"  # the study attribute that its claims name
_NOT_THIS_STUDY = (
    "This Optuna study was not started by this survey: it has other trials, or another declaration. Every trial of a "
    "survey is paid for, and their number and cost are declared before the first. Create a new study (another "
    "study_name), or open it with the same OptunaSurvey as before."
)
_REMADE_STUDY = (
    "An Optuna study of this name was started by a survey and deleted. Its trials were executed and count: the claims "
    'kept beside it, in the study whose name ends in "(dphypo)", are used up, so trials of this study would not be '
    "paid for. Create a study with another study_name: it is a new survey, and the two compose."
)
_TOO_MANY = (
    "All declared trials have been executed. One more would not be paid for, and a number of runs chosen from the "
    "results is not covered. Execute the last run, or start a new survey on a new study: the two compose."
)
_LATE = "(The survey was closed for its last run: the table in its certificate is complete.)"
_AGAIN = "(The last run was started before: declare last_runs=2 to allow for one that is lost.)"


class TrialClaims:
    """The claims beside an Optuna study that is driven, with this many declared trials."""

    def __init__(self, study: Study, runs: int) -> None:
        self._study, self._runs = study, runs
        self._name = f"{study.study_name} (dphypo)"
        self._reservation: Reservation | None = None

    def begin(self, declared: Mapping[str, Any], reservation: Reservation | None) -> None:
        """Claim the study for a declaration, and reserve in the ledger; refused if it was begun in another way."""
        made = any(trial.state.name != "WAITING" for trial in self._study.trials)  # read before the claims
        if not self._all("begin"):
            if made:
                raise errors.Refusal(_NOT_THIS_STUDY)
            entry = {} if reservation is None else reservation.begun({})
            self._claim("begin", {"declared": dict(declared), "study": secrets.token_hex(16), **entry})
        first: dict[str, Any] = self._all("begin")[0]
        if first["declared"] != json.loads(json.dumps(declared)):
            raise errors.Refusal(_NOT_THIS_STUDY)
        self.refuse_foreign()
        if reservation is not None:
            reservation.enter(first)
        elif "ledger" in first:
            raise errors.LedgerError("this survey was begun with a ledger: pass the same ledger= to resume it")
        self._study.set_user_attr(_MARK, first["study"])
        self._reservation = reservation

    def refuse_foreign(self) -> None:
        """Refuse a study with trials that were not claimed: they were made outside the survey, and not paid for.

        A study whose claims are those of a deleted one is refused, too.
        """
        claims = self._read()  # read before the mark, which is set before the first trial is claimed
        marks = [claim["study"] for kind, claim in claims if kind == "begin"]
        used = any(kind != "begin" for kind, _ in claims)
        if used and [self._study.user_attrs.get(_MARK)] != marks[:1]:
            raise errors.Refusal(_REMADE_STUDY)
        trials = self._study.trials  # read before the claims: what has a value by now was claimed by now
        claimed = {claim["trial"] for claim in self._all("run")}
        for trial in trials:
            made = trial.state.is_finished() and (trial.params or trial.values or trial.intermediate_values)
            if made and trial.number not in claimed:
                raise errors.Refusal(_NOT_THIS_STUDY)

    @property
    def closed(self) -> bool:
        """Whether no trial is made any more."""
        return bool(self._all("close"))

    @property
    def trials(self) -> list[FrozenTrial]:
        """The trials of the survey, in order: all that were begun and count."""
        counted = set(self._counted())
        return [trial for trial in self._study.trials if trial.number in counted]

    def _counted(self) -> list[int]:
        """The numbers of the trials that count, in the order in which they were claimed."""
        order: list[int] = []
        for kind, claim in self._read():
            if kind == "close" or len(order) == self._runs:
                break
            if kind == "run" and claim["trial"] not in order:
                order.append(claim["trial"])
        return order

    def refuse_late(self) -> None:
        """Refuse to begin trials where none is left."""
        if self.closed:
            raise errors.Refusal(f"{_TOO_MANY} {_LATE}")
        if len(self._counted()) >= self._runs:
            raise errors.Refusal(_TOO_MANY)

    def claim_run(self, number: int) -> bool:
        """Claim a trial that is about to be made; False if it is surplus."""
        mine = {"trial": number, "token": secrets.token_hex(16)}
        self._claim("run", mine)
        if next(claim for claim in self._all("run") if claim["trial"] == number) != mine:  # it was made before
            raise errors.Refusal(_REMADE_STUDY)
        order = self._counted()
        if number in order:
            self._pay(f"trial {order.index(number)}")
        return number in order

    def close(self) -> None:
        """Close the survey. Trials that were begun before must have ended."""
        self._refuse_running()
        if not self.closed:
            self._claim("close", {})
        self._refuse_running()  # one may have begun in between; from now on none can

    def _refuse_running(self) -> None:
        for trial in self.trials:
            if not trial.state.is_finished():
                remedy = f"trial {trial.number} is still running: wait for it, or tell it with study.tell(...)"
                raise _validate.fail("study", self._study.study_name, remedy)

    def claim_last_run(self, allowed: int) -> None:
        """Claim a last run; refused if ``allowed`` of them were begun before, by whatever process."""
        if len(self._all("last")) >= allowed:
            raise errors.Refusal(f"{_TOO_MANY} {_AGAIN}")
        mine = {"token": secrets.token_hex(16)}
        self._claim("last", mine)
        place = self._all("last").index(mine)
        if place >= allowed:  # another process was faster
            raise errors.Refusal(f"{_TOO_MANY} {_AGAIN}")
        self._pay(f"last run {place}")

    def _pay(self, part: str) -> None:
        """Take a part of the entry in the ledger: of two copies of a storage, one gets it."""
        if self._reservation is not None:
            self._reservation.claim(part)

    def _claim(self, kind: str, content: Mapping[str, Any]) -> None:
        from optuna import create_study
        from optuna.trial import create_trial

        beside = self._beside()
        if beside is None:
            beside = create_study(storage=self._study._storage, study_name=self._name, load_if_exists=True)
        beside.add_trial(create_trial(value=0.0, user_attrs={"kind": kind, "claim": dict(content)}))

    def _all(self, kind: str) -> list[dict[str, Any]]:
        return [claim for found, claim in self._read() if found == kind]

    def _read(self) -> list[tuple[str, dict[str, Any]]]:
        beside = self._beside()
        found = [] if beside is None else sorted(beside.get_trials(deepcopy=False), key=lambda trial: trial.number)
        return [(trial.user_attrs["kind"], trial.user_attrs["claim"]) for trial in found]

    def _beside(self) -> Study | None:
        from optuna import load_study

        try:
            return load_study(study_name=self._name, storage=self._study._storage)
        except KeyError:
            return None


def keep_in_study(study: Study, question: Mapping[str, Any], solve: Callable[[], float]) -> float:
    """Keep a public number that takes long to find in an Optuna study (a ``dphypo.accounting.calibrate.Keep``).

    Whoever can write to the storage can change it: who asks looks whether it is an answer, and accounts for it afresh.
    """
    text = json.dumps(question, sort_keys=True)
    key = f"dphypo solved {hashlib.sha256(text.encode()).hexdigest()[:16]}"
    found = study.user_attrs.get(key)
    if isinstance(found, int | float) and 0 < found < math.inf:
        return float(found)
    answer = solve()
    study.set_user_attr(key, answer)
    return answer
