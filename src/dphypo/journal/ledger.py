"""A ledger: one total (ε, δ) for a data set, and everything that was ever spent on it.

The total is fixed when the ledger is made. A search reserves what it declares, atomically, *before* its first run: a
search that is killed still counts. What would exceed the total is refused. There are two kinds of ledgers:

* Later searches may be chosen after a look at earlier results: how many there are, their noise, their lengths.
  Composition of privacy loss distributions does not cover that, so the ledger is a Rényi filter.
* All searches are declared when the ledger is made, and nothing else is ever admitted. Then composition applies, and it
  is tighter: it need not hold for every search that might have been chosen.

Either way the **total** is certified, whatever was admitted. "Spent so far" is not a guarantee of its own.

A ledger is a book in a store, as a journal is: in a file, or in PostgreSQL by URL. It is as secret as the journals of
its searches, since the heads of these stand in it.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import TypeVar

import dp_accounting
import numpy as np
from sqlalchemy import ColumnElement, Connection, select, text, update

from dphypo import _validate
from dphypo._validate import printable
from dphypo.accounting import Composition, Guarantee
from dphypo.errors import JournalError, JournalInUseError, JournalMissingError, LedgerError
from dphypo.journal import chain, ledger_book
from dphypo.journal.chain import place
from dphypo.journal.ledger_book import FOR_SLACK, ORDERS, Declared, Entry, LedgerState, budget
from dphypo.journal.store import open_store

R = TypeVar("R")
_WAIT_S = 30.0  # for other processes that reserve or commit
_INFINITE = 1e300  # the cost at an order where nothing is known of a search
_NEW_PLACE = text(
    "INSERT INTO dphypo_place (ledger, entry, part, head, closed) VALUES (:ledger, :entry, :part, :head, :closed) "
    "ON CONFLICT DO NOTHING"
)
_COPY = (
    "the journal of {!r} does not end where the ledger knows it to end: another copy of it has gone on, or one of the "
    "two was restored from a backup. One entry pays for one search, so nothing more is run or released here. Go on "
    "with the copy that has all commits, or begin a new search with a new journal: it reserves for itself"
)


class Ledger:
    """The account of one data set.

    Args:
        path: the file or the URL with which :meth:`open` made it.
        name: its name, where a database holds several.

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
    total ε = 4 at δ = 1e-06, fixed when the ledger was made
      first search: ε = 0.6529 at δ = 1e-06, declared on ...
    the largest share that some order has left is 91%
    the total is certified, whatever was reserved; what is left is a sum of declared costs, no guarantee
    >>> folder.cleanup()
    """

    def __init__(self, path: str | Path, *, name: str = "ledger") -> None:
        self.path, self._name = path, _validate.line(name=name)
        self._store = open_store(path, kind=ledger_book.KIND)
        found = self._read()
        self.id = found.id
        """A random name that stays with the ledger: a journal knows by it which ledger its search is in."""
        self.epsilon, self.delta, self.relation, self.orders = found.epsilon, found.delta, found.relation, found.orders
        self._terms = found  # which never change

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        epsilon: float,
        delta: float,
        relation: dp_accounting.NeighboringRelation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
        orders: tuple[float, ...] = ORDERS,
        searches: Mapping[str, Declared] | None = None,
        name: str = "ledger",
    ) -> Ledger:
        """Make a ledger with a total that can never be changed.

        Args:
            path: a file that does not exist yet, or the URL of a database.
            epsilon, delta: the total for everything that will ever be released of the data set.
            relation: which data sets are neighbours; every search must be accounted for the same one.
            orders: the Rényi orders of the filter. Fixed here: choosing them later would be a choice after the fact.
            searches: all searches there will ever be, by name, if they are known now: then they may cost ε together by
                composition, which is tighter than a filter, and nothing else is admitted.
            name: its name, where a database holds several.
        """
        epsilon, delta, _ = _validate.positive(epsilon=epsilon), _validate.delta(delta=delta), _validate.line(name=name)
        if not delta > 0:
            raise _validate.fail("delta", delta, "a Rényi filter needs a δ above 0")
        listed = _validate.sequence(orders=orders)
        given = tuple(sorted(_validate.within(1.0, math.inf, orders=order) for order in listed))
        usable = tuple(order for order in given if budget(order, epsilon, delta * (1 - FOR_SLACK) / len(given)) > 0)
        if not usable:
            raise _validate.fail("orders", orders, "no order leaves a budget at this total: give larger orders")
        terms = {
            "epsilon": epsilon,
            "delta": delta,
            "relation": _validate.choice(dp_accounting.NeighboringRelation, relation=relation).name,
            "orders": usable,
            "share": delta * (1 - FOR_SLACK) / len(usable),
            "id": secrets.token_hex(16),
            "searches": None if searches is None else ledger_book.fixed_list(searches, epsilon, delta),
        }
        ledger_book.create(path, name, terms)
        return cls(path, name=name)

    @property
    def budgets(self) -> tuple[float, ...]:
        """B(α) at each order."""
        return self._terms.budgets

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Everything that was reserved, in order."""
        return tuple(self._read().entries.values())

    def reserve(self, guarantee: Declared, *, name: str, key: str | None = None, delta: float | None = None) -> str:
        """Set aside what a search, or several that are declared together, may cost; refused if it is too much.

        Args:
            guarantee: what is declared. Searches that were declared together are one guarantee:
                ``first.compose(second)``.
            name: what to call it in the ledger.
            key: makes the call repeatable: a key that the ledger has is not charged again, and is refused if what is
                declared costs more than it did. Choose it at random, once, and keep it with the search: a search that
                starts afresh is a new one.
            delta: the δ at which the entry states its ε; that of the ledger if it is left out.

        Returns:
            The key.
        """
        key = secrets.token_hex(16) if key is None else key
        name, key = _validate.line(name=name), _validate.line(key=key)
        delta = self.delta if delta is None else _validate.delta(delta=delta)
        costs, epsilon = self.costs(guarantee), float(guarantee.epsilon(delta))

        def work(connection: Connection, found: LedgerState) -> str | None:
            if (known := found.entries.get(key)) is not None:
                _refuse_unlisted(found, known.name, guarantee)
                if np.any(np.array(costs) > np.array(known.costs) * (1 + 1e-6) + 1e-12):
                    raise LedgerError(
                        f"{name!r} costs more than what was reserved under its key: a key stands for one search, as "
                        "it was declared. Nothing was reserved; leave the key out for a new search"
                    )
                return key
            self._refuse(found, name, costs, guarantee)
            content = ["reserve", key, name, costs, epsilon, delta, date.today().isoformat()]
            return None if chain.append(connection, found.place, content) is None else key

        return self._commit(work)

    def check(self, guarantee: Declared, *, name: str) -> None:
        """Raise as :meth:`reserve` would now; reserve nothing."""
        self._refuse(self._read(), name, self.costs(guarantee), guarantee)

    def _refuse(self, found: LedgerState, name: str, costs: list[float], guarantee: Declared) -> None:
        _refuse_unlisted(found, name, guarantee)
        if found.searches is not None:
            if any(entry.name == name for entry in found.entries.values()):
                raise LedgerError(f"{name!r} was reserved before: each search of the list is made once")
            return
        if not found.admits(costs):
            raise LedgerError(
                f"{name!r} would exceed the total of ε = {self.epsilon:g} at δ = {self.delta:g}: "
                f"{found.refusal(costs)}. Nothing was reserved. The filter lets every search depend on "
                "the results before it, so it counts more than dphypo compose; searches that are all fixed beforehand "
                "compose to less, in a ledger that is made for their list (searches=, or dphypo ledger open --search)"
            )

    def costs(self, guarantee: Declared) -> list[float]:
        """ε(α) of a guarantee at each order of the ledger; an error if it has none that is finite."""
        if not isinstance(guarantee, (Guarantee, Composition)):
            raise _validate.fail("guarantee", guarantee, "give what dphypo.account(...) returns")
        if guarantee.relation is not self.relation:
            raise LedgerError(
                f"the ledger is kept under {self.relation.name}, the search is under {guarantee.relation.name}"
            )
        costs = np.asarray(guarantee.rdp(np.array(self.orders)), dtype=np.float64)
        if not np.isfinite(costs).any() and self._terms.searches is None:
            raise LedgerError(
                "the guarantee has no Rényi curve at the orders of the ledger, so a filter cannot hold it: state the "
                "event of a run (or an RdpCurve) instead of an (ε, δ) pair, and a law of T that can be 1"
            )
        costs = costs + self._terms.cost_of_slack(guarantee.slack)
        return [max(0.0, float(cost)) if math.isfinite(cost) else _INFINITE for cost in costs]

    def advance(self, key: str, part: str, before: str, head: str) -> None:
        """Compare and swap the head of a part of an entry: of two copies of a journal the first to commit goes on."""
        mine = self._rows(key, part)

        def work(connection: Connection) -> bool | None:
            found = connection.execute(select(place.c.head, place.c.closed).where(*mine)).one_or_none()
            if found is not None and found.head == head:
                return True
            if found is None:  # it has begun, or the ledger was restored from a time before that
                row = {"ledger": self._name, "entry": key, "part": part, "head": head, "closed": False}
                return connection.execute(_NEW_PLACE, row).rowcount == 1 or None
            if found.head != before or found.closed:
                raise LedgerError(_COPY.format(printable(part)))
            moved = update(place).where(*mine, place.c.head == before).values(head=head)
            return connection.execute(moved).rowcount == 1 or None

        self._transact(work)

    def close(self, key: str, part: str, head: str) -> None:
        """Close a part of an entry: the journal that ends at ``head`` releases, and no other."""
        mine = self._rows(key, part)

        def work(connection: Connection, found: LedgerState) -> bool | None:
            one = connection.execute(select(place.c.head, place.c.closed).where(*mine)).one_or_none()
            if one is None or one.head != head:
                raise LedgerError(_COPY.format(printable(part)))
            if one.closed:
                return True
            if chain.append(connection, found.place, ["release", key, part, head]) is None:
                return None
            connection.execute(update(place).where(*mine).values(closed=True))
            return True

        self._commit(work)

    def _rows(self, key: str, part: str) -> tuple[ColumnElement[bool], ...]:
        return place.c.ledger == self._name, place.c.entry == key, place.c.part == part

    def __str__(self) -> str:
        found = self._read()
        lines = [f"total ε = {self.epsilon:g} at δ = {self.delta:g}, fixed when the ledger was made"]
        lines += [f"  {entry}" for entry in found.entries.values()]
        if found.searches is not None:
            begun = {entry.name for entry in found.entries.values()}
            lines += [f"  {printable(name)}: declared, not begun" for name in found.searches if name not in begun]
            return "\n".join([*lines, "the total is certified for this list of searches, and no other is admitted"])
        said = "the total is certified, whatever was reserved; what is left is a sum of declared costs, no guarantee"
        return "\n".join([*lines, f"the largest share that some order has left is {found.left():.0%}", said])

    def __repr__(self) -> str:
        return f"Ledger({self._store.address!r})"

    def _read(self) -> LedgerState:
        return self._commit(lambda _, found: found)

    def _commit(self, work: Callable[[Connection, LedgerState], R | None]) -> R:
        """Read the ledger as a whole and change it, in one transaction."""
        return self._transact(lambda c: work(c, ledger_book.read(c, self._name, self._address)))

    def _transact(self, work: Callable[[Connection], R | None]) -> R:
        """One transaction, made again if another process was faster. The ledger is open for that moment alone."""
        patience, reason = time.monotonic() + _WAIT_S, ""
        while not reason:
            try:
                if (made := self._store.commit(work)) is not None:
                    return made
                reason = "other processes keep changing it" if time.monotonic() > patience else ""
            except JournalMissingError:
                raise LedgerError(f"there is no ledger at {self._address}: make one (dphypo ledger open)") from None
            except JournalInUseError as error:
                reason = error.reason if time.monotonic() > patience else ""
            except JournalError as error:
                reason = error.reason
            finally:
                self._store.rest()
        # Raised here: what a database says may quote its rows.
        raise LedgerError(f"the ledger {self._address} cannot be used: {reason}. Nothing was reserved")

    @property
    def _address(self) -> str:
        return printable(self._store.address)


def _refuse_unlisted(found: LedgerState, name: str, guarantee: Declared) -> None:
    if found.searches is not None and found.searches.get(name) != ledger_book.statement(guarantee):
        raise LedgerError(
            f"{name!r} is not one of the searches that this ledger was made for, as it was declared then "
            f"({', '.join(map(printable, found.searches))}): nothing was reserved"
        )
