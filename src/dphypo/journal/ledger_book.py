"""What a ledger holds, in its store: its terms, which are a Rényi filter, its entries, and which have released.

Orders α and budgets B(α) are fixed when a ledger is made. A search is admitted while, at some order, the sum of all
ε_i(α) stays within B(α) (Feldman and Zrnic 2021, for one order; docs/theory/surveys.md, "A ledger", for several). Each
order has its share of δ, so that it does not matter which of them is left in the end.

Slack of rounded noise has no Rényi divergence. A thousandth of δ is kept for it: all searches may have the slack s with
(1 + e^ε)·s = δ/1000 together, and each is charged the part of every budget that it takes of this.

A ledger is read as a whole, whenever it is used: the chain leads to its head, the terms are those of a filter, every
cost is a number that is not negative, keys differ, and what was closed was reserved before. Anything else is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias

import dp_accounting
import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, select

from dphypo import _validate
from dphypo._validate import printable
from dphypo.accounting import Composition, Guarantee
from dphypo.accounting.documents import to_json
from dphypo.errors import JournalError, LedgerError
from dphypo.journal import chain
from dphypo.journal.database import Database
from dphypo.journal.sqlite import SQLite, keep_name
from dphypo.journal.store import Store, find_database

KIND = "ledger"
Declared: TypeAlias = Guarantee | Composition
"""What a search declares: its guarantee."""

Floats = npt.NDArray[np.float64]
ORDERS = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0)
FOR_SLACK = 1e-3  # of δ
_ROUNDING = 1e-12  # sums of costs are rounded up by this part of them


def budget(order: float, epsilon: float, delta: float) -> float:
    """B such that (α, B)-RDP implies (ε, δ)-DP: B = ε − log((α−1)/α) + log(αδ)/(α−1), rounded down.

    Canonne, Kamath and Steinke, The discrete Gaussian for differential privacy, 2020, Proposition 12.
    """
    exact = epsilon - math.log((order - 1) / order) + math.log(order * delta) / (order - 1)
    return exact - 1e-9 * (1 + abs(exact))


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
class LedgerState:
    """All that a ledger holds: its terms, which are a Rényi filter, and its entries."""

    place: chain.Place
    id: str
    relation: dp_accounting.NeighboringRelation
    epsilon: float
    delta: float
    orders: tuple[float, ...]
    share: float  # of δ, which each order has
    searches: Mapping[str, str] | None  # the statements of the searches that it was made for, if it was
    entries: dict[str, Entry] = field(default_factory=dict)

    @property
    def budgets(self) -> tuple[float, ...]:
        """B(α) at each order."""
        return tuple(budget(order, self.epsilon, self.share) for order in self.orders)

    def admits(self, asked: Sequence[float]) -> bool:
        """Whether a search still fits."""
        return bool((self._spent(asked) * (1 + _ROUNDING) <= np.array(self.budgets)).any())

    def cost_of_slack(self, slack: float) -> Floats:
        """What a slack takes of the budget of each order."""
        if slack == 0:
            return np.zeros(len(self.orders))
        most = FOR_SLACK * self.delta / (1 + math.exp(min(self.epsilon, 700.0)))
        return np.array(self.budgets) * min(slack / most, 1e9) * (1 + 1e-9)

    def left(self) -> float:
        """The largest part of its budget that some order has left."""
        return max(0.0, float(np.max(1 - self._spent() / np.array(self.budgets))))

    def epsilon_of(self, costs: Sequence[float]) -> float:
        """ε of Rényi costs at the δ of the ledger: the inverse of :func:`budget`, for people to read."""
        converted = [cost - budget(order, 0.0, self.share) for cost, order in zip(costs, self.orders, strict=True)]
        return max(0.0, min(converted)) if any(costs) else 0.0

    def refusal(self, asked: Sequence[float]) -> str:
        """What is spent, asked for and left, and what would fit."""
        together, wanted = self._spent(), np.asarray(asked, dtype=np.float64)
        used = self.epsilon_of([float(cost) for cost in together])
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.nan_to_num((np.array(self.budgets) - together) / wanted, posinf=0.0)
        part = float(np.clip(np.max(room), 0.0, 1.0)) * (1 - 1e-9)
        numbers = (
            f"spent ε = {used:.3g}, asked for {self.epsilon_of(asked):.3g}, left {max(0.0, self.epsilon - used):.3g} "
            "by the ledger's filter"
        )
        if part <= 0:
            return f"{numbers}. Nothing of this kind fits any more"
        fits = self.epsilon_of([float(part * cost) for cost in wanted])
        return (
            f"{numbers}. A search of this kind fits with ε = {fits:.3g} at most: {part:.0%} of its runs, or about "
            f"{1 / math.sqrt(part):.3g} times its noise"
        )

    def _spent(self, *more: Sequence[float]) -> Floats:
        costs = [entry.costs for entry in self.entries.values()]
        return np.asarray(np.sum([[0.0] * len(self.orders), *costs, *more], axis=0, dtype=np.float64))


def read(connection: Connection, name: str, address: str) -> LedgerState:
    """A ledger, checked as a whole."""
    found = chain.read(connection, KIND, name)
    if found is None:
        raise LedgerError(f"{address} holds no ledger {printable(name)!r}: make one (dphypo ledger open)")
    place, changes = found
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


def _terms(place: chain.Place, content: Any) -> LedgerState:
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
    id, epsilon = _validate.line(text=terms["id"]), _validate.positive(epsilon=terms["epsilon"])
    return LedgerState(place, id, relation, epsilon, delta, orders, share, searches)


def _apply(whole: LedgerState, content: Any) -> None:
    match content:
        case ["reserve", key, name, costs, epsilon, delta, day]:
            _require(key not in whole.entries and len(costs) == len(whole.orders))
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
    shown = printable(database.address)
    try:
        if not isinstance(database, SQLite) or database.path is None:
            shown = f"{name} in {shown}"
            _write(database, name, content)
            return
        if os.path.lexists(database.path):
            raise FileExistsError
        with tempfile.TemporaryDirectory(dir=database.path.parent, prefix=".ledger-") as folder:
            made = Path(folder, "ledger")
            _write(SQLite(made), name, content)
            _publish(made, database.path)
    except FileExistsError:
        raise LedgerError(
            f"there is something at {shown} already. If it is the ledger of this data set, go on with it: its total is "
            "fixed, and a second ledger would not know what the first has spent"
        ) from None
    except (JournalError, OSError) as error:
        why = error.reason if isinstance(error, JournalError) else error.strerror
        raise LedgerError(f"the ledger {shown} cannot be made: {why}") from None


def _write(database: Database, name: str, content: Any) -> None:
    def work(connection: Connection) -> None:
        if chain.read(connection, KIND, name) is not None:
            raise FileExistsError
        chain.append(connection, chain.Place(KIND, name), content)

    store = Store(database, kind=KIND)
    try:
        store.commit(work)
    finally:
        store.close()


def _publish(made: Path, path: Path) -> None:
    """Give a finished file its name, in the same file system; ``FileExistsError`` if there is one of that name."""
    try:
        os.link(made, path)
    except OSError:  # there is one, or the file system has no hard links
        if os.path.lexists(path):
            raise FileExistsError from None
        os.rename(made, path)
    keep_name(path)
