"""Books: what is committed, in order, each change chained to those before it by a hash. Journals and ledgers are books.

The head of a book is SHA-256(head before, change, SHA-256 of the change's secret). A change is JSON and is never
rewritten. A secret (a seed, a model) stands beside its change, with a random salt, and can be erased: the chain keeps
its hash, from which nothing can be guessed. Every commit compares the head, and the owner where the book has one, and
moves the head on. Rows that were edited, added, removed or reordered do not lead to the head. The chain shows accidents
and edits by hand; it is not a signature, since whoever has read this file can chain other changes.

There are no times anywhere: they would show T to whoever sees a copy.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sql
from sqlalchemy import Column, Connection, Integer, Table, Text, bindparam, delete, insert, select, update

from dphypo.errors import JournalError
from dphypo.errors.faults import JournalTamperedError

FORMAT = 3
OLD = "dphypo_study"
"""A table of dphypo 0.1 and 0.2."""
UNREADABLE = "which this version does not read"
_SALT = 16
_SHORT = 64  # bytes of a secret that is read with its book: a seed; models are longer and read when they are asked for

metadata = sql.MetaData()

book = Table(
    "dphypo_book",
    metadata,
    Column("kind", Text, primary_key=True),  # "journal" or "ledger"
    Column("name", Text, primary_key=True),
    Column("format", Integer, nullable=False),
    Column("owner", Text, nullable=False),  # a random token of the process that runs the study; empty if nobody does
    Column("head", Text, nullable=False),
)

change = Table(
    "dphypo_change",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("content", Text, nullable=False),
    Column("sealed", Text),  # SHA-256 of the secret and its salt
)

secret = Table(
    "dphypo_secret",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("content", sql.LargeBinary, nullable=False),
)

# Of a ledger: where the journals of an entry are. A row is replaced at each of their commits.
place = Table(
    "dphypo_place",
    metadata,
    Column("ledger", Text, primary_key=True),
    Column("entry", Text, primary_key=True),
    Column("part", Text, primary_key=True),
    Column("head", Text, nullable=False),
    Column("closed", sql.Boolean, nullable=False),
)

# Public numbers that took long to find, such as the noise that a budget asks for.
solved = Table(
    "dphypo_solved",
    metadata,
    Column("study", Text, primary_key=True),
    Column("question", Text, primary_key=True),
    Column("answer", sql.Double, nullable=False),
)

# A sign of life of the process that runs a study, where the database cannot see whether it lives: a random word that it
# replaces every few seconds. It is no time and no count.
lease = Table(
    "dphypo_lease",
    metadata,
    Column("study", Text, primary_key=True),
    Column("beat", Text, nullable=False),
)

# Made once: to build a statement takes longer than to execute it.
_ADD, _KEEP = insert(change), insert(secret)
_MOVE = (
    update(book)
    .where(
        book.c.kind == bindparam("its_kind"),
        book.c.name == bindparam("its_name"),
        sql.or_(book.c.owner == bindparam("token"), book.c.owner == ""),
        book.c.head == bindparam("old"),
    )
    .values(head=bindparam("new"))
)


@dataclass(frozen=True)
class Place:
    """The end of a book: how many changes it has, its head, and the head before the last change."""

    kind: str
    name: str
    length: int = 0
    head: str = ""
    before: str = ""

    @property
    def _row(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name, "number": self.length}

    def _next(self, content: str, sealed: str | None) -> Place:
        start = json.dumps([self.kind, self.name, FORMAT])
        head = hashlib.sha256(json.dumps([self.head or start, content, sealed]).encode()).hexdigest()
        return replace(self, length=self.length + 1, head=head, before=self.head)


@dataclass(frozen=True, repr=False)
class Change:
    """One change: its content, whether its secret is still there, and the secret itself if it is short."""

    content: Any
    kept: bool = False
    secret: bytes | None = None


def read(connection: Connection, kind: str, name: str) -> tuple[Place, str, list[Change]] | None:
    """A book that leads to its head: where it ends, its owner and its changes; None if there is none of this name."""
    its = Place(kind, name)
    found = connection.execute(select(book).where(*_where(book, its))).one_or_none()
    if found is None:
        return None
    if found.format != FORMAT:
        raise JournalError(f"it was written by another version of dphypo (format {found.format!r:.20}): use that one")
    short = sql.case((sql.func.length(secret.c.content) <= _SHORT, secret.c.content))
    rows = connection.execute(select(secret.c.number, short).where(*_where(secret, its)))
    kept = {number: None if content is None else bytes(content) for number, content in rows}
    place, changes, wrong = its, [], None
    for row in connection.execute(select(change).where(*_where(change, its)).order_by(change.c.number)):
        if row.number != place.length or not isinstance(row.content, str):
            wrong = "a change is missing"
            break
        content = kept.pop(row.number, b"")
        if content and _digest(content) != row.sealed:
            wrong = "a secret value was changed"
            break
        changes.append(Change(_parsed(row.content), content != b"", content[_SALT:] if content else None))
        place = place._next(row.content, row.sealed)
    if wrong is None and (place.head != found.head or kept):
        wrong = "changes were edited, added or removed"
    if wrong is not None:
        raise JournalTamperedError(wrong)
    return place, str(found.owner), changes


def create(connection: Connection, kind: str, name: str, owner: str, content: Any) -> Place:
    """Begin a book with its first change; the database refuses a second one of the same name."""
    text, first = json.dumps(content), Place(kind, name)
    place = first._next(text, None)
    connection.execute(insert(book), {"kind": kind, "name": name, "format": FORMAT, "owner": owner, "head": place.head})
    connection.execute(_ADD, {**first._row, "content": text, "sealed": None})
    return place


def _move(connection: Connection, place: Place, after: Place, owner: str) -> bool:
    """Whether the head could be moved from one place to another: only by the owner of a book that ends there."""
    moved = {"its_kind": place.kind, "its_name": place.name, "token": owner, "old": place.head, "new": after.head}
    return connection.execute(_MOVE, moved).rowcount == 1


def append(
    connection: Connection,
    place: Place,
    content: Any,
    *,
    owner: str = "",
    kept: bytes | None = None,
    erase: Iterable[int] = (),
) -> Place | None:
    """Add a change to a book that ends at ``place``, with its secret; erase those of earlier changes.

    None, and nothing is changed, if the book ends elsewhere or belongs to another owner.
    """
    text = json.dumps(content)
    salted = None if kept is None else secrets.token_bytes(_SALT) + kept
    sealed = None if salted is None else _digest(salted)
    after = place._next(text, sealed)
    if not _move(connection, place, after, owner):
        return None
    connection.execute(_ADD, {**place._row, "content": text, "sealed": sealed})
    if salted is not None:
        connection.execute(_KEEP, {**place._row, "content": salted})
    for number in erase:
        connection.execute(delete(secret).where(*_where(secret, place), secret.c.number == number))
    return after


def rewrite(connection: Connection, place: Place, content: Any, *, owner: str) -> bool:
    """Replace a whole book by one change, with nothing random in it; False if it ends elsewhere."""
    text, first = json.dumps(content), Place(place.kind, place.name)
    if not _move(connection, place, first._next(text, None), owner):
        return False
    for table in (secret, change):
        connection.execute(delete(table).where(*_where(table, place)))
    connection.execute(_ADD, {**first._row, "content": text, "sealed": None})
    connection.execute(update(book).where(*_where(book, place)).values(owner=""))
    return True


def kept_secret(connection: Connection, place: Place, number: int) -> bytes | None:
    """The secret of a change, however long; None if it is not the one that was committed."""
    one = (*_where(secret, place), secret.c.number == number)
    content = connection.scalar(select(secret.c.content).where(*one))
    sealed = connection.scalar(select(change.c.sealed).where(*_where(change, place), change.c.number == number))
    return None if content is None or _digest(content) != sealed else bytes(content)[_SALT:]


def owner_of(connection: Connection, kind: str, name: str) -> str | None:
    """Who has a book."""
    return connection.scalar(select(book.c.owner).where(*_where(book, Place(kind, name))))


def take(connection: Connection, kind: str, name: str, owner: str) -> None:
    """Put this token on a book, so that whoever had it commits nothing more. One without an owner was shredded."""
    where = _where(book, Place(kind, name))
    connection.execute(update(book).where(*where, book.c.owner != "").values(owner=owner))


def _where(table: Table, place: Place) -> tuple[Any, Any]:
    return table.c.kind == place.kind, table.c.name == place.name


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _parsed(content: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        pass
    raise JournalTamperedError("a change cannot be read")  # outside the handler: what it quotes may be secret
