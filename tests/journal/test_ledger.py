"""The ledger: a total that holds, reservations that are atomic, and a filter with its mutants."""

from __future__ import annotations

import math
import multiprocessing
import re
import sqlite3
from datetime import date
from pathlib import Path

import dp_accounting as dp
import numpy as np
import pytest

from dphypo import Geometric, Ledger, account
from dphypo.accounting import ApproximateDp, Guarantee, PureDp, RdpCurve
from dphypo.errors import LedgerError
from dphypo.journal.ledger_book import budget
from dphypo.laws import Pmf

ONE = Pmf({1: 1.0})


def gaussian(noise: float) -> Guarantee:
    return account(dp.GaussianDpEvent(noise), ONE)


def opened(folder: Path, epsilon: float = 2.0, delta: float = 1e-6) -> Ledger:
    return Ledger.open(folder / "ledger.db", epsilon=epsilon, delta=delta)


def test_the_budget_of_an_order_is_the_conversion_of_dp_accounting() -> None:
    for order in (8.0, 24.0, 64.0):
        spent = budget(order, 3.0, 1e-7)
        epsilon = dp.rdp.compute_epsilon([order], [spent], 1e-7)[0]
        assert epsilon == pytest.approx(3.0, abs=1e-6)
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
    for order, found in zip(ledger.orders, ledger.budgets, strict=True):
        assert found == pytest.approx(budget(order, 2.0, 0.999e-6 / len(ledger.orders)))
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
    together = ledger.costs(first.compose(second))
    np.testing.assert_allclose(together, np.add(ledger.costs(first), ledger.costs(second)))
    ledger.reserve(first.compose(second), name="declared together")


def test_an_order_that_is_infinite_does_not_help(tmp_path: Path) -> None:
    ledger = opened(tmp_path, 8.0)
    curve = RdpCurve((2.0, 4.0), (0.1, 0.3))
    costs = ledger.costs(account(curve, ONE))
    assert sum(cost < 1e299 for cost in costs) == sum(1 < order <= 4 for order in ledger.orders)
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


def test_a_refusal_shows_numbers_and_what_would_fit(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.reserve(gaussian(4.0), name="first")
    with pytest.raises(LedgerError) as caught:
        ledger.reserve(gaussian(1.0), name="second")
    said = str(caught.value)
    assert "another file" not in said
    assert "counts more than dphypo compose" in said
    assert "(searches=, or dphypo ledger open --search)" in said
    found = re.search(
        r"spent ε = (\S+), asked for (\S+), left (\S+) by.* fits with ε = (\S+) at most.* (\S+) times", said
    )
    assert found is not None
    spent, asked, left, fits, noise = map(float, found.groups())
    assert 0 < spent < 2 < asked
    assert left == pytest.approx(2 - spent, abs=0.02)
    assert 0 < fits < 2
    ledger.check(gaussian(1.001 * noise), name="with that noise")
    with pytest.raises(LedgerError):
        ledger.check(gaussian(0.98 * noise), name="with less")
    ledger.reserve(gaussian(1.001 * noise), name="the rest")
    with pytest.raises(LedgerError, match=r"Nothing of this kind fits any more|fits with"):
        ledger.reserve(gaussian(4.0), name="one more")


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


def test_a_list_that_is_fixed_beforehand_is_composed_which_is_tighter(tmp_path: Path) -> None:
    """The filter admits fewer of the same searches: it lets each depend on the results before it."""
    one, two = gaussian(8.0), gaussian(9.0)
    together = one.compose(two).epsilon(1e-6)
    with pytest.raises(LedgerError, match=rf"cost ε = {together:.4g} at δ = 1e-06 together, and the total is"):
        Ledger.open(tmp_path / "a", epsilon=0.999 * together, delta=1e-6, searches={"one": one, "two": two})
    assert not (tmp_path / "a").exists()
    filtering = Ledger.open(tmp_path / "filter", epsilon=together, delta=1e-6)
    filtering.reserve(one, name="one")
    with pytest.raises(LedgerError, match="searches that are all fixed beforehand compose to less"):
        filtering.reserve(two, name="two")
    fixed = Ledger.open(tmp_path / "fixed", epsilon=together, delta=1e-6, searches={"one": one, "two": two})
    assert "two: declared, not begun" in str(fixed)
    with pytest.raises(LedgerError, match="'one' is not one of the searches that this ledger was made for, as it was"):
        fixed.reserve(gaussian(7.0), name="one")
    with pytest.raises(LedgerError, match="'three' is not one of the searches"):
        fixed.reserve(one, name="three")
    key = fixed.reserve(one, name="one")
    assert fixed.reserve(one, name="one", key=key) == key
    with pytest.raises(LedgerError, match="was reserved before"):
        fixed.reserve(one, name="one")
    Ledger(tmp_path / "fixed").reserve(two, name="two")
    assert len(fixed.entries) == 2
    pair = account(ApproximateDp(0.1, 1e-9), ONE)
    pairs = Ledger.open(tmp_path / "pair", epsilon=1.0, delta=1e-6, searches={"pair": pair})
    key = pairs.reserve(pair, name="pair")
    with pytest.raises(LedgerError, match="'pair' is not one of the searches"):  # neither has a Rényi curve
        pairs.reserve(account(ApproximateDp(3.0, 1e-9), ONE), name="pair", key=key)


def test_ledgers_in_a_database_are_told_apart_by_name(postgres: str) -> None:
    first = Ledger.open(postgres, epsilon=1.0, delta=1e-6, name="first of two")
    second = Ledger.open(postgres, epsilon=2.0, delta=1e-6, name="second of two")
    first.reserve(gaussian(50.0), name="search")
    assert (len(first.entries), len(second.entries)) == (1, 0)
    with pytest.raises(LedgerError, match="a second ledger would not know"):
        Ledger.open(postgres, epsilon=9.0, delta=1e-6, name="first of two")
    with pytest.raises(LedgerError, match="holds no ledger 'third'"):
        Ledger(postgres, name="third")
    assert Ledger(postgres, name="first of two").id == first.id
