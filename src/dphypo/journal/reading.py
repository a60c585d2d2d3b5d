"""Reading the rows of a study, and refusing those that this library has not written."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, inspect, select

from dphypo.errors import JournalError, JournalTamperedError
from dphypo.journal import params as _params
from dphypo.journal import schema
from dphypo.journal.records import Record, Trial
from dphypo.journal.seal import Seal
from dphypo.mechanisms import Outcome

FORMAT = 2


def declaration_text(declaration: dict[str, Any]) -> str:
    """As it is stored: with the format of the journal."""
    return json.dumps({"format": FORMAT, "declaration": declaration}, sort_keys=True)


def trial_row(trial: Trial) -> tuple[Any, ...]:
    """What the seal holds of a run; so do the functions below for the other tables."""
    return ("trial", trial.number, _params.dumps(trial.params), trial.seed, trial.tie_key, trial.attempts)


def outcome_row(number: int, outcome: Outcome) -> tuple[Any, ...]:
    return ("outcome", number, None if outcome.score is None else float(outcome.score), outcome.failure)


def best_rows(record: Record) -> list[tuple[Any, ...]]:
    return [] if record.best is None else [("best", record.best, record.model_digest)]


def release_rows(record: Record) -> list[tuple[Any, ...]]:
    return [] if record.ending is None else [("release", record.ending, record.certificate)]


def _rows(record: Record) -> Iterator[tuple[Any, ...]]:
    yield ("study", record.stored, record.total)
    yield from (trial_row(trial) for trial in record.trials)
    yield from (outcome_row(number, result) for number, result in record.results.items())
    yield from best_rows(record)
    yield from release_rows(record)


def read(connection: Connection, name: str) -> Record | None:
    """All of a study but the bytes of its model; None if there is none of this name."""
    sealed = _seal_of(connection, name)
    found = connection.execute(select(schema.study).where(schema.study.c.name == name)).one_or_none()
    if found is None:
        return None
    failure = None
    try:
        record = _read(connection, name, found.declaration, found.total)
    except (ValueError, TypeError, AttributeError, KeyError) as error:  # what it quotes may be secret
        failure = type(error).__name__
    if failure is not None:
        raise JournalTamperedError(f"a row cannot be read ({failure})")
    _check_structure(record)
    _check_seal(connection, name, record, sealed)
    return record


def _read(connection: Connection, name: str, stored: str, total: int | None) -> Record:
    def rows(table: Any) -> Any:
        return connection.execute(select(table).where(table.c.study == name))

    document = json.loads(stored)
    current = isinstance(document, dict) and set(document) == {"format", "declaration"}
    if current and document["format"] != FORMAT:
        raise JournalError(
            f"the journal was written by a later version of dphypo (format {document['format']!r:.20}): update dphypo"
        )
    record = Record(total=total, stored=stored, declaration=document["declaration"] if current else dict(document))
    record.sealed = current
    for row in rows(schema.trial):
        tie_key = bytes(row.tie_key)
        record.trials.append(Trial(_params.loads(row.params), int(row.seed), int(row.number), tie_key, row.attempts))
    record.trials.sort(key=lambda trial: trial.number)
    for row in rows(schema.outcome):
        record.results[row.number] = Outcome(None, None if row.score is None else float(row.score), row.failure)
    record.best = connection.scalar(select(schema.best.c.number).where(schema.best.c.study == name))
    for row in rows(schema.release):
        record.ending, record.certificate = str(row.ending), str(row.certificate)
    return record


def _check_structure(record: Record) -> None:
    """What no order of commits gives."""
    total = record.total
    wrong = None
    if total is None:
        if record.trials or record.results or record.ending is None:
            wrong = "its number of runs is missing"
    elif not isinstance(total, int) or total < 0:
        wrong = "its number of runs is not a whole number"
    elif [trial.number for trial in record.trials] != list(range(len(record.trials))) or len(record.trials) > total:
        wrong = "a run is missing, or there is one too many"
    elif not record.results.keys() <= set(range(len(record.trials))):
        wrong = "an outcome has no run"
    elif any((result.score is None) == (result.failure is None) for result in record.results.values()) or any(
        result.score is not None and not math.isfinite(result.score) for result in record.results.values()
    ):
        wrong = "an outcome is neither a finite score nor a failure"
    elif record.best is not None and (record.best not in record.results or record.results[record.best].score is None):
        wrong = "the model that it keeps is of no run with a score"
    elif record.released and not record.complete:
        wrong = "a release was made before the last outcome"
    if wrong is not None:
        raise JournalTamperedError(wrong)


def _seal_of(connection: Connection, name: str) -> Any:
    if not inspect(connection).has_table(schema.seal.name):  # read-only, and written by dphypo 0.1
        return None
    return connection.execute(select(schema.seal).where(schema.seal.c.study == name)).one_or_none()


def _check_seal(connection: Connection, name: str, record: Record, sealed: Any) -> None:
    if sealed is not None:
        record.model_digest = sealed.model
    elif record.sealed:
        raise JournalTamperedError("its seal is missing")
    else:  # dphypo 0.1 had no seal: the rows are taken as they are
        model = connection.scalar(select(schema.best.c.model).where(schema.best.c.study == name))
        record.model_digest = None if model is None else hashlib.sha256(model).hexdigest()
    record.sealed, record.seal = sealed is not None, Seal().plus(_rows(record))
    if sealed is not None and str(record.seal) != sealed.total:
        raise JournalTamperedError("rows were edited, added or removed")
