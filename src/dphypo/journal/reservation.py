"""What ties a search to its entry in a ledger.

The order is fixed: the journal commits a random key with T; the ledger reserves under that key; runs begin. A process
that is killed after the first step has reserved nothing, and reserves when it goes on. The ledger knows the key of one
that is killed after the second: nothing is paid twice.

From then on every commit is made in the journal, then compared and swapped in the ledger, then acted on. So an entry
holds the head of the one journal that may go on. Of two copies the first that commits is that one, and the other is
refused. A journal may be one commit ahead of its entry, if its process was killed in between: it catches up when it
goes on. A release closes the part of the entry before the journal commits it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dphypo import _validate
from dphypo.errors import LedgerError
from dphypo.journal.ledger import Ledger
from dphypo.journal.ledger_book import Declared
from dphypo.journal.records import Record

LEDGER = "ledger"
"""In the declaration that a journal holds: which ledger the study is in, and its key there."""


class Reservation:
    """The entry of a search in a ledger, which states its ε at δ. All parts of a search share it."""

    def __init__(self, ledger: Ledger, guarantee: Declared, name: str, delta: float | None = None) -> None:
        self._ledger, self._guarantee, self._name, self._delta = ledger, guarantee, name, delta
        self._key: str | None = None

    def begun(self, declaration: dict[str, Any]) -> dict[str, Any]:
        """The declaration of a new part, with the key of the search; refused if the ledger has no room for it."""
        if self._key is None:
            self._ledger.check(self._guarantee, name=self._name)
        return {**declaration, LEDGER: {"id": self._ledger.id, "key": self._key or secrets.token_hex(16)}}

    def enter(self, declaration: Mapping[str, Any]) -> str:
        """Reserve for a search that is committed, before it goes on; its key. ``declaration`` is as committed."""
        entry = declaration.get(LEDGER)
        if entry is None:
            raise LedgerError(
                "this search was begun without a ledger, so it may have spent what no ledger knows of: reserve what it "
                "cost with `dphypo ledger reserve` and its certificate, and leave ledger= out to go on"
            )
        if entry["id"] != self._ledger.id:
            raise LedgerError("this search was begun with another ledger: give that one to go on")
        key = str(entry["key"])
        if self._key != key:
            self._ledger.reserve(self._guarantee, name=self._name, key=key, delta=self._delta)
            self._key = key
        return key

    def agree(self, record: Record) -> None:
        """Tell the ledger what the journal has committed, before it is used."""
        key = self.enter(record.declaration or {})
        if not record.released:
            self._ledger.advance(key, record.place.name, record.place.before, record.place.head)

    def claim(self, part: str) -> None:
        """Take a part of the entry that is made at most once, by whoever claims it first: a trial of Optuna."""
        assert self._key is not None
        self._ledger.advance(self._key, part, "", secrets.token_hex(32))

    def close(self, part: str, head: str) -> None:
        """Close a part whose release is about to be committed; its journal ends at ``head``."""
        assert self._key is not None
        self._ledger.close(self._key, part, head)


def make_reservation(
    ledger: Ledger | str | Path, guarantee: Declared, name: str, *, private: bool, delta: float | None = None
) -> Reservation:
    """What ``ledger=`` asks for: a :class:`Ledger`, or the file or URL of one."""
    if not private:
        raise _validate.fail(
            "ledger", ledger, "a search with seeded randomness has no guarantee: leave out the ledger, or the seed"
        )
    book: object = Ledger(ledger) if isinstance(ledger, (str, Path)) else ledger
    if not isinstance(book, Ledger):
        raise _validate.fail("ledger", ledger, "give a dphypo.Ledger, or the file that Ledger.open made")
    book.costs(guarantee)  # refuses a guarantee that no filter can hold
    return Reservation(book, guarantee, name, delta)
