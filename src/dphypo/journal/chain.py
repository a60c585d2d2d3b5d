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

FORMAT = 4
OLD = "dphypo_study"
"""A table of dphypo 0.1 and 0.2."""
UNREADABLE = "which this version does not read"
_SALT = 16
_SHORT = 64  # bytes of a secret that is read with its book: a seed; models are longer and read when they are asked for

metadata = sql.MetaData()


def tampered(what: str) -> JournalError:
    """The error for rows that are not those that were committed."""
    return JournalError(
        f"the journal was changed by something other than this library: {what}. Nothing was released from it, and "
        "releases saved earlier are not affected. Do not continue with these runs: restore an unchanged copy of the "
        "latest state. If there is none, the study is lost, and its guarantee counts as spent",
    )


def _table(name: str, key: str, *columns: Column[Any]) -> Table:
    """A table whose primary key is the named columns of text, and those of ``columns`` that say so."""
    return Table(f"dphypo_{name}", metadata, *(Column(one, Text, primary_key=True) for one in key.split()), *columns)


book = _table(
    "book",
    "kind name",  # the kind is "journal" or "ledger"
    Column("format", Integer, nullable=False),
    Column("owner", Text, nullable=False),  # a random token of the process that runs the study; empty if nobody does
    Column("head", Text, nullable=False),
)
change = _table(
    "change",
    "kind name",
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("content", Text, nullable=False),
    Column("sealed", Text),  # SHA-256 of the secret and its salt
)
secret = _table(
    "secret",
    "kind name",
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("content", sql.LargeBinary, nullable=False),
)
# Of a ledger: where the journals of an entry are. A row is replaced at each of their commits.
place = _table(
    "place", "ledger entry part", Column("head", Text, nullable=False), Column("closed", sql.Boolean, nullable=False)
)
# Public numbers that took long to find, such as the noise that a budget asks for.
solved = _table("solved", "study question", Column("answer", sql.Double, nullable=False))
# A sign of life of the process that runs a study, where the database cannot see whether it lives: a random word that it
# replaces every few seconds. It is no time and no count.
lease = _table("lease", "study", Column("beat", Text, nullable=False))

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

    def rows(self, table: Table, number: int | None = None) -> list[sql.ColumnElement[bool]]:
        """Where a table has the rows of this book, or those of one change of it."""
        found = [table.c.kind == self.kind, table.c.name == self.name]
        return found if number is None else [*found, table.c.number == number]

    def next(self, content: str, sealed: str | None) -> Place:
        """The end of the book after one more change."""
        start = json.dumps([self.kind, self.name, FORMAT])
        head = hashlib.sha256(json.dumps([self.head or start, content, sealed]).encode()).hexdigest()
        return replace(self, length=self.length + 1, head=head, before=self.head)


@dataclass(frozen=True, repr=False)
class Change:
    """One change: its content, whether its secret is still there, and the secret itself if it is short."""

    content: Any
    kept: bool = False
    secret: bytes | None = None


def read(connection: Connection, kind: str, name: str) -> tuple[Place, list[Change]] | None:
    """A book that leads to its head: where it ends, and its changes; None if there is none of this name."""
    place, changes = Place(kind, name), []
    found = connection.execute(select(book).where(*place.rows(book))).one_or_none()
    if found is None:
        return None
    if found.format != FORMAT:
        raise JournalError(f"it was written by another version of dphypo (format {found.format!r:.20}): use that one")
    short = sql.case((sql.func.length(secret.c.content) <= _SHORT, secret.c.content))
    rows = connection.execute(select(secret.c.number, short).where(*place.rows(secret)))
    kept = {number: None if content is None else bytes(content) for number, content in rows}
    for row in connection.execute(select(change).where(*place.rows(change)).order_by(change.c.number)).all():
        if row.number != place.length or not isinstance(row.content, str):
            raise tampered("a change is missing")
        content = kept.pop(row.number, b"")
        if content and _digest(content) != row.sealed:
            raise tampered("a secret value was changed")
        changes.append(Change(_parsed(row.content), content != b"", content[_SALT:] if content else None))
        place = place.next(row.content, row.sealed)
    if place.head != found.head or kept:
        raise tampered("changes were edited, added or removed")
    return place, changes


def append(
    connection: Connection,
    place: Place,
    content: Any,
    *,
    owner: str = "",
    kept: bytes | None = None,
    erase: Iterable[int] = (),
    alone: bool = False,
) -> Place | None:
    """Add a change to a book that ends at ``place``, with its secret; erase those of earlier changes.

    The first change begins the book: the database refuses a second one of the same name. With ``alone`` the change
    replaces all before it, and the book has no owner any more. None, and nothing is changed, if the book ends elsewhere
    or belongs to another owner.
    """
    start = Place(place.kind, place.name) if alone else place
    text = json.dumps(content)
    salted = None if kept is None else secrets.token_bytes(_SALT) + kept
    sealed = None if salted is None else _digest(salted)
    after = start.next(text, sealed)
    its = {"kind": place.kind, "name": place.name}
    if not place.length:
        connection.execute(insert(book), {**its, "format": FORMAT, "owner": owner, "head": ""})
    moved = {"its_kind": place.kind, "its_name": place.name, "token": owner, "old": place.head, "new": after.head}
    if connection.execute(_MOVE, moved).rowcount != 1:
        return None
    if alone:
        for table in (secret, change):
            connection.execute(delete(table).where(*place.rows(table)))
        connection.execute(update(book).where(*place.rows(book)).values(owner=""))
    connection.execute(_ADD, {**its, "number": start.length, "content": text, "sealed": sealed})
    if salted is not None:
        connection.execute(_KEEP, {**its, "number": start.length, "content": salted})
    for number in erase:
        connection.execute(delete(secret).where(*place.rows(secret, number)))
    return after


def kept_secret(connection: Connection, place: Place, number: int) -> bytes | None:
    """The secret of a change, however long; None if it is not the one that was committed."""
    content = connection.scalar(select(secret.c.content).where(*place.rows(secret, number)))
    sealed = connection.scalar(select(change.c.sealed).where(*place.rows(change, number)))
    return None if content is None or _digest(content) != sealed else bytes(content)[_SALT:]


def owner_of(connection: Connection, kind: str, name: str) -> str | None:
    """Who has a book."""
    return connection.scalar(select(book.c.owner).where(*Place(kind, name).rows(book)))


def take(connection: Connection, kind: str, name: str, owner: str) -> None:
    """Put this token on a book, so that whoever had it commits nothing more. One without an owner was shredded."""
    taken = update(book).where(*Place(kind, name).rows(book), book.c.owner != "").values(owner=owner)
    connection.execute(taken)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _parsed(content: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        pass
    raise tampered("a change cannot be read")  # outside the handler: what it quotes may be secret
