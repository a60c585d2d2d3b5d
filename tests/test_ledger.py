"""The ledger: a total that holds, reservations that are atomic, and a filter with its mutants."""

from __future__ import annotations

import math
import multiprocessing
import sqlite3
from pathlib import Path

import dp_accounting as dp
import numpy as np
import pytest

from dphypo import Geometric, Ledger, account
from dphypo.accounting import ApproximateDp, PureDp, RdpCurve
from dphypo.errors import LedgerError
from dphypo.laws import Pmf
from dphypo.ledger import budget

ONE = Pmf({1: 1.0})


def gaussian(noise: float) -> object:
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
        assert found == pytest.approx(budget(order, 2.0, 1e-6 / len(ledger.orders)))
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
    with pytest.raises(LedgerError, match="exists: a ledger's total is fixed once"):
        opened(tmp_path)
    other = tmp_path / "other.db"
    other.write_text("not a database")
    with pytest.raises(LedgerError, match="is not a ledger"):
        Ledger(other)
    assert other.read_text() == "not a database"
    with sqlite3.connect(tmp_path / "foreign.db") as connection:
        connection.execute("CREATE TABLE t (x)")
    with pytest.raises(LedgerError, match="is not a ledger"):
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
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        taken = pool.map(_reserve, [str(shared.path)] * (admitted + 3))
    assert sum(taken) == admitted == len(shared.entries)
