"""A ledger: one total (ε, δ) for a data set, and everything that was ever spent on it.

The total is fixed when the ledger is opened. A search reserves what it declares, atomically, *before* its first run:
one that is killed has spent it. What would exceed the total is refused.

Later searches may have been chosen after a look at earlier results: how many there are, their noise, their lengths.
Composition of privacy loss distributions does not cover that, so the ledger is a Rényi filter (Feldman and Zrnic
2021, for one order; docs/theory/surveys.md, "A ledger", for several). Orders α and budgets B(α) are fixed at opening. A
search is admitted while, at some order, the sum of all ε_i(α) stays within B(α). Each order has its share of δ, so that
it does not matter which of them is left in the end.

The filter certifies the **total**, whatever was admitted. The running sums are sums of declared costs and nothing more:
"spent so far" is not a guarantee of its own.

``Study``, ``Stages``, ``tune`` and ``PrivateSearch`` take ``ledger=``: they reserve before their first run.
"""

from __future__ import annotations

import json
import math
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import dp_accounting
import numpy as np

from dphypo import _validate
from dphypo.accounting import Composition, Guarantee, PlanGuarantee
from dphypo.errors import LedgerError

ORDERS = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0)
_FORMAT = "dphypo ledger 1"

Accounted: TypeAlias = Guarantee | Composition | PlanGuarantee


@dataclass(frozen=True)
class Entry:
    """One reservation: its name, its key, and what it declared at each order of the ledger."""

    name: str
    key: str
    costs: tuple[float, ...]


class Ledger:
    """The account of one data set, in a file.

    Args:
        path: the file that :meth:`open` made.

    >>> import tempfile
    >>> from dp_accounting import GaussianDpEvent
    >>> from dphypo import Geometric, account
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger.open(Path(folder.name) / "ledger.db", epsilon=4.0, delta=1e-6)
    >>> search = account(GaussianDpEvent(8.0), Geometric(mean=4))
    >>> key = ledger.reserve(search, name="first search")
    >>> ledger.reserve(account(GaussianDpEvent(0.5), Geometric(mean=4)), name="second search")
    Traceback (most recent call last):
    dphypo.errors...LedgerError: 'second search' would exceed the total of ε = 4 at δ = 1e-06...
    >>> print(ledger)
    total ε = 4 at δ = 1e-06, fixed when the ledger was opened
      first search: reserved
    the largest share that some order has left is 91%
    the total is certified, whatever was reserved; what is left is a sum of declared costs, no guarantee
    >>> folder.cleanup()
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise LedgerError(f"there is no ledger at {str(self.path)!r}: make one with dphypo.Ledger.open(...)")
        with self._connected() as connection:
            row = connection.execute("SELECT value FROM about WHERE name = 'terms'").fetchone()
        terms: dict[str, Any] = json.loads(row[0])
        self.epsilon: float = terms["epsilon"]
        self.delta: float = terms["delta"]
        self.relation = dp_accounting.NeighboringRelation[terms["relation"]]
        self.orders: tuple[float, ...] = tuple(terms["orders"])
        self._share: float = terms["share"]  # of δ, for each order
        self.id: str = terms.get("id", "")
        """A random name that stays with the file: a journal knows by it which ledger its search is in."""

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        epsilon: float,
        delta: float,
        relation: dp_accounting.NeighboringRelation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
        orders: tuple[float, ...] = ORDERS,
    ) -> Ledger:
        """Make a ledger with a total that can never be changed.

        Args:
            path: a file that does not exist yet.
            epsilon, delta: the total for everything that will ever be released of the data set.
            relation: which data sets are neighbours; every search must be accounted for the same one.
            orders: the Rényi orders of the filter. Fixed here: choosing them later would be a choice after the fact.
        """
        epsilon, delta = _validate.positive(epsilon=epsilon), _validate.delta(delta=delta)
        if not delta > 0:
            raise _validate.fail("delta", delta, "a Rényi filter needs a δ above 0")
        usable = tuple(sorted(order for order in orders if budget(order, epsilon, delta / len(orders)) > 0))
        if not usable:
            raise _validate.fail("orders", orders, "no order leaves a budget at this total: give larger orders")
        path = Path(path)
        if path.exists():
            raise LedgerError(f"{str(path)!r} exists: a ledger's total is fixed once, so open another file")
        terms = {
            "epsilon": epsilon,
            "delta": delta,
            "relation": relation.name,
            "orders": usable,
            "share": delta / len(usable),
            "id": secrets.token_hex(16),
        }
        with _translated(path), closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
            connection.execute("CREATE TABLE entries (key TEXT PRIMARY KEY, name TEXT NOT NULL, costs TEXT NOT NULL)")
            connection.execute("INSERT INTO about VALUES ('format', ?), ('terms', ?)", (_FORMAT, json.dumps(terms)))
        return cls(path)

    @property
    def budgets(self) -> tuple[float, ...]:
        """B(α) at each order."""
        return tuple(budget(order, self.epsilon, self._share) for order in self.orders)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Everything that was reserved, in order."""
        with self._connected() as connection:
            rows = connection.execute("SELECT name, key, costs FROM entries ORDER BY rowid").fetchall()
        return tuple(Entry(name, key, tuple(json.loads(costs))) for name, key, costs in rows)

    def reserve(self, guarantee: Accounted, *, name: str, key: str | None = None) -> str:
        """Set aside what a search, or several that are declared together, may cost; refused if it is too much.

        Args:
            guarantee: what is declared. Searches that were declared together are one guarantee:
                ``first.compose(second)``.
            name: what to call it in the ledger.
            key: makes the call repeatable: a key that the ledger has is not charged again, and is refused if what is
                declared costs more than it did. Choose it at random, once, and keep it with the search: a search that
                starts afresh is a new one.

        Returns:
            The key.
        """
        key = secrets.token_hex(16) if key is None else key
        costs = self.costs(guarantee)
        with self._connected(write=True) as connection:
            known = _known(connection)
            if key in known:
                if np.any(np.array(costs) > np.array(known[key]) * (1 + 1e-6) + 1e-12):
                    raise LedgerError(
                        f"{name!r} costs more than what was reserved under its key: a key stands for one search, as "
                        "it was declared. Nothing was reserved; leave the key out for a new search"
                    )
                return key
            self._refuse_excess(name, costs, known)
            connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (key, name, json.dumps(costs)))
        return key

    def check(self, guarantee: Accounted, *, name: str) -> None:
        """Raise as :meth:`reserve` would now; reserve nothing."""
        costs = self.costs(guarantee)
        with self._connected() as connection:
            self._refuse_excess(name, costs, _known(connection))

    def _refuse_excess(self, name: str, costs: list[float], known: dict[str, list[float]]) -> None:
        spent = np.sum([[0.0] * len(self.orders), *known.values(), costs], axis=0)
        if not (spent * (1 + 1e-12) <= np.array(self.budgets)).any():
            raise LedgerError(
                f"{name!r} would exceed the total of ε = {self.epsilon:g} at δ = {self.delta:g}: nothing was "
                "reserved. Declare it with more noise, fewer runs or a smaller band, or release nothing more"
            )

    def costs(self, guarantee: Accounted) -> list[float]:
        """ε(α) of a guarantee at each order of the ledger; an error if it has none that is finite."""
        if guarantee.relation is not self.relation:
            raise LedgerError(
                f"the ledger is kept under {self.relation.name}, the search is under {guarantee.relation.name}"
            )
        costs = np.asarray(guarantee.rdp(np.array(self.orders)), dtype=np.float64)
        if not np.isfinite(costs).any():
            raise LedgerError(
                "the guarantee has no Rényi curve at the orders of the ledger, so a filter cannot hold it: state the "
                "event of a run (or an RdpCurve) instead of an (ε, δ) pair, and a law of T that can be 1"
            )
        return [float(cost) if math.isfinite(cost) else 1e300 for cost in costs]

    def __str__(self) -> str:
        lines = [f"total ε = {self.epsilon:g} at δ = {self.delta:g}, fixed when the ledger was opened"]
        lines += [f"  {entry.name}: reserved" for entry in self.entries]
        spent = np.sum([np.zeros(len(self.orders)), *(np.array(entry.costs) for entry in self.entries)], axis=0)
        left = max(0.0, float(np.max(1 - spent / np.array(self.budgets))))
        lines.append(f"the largest share that some order has left is {left:.0%}")
        lines.append(
            "the total is certified, whatever was reserved; what is left is a sum of declared costs, no guarantee"
        )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    @contextmanager
    def _connected(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        with _translated(self.path), closing(_connect(self.path)) as connection:
            found = connection.execute("SELECT value FROM about WHERE name = 'format'").fetchone()
            if found is None or found[0] != _FORMAT:
                raise LedgerError(_FOREIGN.format(str(self.path)))
            if not write:
                yield connection
                return
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("BEGIN IMMEDIATE")  # two searches that reserve at once are taken one after the other
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")


@dataclass(frozen=True)
class Reserving:
    """What a search reserves when it begins, once: its journal keeps the key."""

    book: Ledger
    guarantee: Accounted
    name: str

    @property
    def ledger(self) -> str:
        """Which ledger it is."""
        return self.book.id

    def check(self) -> None:
        """Refuse now what the ledger has no room for."""
        self.book.check(self.guarantee, name=self.name)

    def make(self, key: str) -> None:
        """Reserve under this key, before the first run."""
        self.book.reserve(self.guarantee, name=self.name, key=key)


def reserving(ledger: object, guarantee: Accounted, name: str, *, private: bool) -> Reserving | None:
    """What ``ledger=`` asks for: a :class:`Ledger`, the file of one, or None."""
    if ledger is None:
        return None
    if not private:
        raise _validate.fail(
            "ledger", ledger, "a search with seeded randomness has no guarantee: leave out the ledger, or the seed"
        )
    if isinstance(ledger, (str, Path)):
        ledger = Ledger(ledger)
    if not isinstance(ledger, Ledger):
        raise _validate.fail("ledger", ledger, "give a dphypo.Ledger, or the file that Ledger.open made")
    made = Reserving(ledger, guarantee, name)
    ledger.costs(guarantee)  # refuses a guarantee that no filter can hold
    return made


_FOREIGN = "{!r} is not a ledger that this version reads"


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=30, isolation_level=None)


def _known(connection: sqlite3.Connection) -> dict[str, list[float]]:
    """The costs that are reserved, by key."""
    return {key: json.loads(costs) for key, costs in connection.execute("SELECT key, costs FROM entries").fetchall()}


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """What can go wrong with the file, as an error of the ledger."""
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "no such table" in text:
            raise LedgerError(_FOREIGN.format(str(path))) from None
        raise LedgerError(f"{str(path)!r} cannot be used now ({text}): nothing was reserved") from None
    except sqlite3.DatabaseError:
        raise LedgerError(_FOREIGN.format(str(path))) from None


def budget(order: float, epsilon: float, delta: float) -> float:
    """B such that (α, B)-RDP implies (ε, δ)-DP: B = ε − log((α−1)/α) + log(αδ)/(α−1), rounded down.

    Canonne, Kamath and Steinke, The discrete Gaussian for differential privacy, 2020, Proposition 12.
    """
    exact = epsilon - math.log((order - 1) / order) + math.log(order * delta) / (order - 1)
    return exact - 1e-9 * (1 + abs(exact))
