"""Journals for tests: fresh names, runs, and runs with outcomes."""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from dphypo.accounting import Certificate
from dphypo.journal.journal import Journal, Trial
from dphypo.journal.store import open_store
from dphypo.mechanisms import Outcome

NAMES = (f"study {number}" for number in itertools.count())


def trial(number: int, **changes: object) -> Trial:
    return Trial(**{"params": {"lr": 0.1}, "seed": 7 + number, "number": number, "tie_key": b"k%d" % number} | changes)


def finished(journal: Journal, *scores: float | None) -> None:
    for number, score in enumerate(scores):
        journal.claim(trial(number))
        result = Outcome(None, score, None if score is not None else "failed")
        journal.finish(trial(number), result, None if score is None else b"model %d" % number)


def contents(journal: str | os.PathLike[str], name: str | None = None) -> list[list[Any]]:
    """All changes that the file of a journal holds, read past its lock; of one study, if it is named."""
    if not os.path.exists(journal):
        return []
    with closing(sqlite3.connect(journal)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'dphypo_change'").fetchone():
            return []
        rows = connection.execute("SELECT name, content FROM dphypo_change ORDER BY name, number").fetchall()
    return [json.loads(content) for study, content in rows if name in (None, study)]


def read_certificate(journal: str | Path, name: str = "study") -> Certificate:
    """The certificate of a released study."""
    store = open_store(journal, create=False)
    try:
        found = Journal(store, name).record.certificate
    finally:
        store.close()
    if found is None:
        raise ValueError("the journal holds no released study of that name")
    return Certificate.from_dict(json.loads(found))
