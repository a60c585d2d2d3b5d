"""What a ledger holds, in its store: its terms, its entries, and which of them have released.

A ledger is read as a whole, whenever it is used: the chain leads to its head, the terms are those of a filter, every
cost is a number that is not negative, keys differ, and what was closed was reserved before. Anything else is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias

import dp_accounting
from sqlalchemy import Connection, inspect, select

from dphypo import _validate
from dphypo._files import printable
from dphypo.accounting import Composition, Guarantee
from dphypo.accounting.documents import to_json
from dphypo.errors import JournalError, LedgerError
from dphypo.journal import chain, files
from dphypo.journal.database import Database
from dphypo.journal.renyi_filter import FOR_SLACK, Filter
from dphypo.journal.sqlite import SQLite
from dphypo.journal.store import Store, find_database

KIND = "ledger"
Declared: TypeAlias = Guarantee | Composition
"""What a search declares: its guarantee."""


@dataclass(frozen=True)
class Entry:
    """One reservation: its name, its key, what it costs at each order of the ledger, what it states, and the day."""

    name: str
    key: str
    costs: tuple[float, ...]
    epsilon: float
    delta: float
    day: str
    released: tuple[str, ...] = ()  # the parts that have released

    def __str__(self) -> str:
        end = ", released" if self.released else ""
        return f"{printable(self.name)}: ε = {self.epsilon:.4g} at δ = {self.delta:g}, declared on {self.day}{end}"


@dataclass(frozen=True)
class Whole:
    """All that a ledger holds."""

    place: chain.Place
    id: str
    relation: dp_accounting.NeighboringRelation
    filter: Filter
    searches: Mapping[str, str] | None  # the statements of the searches that it was made for, if it was
    entries: dict[str, Entry] = field(default_factory=dict)


def read(connection: Connection, name: str, address: str) -> Whole:
    """A ledger, checked as a whole."""
    if not inspect(connection).has_table(chain.book.name):
        raise LedgerError(f"{address} holds no ledger: make one (dphypo ledger open)")
    found = chain.read(connection, KIND, name)
    if found is None:
        raise LedgerError(f"{address} holds no ledger {printable(name)!r}: make one (dphypo ledger open)")
    place, _, changes = found
    try:
        whole = _terms(place, changes[0].content)
        for change in changes[1:]:
            _apply(whole, change.content)
        rows = connection.execute(select(chain.place).where(chain.place.c.ledger == name)).all()
        closed = {(row.entry, row.part) for row in rows if row.closed}
        _require(closed == {(key, part) for key, one in whole.entries.items() for part in one.released})
        _require(all(row.entry in whole.entries and len(str(row.head)) == 64 for row in rows))
        return whole
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError):
        pass
    raise LedgerError(f"{address} was changed by something other than this library: put back an unchanged copy")


def _terms(place: chain.Place, content: Any) -> Whole:
    kind, terms = content
    _require(kind == "terms")
    orders = tuple(_validate.within(1.0, math.inf, order=order) for order in terms["orders"])
    share, delta = _validate.positive(share=terms["share"]), _validate.within(0.0, 1.0, delta=terms["delta"])
    _require(
        bool(orders) and orders == tuple(sorted(set(orders))) and share * len(orders) <= delta * (1 - FOR_SLACK + 1e-12)
    )
    searches = terms["searches"]
    _require(searches is None or all(isinstance(one, str) for pair in searches.items() for one in pair))
    relation = dp_accounting.NeighboringRelation[terms["relation"]]
    found = Filter(_validate.positive(epsilon=terms["epsilon"]), delta, orders, share)
    return Whole(place, _validate.line(text=terms["id"]), relation, found, searches)


def _apply(whole: Whole, content: Any) -> None:
    match content:
        case ["reserve", key, name, costs, epsilon, delta, day]:
            _require(key not in whole.entries and len(costs) == len(whole.filter.orders))
            paid = tuple(_validate.non_negative(cost=cost) for cost in costs)
            stated = float(epsilon), _validate.delta(delta=delta)
            _require(stated[0] >= 0)
            named = _validate.line(name=name), _validate.line(key=key)
            whole.entries[key] = Entry(*named, paid, *stated, date.fromisoformat(day).isoformat())
        case ["release", key, part, _]:
            entry = whole.entries[key]
            _require(part not in entry.released)
            whole.entries[key] = replace(entry, released=(*entry.released, _validate.line(text=part)))
        case _:
            raise ValueError


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError


def fixed_list(searches: Mapping[str, Declared], epsilon: float, delta: float) -> dict[str, str]:
    """The statements of all searches there will ever be; refused if they cost more than (ε, δ) together."""
    given = _validate.mapping(searches=searches)
    if not given or not all(isinstance(one, (Guarantee, Composition)) for one in given.values()):
        raise _validate.fail("searches", searches, "give the guarantee of each search under its name")
    for name in given:
        _validate.line(searches=name)
    cost = Composition.of(*searches.values()).epsilon(delta)
    if not cost <= epsilon:
        raise LedgerError(
            f"the searches cost ε = {cost:.4g} at δ = {delta:g} together, and the total is {epsilon:g}: there is no "
            "ledger for that"
        )
    return {name: statement(guarantee) for name, guarantee in searches.items()}


def statement(guarantee: Declared) -> str:
    """A hash of all that a guarantee is computed from."""
    return hashlib.sha256(json.dumps(to_json(guarantee), sort_keys=True).encode()).hexdigest()


def create(where: str | Path, name: str, terms: Mapping[str, Any]) -> None:
    """Make a ledger whole, or leave nothing behind. One that is there is never replaced."""
    content = json.loads(json.dumps(["terms", terms]))
    database = find_database(where, KIND)
    if not isinstance(database, SQLite) or database.path is None:
        _write(database, name, content, str(database.address))
        return
    path, problem = database.path, ""
    if os.path.lexists(path):
        raise LedgerError(_EXISTS.format(printable(path)))
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".ledger-") as folder:
            made = Path(folder, "ledger")
            _write(SQLite(made), name, content, str(path))
            files.publish(made, path)
    except FileExistsError:
        problem = _EXISTS.format(printable(path))
    except OSError as error:
        problem = f"the ledger {printable(path)} cannot be made: {error.strerror}"
    if problem:
        raise LedgerError(problem)


def _write(database: Database, name: str, content: Any, address: str) -> None:
    def work(connection: Connection) -> None:
        if chain.read(connection, KIND, name) is not None:
            raise LedgerError(_EXISTS.format(f"{name} in {address}"))
        chain.create(connection, KIND, name, "", content)

    store, problem = Store(database, kind=KIND), ""
    try:
        store.commit(work)
    except JournalError as error:
        problem = error.reason
    finally:
        store.close()
    if problem:
        raise LedgerError(f"the ledger {printable(address)} cannot be made: {problem}")


_EXISTS = (
    "there is something at {} already. If it is the ledger of this data set, go on with it: its total is fixed, and a "
    "second ledger would not know what the first has spent"
)
