"""A survey as it goes on: how many runs and which scores are public, how long they take is not.

Lines are printed as runs end on a terminal only: in a log with times they would show how long each run took. Elsewhere
the table is printed when the survey is over.
"""

from __future__ import annotations

import sys

from dphypo.search.table import Row, Surveyed


class Show:
    """Prints to standard error, if it prints at all."""

    def __init__(self, total: int, done: int, *, progress: bool) -> None:
        self._total, self._done, self._progress = total, done, progress
        self._at_once = progress and sys.stderr.isatty()

    def one(self, row: Row) -> None:
        """A run has ended."""
        self._done += 1
        if self._at_once:
            print(line(self._done, self._total, row), file=sys.stderr)

    def end(self, table: Surveyed) -> None:
        """The survey is over."""
        if self._progress and not self._at_once:
            for number, row in enumerate(table.rows, 1):
                print(line(number, self._total, row), file=sys.stderr)


def line(number: int, total: int, row: Row) -> str:
    """One published run.

    >>> line(3, 20, Row({"lr": 0.123456, "optimizer": "sgd"}, 0.91234))
    'run  3 of 20: 0.9123  lr = 0.1235, optimizer = sgd'
    """
    score = "failed" if row.score is None else f"{row.score:.4g}"
    params = ", ".join(f"{name} = {_short(value)}" for name, value in row.params.items())
    return f"run {number:{len(str(total))}} of {total}: {score}  {params}"


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
