"""Searches with a ledger: key, reservation, runs, in this order; kills between the steps, races, refusals."""

from __future__ import annotations

import itertools
import multiprocessing
import shutil
import signal
from functools import partial
from pathlib import Path

import pytest
from support.crash_server import serve
from support.journal_world import contents
from support.ledger_world import attempt, cheaper, dear, make
from support.slow import mostly_slow

import dphypo
from dphypo import Ledger
from dphypo.accounting import ApproximateDp
from dphypo.entropy import Seeded
from dphypo.errors import ChangedStudy, LedgerError


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "ledger.db", epsilon=2.0, delta=1e-6)


def changes(journal: Path, kind: str) -> int:
    return sum(content[0] == kind for content in contents(journal))


@pytest.fixture(scope="module")
def server():
    with serve("ledger_world") as server:
        yield server


@pytest.mark.parametrize("kind", mostly_slow(["study", "stages"]))
@pytest.mark.parametrize("last", mostly_slow([False, True]))
@pytest.mark.parametrize("moment", mostly_slow(["before", "after"]))
def test_a_search_that_is_killed_at_any_commit_pays_once_and_before_its_first_run(server, tmp_path, kind, moment, last):
    """At any commit until the first run is drawn, and up to the last commit where `last` says so."""
    states = set()
    for commit in itertools.count(1):
        path, journal = tmp_path / f"ledger {commit}.db", tmp_path / f"{commit}.db"
        ledger = Ledger.open(path, epsilon=2.0, delta=1e-6)
        settings = {"kind": kind, "ledger": str(path)}
        status = server.run(str(journal), settings=settings, at={moment: commit})
        reserved, begun, drawn = len(ledger.entries), changes(journal, "begin"), changes(journal, "claim")
        assert reserved == 1 or drawn == 0, "a run was drawn before anything was reserved"
        assert begun >= 1 or reserved == 0, "something was reserved under a key that no journal has"
        states.add((begun > 0, reserved > 0, drawn > 0))
        assert server.run(str(journal), settings=settings) == 0
        assert len(ledger.entries) == 1, "a search that goes on pays once"
        if status == 0 or (drawn and not last):
            break
        assert status == -signal.SIGKILL
    assert {(False, False, False), (True, True, True)} <= states
    assert (True, False, False) in states or moment == "before"  # the key is committed, nothing is reserved
    assert (True, True, False) in states or moment == "after"  # reserved, and no run drawn yet


def test_what_would_exceed_the_total_is_refused_before_anything_is_run_or_written(ledger, tmp_path):
    journal = tmp_path / "study.db"
    with pytest.raises(LedgerError, match="'study' would exceed the total of ε = 2"):
        make(journal, dear, ledger=ledger).run(progress=False)
    with pytest.raises(LedgerError):
        make(journal, dear, ledger=ledger).ask()
    assert (contents(journal), ledger.entries) == ([], ())
    assert make(journal, ledger=ledger).run(progress=False).model is not None  # the same journal, declared anew
    assert len(ledger.entries) == 1


def test_a_plan_is_reserved_for_as_a_whole_before_its_first_part(ledger, tmp_path):
    """Its first part alone would fit."""
    journal = tmp_path / "stages.db"
    with pytest.raises(LedgerError, match="'stages' would exceed the total"):
        make(journal, dear, kind="stages", ledger=ledger).run(progress=False)
    assert (contents(journal), ledger.entries) == ([], ())
    plan = make(journal, kind="stages", ledger=ledger)
    plan.run(progress=False)
    (entry,) = ledger.entries
    assert entry.declared.renyi == ledger.charge(plan.guarantee).renyi


def test_searches_at_once_are_admitted_as_far_as_they_fit(ledger, tmp_path):
    alone = Ledger.open(tmp_path / "alone.db", epsilon=2.0, delta=1e-6)
    with pytest.raises(LedgerError):
        [alone.reserve(make().guarantee, name="search") for _ in range(100)]
    fits = len(alone.entries)
    for number in range(fits - 1):
        ledger.reserve(make().guarantee, name=f"before {number}")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        admitted = pool.map(partial(attempt, str(tmp_path)), range(4), chunksize=1)
    assert sum(admitted) == 1
    assert len(ledger.entries) == fits
    assert sum(changes(tmp_path / f"{number}.db", "claim") > 0 for number in range(4)) == 1


def test_going_on_takes_the_same_ledger(ledger, tmp_path):
    with make(tmp_path / "a.db", ledger=ledger) as study:
        study.tell(study.ask(), ({"lr": 1.0}, 0.5))
    with pytest.raises(LedgerError, match="begun with a ledger: pass the same"):
        make(tmp_path / "a.db").run(progress=False)
    other = Ledger.open(tmp_path / "other.db", epsilon=2.0, delta=1e-6)
    with pytest.raises(LedgerError, match="begun with another ledger"):
        make(tmp_path / "a.db", ledger=other).run(progress=False)
    assert other.entries == ()
    made = make(tmp_path / "a.db", ledger=ledger.path).run(progress=False)
    assert make(tmp_path / "a.db").run(progress=False).params == made.params  # a release is read again for nothing
    make(tmp_path / "b.db").ask()
    with pytest.raises(LedgerError, match="begun without a ledger"):
        make(tmp_path / "b.db", ledger=ledger).run(progress=False)
    assert len(ledger.entries) == 1


def test_another_search_in_its_journal_is_told_of_the_journal_and_not_of_its_cost(ledger, tmp_path):
    make(tmp_path / "a.db", ledger=ledger).ask()
    for other in (cheaper, dear):
        with pytest.raises(ChangedStudy, match=r"declared differently.*a\.db"):
            make(tmp_path / "a.db", ledger=ledger, mechanism=other).run(progress=False)
    assert len(ledger.entries) == 1


def test_going_on_with_a_later_part_takes_the_same_ledger(ledger, tmp_path):
    """Each copy would draw T of the second part anew, and release, all for one entry."""
    with make(tmp_path / "stages.db", kind="stages", ledger=ledger) as stages:
        while len(stages.curator(1).trials()) < stages.curator(1).total():
            trial = stages.ask()
            stages.tell(trial, trial.mechanism(trial.params, seed=trial.seed))
        stages._runner.publish(0)  # here its process dies
    begun = contents(shutil.copy(tmp_path / "stages.db", tmp_path / "copy.db"))
    with pytest.raises(LedgerError, match="begun with a ledger: pass the same"):
        make(tmp_path / "copy.db", kind="stages").run(progress=False)
    assert contents(tmp_path / "copy.db") == begun, "nothing was drawn"
    made = make(tmp_path / "stages.db", kind="stages", ledger=ledger).run(progress=False)
    assert make(tmp_path / "stages.db", kind="stages").run(progress=False).params == made.params
    assert len(ledger.entries) == 1


def test_a_ledger_that_forgot_a_search_is_told_again(ledger, tmp_path):
    """A ledger restored from an old copy: the search reserves under the key that its journal has kept."""
    before = shutil.copy(ledger.path, tmp_path / "before.db")
    with make(tmp_path / "study.db", ledger=ledger) as study:
        study.ask()
    (entry,) = ledger.entries
    shutil.copy(before, ledger.path)
    ledger = Ledger(ledger.path)
    make(tmp_path / "study.db", ledger=ledger).run(progress=False)
    assert [one.declared.renyi for one in ledger.entries] == [entry.declared.renyi]


def test_every_search_in_memory_is_a_new_one(ledger):
    for _ in range(2):
        make(None, cheaper, ledger=ledger).run(progress=False)
    assert len(ledger.entries) == 2


def test_what_no_filter_can_hold_is_refused_where_it_is_declared(ledger):
    @dphypo.mechanism(event=ApproximateDp(0.1, 1e-9), relation=ledger.terms.relation)
    def pair(params, *, seed):
        return None, 0.0

    with pytest.raises(LedgerError, match="no Rényi curve"):
        make(None, pair, ledger=ledger)
    with pytest.raises(ValueError, match="a search with seeded randomness has no guarantee"):
        make(None, ledger=ledger, entropy=Seeded(1))
    with pytest.raises(ValueError, match=r"ledger = 3 is not valid: give a dphypo\.Ledger"):
        make(None, ledger=3)
    with pytest.raises(LedgerError, match="there is no ledger"):
        make(None, ledger="nowhere.db")


def test_an_entry_has_a_name_that_somebody_gave(ledger, tmp_path):
    make(tmp_path / "digits in May.db", ledger=ledger).ask()
    make(tmp_path / "other.db", ledger=ledger, name="the second try").ask()
    assert [entry.name for entry in ledger.entries] == ["digits in May", "the second try"]


def test_the_certificate_states_the_total_of_the_ledger(ledger, tmp_path):
    words = make(tmp_path / "digits.db", ledger=ledger).certificate.statement()
    assert "All that is ever charged to it stays within epsilon = 2 at delta = 1e-06 together." in words
