"""Journals for tests: fresh names, runs, and runs with outcomes."""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
from contextlib import closing
from typing import Any

from dphypo.journal.journal import Journal
from dphypo.journal.records import Trial
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
