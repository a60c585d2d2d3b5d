"""Journals for tests: fresh names, runs, and runs with outcomes."""

from __future__ import annotations

import itertools

from dphypo.journal import Journal, Trial
from dphypo.mechanisms import Outcome

NAMES = (f"study {number}" for number in itertools.count())


def trial(number: int, **changes: object) -> Trial:
    return Trial(**{"params": {"lr": 0.1}, "seed": 7 + number, "number": number, "tie_key": b"k%d" % number} | changes)


def finished(journal: Journal, *scores: float | None) -> None:
    for number, score in enumerate(scores):
        journal.claim(trial(number))
        result = Outcome(None, score, None if score is not None else "failed")
        journal.finish(trial(number), result, None if score is None else b"model %d" % number)
