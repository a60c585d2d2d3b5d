"""Ladders: what is declared and run, where they stop, what they release and what a ledger charges them."""

from __future__ import annotations

import itertools
import signal
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import dp_accounting as dp
import numpy as np
import pytest
from support.crash_server import KILLS_AFTER, serve
from support.journal_world import contents
from support.ladder_world import DELTA, EPSILON, SPACE, TOTALS, Training, climb, make, train, training
from support.slow import mostly_slow
from typer.testing import CliRunner

import dphypo
from dphypo import Ledger
from dphypo.accounting import Certificate, Composition
from dphypo.accounting.certificate import statement, where_it_stopped
from dphypo.accounting.composition import account_published
from dphypo.accounting.profiles import round_epsilon
from dphypo.cli import app
from dphypo.errors import LedgerError
from dphypo.search import Ladder, frontier, tune
from dphypo.search.ladder import Climb
from dphypo.search.release import Row, SurveyTable

TUNE = {"epsilon": EPSILON, "delta": DELTA, "journal": None, "progress": False}


def alone(noises: list[float]) -> Composition:
    return Composition.of(*(account_published(dp.GaussianDpEvent(one), 1) for one in noises))


def noises(planned: Climb) -> list[float]:
    return [rung.mechanism.event.noise_multiplier for rung in planned.rungs]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "ledger.db", epsilon=6.0, delta=1e-6)


def test_rungs_up_to_each_cost_its_total_and_no_more() -> None:
    """By the closed form: k Gaussian mechanisms are one, with μ² the sum of 1/σ²."""
    found = noises(climb())
    assert found == sorted(found, reverse=True)
    for made, total in enumerate(TOTALS, 1):
        one = account_published(dp.GaussianDpEvent(float(np.sum(np.square(found[:made]) ** -1.0)) ** -0.5), 1)
        assert total - 2e-3 < Composition.of(one).epsilon(DELTA) <= total + 1e-6


@pytest.mark.parametrize("reaches", [0, 1, 2, 3, 4])
def test_it_stops_at_the_first_rung_that_reaches_the_target(reaches: int) -> None:
    release = make(reaches=reaches).run(progress=False)
    made = reaches or 4
    assert release.model["noise"] == noises(climb())[made - 1] == -release.score
    assert [table.rows[0].score for table in release.surveys] == [-one for one in noises(climb())[:made]]
    assert release.reached is (reaches > 0)
    stated = release.certificate.document["public"]
    assert [(one["rung"], one["reached"]) for one in stated["released"]] == [
        (number, number == reaches) for number in range(1, made + 1)
    ]
    assert len(stated["releases"]) == 4
    said = f"Run {made} of at most 4 reached" if reaches else "No run reached 0: the model of the last one, run 4,"
    assert (where_it_stopped(release.certificate.document) or "").startswith(said)
    assert ("target was reached" if reaches else "target was not reached") in repr(release)
    assert EPSILON - 2e-3 < release.certificate.epsilon <= EPSILON, "the whole ladder is certified, wherever it stopped"
    assert dphypo.verify(release.certificate)


def test_a_rung_begins_from_the_model_before_it(tmp_path: Path) -> None:
    """Of which it keeps κ, κ² the share of the earlier rungs in Σ σ⁻²."""
    found, weights = noises(climb()), np.square(noises(climb())) ** -1.0
    kept = [None, *(round(float(np.sqrt(np.sum(weights[:j]) / np.sum(weights[: j + 1]))), 4) for j in (1, 2, 3))]
    assert [rung.kept for rung in climb().rungs] == kept
    for release in (make(reaches=0).run(progress=False), _told(make(reaches=0))):
        assert release.model["from"] == [[kept[j], found[j - 1]] for j in (1, 2, 3)]
    stated = release.certificate.document["public"]["releases"]
    assert [one.get("kept of the model before") for one in stated] == kept


def _told(search: dphypo.Stages) -> dphypo.Release:
    while (trial := search.ask()) is not None:
        search.tell(trial, trial.mechanism(trial.params, seed=trial.seed))
    return search.release()


def test_a_rung_after_one_that_failed_begins_untrained() -> None:
    rung = climb().rungs[1]
    assert rung.after(None) is rung.mechanism
    assert rung.after({"noise": 3.0, "from": []}) is not rung.mechanism


def test_tune_climbs_until_a_score_is_reached(tmp_path: Path) -> None:
    target = climb().rungs[0].target
    journal = tmp_path / "tune.db"
    release = tune(SPACE, train, until=target, **TUNE | {"journal": journal})
    assert release.reached
    again = tune(SPACE, train, until=Ladder(target), **TUNE | {"journal": journal})
    assert (again.model, again.read_from) == (release.model, str(journal))
    with dphypo.open_journal(journal) as opened:
        read = opened.release()
        assert (read.model, read.score, read.params) == (release.model, release.score, release.params)
        assert [one.rows for one in read.surveys] == [one.rows for one in release.surveys]
        opened.shred()
    with dphypo.open_journal(journal) as opened:
        assert opened.certificate == release.certificate
    folder = release.save(tmp_path / "release")
    assert dphypo.verify(folder)
    loaded = dphypo.load_release(folder)
    assert (loaded.model, loaded.reached) == (release.model, True)


class Fails(Training):
    def at(self, noise_multiplier: float) -> Training:
        return replace(self, event=dp.GaussianDpEvent(noise_multiplier))

    def continued(self, kept: float, model: object = None) -> Training:
        return self

    def __call__(self, params: object, *, seed: int) -> object:
        raise ArithmeticError


def test_the_parameters_of_a_rung_that_failed_are_read_again(tmp_path: Path) -> None:
    failing, journal = Fails(train.train, event=train.event, relation=train.relation), tmp_path / "tune.db"
    release = tune(SPACE, failing, until=Ladder(0.0, rungs=2), **TUNE | {"journal": journal})
    assert (release.model, set(release.params or {})) == (None, {"lr"})
    with dphypo.open_journal(journal) as opened:
        assert (opened.ending, opened.params) == (release.ending, release.params)


def test_minimised_scores_reach_from_above() -> None:
    worst = tune(SPACE, train, until=-1e9, **TUNE, maximize=False)
    assert not worst.reached
    assert len(worst.surveys) == 7
    assert tune(SPACE, train, until=0.0, **TUNE, maximize=False).reached
    assert "The first whose score reaches 0 is released" in climb(0).summary, "whether larger or smaller is better"


def test_a_ladder_that_stopped_is_charged_for_its_rungs(ledger: Ledger, tmp_path: Path) -> None:
    for reaches in (1, 3, 4, 0):
        make(tmp_path / f"{reaches}.db", ledger=ledger, reaches=reaches).run(progress=False)
        entry = ledger.entries[-1]
        made = reaches or 4
        assert entry.charged.renyi == pytest.approx(ledger.charge(alone(noises(climb())[:made])).renyi)
        assert (entry.settled is None) == (made == 4)
        assert len(entry.released) == made
    assert ledger._read().spent.renyi[0] < 4 * ledger.entries[0].declared.renyi[0]


def test_without_a_ledger_nothing_is_settled_and_the_journal_says_where_it_stopped(tmp_path: Path) -> None:
    make(tmp_path / "ladder.db").run(progress=False)
    assert [content[0] for content in contents(tmp_path / "ladder.db")].count("stop") == 1
    assert sum(content[0] == "claim" for content in contents(tmp_path / "ladder.db")) == 3


def test_people_are_told_where_it_stopped(tmp_path: Path, capsys) -> None:
    release = make(tmp_path / "ladder.db").run(progress=True)
    said = "Run 3 of at most 4 reached -"
    assert capsys.readouterr().err.splitlines()[-1].startswith(said)
    folder = release.save(tmp_path / "release")
    assert CliRunner().invoke(app, ["explain", str(folder)]).output.count(f"Where it stopped: {said}") == 1
    page = release.report(tmp_path / "report.html").read_text()
    assert page.count(said) == 1
    assert page.count("1 run was executed and its result is published.") == 3


def test_asking_and_telling_stops_too(ledger: Ledger) -> None:
    release = _told(make(ledger=ledger))
    assert (release.reached, len(release.surveys)) == (True, 3)
    assert ledger.entries[0].settled is not None


def test_a_score_reaches_the_target_with_its_margin_or_not_at_all() -> None:
    rung = replace(climb().rungs[0], target=0.9, reaching=0.93)
    found = {score: rung.stops(SurveyTable((Row({"lr": 0.1}, score),))) for score in (None, 0.9, 0.929, 0.93, 1.0)}
    assert found == {None: False, 0.9: False, 0.929: False, 0.93: True, 1.0: True}
    lower = replace(climb().rungs[0], target=0.3, reaching=0.27)
    tables = {score: SurveyTable((Row({}, score),), maximize=False) for score in (0.3, 0.27, 0.1)}
    assert {score: lower.stops(table) for score, table in tables.items()} == {0.3: False, 0.27: True, 0.1: True}


def test_a_certificate_says_what_a_ladder_promises_and_its_totals_are_checked() -> None:
    certificate = make().certificate
    said = certificate.statement()
    assert "at most 4 runs of a ladder" in said
    assert where_it_stopped(certificate.document) is None, "before it has run"
    assert "It is an entry in a filter, such as a ledger, and no (epsilon, delta) guarantee by itself." in said
    for name in ("epsilon", "ex post"):
        document = deepcopy(certificate.to_dict())
        rung = document["public"]["releases"][1]
        rung[name] *= 0.99
        document["statement"] = statement(document)
        (problem,) = dphypo.verify(Certificate(document)).problems
        assert f"public.releases[1].{name}" in problem
    document = deepcopy(certificate.to_dict())
    last = document["public"]["releases"][3]
    last["epsilon"] = last["ex post"] = round_epsilon(alone(noises(climb())[3:]).epsilon(DELTA))
    del last["until"]  # what it costs alone is no total of a ladder
    document["statement"] = statement(document)
    assert len([one for one in dphypo.verify(Certificate(document)).problems if "releases[3]" in one]) == 2
    document["public"]["releases"].pop()
    assert any("rungs are stated" in one for one in dphypo.verify(Certificate(document)).problems)


@pytest.fixture(scope="module")
def server():
    with serve("ladder_world") as server:
        yield server


def test_the_journal_says_that_it_stopped_before_the_entry_is_settled(ledger: Ledger, tmp_path, monkeypatch) -> None:
    settle, seen = Ledger.settle, []

    def settling(*given, **named):
        seen.append(search._runner.journal(2).record.stopped)
        settle(*given, **named)
        raise KeyboardInterrupt  # its process dies before it hears of it

    search = make(tmp_path / "ladder.db", ledger=ledger)
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "settle", settling)
        with pytest.raises(KeyboardInterrupt):
            search.run(progress=False)
    assert seen == [True]
    assert make(tmp_path / "ladder.db", ledger=ledger).run(progress=False).reached
    assert [len(entry.released) for entry in ledger.entries] == [3]


ON_RUNGS = [(*KILLS_AFTER[0], 3), *((*kill, reaches) for kill in KILLS_AFTER[1:] for reaches in (3, 1, 0))]
"""When a process is killed, and at which rung its ladder stops: 0 if it climbs to its end."""


@pytest.mark.parametrize(("moment", "step", "reaches"), mostly_slow(ON_RUNGS))
def test_killed_at_any_commit_of_any_rung_it_pays_in_full_until_it_has_stopped(
    server, tmp_path, moment, step, reaches
) -> None:
    seen, made, stops = set(), reaches or 4, reaches > 0
    for commit in itertools.count(1, 1 if step == 1 else 13):
        path, journal = tmp_path / f"ledger {commit}.db", tmp_path / f"{commit}.db"
        book = Ledger.open(path, epsilon=6.0, delta=1e-6)
        settings = {"ledger": str(path), "reaches": reaches}
        status = server.run(str(journal), settings=settings, at={moment: commit})
        changes = [content[0] for content in contents(journal)]
        settled = bool(book.entries) and book.entries[0].settled is not None
        assert "stop" in changes or not settled, "it was settled before the journal said that it had stopped"
        assert settled or changes.count("release") < made or not stops, "it released before it was settled"
        seen.add((changes.count("claim"), "stop" in changes, settled))
        assert server.run(str(journal), settings=settings) == 0
        (entry,) = book.entries
        assert entry.charged.renyi == pytest.approx(book.charge(alone(noises(climb())[:made])).renyi)
        release = make(journal, name="study", ledger=book, reaches=reaches).run(progress=False)
        assert (release.model["noise"], release.reached) == (noises(climb())[made - 1], stops)
        assert [noise for _, noise in release.model["from"]] == noises(climb())[: made - 1], "each from the one before"
        if status == 0:
            break
        assert status == -signal.SIGKILL
    assert {0, made} <= {claimed for claimed, _, _ in seen}
    assert step > 1 or {claimed for claimed, _, _ in seen} == set(range(made + 1)), "it was killed on every rung"
    assert step > 1 or not stops or {(made, True, False), (made, True, True)} <= seen


def test_a_copy_cannot_climb_on_when_the_original_has_stopped(server, ledger: Ledger, tmp_path: Path) -> None:
    """A copy in which the third rung is said not to have reached the target, by a declaration with another one."""
    journal = tmp_path / "ladder.db"
    make(journal, ledger=ledger).run(progress=False)
    (entry,) = ledger.entries
    for head in ("", "a" * 64):
        with pytest.raises(LedgerError, match="was settled"):
            ledger.advance(entry.key, "ladder, stage 4", head, "b" * 64)
    with pytest.raises(dphypo.errors.ChangedStudy):
        make(journal, ledger=ledger, reaches=4).run(progress=False)


def test_a_frontier_releases_every_model_and_charges_all(tmp_path: Path) -> None:
    release = frontier(
        train, space=SPACE, epsilons=(0.5, 1.0, 2.0), delta=DELTA, journal=tmp_path / "f.db", progress=False
    )
    models = [table.model(0) for table in release.surveys]
    for epsilon, model in zip((0.5, 1.0, 2.0), models, strict=True):
        assert epsilon - 2e-3 < alone([model["noise"]]).epsilon(DELTA) <= epsilon
    whole = alone([model["noise"] for model in models])
    assert release.certificate.epsilon == pytest.approx(whole.epsilon(DELTA), abs=1e-4)
    assert release.certificate.epsilon > 2.0
    assert (release.reached, release.model) == (None, models[-1])
    assert dphypo.verify(release.save(tmp_path / "release"))
    with pytest.raises(ValueError, match="the declared parts would cost"):
        frontier(train, space=SPACE, epsilons=(0.5, 2.0), delta=DELTA, epsilon=2.0, journal=None, progress=False)
    by_dict = frontier(train, space={"lr": [0.1, 0.2]}, epsilons=(0.5,), delta=DELTA, journal=None, progress=False)
    assert set(by_dict.params or {}) == {"lr"}
    with pytest.raises(ValueError, match="space = None is not valid: the mechanism has no default"):
        frontier(train, epsilons=(0.5,), delta=DELTA, journal=None)
    with pytest.raises(ValueError, match=r"mechanism = .* is not valid: declare the function"):
        frontier(lambda params, *, seed: None, epsilons=(0.5, 2.0), delta=DELTA, journal=None)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"until": Ladder(0.9, epsilons=(1.0, 4.0))}, "the last total may not exceed epsilon = 2"),
        ({"until": float("nan")}, "target"),
        ({"until": 0.9, "survey": 5}, "survey = 5 is not valid: with until= nothing is searched"),
        ({"until": 0.9, "compute": 5}, "compute = 5 is not valid: with until= nothing is searched"),
    ],
)
def test_what_cannot_be_climbed_is_refused_before_anything_runs(changes: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        tune(SPACE, training(1.0), **TUNE | changes)


@pytest.mark.parametrize("wrong", [(2.0, 1.0), (1.0, 1.0), (), (0.0, 1.0), tuple(range(1, 30))])
def test_totals_increase(wrong: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="epsilons"):
        Ladder(0.9, epsilons=wrong)


def test_the_probability_and_the_number_of_rungs_are_checked() -> None:
    for given in ({"wrong": 0.0}, {"wrong": 0.6}, {"rungs": 0}, {"rungs": 21}):
        with pytest.raises(ValueError, match=next(iter(given))):
            Ladder(0.9, **given)
