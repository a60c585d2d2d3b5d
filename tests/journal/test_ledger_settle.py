"""A ladder that stops early is charged for the rungs that it made: exact worlds, refusals, damage."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest

from dphypo import Ledger
from dphypo.accounting import Composition, RoundedDp
from dphypo.accounting.composition import account_published
from dphypo.errors import LedgerError
from dphypo.journal import store
from dphypo.journal.ledger import Charge, Terms

ADD = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
HEADS = [f"{number:064x}" for number in range(1, 9)]


def rungs(*noise: float) -> Composition:
    return Composition.of(*(account_published(dp.GaussianDpEvent(one), 1) for one in noise))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "ledger.db", epsilon=4.0, delta=1e-6)


def climbed(ledger: Ledger, *names: str) -> str:
    """A ladder of three rungs that has begun these; all but the last have published."""
    key = ledger.reserve(rungs(8.0, 4.0, 2.0), name="ladder")
    for number, name in enumerate(names):
        ledger.advance(key, name, "", HEADS[number])
        if name != names[-1]:
            ledger.close(key, name, HEADS[number])
    return key


def test_a_settled_entry_is_charged_for_what_was_made(ledger: Ledger) -> None:
    before = ledger.reserve(rungs(30.0), name="before")
    key = climbed(ledger, "one", "two")
    after = ledger.reserve(rungs(20.0), name="after")
    for _ in range(2):  # a second time changes nothing: its process may have died before it heard
        ledger.settle(key, "two", HEADS[1], rungs(8.0, 4.0), made=["one", "two"])
    assert [entry.key for entry in ledger.entries] == [before, key, after]
    first, entry, last = ledger.entries
    assert entry.charged.renyi == pytest.approx(ledger.charge(rungs(8.0, 4.0)).renyi)
    assert entry.declared.renyi == ledger.charge(rungs(8.0, 4.0, 2.0)).renyi, "what was declared is still stated"
    assert entry.released == ("one", "two")
    assert "it stopped early and is charged for what was run" in str(ledger)
    spent = ledger._read().spent
    assert spent == first.declared + entry.charged + last.declared
    assert Ledger(ledger.path)._read().spent == spent
    ledger.reserve(rungs(20.0), name="and another")
    assert ledger._read().spent == spent + ledger.entries[-1].declared


def test_what_is_returned_can_be_spent(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.db", epsilon=4.0, delta=1e-6)
    key = climbed(ledger, "one")
    with pytest.raises(LedgerError, match="would exceed the total"):
        ledger.reserve(rungs(8.0, 4.0, 2.0), name="again")
    ledger.settle(key, "one", HEADS[0], rungs(8.0), made=["one"])
    ledger.reserve(rungs(8.0, 4.0, 2.0), name="again")


def test_slack_is_not_returned(ledger: Ledger) -> None:
    one = account_published(RoundedDp(dp.GaussianDpEvent(9.0), 1e-12), 1)
    declared = Composition.of(one, one)
    key = ledger.reserve(declared, name="ladder")
    ledger.advance(key, "one", "", HEADS[0])
    ledger.settle(key, "one", HEADS[0], Composition.of(one), made=["one"])
    assert ledger.entries[0].charged.slack == declared.slack == ledger._read().spent.slack


def test_nothing_runs_for_an_entry_that_was_settled(ledger: Ledger) -> None:
    key = climbed(ledger, "one", "two")
    ledger.settle(key, "two", HEADS[1], rungs(8.0, 4.0), made=["one", "two"])
    ledger.advance(key, "two", HEADS[0], HEADS[1])  # where it ends already: the journal is read again
    with pytest.raises(LedgerError, match="does not end where the ledger expects"):
        ledger.advance(key, "two", HEADS[1], HEADS[2])
    with pytest.raises(LedgerError, match="does not end where the ledger expects"):
        ledger.advance(key, "one", HEADS[0], HEADS[2])
    with pytest.raises(LedgerError, match="the entry of 'three' was settled"):
        ledger.advance(key, "three", "", HEADS[2])
    other = ledger.reserve(rungs(50.0), name="another search")
    ledger.advance(other, "three", "", HEADS[2])


def test_only_the_journal_that_goes_on_settles_and_only_for_all_that_was_begun(ledger: Ledger) -> None:
    key = climbed(ledger, "one", "two")
    for name, head, made in (("two", HEADS[5], ["one", "two"]), ("three", HEADS[1], ["one", "two", "three"])):
        with pytest.raises(LedgerError, match="does not end where the ledger expects"):
            ledger.settle(key, name, head, rungs(8.0, 4.0), made=made)
    with pytest.raises(LedgerError, match="does not end where the ledger expects"):
        ledger.settle(key, "one", HEADS[0], rungs(8.0), made=["one"])  # while a copy has begun the second
    ledger.close(key, "two", HEADS[1])
    with pytest.raises(LedgerError, match="does not end where the ledger expects"):
        ledger.settle(key, "one", HEADS[0], rungs(8.0), made=["one"])
    assert ledger.entries[0].settled is None


@pytest.mark.parametrize("first", ["settles", "climbs on"])
def test_of_two_processes_one_settles_or_the_other_climbs_on(postgres: str, monkeypatch, first: str) -> None:
    """Each decides by what it has read, and the other acts before it writes: both would be admitted."""
    ledger = Ledger.open(postgres, epsilon=4.0, delta=1e-6, name=f"race, {first}")
    key, other, refused = climbed(ledger, "one"), Ledger(postgres, name=f"race, {first}"), []

    def settle() -> None:
        ledger.settle(key, "one", HEADS[0], rungs(8.0), made=["one"])

    def climb_on() -> None:
        other.advance(key, "two", "", HEADS[1])

    def second() -> None:
        try:
            (climb_on if first == "settles" else settle)()
        except LedgerError as error:
            refused.append(str(error))

    thread, name = threading.Thread(target=second), "append" if first == "settles" else "read_some"
    whole = getattr(store, name)

    def in_the_middle(*given: Any, **named: Any) -> Any:
        found = whole(*given, **named) if first == "climbs on" else None
        if threading.current_thread() is not thread and thread.ident is None:
            thread.start()
            thread.join(0.5)  # it ends only if it does not wait for this transaction
        return whole(*given, **named) if first == "settles" else found

    monkeypatch.setattr(store, name, in_the_middle)
    (settle if first == "settles" else climb_on)()
    thread.join()
    expected = "the entry of 'two' was settled" if first == "settles" else "does not end where the ledger expects"
    assert [expected in said for said in refused] == [True]
    assert (ledger.entries[0].settled is None) == (first == "climbs on")


class Ladder:
    """A ladder of few outcomes a rung, on two data sets: laws of its rungs, given everything before."""

    def __init__(self, random: np.random.Generator, orders: tuple[float, ...], outcomes: int = 2) -> None:
        self.rungs = []
        for _ in range(int(random.integers(1, 4))):
            one = random.dirichlet(np.full(outcomes, random.choice([0.3, 1.0, 5.0])))
            tilted = one * np.exp(random.normal(size=outcomes) * random.uniform(0.2, 2.5))
            self.rungs.append((one, tilted / tilted.sum()))
        self.costs = [_renyi(pair, orders) for pair in self.rungs]

    def cost(self, made: int) -> Charge:
        total = self.costs[0]
        for one in self.costs[1:made]:
            total += one
        return total


def _renyi(pair: tuple[np.ndarray, np.ndarray], orders: tuple[float, ...]) -> Charge:
    both = [
        [math.log(float(np.sum(a**order * b ** (1 - order)))) / (order - 1) for order in orders]
        for a, b in (pair, pair[::-1])
    ]
    return Charge(tuple(max(0.0, *one) * (1 + 1e-12) for one in zip(*both, strict=True)), 0.0)


def _worlds(
    random: np.random.Generator, terms: Terms, pool: list[Ladder], settle: bool, most: int
) -> Iterator[tuple[float, float]]:
    """Every transcript of ladders that interleave: who goes on, who stops and what is reserved depends on all before.

    With ``settle`` a ladder that stops returns what it has not climbed. An adversary draws every choice afresh at
    every node, so that it may depend on the whole transcript.
    """

    def spent(entries: tuple[tuple[int, int, bool], ...]) -> Charge:
        total = Charge((0.0,) * len(terms.orders), 0.0)
        for which, made, is_open in entries:
            whole = is_open or not settle
            total += pool[which].cost(len(pool[which].rungs) if whole else made)
        return total

    def ends(entries: tuple[tuple[int, int, bool], ...], at: tuple[float, float], depth: int) -> Iterator[Any]:
        going = [number for number, (_, _, is_open) in enumerate(entries) if is_open]
        fits = [which for which in range(len(pool)) if (spent(entries) + pool[which].cost(9)).fits(terms)]
        choices = [("climb", number) for number in going] + [("reserve", which) for which in fits]
        if depth == most or not choices:
            yield at
            return
        act, which = choices[int(random.integers(len(choices)))]
        if act == "reserve":
            entries, number = (*entries, (which, 0, True)), len(entries)
        else:
            number = which
        ladder, made, _ = entries[number]
        for a, b in zip(*pool[ladder].rungs[made], strict=True):
            goes_on = made + 1 < len(pool[ladder].rungs) and random.random() < 0.5  # by anything that was published
            after = (*entries[:number], (ladder, made + 1, goes_on), *entries[number + 1 :])
            yield from ends(after, (at[0] * a, at[1] * b), depth + 1)

    yield from ends((), (1.0, 1.0), 0)


@pytest.mark.parametrize("orders", [(2.0,), (1.5, 3.0), (1.5, 2.0, 4.0, 8.0)])
def test_ladders_that_stop_early_never_exceed_the_total(orders: tuple[float, ...]) -> None:
    """The exact δ at ε of every transcript of up to seven rungs, with what was not climbed spent again."""
    largest, more = 0.0, 0
    for seed in range(40):
        random = np.random.default_rng([48, seed])
        delta, total = 10 ** random.uniform(-3, -0.7), random.uniform(0.5, 5.0)
        terms = Terms("", ADD, total, delta, orders)
        pool = [Ladder(random, orders) for _ in range(8)]
        made = np.array(list(_worlds(random, terms, pool, True, 7)))
        kept = np.array(list(_worlds(np.random.default_rng([48, seed]), terms, pool, False, 7)))
        more += len(made) > len(kept)
        assert made.sum(axis=0) == pytest.approx(1.0)
        for p, q in (made.T, made.T[::-1]):
            exact = float(np.maximum(p - math.exp(total) * q, 0.0).sum())
            assert exact <= delta
            largest = max(largest, exact / delta)
    assert largest > 0.02, "the check is not empty"
    assert more > 2, "what was returned was spent"


@pytest.mark.parametrize("seed", range(12))
def test_a_ledger_that_many_ladders_use_counts_what_was_begun_and_never_exceeds_its_total(tmp_path, seed) -> None:
    """Random sequences on a real ledger: ladders are reserved, climb, stop, and copies of them try to climb on."""
    random = np.random.default_rng([49, seed])
    ledger = Ledger.open(tmp_path / "ledger.db", epsilon=float(random.uniform(1.0, 3.0)), delta=1e-6)
    ladders: dict[str, dict[str, Any]] = {}
    begun: list[float] = []  # the noise of every rung that was started, whoever started it
    refused = settled = 0

    def head() -> str:
        return f"{random.integers(2**60):064x}"

    for step in range(40):
        going = [key for key, one in ladders.items() if one["open"]]
        if not going or random.random() < 0.3:
            noise = [float(one) for one in np.sort(random.uniform(2.0, 40.0, int(random.integers(1, 5))))[::-1]]
            try:
                key = ledger.reserve(rungs(*noise), name=f"ladder {step}")
                ladders[key] = {"noise": noise, "made": [], "heads": [], "open": True}
            except LedgerError:
                refused += 1
            continue
        key = going[int(random.integers(len(going)))]
        one = ladders[key]
        made, noise = one["made"], one["noise"]
        one["heads"].append(head())
        made.append(f"{key[:8]}, rung {len(made) + 1}")
        ledger.advance(key, made[-1], "", one["heads"][-1])
        begun.append(noise[len(made) - 1])
        if len(made) == len(noise):
            ledger.close(key, made[-1], one["heads"][-1])
            one["open"] = False
        elif random.random() < 0.5:
            ledger.settle(key, made[-1], one["heads"][-1], rungs(*noise[: len(made)]), made=made)
            one["open"], settled = False, settled + 1
            for name, before in ((f"{key[:8]}, another", ""), (made[-1], one["heads"][-1])):
                with pytest.raises(LedgerError):
                    ledger.advance(key, name, before, head())
        else:
            ledger.close(key, made[-1], one["heads"][-1])
        counted = [e["noise"] if e["open"] else e["noise"][: len(e["made"])] for e in ladders.values()]
        charged = np.sum([ledger.charge(rungs(*one)).renyi for one in counted], axis=0)
        assert ledger._read().spent.renyi == pytest.approx(tuple(charged), rel=1e-6)
        realised = np.array(ledger.terms.orders) / 2 * sum(1 / x**2 for x in begun)  # in closed form
        assert (realised <= charged * (1 + 1e-9)).all()
        assert (realised <= np.array(ledger.terms.budgets())).any()
    assert min(settled, refused) > 0
