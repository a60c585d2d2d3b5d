"""The ledger: a total that holds, reservations that are atomic, and a filter with its mutants."""

from __future__ import annotations

import itertools
import math
import multiprocessing
import re
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import dp_accounting as dp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from support.slow import mostly_slow

from dphypo import Geometric, Ledger, account
from dphypo.accounting import ApproximateDp, Guarantee, PureDp, RdpCurve, RoundedDp
from dphypo.errors import LedgerError
from dphypo.journal.ledger import ORDERS, Charge, Terms, _covers, budget
from dphypo.laws import Pmf

ONE = Pmf({1: 1.0})


def gaussian(noise: float) -> Guarantee:
    return account(dp.GaussianDpEvent(noise), ONE)


ADD = dp.NeighboringRelation.ADD_OR_REMOVE_ONE


def opened(folder: Path, epsilon: float = 2.0, delta: float = 1e-6) -> Ledger:
    return Ledger.open(folder / "ledger.db", epsilon=epsilon, delta=delta)


def test_a_gaussian_is_charged_what_it_costs_at_every_order(tmp_path: Path) -> None:
    """α/(2σ²). At an order that dp_accounting does not have it would be charged for the next one it has."""
    found = np.array(opened(tmp_path).charge(gaussian(7.0)).renyi) / (np.array(ORDERS) / 98)
    assert found == pytest.approx(np.ones(len(ORDERS)), rel=1e-6)


def test_the_budget_of_an_order_is_the_conversion_of_dp_accounting() -> None:
    for order in (8.0, 24.0, 64.0):
        spent = budget(order, 3.0, 1e-7)
        epsilon = dp.rdp.compute_epsilon([order], [spent], 1e-7)[0]
        assert epsilon == pytest.approx(3.0, abs=2e-5)
        assert epsilon <= 3.0


def test_what_is_admitted_is_within_the_total_however_it_is_accounted(tmp_path: Path) -> None:
    """As many equal searches as the filter admits, composed non-adaptively by PLD: at most the total."""
    ledger = opened(tmp_path, 2.0)
    with pytest.raises(LedgerError, match="would exceed the total"):
        list(map(lambda number: ledger.reserve(gaussian(8.0), name=f"search {number}"), range(1000)))  # noqa: C417
    admitted = len(ledger.entries)
    assert admitted >= 3
    together = account(dp.SelfComposedDpEvent(dp.GaussianDpEvent(8.0), admitted), ONE)
    assert together.epsilon(1e-6) <= 2.0


def test_delta_is_shared_between_the_orders(tmp_path: Path) -> None:
    """The mutant that gives every order all of δ admits more than the filter is proven for."""
    ledger = opened(tmp_path)
    for order, found in zip(ledger.terms.orders, ledger.terms.budgets(), strict=True):
        assert found == pytest.approx(budget(order, 2.0, 0.99e-6 / len(ledger.terms.orders)))
        assert found < budget(order, 2.0, 1e-6)


def test_a_key_is_charged_once_and_a_search_that_starts_afresh_again(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    key = ledger.reserve(gaussian(20.0), name="search")
    assert ledger.reserve(gaussian(20.0), name="search", key=key) == key
    assert len(ledger.entries) == 1
    assert ledger.reserve(gaussian(20.0), name="search") != key
    assert len(Ledger(tmp_path / "ledger.db").entries) == 2


def test_a_key_does_not_let_another_search_in(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    key = ledger.reserve(gaussian(200.0), name="search")
    with pytest.raises(LedgerError, match="costs more than what was reserved under its key"):
        ledger.reserve(gaussian(0.5), name="search", key=key)
    assert ledger.reserve(gaussian(400.0), name="search", key=key) == key


def test_what_a_key_lets_pass_on_another_machine_is_within_the_total_too() -> None:
    """A search that is resumed may cost a little more than what was reserved: a full ledger has room for it."""
    more = 1 + 0.99e-6
    for slack in (0.0, 1e-12, 4e-9):
        terms = Terms("", ADD, 2.0, 1e-6, ORDERS)
        for order, most in zip(ORDERS, terms.budgets(slack), strict=True):
            reserved = Charge((most, *ORDERS[1:]), slack)
            asked = Charge((most * more, *ORDERS[1:]), slack * more)
            assert _covers(reserved, asked) == (most > 0)
            reach = min(2.0, math.log(0.05) + 0.95 * math.log(0.5e-8 / asked.slack)) if slack else 2.0
            exact = reach - math.log((order - 1) / order) + math.log(order * terms.share) / (order - 1)
            assert most <= 0 or asked.renyi[0] + 1e-12 * 1e5 <= exact
    assert Terms("", ADD, 2.0, 1e-6, ORDERS).reach(0.5e-8) == -math.inf, "it would be more than δ keeps for slack"


def test_the_total_is_fixed_and_other_files_are_left_alone(tmp_path: Path) -> None:
    opened(tmp_path)
    with pytest.raises(LedgerError, match="a second ledger would not know what the first has spent"):
        opened(tmp_path)
    other = tmp_path / "other.db"
    other.write_text("not a database")
    with pytest.raises(LedgerError, match="it is a file of another kind"):
        Ledger(other)
    assert other.read_text() == "not a database"
    with sqlite3.connect(tmp_path / "foreign.db") as connection:
        connection.execute("CREATE TABLE t (x)")
    with pytest.raises(LedgerError, match="it is a database of another program"):
        Ledger(tmp_path / "foreign.db")
    with pytest.raises(LedgerError, match="there is no ledger"):
        Ledger(tmp_path / "none.db")


def test_a_guarantee_without_a_renyi_curve_or_of_another_relation_is_refused(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    with pytest.raises(LedgerError, match="no Rényi curve"):
        ledger.reserve(account(ApproximateDp(0.1, 1e-9), ONE), name="pair")
    replaced = account(PureDp(0.1), ONE, relation=dp.NeighboringRelation.REPLACE_ONE)
    with pytest.raises(LedgerError, match="kept under ADD_OR_REMOVE_ONE"):
        ledger.reserve(replaced, name="other relation")
    assert ledger.entries == ()


def test_plans_and_compositions_are_held_too(tmp_path: Path) -> None:
    ledger = opened(tmp_path, 8.0)
    first, second = account(dp.GaussianDpEvent(10.0), Geometric(mean=3)), account(dp.GaussianDpEvent(9.0), ONE)
    together = ledger.charge(first.compose(second)).renyi
    np.testing.assert_allclose(together, np.add(ledger.charge(first).renyi, ledger.charge(second).renyi))
    ledger.reserve(first.compose(second), name="declared together")


def test_an_order_that_is_infinite_does_not_help(tmp_path: Path) -> None:
    ledger = opened(tmp_path, 8.0)
    curve = RdpCurve((2.0, 4.0), (0.1, 0.3))
    costs = ledger.charge(account(curve, ONE)).renyi
    assert sum(cost < 1e299 for cost in costs) == sum(1 < order <= 4 for order in ledger.terms.orders)
    assert all(math.isfinite(cost) for cost in costs)


def _reserve(path: str) -> bool:
    try:
        Ledger(path).reserve(account(dp.GaussianDpEvent(4.0), ONE), name="at once")
    except LedgerError:
        return False
    return True


def test_searches_that_reserve_at_once_are_taken_one_after_the_other(tmp_path: Path) -> None:
    alone = opened(tmp_path)
    admitted = 0
    while _reserve(str(alone.path)):
        admitted += 1
    shared = Ledger.open(tmp_path / "shared.db", epsilon=2.0, delta=1e-6)
    with multiprocessing.get_context("fork").Pool(4) as pool:
        taken = pool.map(_reserve, [str(shared.path)] * (admitted + 3), chunksize=1)
    assert sum(taken) == admitted == len(shared.entries)


def sampled(noise: float) -> Guarantee:
    step = dp.PoissonSampledDpEvent(256 / 60_000, dp.GaussianDpEvent(noise))
    return account(RoundedDp(dp.SelfComposedDpEvent(step, 200), 1e-17), ONE)


def composed(noise: float) -> Guarantee:
    step = dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(noise))
    return account(dp.ComposedDpEvent([dp.LaplaceDpEvent(10 * noise), dp.SelfComposedDpEvent(step, 50)]), ONE)


@pytest.mark.parametrize(("search", "noise"), mostly_slow([(gaussian, 1.0), (sampled, 0.5), (composed, 0.6)]))
def test_a_refusal_names_the_epsilon_that_fits(tmp_path: Path, search: Callable[[float], Guarantee], noise: float):
    """In the unit in which people ask: the ε that a search states at its δ."""
    ledger = opened(tmp_path)
    ledger.reserve(gaussian(4.0), name="first")
    asked = search(noise)
    with pytest.raises(LedgerError) as caught:
        ledger.reserve(asked, name="second", delta=1e-7)
    said = str(caught.value)
    found = re.search(r"asks for epsilon=(\S+); epsilon=(\S+) fits, with (\S+) times its noise", said)
    assert found is not None, said
    wanted, fits, factor = map(float, found.groups())
    assert wanted == pytest.approx(asked.epsilon(1e-7), rel=1e-3)

    def solved(epsilon: float) -> Guarantee:
        return search(brentq(lambda at: search(at).epsilon(1e-7) - epsilon, noise, 100 * noise, xtol=1e-3))

    ledger.check(solved(fits), name="what was said to fit")
    ledger.check(search(1.001 * factor * noise), name="with that noise")
    with pytest.raises(LedgerError):
        ledger.check(solved(1.05 * fits), name="more than was said to fit")
    ledger.reserve(solved(fits), name="the rest")
    with pytest.raises(LedgerError, match=r"nothing of this kind fits any more|epsilon=\S+ fits"):
        ledger.reserve(gaussian(4.0), name="one more")
    assert len(ledger.entries) == 2


@st.composite
def searches(draw: st.DrawFn) -> list[Charge]:
    """What searches cost at the orders of a ledger: curves that never decrease, with or without slack."""
    made = []
    for _ in range(draw(st.integers(1, 6))):
        scale, bend = 10 ** draw(st.floats(-4, 1)), draw(st.floats(0, 2))
        slack = draw(st.sampled_from([0.0, 1e-22, 1e-17, 1e-14, 1e-11, 1e-8]))
        made.append(Charge(tuple(scale * order**bend for order in ORDERS), slack * draw(st.floats(0.5, 2))))
    return made


@settings(max_examples=300)
@given(searches(), st.floats(0.5, 60.0), st.floats(0.0, 40.0), st.sampled_from([1e-4, 1e-6, 1e-9]))
def test_a_larger_total_never_holds_less(made: list[Charge], total: float, more: float, delta: float) -> None:
    terms = [Terms("", dp.NeighboringRelation.ADD_OR_REMOVE_ONE, one, delta, ORDERS) for one in (total, total + more)]
    spent = Charge((0.0,) * len(ORDERS), 0.0)
    for cost in made:
        spent += cost
        assert spent.fits(terms[1]) or not spent.fits(terms[0])


@pytest.mark.parametrize("bend", [0.0, 0.5, 1.0, 1.5])
@pytest.mark.parametrize("slack", [0.0, 1e-16, 1e-10])
def test_what_fits_grows_with_the_total_at_every_step(bend: float, slack: float) -> None:
    """How many times a curve fits, at totals so close that an order which begins to count shows."""
    curve = np.array(ORDERS) ** bend
    fits = []
    for total in np.linspace(0.1, 30.0, 3000):
        terms = Terms("", dp.NeighboringRelation.ADD_OR_REMOVE_ONE, float(total), 1e-6, ORDERS)
        fits.append(max(np.array(terms.budgets(slack)) / curve))
    assert (np.diff(fits) >= 0).all()


@pytest.mark.parametrize("delta", [1e-4, 1e-6, 1e-9])
def test_what_slack_leaves_of_epsilon_is_paid_for_by_delta(delta: float) -> None:
    """The shares of the orders, the integral of e^e(S) and the largest S are together at most δ."""
    terms = Terms("", dp.NeighboringRelation.ADD_OR_REMOVE_ONE, 60.0, delta, ORDERS)
    largest = brentq(lambda log: math.isfinite(terms.reach(math.exp(log))) - 0.5, -60.0, 0.0)
    logs = np.linspace(-120.0, largest, 400_001)  # below, e(S) = ε
    height = np.exp([terms.reach(slack) + math.log(slack) for slack in np.exp(logs)])
    integral = float(np.sum(np.maximum(height[1:], height[:-1]) * np.diff(logs)) + math.exp(60.0 - 120.0))
    paid = terms.share * len(ORDERS) + integral + math.exp(largest)
    assert 0.99 * delta < paid <= delta * (1 + 1e-4)  # the sum is above the integral


def test_slack_is_charged_where_it_costs_most() -> None:
    """Two outcomes. The ideal is randomised response with e^ε₁; rounding moves S of the rarer outcome away.

    The pair is (ε, δ)-DP for no smaller δ than P − e^ε·P′ on the outcome that only one data set keeps, and what the
    filter admits at (ε, δ) has no larger one: an exact oracle, at every S and for every total.
    """
    for total, delta, slack in itertools.product((1.0, 4.0, 8.0, 16.0, 40.0), (1e-5, 1e-9), 10.0 ** np.arange(-24, -4)):
        terms = Terms("", dp.NeighboringRelation.ADD_OR_REMOVE_ONE, total, delta, ORDERS)
        for loss in np.linspace(0.1, 45.0, 60):
            high = 1 / (1 + math.exp(-loss))
            ideal = (high, math.exp(-loss) * high)  # P of the outcome on the two data sets
            renyi = [
                math.log(high**a * ideal[1] ** (1 - a) + ideal[1] ** a * high ** (1 - a)) / (a - 1)
                if loss * a < 300
                else loss
                for a in ORDERS
            ]
            if Charge(tuple(max(0.0, one) for one in renyi), float(slack)).fits(terms):
                real = min(1.0, ideal[0] + slack), max(0.0, ideal[1] - slack)
                assert real[0] - math.exp(total) * real[1] <= delta, (total, delta, slack, loss)


@dataclass(frozen=True)
class Finite:
    """A search with few outcomes: its ideal on two data sets, and what rounding made of both."""

    ideal: tuple[np.ndarray, np.ndarray]
    real: tuple[np.ndarray, np.ndarray]

    @classmethod
    def draw(cls, random: np.random.Generator, delta: float) -> Finite:
        one = random.dirichlet(np.full(3, random.choice([0.3, 1.0, 5.0])))
        tilted = one * np.exp(random.normal(size=3) * random.uniform(0.2, 2.5))
        ideal = one, tilted / tilted.sum()
        worst = int(np.argmax(ideal[0] / ideal[1]))
        slack = min(0.005 * delta * random.uniform(0, 1) ** 2, ideal[1][worst], 1 - ideal[0][worst])
        real = ideal[0].copy(), ideal[1].copy()
        real[0][worst] += slack
        real[0][worst - 1] -= min(slack, real[0][worst - 1])
        real[1][worst] -= slack
        real[1][worst - 1] += slack
        return cls(ideal, (real[0] / real[0].sum(), real[1] / real[1].sum()))

    def cost(self, orders: tuple[float, ...]) -> Charge:
        (p, q), pairs = self.ideal, zip(self.ideal, self.real, strict=True)
        both = [[math.log(float(np.sum(a**o * b ** (1 - o)))) / (o - 1) for o in orders] for a, b in ((p, q), (q, p))]
        slack = max(float(np.abs(a - b).sum()) / 2 for a, b in pairs)
        return Charge(tuple(max(0.0, *one) * (1 + 1e-12) for one in zip(*both, strict=True)), slack)


@pytest.mark.parametrize("orders", [(2.0,), (1.5, 3.0), (1.5, 2.0, 4.0, 8.0)])
def test_what_is_admitted_adaptively_is_within_the_total_exactly(orders: tuple[float, ...]) -> None:
    """Every transcript of up to four searches, the next chosen by the outcomes so far: the exact δ at ε."""
    largest = 0.0
    for seed in range(150):
        random = np.random.default_rng([13, seed])
        delta, total = 10 ** random.uniform(-3, -0.7), random.uniform(0.3, 5.0)
        terms = Terms("", dp.NeighboringRelation.ADD_OR_REMOVE_ONE, total, delta, orders)
        pool = [Finite.draw(random, delta) for _ in range(12)]
        costs = [one.cost(orders) for one in pool]

        def ends(spent: Charge, at: tuple[float, float], depth: int) -> Iterator[tuple[float, float]]:
            fitting = [number for number, cost in enumerate(costs) if (spent + cost).fits(terms)]  # noqa: B023
            if depth == 4 or not fitting:
                yield at
                return
            number = int(random.choice(fitting))  # noqa: B023
            for a, b in zip(*pool[number].real, strict=True):  # noqa: B023
                yield from ends(spent + costs[number], (at[0] * a, at[1] * b), depth + 1)  # noqa: B023

        made = np.array(list(ends(Charge((0.0,) * len(orders), 0.0), (1.0, 1.0), 0)))
        assert made.sum(axis=0) == pytest.approx(1.0)
        for p, q in (made.T, made.T[::-1]):
            exact = float(np.maximum(p - math.exp(total) * q, 0.0).sum())
            assert exact <= delta
            largest = max(largest, exact / delta)
    assert largest > 0.02, "the check is not empty"


def test_entries_say_what_they_state_and_when(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    search = gaussian(8.0)
    ledger.reserve(search, name="first", delta=1e-7)
    (entry,) = ledger.entries
    assert (entry.epsilon, entry.delta) == (search.epsilon(1e-7), 1e-7)
    assert f"first: ε = {entry.epsilon:.4g} at δ = 1e-07, declared on {date.today().isoformat()}" in str(ledger)
    key = ledger.reserve(search, name="second")
    ledger.advance(key, "study", "", "a" * 64)
    ledger.close(key, "study", "a" * 64)
    assert str(ledger).count(", released") == 1
    assert ", released: study" in str(ledger)
    ledger.advance(ledger.reserve(search, name="third"), "a, stage 1", "", "a" * 64)
    assert str(ledger).count(", released") == 1, "it began, and has released nothing"


def test_ledgers_in_a_database_are_told_apart_by_name(postgres: str) -> None:
    first = Ledger.open(postgres, epsilon=1.0, delta=1e-6, name="first of two")
    second = Ledger.open(postgres, epsilon=2.0, delta=1e-6, name="second of two")
    first.reserve(gaussian(50.0), name="search")
    assert (len(first.entries), len(second.entries)) == (1, 0)
    with pytest.raises(LedgerError, match="a second ledger would not know"):
        Ledger.open(postgres, epsilon=9.0, delta=1e-6, name="first of two")
    with pytest.raises(LedgerError, match="holds no ledger 'third'"):
        Ledger(postgres, name="third")
    assert Ledger(postgres, name="first of two").terms.id == first.terms.id


def test_searches_that_use_a_ledger_at_once_do_not_disturb_each_other(postgres: str) -> None:
    """A transaction reads several rows; between two of them another process must not commit."""
    whole = Ledger.open(postgres, epsilon=4.0, delta=1e-6, name="used at once")

    def search(number: int) -> None:
        ledger = Ledger(postgres, name="used at once")
        for place in range(6):
            key = ledger.reserve(gaussian(500.0), name=f"{number}, {place}")
            ledger.advance(key, "study", "", "1" * 64)
            ledger.close(key, "study", "1" * 64)
            assert ledger.entries

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(search, range(4)))
    assert len(whole.entries) == 24
    assert all(entry.released == ("study",) for entry in whole.entries)
