"""A ledger: one total (ε, δ) for a data set, and everything that was ever reserved of it.

The total is fixed when the ledger is created. A search reserves what it declares, atomically, *before* its first run: a
search that is killed still counts. What would exceed the total is refused. A later search may be chosen after a look at
earlier results, so the ledger is a Rényi filter; the **total** is certified, "spent so far" is not.

Orders α and shares δ_α are fixed when a ledger is created. With b(α) = log(α·δ_α)/(α−1) − log((α−1)/α), a search is
admitted if at some order Σ ε_i(α) ≤ e(S) + b(α), where ε_i(α) are the Rényi costs of all searches, S is the sum of
their slack, and e(S) ≤ ε is what it leaves (docs/theory/surveys.md, "A ledger").

**A search and its entry.** The journal commits a random key together with T; the ledger reserves under that key; runs
start. From then on every change is committed to the journal, then compared and swapped in the ledger, then acted on: of
two copies of a journal the first that commits continues, and the other is refused. A journal may be one commit ahead of
its entry, if its process was killed in between; the entry catches up on resume. A release closes its part of the entry
before the journal commits it.

**A ladder that stops early** is charged for the rungs that it ran. Its journal commits that it stopped, then one change
of the ledger closes the entry and settles it, then the release is committed (docs/theory/ladders.md). A search that its
noisy count of fitting records refuses is charged for the count alone, if nothing was run.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial, reduce
from pathlib import Path
from typing import Any, TypeVar

import attrs
import dp_accounting
import numpy as np
from sqlalchemy import ColumnElement, Connection, select, text, update

from dphypo import _validate
from dphypo._validate import printable
from dphypo.accounting import Composition, Guarantee, PureDp, RdpCurve, RoundedDp
from dphypo.accounting.certificate import UNITS
from dphypo.accounting.composition import REPLACE_ONE, PublishedRuns
from dphypo.accounting.profiles import show_delta, show_epsilon
from dphypo.errors import JournalError, JournalInUseError, JournalMissingError, LedgerError
from dphypo.journal import store as _store
from dphypo.journal.store import End, SQLite, Store, find_database, open_store, part

R = TypeVar("R")

KIND = "ledger"
LEDGER = "ledger"
"""In the declaration that a journal holds: the ledger of the study, and its key there."""

SETTLE = "settle"
"""A change: an entry is closed, and charged for what was run."""

ORDERS = (1.2, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 63.0)
"""dp_accounting computes Rényi curves at these. A cost at any other order is that of the next one: at 128 for 64."""
FOR_SLACK = 0.01  # of δ
_BEND = 0.05  # η of e(S)
_WAIT_S = 30.0  # for other processes that reserve or commit
_ALIKE = 1e-6  # relative: by how much the cost of a reserved search may differ on another machine
_INFINITE = 1e300  # the cost of a search at an order at which no bound is known
_NEW_PART = text(
    "INSERT INTO dphypo_part (ledger, entry, part, head, closed) VALUES (:ledger, :entry, :part, :head, :closed) "
    "ON CONFLICT DO NOTHING"
)
_COPY = (
    "the journal of {!r} does not end where the ledger expects: another copy of it has continued, or one of the two "
    "was restored from a backup. One entry pays for one search, so nothing more is run or released here. Resume the "
    "copy that has all commits, or start a new search with a new journal, which reserves its own cost"
)


_SETTLED = (
    "the entry of {!r} was settled: its search stopped early, and was charged for what it had run. Nothing more is run "
    "for this entry. Start a new search with a new journal, which reserves its own cost"
)


def budget(order: float, epsilon: float, delta: float) -> float:
    """B such that (α, B)-RDP implies (ε, δ)-DP: B = ε − log((α−1)/α) + log(αδ)/(α−1), rounded down.

    Canonne, Kamath and Steinke, The discrete Gaussian for differential privacy, 2020, Proposition 12.
    """
    if epsilon == -math.inf:
        return epsilon
    exact = epsilon - math.log((order - 1) / order) + math.log(order * delta) / (order - 1)
    return exact - 2 * _ALIKE * (1 + abs(exact))  # room for what _covers lets pass


@dataclass(frozen=True)
class Terms:
    """What is fixed when a ledger is created."""

    id: str
    relation: dp_accounting.NeighboringRelation
    epsilon: float
    delta: float
    orders: tuple[float, ...]
    unit: str = "record"
    rows_per_person: int | None = None

    @property
    def share(self) -> float:
        """δ_α. It does not depend on ε: otherwise a larger total could admit less."""
        return self.delta * (1 - FOR_SLACK) / len(self.orders)

    def reach(self, slack: float) -> float:
        """e(S) = min(ε, log(η·(S₀/S)^(1−η))), rounded down; −∞ if S exceeds S₀, which is half of what δ keeps for it.

        The integral of e^e(S) from 0 to S₀ is at most S₀: the other half.
        """
        most = self.delta * FOR_SLACK / 2
        if slack == 0:
            return self.epsilon
        if not slack * (1 + _ALIKE) <= most:
            return -math.inf
        exact = math.log(_BEND) + (1 - _BEND) * math.log(most / slack)
        return min(self.epsilon, exact - 2 * _ALIKE * (1 + abs(exact)))

    def budgets(self, slack: float = 0.0) -> tuple[float, ...]:
        """What the Rényi costs may add up to at each order, with this much slack in all."""
        reach = self.reach(slack)
        return tuple(budget(order, reach, self.share) for order in self.orders)


@dataclass(frozen=True)
class Charge:
    """What a search is charged, or several: ε(α) at each order of the ledger, and slack."""

    renyi: tuple[float, ...]
    slack: float

    def __add__(self, other: Charge) -> Charge:
        renyi = tuple(_above(a, b) for a, b in zip(self.renyi, other.renyi, strict=True))
        return Charge(renyi, _above(self.slack, other.slack))

    def fits(self, terms: Terms) -> bool:
        """Whether the filter admits this much in all."""
        return any(cost <= most for cost, most in zip(self.renyi, terms.budgets(self.slack), strict=True))


def _above(a: float, b: float) -> float:
    """An upper bound of a + b."""
    return a if b == 0 else b if a == 0 else math.nextafter(a + b, math.inf)


@dataclass(frozen=True)
class Entry:
    """One reservation: its name, its key, what it costs, what it states, and the day."""

    name: str
    key: str
    declared: Charge
    epsilon: float
    delta: float
    day: str
    released: tuple[str, ...] = ()  # the parts that have released
    settled: Charge | None = None  # what it is charged instead, if it stopped early
    unit: str = "record"

    @property
    def charged(self) -> Charge:
        """What it is charged: what was declared, or less if it stopped early."""
        return self.declared if self.settled is None else self.settled

    def __str__(self) -> str:
        end = f", released: {printable('; '.join(self.released))}" if self.released else ""
        if self.settled is not None:
            end += "; it stopped early and is charged for what was run"
        at = show_delta(self.delta) + ("" if self.unit == "record" else f" for each {self.unit}")
        return f"{printable(self.name)}: ε = {show_epsilon(self.epsilon, 4)} at δ = {at}, declared on {self.day}{end}"


@dataclass(frozen=True)
class _State:
    """Where a ledger ends, its terms and what is spent; ``entries`` only if all of it was read."""

    end: End
    terms: Terms
    spent: Charge
    entries: dict[str, Entry] = field(default_factory=dict)

    def left(self) -> float:
        """The largest fraction of its budget that any order has left."""
        now, first = self.terms.budgets(self.spent.slack), self.terms.budgets()
        parts = [(b - c) / a for a, b, c in zip(first, now, self.spent.renyi, strict=True) if a > 0]
        return max(0.0, *parts)


def _with_noise(stated: Any, factor: float) -> Any:
    """A guarantee, or an event of it, with ``factor`` times its noise. Events of other kinds stay as they are."""
    again = partial(_with_noise, factor=factor)
    match stated:
        case Composition():
            terms = (replace(term, releases=again(term.releases)) for term in stated.terms)
            return replace(stated, terms=tuple(terms))
        case Guarantee() | PublishedRuns():
            return replace(stated, events=tuple(map(again, stated.events)))
        case PureDp():
            return PureDp(stated.epsilon / factor)
        case RdpCurve():
            return RdpCurve(stated.orders, [one / factor**2 for one in stated.epsilons])
        case RoundedDp():
            return replace(stated, event=again(stated.event))
        case dp_accounting.DpEvent():
            rules: dict[str, Callable[[Any], Any]] = {
                "noise_multiplier": lambda noise: noise * factor,
                "standard_deviation": lambda noise: noise * factor,
                "rho": lambda rho: rho / factor**2,
                "event": again,
                "events": lambda events: list(map(again, events)),
            }
            return attrs.evolve(
                stated, **{one: rule(getattr(stated, one)) for one, rule in rules.items() if hasattr(stated, one)}
            )
        case _:
            return stated


class Ledger:
    """The account of one data set.

    Args:
        path: the file or the URL with which :meth:`open` created it.
        name: its name, if a database holds several.

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
    total ε = 4 at δ = 1e-06, fixed when the ledger was created
      first search: ε = 0.653 at δ = 1e-06, declared on ...
    about 91% of the total is left (for planning; only the total is guaranteed)
    >>> folder.cleanup()
    """

    def __init__(self, path: str | Path, *, name: str = "ledger") -> None:
        self.path, self._name = path, _validate.line(name=name)
        self._store = open_store(path, kind=KIND, create=False)
        self._terms: Terms | None = None
        self._terms = self._read().terms

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        epsilon: float,
        delta: float,
        relation: dp_accounting.NeighboringRelation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
        unit: str = "record",
        rows_per_person: int | None = None,
        name: str = "ledger",
    ) -> Ledger:
        """Create a ledger with a total that can never be changed.

        Args:
            path: a file that does not exist yet, or the URL of a database.
            epsilon, delta: the total for everything that will ever be released of the data set.
            relation: which data sets are neighbours; every search must be accounted for the same one.
            unit: who is protected, "record" or "person"; every search must protect the same one.
            rows_per_person: of a ledger of persons, the most rows that any person has in the data set, if that is
                enforced. Searches over single records are then charged what they cost a group of that many.
            name: its name, if a database holds several.
        """
        epsilon, delta, _ = _validate.positive(epsilon=epsilon), _validate.delta(delta=delta), _validate.line(name=name)
        if not delta > 0:
            raise _validate.fail("delta", delta, "a Rényi filter needs a δ above 0")
        _validate.choice(dp_accounting.NeighboringRelation, relation=relation)
        if unit not in UNITS:
            raise _validate.fail("unit", unit, f"it is one of {', '.join(UNITS)}")
        if rows_per_person is not None:
            if unit != "person":
                raise _validate.fail("rows_per_person", rows_per_person, 'it is for persons: give unit="person" too')
            if relation is REPLACE_ONE:
                remedy = "under REPLACE_ONE a person may be replaced by one with more or fewer rows, which no search "
                remedy += "over single rows covers: leave it out, or keep the ledger under ADD_OR_REMOVE_ONE"
                raise _validate.fail("rows_per_person", rows_per_person, remedy)
            rows_per_person = _validate.integer(at_least=1, rows_per_person=rows_per_person)
        terms = Terms(secrets.token_hex(16), relation, epsilon, delta, ORDERS, unit, rows_per_person)
        if max(terms.budgets()) <= 0:
            raise _validate.fail("epsilon", epsilon, "no Rényi order leaves a budget at this total: give a larger one")
        _create(path, name, {**vars(terms), "relation": relation.name})
        return cls(path, name=name)

    @property
    def terms(self) -> Terms:
        """What was fixed when the ledger was created."""
        assert self._terms is not None
        return self._terms

    @property
    def epsilon(self) -> float:
        return self.terms.epsilon

    @property
    def delta(self) -> float:
        return self.terms.delta

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Everything that was reserved, in order."""
        return tuple(self._read().entries.values())

    def reserve(
        self,
        guarantee: Guarantee | Composition,
        *,
        name: str,
        key: str | None = None,
        delta: float | None = None,
        unit: str = "record",
    ) -> str:
        """Reserve what a search, or several that are declared together, may cost; refused if it is too much.

        Args:
            guarantee: what is declared. Searches that were declared together are one guarantee:
                ``first.compose(second)``.
            name: what to call it in the ledger.
            key: makes the call repeatable: a key that the ledger has is not charged again, and is refused if what is
                declared costs more than it did. Choose it at random, once, and keep it with the search.
            delta: the δ at which the entry states its ε; by default that of the ledger.
            unit: who is protected by the guarantee, as a certificate states it.

        Returns:
            The key.
        """
        name, its_key = _validate.line(name=name), _validate.line(key=secrets.token_hex(16) if key is None else key)
        delta = self.delta if delta is None else _validate.delta(delta=delta)
        cost, epsilon = self.charge(guarantee, unit), float(guarantee.epsilon(delta))

        def work(connection: Connection, found: _State) -> tuple[str, _State | None] | None:
            known = _store.read_some(connection, KIND, self._name, its_key)
            if known:
                if not _covers(_entry(known[0], found.terms).declared, cost):
                    raise LedgerError(
                        f"{name!r} costs more than what was reserved under its key: a key identifies one search, as it "
                        "was declared. Nothing was reserved; leave the key out for a new search"
                    )
                return its_key, None
            spent = found.spent + cost
            if not spent.fits(found.terms):
                return its_key, found
            stated = {"name": name, "epsilon": epsilon, "delta": delta, "day": date.today().isoformat(), "unit": unit}
            content = ["reserve", its_key, {**stated, **vars(cost)}, vars(spent)]
            return None if _store.append(connection, found.end, content, about=its_key) is None else (its_key, None)

        its_key, full = self._commit(work)
        if full is not None:
            raise self._refusal(full, name, guarantee, delta, unit)
        return its_key

    def check(
        self, guarantee: Guarantee | Composition, *, name: str, delta: float | None = None, unit: str = "record"
    ) -> None:
        """Raise the error that :meth:`reserve` would raise now, if any; reserve nothing."""
        cost, delta = self.charge(guarantee, unit), self.delta if delta is None else delta
        found = self._commit(lambda _, found: found)
        if not (found.spent + cost).fits(found.terms):
            raise self._refusal(found, name, guarantee, delta, unit)

    def _refusal(
        self, found: _State, name: str, guarantee: Guarantee | Composition, delta: float, unit: str
    ) -> LedgerError:
        total = f"ε = {show_epsilon(self.epsilon)} at δ = {show_delta(self.delta)}"
        return LedgerError(
            f"{name!r} would exceed the total of {total}. It asks for "
            f"epsilon={show_epsilon(guarantee.epsilon(delta), 4)}; {self._fitting(found, guarantee, delta, unit)}. "
            "Nothing was reserved. Searches in a ledger may depend on earlier results, so they add up to more than "
            "dphypo compose computes"
        )

    def _fitting(self, found: _State, guarantee: Guarantee | Composition, delta: float, unit: str) -> str:
        """What would fit, in the ε that a search states at its δ: the same search with more noise."""

        def fits(factor: float) -> bool:
            return (found.spent + self.charge(_with_noise(guarantee, factor), unit)).fits(found.terms)

        low, high = 1.0, 1.1
        while not fits(high):
            low, high = high, high * 2
            if high > 1e3:
                return "nothing of this kind fits any more"
        while high > 1.002 * low:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if fits(middle) else (middle, high)
        epsilon = _with_noise(guarantee, high).epsilon(delta)
        if not 0 < epsilon < math.inf:
            return f"it fits with {high:.3g} times its noise"
        digit = 10.0 ** (math.floor(math.log10(epsilon)) - 2)
        return f"epsilon={math.floor(epsilon / digit) * digit:.3g} fits, with {high:.3g} times its noise"

    def charge(self, guarantee: Guarantee | Composition, unit: str = "record") -> Charge:
        """What a guarantee is charged; an error if ε(α) is finite at no order of the ledger."""
        if not isinstance(guarantee, (Guarantee, Composition)):
            raise _validate.fail("guarantee", guarantee, "give what dphypo.account(...) returns")
        if guarantee.relation is not self.terms.relation:
            raise LedgerError(
                f"the ledger is kept under {self.terms.relation.name}, and the search is accounted for under "
                f"{guarantee.relation.name}: account for it under {self.terms.relation.name}"
            )
        orders = np.array(self.terms.orders)
        doublings = 0 if unit == self.terms.unit else self._doublings(guarantee, unit)
        costs = np.asarray(guarantee.rdp(2.0**doublings * orders), dtype=np.float64)
        if doublings:  # group privacy: Mironov, Rényi differential privacy, 2017, Proposition 2
            costs = np.where(orders >= 2, 3.0**doublings * costs * (1 + 1e-12), math.inf)
        if not np.isfinite(costs).any():
            raise LedgerError(
                "the guarantee has no Rényi curve at the orders of the ledger, so a filter cannot account for it: "
                "state the event of a run (or an RdpCurve) instead of an (ε, δ) pair, and a law of T that can be 1"
            )
        renyi = tuple(max(0.0, float(cost)) if math.isfinite(cost) else _INFINITE for cost in costs)
        return Charge(renyi, float(guarantee.slack) * 2.0**doublings)

    def _doublings(self, guarantee: Guarantee | Composition, unit: str) -> int:
        """c, if 2ᶜ records are at least as many as any person has; refused if that is not known."""
        group = (self.terms.unit, unit) == ("person", "record") and self.terms.relation is not REPLACE_ONE
        if not group or self.terms.rows_per_person is None:
            remedy = (
                'Give person= to the search, or open the ledger with unit="person" and rows_per_person=, the most rows '
                "that any person has"
                if unit == "record"
                else f"Charge all searches of this data set to a ledger of unit={unit!r}"
            )
            raise LedgerError(
                f"the ledger protects each {self.terms.unit}, and the search each {unit}: their costs cannot be added. "
                f"{remedy}"
            )
        if not all(isinstance(term.releases, PublishedRuns) for term in Composition.of(guarantee).terms):
            raise LedgerError(
                "what a study over single records costs a person with several is not known: the ledger protects each "
                "person. Give person= to the search, or use a survey"
            )
        return math.ceil(math.log2(self.terms.rows_per_person))

    def advance(self, key: str, name: str, before: str, head: str) -> None:
        """Compare and swap the head of a part of an entry: of two copies of a journal the first to commit continues."""
        mine = self._rows(key, name)

        def work(connection: Connection) -> bool | None:
            found = connection.execute(select(part.c.head, part.c.closed).where(*mine)).one_or_none()
            if found is not None and found.head == head:
                return True
            if found is None:  # it has just begun, or the ledger was restored from an earlier time
                if any(content[0] == SETTLE for content in _store.read_some(connection, KIND, self._name, key)):
                    raise LedgerError(_SETTLED.format(printable(name)))
                row = {"ledger": self._name, "entry": key, "part": name, "head": head, "closed": False}
                return connection.execute(_NEW_PART, row).rowcount == 1 or None
            if found.head != before or found.closed:
                raise LedgerError(_COPY.format(printable(name)))
            moved = update(part).where(*mine, part.c.head == before).values(head=head)
            return connection.execute(moved).rowcount == 1 or None

        self._transact(work)

    def close(self, key: str, name: str, head: str) -> None:
        """Close a part of an entry: only the journal that ends at ``head`` releases."""
        mine = self._rows(key, name)

        def work(connection: Connection, found: _State) -> bool | None:
            one = connection.execute(select(part.c.head, part.c.closed).where(*mine)).one_or_none()
            if one is None or one.head != head:
                raise LedgerError(_COPY.format(printable(name)))
            if one.closed:
                return True
            content = ["release", key, name, vars(found.spent)]
            if _store.append(connection, found.end, content, about=key) is None:
                return None
            connection.execute(update(part).where(*mine).values(closed=True))
            return True

        self._commit(work)

    def settle(
        self, key: str, name: str, head: str, guarantee: Guarantee | Composition, *, made: Collection[str]
    ) -> None:
        """Close an entry and charge it for what was run: its parts ``made``, whose guarantee this is.

        Only the journal that ends at ``head`` settles, and only if no other part has begun. Afterwards no part of the
        entry can begin or continue. Slack is not returned.
        """
        mine = self._rows(key, name)

        def work(connection: Connection, found: _State) -> bool | None:
            entry = found.entries[key]
            cost = self.charge(guarantee, entry.unit)
            rows = {row.part: row for row in connection.execute(select(part).where(*mine[:2]))}
            is_open = {one for one, row in rows.items() if not row.closed}
            if name not in rows or rows[name].head != head or not rows.keys() <= set(made) or is_open - {name}:
                raise LedgerError(_COPY.format(printable(name)))
            if entry.settled is not None:
                return True
            less = Charge(tuple(map(min, cost.renyi, entry.declared.renyi)), entry.declared.slack)
            settled = {**found.entries, key: replace(entry, settled=less)}
            content = [SETTLE, key, name, vars(less), vars(_sum(settled.values(), found.terms))]
            if _store.append(connection, found.end, content, about=key) is None:
                return None
            connection.execute(update(part).where(*mine).values(closed=True))
            return True

        self._commit(work, whole=True)

    def _rows(self, key: str, name: str) -> tuple[ColumnElement[bool], ...]:
        return part.c.ledger == self._name, part.c.entry == key, part.c.part == name

    def __str__(self) -> str:
        found = self._read()
        each = "" if self.terms.unit == "record" else f" for each {self.terms.unit}"
        total = f"ε = {show_epsilon(self.epsilon)} at δ = {show_delta(self.delta)}{each}"
        lines = [f"total {total}, fixed when the ledger was created"]
        lines += [f"  {entry}" for entry in found.entries.values()]
        left = f"about {found.left():.0%} of the total is left (for planning; only the total is guaranteed)"
        return "\n".join([*lines, left])

    def __repr__(self) -> str:
        return f"Ledger({self._store.address!r})"

    def _read(self) -> _State:
        return self._commit(lambda _, found: found, whole=True)

    def _commit(self, work: Callable[[Connection, _State], R | None], *, whole: bool = False) -> R:
        """Read the ledger, its end or the ``whole``, and change it, in one transaction."""
        return self._transact(lambda connection: work(connection, self._opened(connection, whole=whole)))

    def _opened(self, connection: Connection, *, whole: bool) -> _State:
        try:
            found = (_read if whole else _read_end)(connection, self._name)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError):
            damaged = f"{self._address} is damaged, or was changed by something other than this library"
            raise LedgerError(f"{damaged}: restore an unchanged copy") from None
        if found is None:
            shown = printable(self._name)
            raise LedgerError(f"{self._address} holds no ledger {shown!r}: create it with `dphypo ledger open`")
        if self._terms not in (None, found.terms):
            raise LedgerError(f"{self._address} is not the same ledger as before: restore the ledger of this data set")
        return found

    def _transact(self, work: Callable[[Connection], R | None]) -> R:
        """One transaction, repeated if another process was faster. The ledger is open only for that moment."""
        patience, reason = time.monotonic() + _WAIT_S, ""
        while not reason:
            try:
                if (made := self._store.commit(work)) is not None:
                    return made
                reason = "other processes keep changing it" if time.monotonic() > patience else ""
            except JournalMissingError:
                raise self._missing() from None
            except JournalInUseError as error:
                reason = error.reason if time.monotonic() > patience else ""
            except JournalError as error:
                reason = error.reason
            finally:
                self._store.rest()
        # Raised here: what a database says may quote its rows.
        raise LedgerError(f"the ledger {self._address} cannot be used: {reason}. Nothing was reserved")

    def _missing(self) -> LedgerError:
        if self._terms is not None:
            return LedgerError(
                f"there is no ledger at {self._address} any more: it was deleted or moved. Put it back and resume; a "
                "new ledger would not know what was spent"
            )
        return LedgerError(
            f"there is no ledger at {self._address}. If the data set has one, give its address or put it back: a new "
            "one would not know what was spent. Otherwise create it: "
            f"dphypo ledger open {self._address} --epsilon ... --delta ..."
        )

    @property
    def _address(self) -> str:
        return printable(self._store.address)


def _covers(reserved: Charge, asked: Charge) -> bool:
    each = zip(asked.renyi, reserved.renyi, strict=True)
    return asked.slack <= reserved.slack * (1 + _ALIKE) and all(a <= b * (1 + _ALIKE) + 1e-12 for a, b in each)


def _read_end(connection: Connection, name: str) -> _State | None:
    """A ledger without its entries: its end, its terms and what is spent. The time does not depend on the entries."""
    found = _store.read_last(connection, KIND, name)
    if found is None:
        return None
    end, last = found
    (first,) = _store.read_some(connection, KIND, name, None)
    terms = _terms(first)
    return _State(end, terms, _nothing(terms) if end.length == 1 else _cost(last[-1], terms))


def _read(connection: Connection, name: str) -> _State | None:
    """A ledger, checked as a whole: sums are those of the entries, keys differ, what is closed was reserved."""
    found = _store.read(connection, KIND, name)
    if found is None:
        return None
    end, changes = found
    terms = _terms(changes[0].content)
    entries: dict[str, Entry] = {}
    spent = _nothing(terms)
    for change in changes[1:]:
        match change.content:
            case ["reserve", key, _, after]:
                _require(key not in entries)
                entries[key] = _entry(change.content, terms)
                spent += entries[key].declared
            case [kind, key, one, charged, after] if kind == SETTLE:
                entries[key] = replace(_released(entries[key], one), settled=_cost(charged, terms))
                _require(_covers(entries[key].declared, entries[key].charged))
                spent = _sum(entries.values(), terms)
            case ["release", key, one, after]:
                entries[key] = _released(entries[key], one)
            case _:
                raise ValueError
        _require(spent == _cost(after, terms))
    abouts = select(_store.change.c.about).where(*end.rows(_store.change)).order_by(_store.change.c.number)
    _require(list(connection.scalars(abouts)) == [None, *(change.content[1] for change in changes[1:])])
    _require(not any(change.kept for change in changes))
    rows = connection.execute(select(part).where(part.c.ledger == name)).all()
    closed = {(row.entry, row.part) for row in rows if row.closed}
    _require(closed == {(key, one) for key, entry in entries.items() for one in entry.released})
    _require(all(row.entry in entries and len(str(row.head)) == 64 for row in rows))
    return _State(end, terms, spent, entries)


def _released(entry: Entry, part: str) -> Entry:
    """The entry after one more of its parts has released."""
    _require(entry.settled is None and part not in entry.released)
    return replace(entry, released=(*entry.released, _validate.line(part=part)))


def _terms(content: Any) -> Terms:
    kind, terms = content
    _require(kind == "terms")
    orders = tuple(_validate.within(1.0, math.inf, order=order) for order in terms["orders"])
    _require(bool(orders) and orders == tuple(sorted(set(orders))))
    relation, delta = dp_accounting.NeighboringRelation[terms["relation"]], terms["delta"]
    epsilon, delta = _validate.positive(epsilon=terms["epsilon"]), _validate.positive_delta(delta=delta)
    rows, unit = terms.get("rows_per_person"), terms.get("unit", "record")
    _require(unit in UNITS and (rows is None or (isinstance(rows, int) and rows >= 1)))
    return Terms(_validate.line(id=terms["id"]), relation, epsilon, delta, orders, unit, rows)


def _entry(content: Any, terms: Terms) -> Entry:
    kind, key, stated, _ = content
    _require(kind == "reserve")
    name, key, day = _validate.line(name=stated["name"]), _validate.line(key=key), date.fromisoformat(stated["day"])
    epsilon, delta = float(stated["epsilon"]), _validate.delta(delta=stated["delta"])
    _require(epsilon >= 0)
    unit = stated.get("unit", "record")
    _require(unit in UNITS)
    return Entry(name, key, _cost(stated, terms), epsilon, delta, day.isoformat(), unit=unit)


def _cost(found: Any, terms: Terms) -> Charge:
    renyi = tuple(_validate.non_negative(cost=cost) for cost in found["renyi"])
    _require(len(renyi) == len(terms.orders))
    return Charge(renyi, _validate.non_negative(slack=found["slack"]))


def _nothing(terms: Terms) -> Charge:
    return Charge((0.0,) * len(terms.orders), 0.0)


def _sum(entries: Iterable[Entry], terms: Terms) -> Charge:
    """What all entries are charged together, rounded up, in the order in which they were reserved."""
    return reduce(Charge.__add__, (entry.charged for entry in entries), _nothing(terms))


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError


def _create(where: str | Path, name: str, terms: Mapping[str, Any]) -> None:
    """Create a complete ledger, or leave nothing behind. An existing one is never replaced."""
    content = json.loads(json.dumps(["terms", terms]))
    database = find_database(where, KIND)
    shown = printable(database.address)

    def write(connection: Connection) -> None:
        if _store.read(connection, KIND, name) is not None:
            raise FileExistsError
        _store.append(connection, End(KIND, name), content)

    try:
        if isinstance(database, SQLite) and database.path is not None:
            memory = SQLite(None)
            connection = memory.connect()
            try:
                memory.prepare(connection, KIND)
                with connection.begin():
                    write(connection)
                raw: Any = connection.connection.driver_connection
                _publish(raw.serialize(), database.path)
            finally:
                memory.disconnect(connection)
            return
        shown, store = f"{name} in {shown}", Store(database, kind=KIND)
        try:
            store.commit(write)
        finally:
            store.close()
    except FileExistsError:
        raise LedgerError(
            f"there is already something at {shown}. If it is the ledger of this data set, use it: its total is fixed, "
            "and a second ledger would not know what the first has spent"
        ) from None
    except (JournalError, OSError) as error:
        why = error.reason if isinstance(error, JournalError) else error.strerror
        raise LedgerError(f"the ledger {shown} cannot be created: {why}") from None


def _publish(content: bytes, path: Path) -> None:
    """Create a private file with this content; ``FileExistsError`` if there is one of that name.

    On Linux the file has no name until it is complete, so that a killed process leaves nothing behind.
    """
    if os.path.lexists(path):
        raise FileExistsError
    for log in (f"{path}-wal", f"{path}-journal"):
        if os.path.lexists(log):  # SQLite would take it for that of the new file, and read the old ledger
            raise LedgerError(
                f"there is {printable(log)}, the log of an earlier ledger whose file was deleted or moved: put that "
                "file back, since it knows what was spent. If nobody uses that ledger any more, delete the log"
            )
    nameless = hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd")
    try:
        if not nameless:
            raise OSError
        descriptor = os.open(path.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:  # not every file system can
        nameless = False
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        os.fsync(descriptor)
        if nameless:  # src_dir_fd is not used, and makes Python follow the link
            os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)
    except BaseException:
        if not nameless:
            path.unlink()
        raise
    finally:
        os.close(descriptor)
    _store.sync_name(path)


class Reservation:
    """The entry of a search in a ledger, which states its ε at δ. All parts of a search share it.

    Args:
        ledger: a :class:`Ledger`, or the file or URL of one.
        guarantee, name, delta, unit: as for :meth:`Ledger.reserve`.
        private: whether the randomness of the search comes from the operating system; refused otherwise.
    """

    def __init__(
        self,
        ledger: Ledger | str | Path,
        guarantee: Guarantee | Composition,
        name: str,
        *,
        private: bool,
        delta: float | None = None,
        unit: str = "record",
    ) -> None:
        if not private:
            remedy = "a search with seeded randomness has no guarantee: leave out the ledger, or the seed"
            raise _validate.fail("ledger", ledger, remedy)
        book: object = Ledger(ledger) if isinstance(ledger, (str, Path)) else ledger
        if not isinstance(book, Ledger):
            raise _validate.fail("ledger", ledger, "give a dphypo.Ledger, or the file that Ledger.open created")
        book.charge(guarantee, unit)  # refuses a guarantee that no filter can hold
        self._ledger, self._guarantee, self._name, self._delta, self._unit = book, guarantee, name, delta, unit
        self._key: str | None = None
        self.total = (book.epsilon, book.delta)

    def begun(self, declaration: dict[str, Any]) -> dict[str, Any]:
        """The declaration of a new part, with the key of the search; refused if the search does not fit the ledger."""
        if self._key is None:
            self._ledger.check(self._guarantee, name=self._name, delta=self._delta, unit=self._unit)
        return {**declaration, LEDGER: {"id": self._ledger.terms.id, "key": self._key or secrets.token_hex(16)}}

    def enter(self, declaration: Mapping[str, Any]) -> str:
        """Reserve for a search whose ``declaration`` is committed, before it continues; returns its key."""
        entry = declaration.get(LEDGER)
        if entry is None:
            raise LedgerError(
                "this search was begun without a ledger, so no ledger knows what it may have spent: reserve its "
                "cost with `dphypo ledger reserve` and its certificate, and resume it without ledger="
            )
        if entry["id"] != self._ledger.terms.id:
            raise LedgerError("this search was begun with another ledger: pass that one to resume it")
        key = str(entry["key"])
        if self._key != key:
            self._ledger.reserve(self._guarantee, name=self._name, key=key, delta=self._delta, unit=self._unit)
            self._key = key
        return key

    def agree(self, declaration: Mapping[str, Any], end: End | None) -> None:
        """Record in the ledger where the journal ends, before its last commit is used; None if it has released."""
        key = self.enter(declaration)
        if end is not None:
            self._ledger.advance(key, end.name, end.before, end.head)

    def claim(self, name: str) -> None:
        """Claim a part of the entry that is executed at most once, by the first to claim it: a trial of Optuna."""
        assert self._key is not None
        self._ledger.advance(self._key, name, "", secrets.token_hex(32))

    def close(self, name: str, head: str) -> None:
        """Close a part whose release is about to be committed; its journal ends at ``head``."""
        assert self._key is not None
        self._ledger.close(self._key, name, head)

    def settle(self, name: str, head: str, guarantee: Guarantee | Composition, made: Collection[str]) -> None:
        """Close the entry of a search that ended at the part ``name``; it is charged for the parts ``made``."""
        assert self._key is not None
        self._ledger.settle(self._key, name, head, guarantee, made=made)
