"""What a journal says of a study, and which changes of it are possible. All of it is secret.

| impossible | |
|---|---|
| a second T for a study | a study begins once, with T |
| run number T or beyond, a run drawn twice or out of order | run k is drawn after k others, and k < T |
| an outcome without a run, or two outcomes of a run | |
| an outcome both scored and failed, or neither, or an infinite score | |
| the model of a run without a score | the model comes with the score |
| a release before the last outcome, or a second one; anything after it | |
| a second fingerprint of the records, or one after the first run was drawn | |

The classes keep the ``repr`` of plain objects, which shows no field: tracebacks, notebooks and logs print ``repr``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dphypo.journal.chain import Change, Place, tampered
from dphypo.mechanisms import Outcome

MAX_ATTEMPTS = 3
"""A run whose process died this often, without a checkpoint in between, is a failure."""

KEY_BYTES = 32
"""The length of the key that every journal makes for fingerprints of its records."""

ERASED = -1
"""In the place of a seed that was erased. No seed is negative."""


@dataclass(frozen=True, repr=False)
class Trial:
    """One run to make: train with ``params`` and ``seed``, then tell the outcome.

    λ, the seed and the key that breaks ties are drawn and committed before the run, so a run that is lost is made
    again exactly as it was.
    """

    params: dict[str, Any]
    seed: int
    number: int
    tie_key: bytes
    attempts: int = 1
    machine: str = ""  # on which the latest attempt was begun, since that machine was started; empty if not known
    steps: int = 0  # after which step of its checkpoint the latest attempt began


def frozen(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as JSON gives them, with tuples in the place of lists: no parameter is a list."""

    def inside(value: Any) -> Any:
        return tuple(map(inside, value)) if isinstance(value, list) else value

    return {name: inside(value) for name, value in params.items()}


@dataclass(repr=False)
class Record:
    """The journal of one study, in memory: T, the runs in the order their λ were drawn, how they ended."""

    total: int | None = None
    trials: list[Trial] = field(default_factory=list)
    results: dict[int, Outcome] = field(default_factory=dict)
    best: int | None = None
    ending: str | None = None
    certificate: str | None = None
    declaration: dict[str, Any] | None = None  # public
    place: Place = field(default_factory=lambda: Place("journal", ""))  # where the journal ends
    seeds: dict[int, int] = field(default_factory=dict)  # the number of the change that has the seed of a run
    model: int | None = None  # the number of the change that has the model of the best run
    records_key: bytes | None = None  # random, of this journal alone; None once it is shredded
    fingerprint: int | None = None  # the number of the change that has the fingerprint of the records

    @property
    def exists(self) -> bool:
        """Whether the study was begun."""
        return self.declaration is not None

    @property
    def released(self) -> bool:
        return self.ending is not None

    @property
    def shredded(self) -> bool:
        return self.total is None

    @property
    def complete(self) -> bool:
        """All T runs have an outcome."""
        return len(self.results) == self.total

    @property
    def _secrets(self) -> set[int]:
        """The changes whose secrets the journal keeps: its key, seeds that were not erased, fingerprint, best model."""
        single = (None if self.records_key is None else 0, self.fingerprint, self.model)
        return {*self.seeds.values(), *(one for one in single if one is not None)}

    def apply(self, change: Change, number: int) -> None:
        """Bring the record up to date by change ``number`` of its journal; an error if no study makes it."""
        try:
            return self._apply(change, number)
        except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
            wrong = f"a change cannot be read ({type(error).__name__})"
        raise tampered(wrong)  # outside the handler: what it quotes may be secret

    def replay(self, changes: list[Change]) -> None:
        """Bring a new record up to date; an error if no study makes these changes, or keeps these secrets."""
        for number, change in enumerate(changes):
            self.apply(change, number)
        kept = {number for number, change in enumerate(changes) if change.kept}
        _require(kept == self._secrets, "a seed or a model is missing, or was not erased")

    def _apply(self, change: Change, number: int) -> None:
        match change.content:
            case ["begin", dict() as declaration, int() as total]:
                _require(not self.exists and total >= 0, "its number of runs is missing, or is not a whole number")
                _require(change.secret is not None and len(change.secret) == KEY_BYTES, "its key is missing")
                self.declaration, self.total, self.records_key = declaration, total, change.secret
            case ["fingerprint"]:
                self._require_open()
                _require(change.kept and self.fingerprint is None and not self.trials, "a second set of records")
                self.fingerprint = number
            case ["shred", dict() as declaration, str() as ending, str() as certificate]:
                _require(not self.exists, "a study was begun before it began")
                self.declaration, self.ending, self.certificate = declaration, ending, certificate
            case ["declare", dict() as declaration]:
                self._require_open()
                self.declaration = declaration
            case ["claim", int() as one, dict() as params, str() as tie_key, int() as attempts, str() as machine]:
                self._require_open()
                _require(one == len(self.trials) < (self.total or 0), "a run is missing, or there is one too many")
                _require(0 <= attempts <= MAX_ATTEMPTS, "a run was begun too often")
                seed = ERASED if change.secret is None else int.from_bytes(change.secret, "big")
                self.seeds[one] = number
                self.trials.append(Trial(frozen(params), seed, one, bytes.fromhex(tie_key), attempts, machine))
            case ["attempt", int() as one, int() as attempts, str() as machine, *more]:
                self._require_open()
                _require(0 <= attempts <= MAX_ATTEMPTS and 0 <= one < len(self.trials), "a run was begun too often")
                steps = more[0] if len(more) == 1 and type(more[0]) is int else 0
                _require(not more or steps > 0, "a checkpoint has no step")
                self.trials[one] = replace(self.trials[one], attempts=attempts, machine=machine, steps=steps)
            case ["finish", int() as one, score, failure, bool() as best, bool() as erased, *more]:
                self._finish(one, score, failure, best, erased, more)
                self.model = number if best else self.model
            case ["release", str() as ending, str() as certificate]:
                self._require_open()
                _require(self.complete, "a release was made before the last outcome")
                self.ending, self.certificate = ending, certificate
            case _:
                raise tampered("a change is of no known kind")

    def _finish(self, one: int, score: object, failure: object, best: bool, erased: bool, more: list[Any]) -> None:
        self._require_open()
        _require(0 <= one < len(self.trials) and one not in self.results, "an outcome has no run")
        scored = isinstance(score, (int, float)) and not isinstance(score, bool) and math.isfinite(score)
        _require(
            (scored and failure is None) or (score is None and isinstance(failure, str) and not best),
            "an outcome is neither a finite score nor a failure",
        )
        metrics = dict(more[0]) if more else {}  # of a run that has a score
        numbers = all(type(value) is float and math.isfinite(value) for value in metrics.values())
        _require(not more or (len(more) == 1 and numbers and scored), "a metric of a run is not a finite number")
        self.results[one] = Outcome(None, float(score) if scored else None, failure, metrics=metrics)  # type: ignore[arg-type]
        self.best = one if best else self.best
        if erased:
            self.trials[one] = replace(self.trials[one], seed=ERASED)
            self.seeds.pop(one, None)

    def _require_open(self) -> None:
        _require(self.exists and not self.released, "something was committed before the study, or after its release")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise tampered(otherwise)
