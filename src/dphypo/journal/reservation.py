"""What is set aside in a ledger between the commit that begins a study and its first run.

The order is fixed: the journal commits a random key with T; the ledger reserves under that key; runs begin. A process
that is killed after the first step has spent nothing, and reserves when it goes on. One that is killed after the second
has spent, and when it goes on the ledger knows its key: nothing is paid twice.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Protocol

from dphypo.errors import LedgerError

LEDGER = "ledger"
"""In the declaration that a journal holds: which ledger the study is in, and its key there."""


class Reservation(Protocol):
    """What a study reserves: :func:`dphypo.ledger.reserving` makes one."""

    @property
    def ledger(self) -> str:
        """Which ledger it is: a random name that stays with the file."""
        ...

    def check(self) -> None:
        """Refuse now what the ledger has no room for. Nothing is reserved."""
        ...

    def make(self, key: str) -> None:
        """Reserve under this key; a key that the ledger has costs nothing more."""
        ...


def begun(declaration: dict[str, Any], reservation: Reservation | None) -> dict[str, Any]:
    """The declaration of a new study, with its key; refused if the ledger has no room for it."""
    if reservation is None:
        return declaration
    reservation.check()
    return {**declaration, LEDGER: {"id": reservation.ledger, "key": secrets.token_hex(16)}}


def reserve(found: Mapping[str, Any], reservation: Reservation | None, *, released: bool) -> None:
    """Reserve for a study that is committed, before it goes on. ``found`` is the declaration in its journal."""
    entry = found.get(LEDGER)
    if entry is None and reservation is not None:
        raise LedgerError(
            "this search was begun without a ledger, so it may have spent what no ledger knows of: reserve what it "
            "cost with `dphypo ledger reserve` and its certificate, and leave ledger= out to go on"
        )
    if entry is not None and reservation is None and not released:
        raise LedgerError("this search was begun with a ledger: give the same ledger= to go on")
    if entry is not None and reservation is not None:
        if entry["id"] != reservation.ledger:
            raise LedgerError("this search was begun with another ledger: give that one to go on")
        reservation.make(entry["key"])
