"""The seal of a study: one number that changes with every row, so that rows that were tampered with are noticed.

It is the sum of the SHA-256 digests of all rows, modulo 2²⁵⁶. A commit adds the rows that it writes and subtracts those
that it replaces, so its cost does not grow, and the order in which runs come back does not matter. It shows accidents
and edits by hand; it is not a signature: anyone who has read this file can seal other rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_MODULUS = 2**256


@dataclass(frozen=True)
class Seal:
    """The sum of the digests of some rows.

    >>> rows = [("trial", 0, 0.5), ("trial", 1, None)]
    >>> Seal().plus(rows) == Seal().plus(reversed(rows))
    True
    >>> Seal().plus(rows).minus(rows[:1]) == Seal().plus(rows[1:])
    True
    """

    total: int = 0

    def plus(self, rows: Iterable[tuple[Any, ...]]) -> Seal:
        return Seal((self.total + sum(map(_digest, rows))) % _MODULUS)

    def minus(self, rows: Iterable[tuple[Any, ...]]) -> Seal:
        return Seal((self.total - sum(map(_digest, rows))) % _MODULUS)

    def __str__(self) -> str:
        return f"{self.total:064x}"


def _digest(row: tuple[Any, ...]) -> int:
    """Of the table's name and the row's values, floats bit for bit."""
    plain = [value.hex() if isinstance(value, (float, bytes)) else value for value in row]
    return int.from_bytes(hashlib.sha256(json.dumps(plain).encode()).digest(), "big")
