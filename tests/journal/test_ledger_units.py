"""A ledger of persons: what it admits, and what searches over single rows cost a person with several."""

from __future__ import annotations

import math

import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation

from dphypo import Geometric, Ledger, account
from dphypo.accounting import Composition, RoundedDp, Term
from dphypo.accounting.composition import EVERYONE, account_published
from dphypo.errors import LedgerError

SIGMA = 30.0
REPLACE = NeighboringRelation.REPLACE_ONE


def published(sigma: float = SIGMA, slack: float = 0.0) -> Composition:
    return Composition((Term(account_published([RoundedDp(GaussianDpEvent(sigma), slack)], 1), EVERYONE),))


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 9])
def test_rows_cost_a_person_at_least_what_a_group_of_them_costs(tmp_path, rows):
    """The oracle: a group of k records shifts a Gaussian mechanism by k, which costs α·k²/(2σ²)."""
    book = Ledger.open(tmp_path / "ledger.db", epsilon=20, delta=1e-6, unit="person", rows_per_person=rows)
    bound = 2 ** math.ceil(math.log2(rows))
    finite = 0
    for order, cost in zip(book.terms.orders, book.charge(published(slack=1e-20), "record").renyi, strict=True):
        if cost < 1e300:
            finite += 1
            assert order * rows**2 / (2 * SIGMA**2) <= cost <= 3 * order * bound**3 / (2 * SIGMA**2)
    assert finite >= len(book.terms.orders) - 2
    book.reserve(published(slack=1e-20), name="rows")
    assert book.entries[0].declared.slack >= rows * 1e-20
    plain = Ledger.open(tmp_path / "plain.db", epsilon=20, delta=1e-6)
    assert rows > 1 or book.charge(published(), "record").renyi == plain.charge(published()).renyi


def test_units_are_not_mixed_without_a_stated_bound(tmp_path):
    persons = Ledger.open(tmp_path / "persons.db", epsilon=4, delta=1e-6, unit="person")
    records = Ledger.open(tmp_path / "records.db", epsilon=4, delta=1e-6)
    with pytest.raises(LedgerError, match=r"each person, and the search each record.*person=.*rows_per_person="):
        persons.reserve(published(), name="rows")
    with pytest.raises(
        LedgerError, match=r"protects each record, and the search each person.*to a ledger of unit='person'"
    ):
        records.reserve(published(), name="persons", unit="person")
    persons.reserve(published(), name="persons", unit="person")
    assert "for each person" in str(persons)
    assert not records.entries
    again = Ledger(tmp_path / "persons.db")
    assert (again.terms.unit, again.entries[0].unit) == ("person", "person")


def test_a_study_over_rows_is_refused_by_a_ledger_of_persons(tmp_path):
    book = Ledger.open(tmp_path / "ledger.db", epsilon=4, delta=1e-6, unit="person", rows_per_person=2)
    with pytest.raises(LedgerError, match=r"study over single records.*person="):
        book.reserve(account(GaussianDpEvent(SIGMA), Geometric(mean=4)), name="study")
    book.reserve(account(GaussianDpEvent(SIGMA), Geometric(mean=4)), name="study", unit="person")


def test_replacing_a_person_by_one_with_fewer_rows_replaces_no_rows(tmp_path, monkeypatch):
    """How many rows there are is public where one row is replaced, and reveals a person who is replaced."""
    with monkeypatch.context() as patched:
        patched.setattr("dphypo.journal.ledger.REPLACE_ONE", None)  # opened by a version that did not refuse it
        book = Ledger.open(tmp_path / "l.db", epsilon=4, delta=1e-6, relation=REPLACE, unit="person", rows_per_person=3)
    rows = Composition.of(account_published(GaussianDpEvent(SIGMA), 1, relation=REPLACE))
    with pytest.raises(LedgerError, match="protects each person, and the search each record"):
        book.reserve(rows, name="rows")
    book.reserve(rows, name="persons", unit="person")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"unit": "row"}, "unit = 'row'"),
        ({"rows_per_person": 3}, 'unit="person"'),
        ({"unit": "person", "rows_per_person": 0}, "rows_per_person = 0"),
        ({"unit": "person", "rows_per_person": 3, "relation": REPLACE}, "more or fewer rows"),
    ],
)
def test_wrong_units_are_refused(tmp_path, wrong, words):
    with pytest.raises(ValueError, match=words):
        Ledger.open(tmp_path / "ledger.db", epsilon=4, delta=1e-6, **wrong)
