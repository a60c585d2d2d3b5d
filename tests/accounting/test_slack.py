"""Slack: what rounded noise adds, on the final δ, in every place that states a guarantee."""

from __future__ import annotations

import itertools
import json
import math
import re
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
from scipy.optimize import brentq
from support.upper_bound import epsilon_from_above

from dphypo import Geometric, Ledger, account, calibrate, verify
from dphypo.accounting import Certificate, Composition, PureDp, Split, Term
from dphypo.accounting.certificate import assumptions, statement
from dphypo.accounting.composition import account_published
from dphypo.accounting.events import RoundedDp, canonical, event_to_dict, from_dict, ideal
from dphypo.accounting.lower_bound import epsilon_from_below
from dphypo.accounting.one_run import charge_slack
from dphypo.accounting.verify import guarantee_of
from dphypo.errors import LedgerError
from dphypo.laws import Pmf

DELTA = 1e-6
NOISE = dp.GaussianDpEvent(4.0)
SIDES = Split("odd numbers score").sides
LAW = Pmf({1: 0.25, 2: 0.25, 5: 0.5})


def leaking(epsilon: float, slack: float) -> tuple[np.ndarray, np.ndarray]:
    """A run with outcomes (0, 1, told) on both neighbours: ε-DP, but that with probability ``slack`` it tells which."""
    likely, rare = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
    with_record = np.array([likely * (1 - slack), rare * (1 - slack), slack])
    return with_record, np.array([rare, likely, 0.0])


def hockey_stick(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


def best_of(run: np.ndarray, law: Pmf) -> np.ndarray:
    """The best of T runs, outcomes ranked by number."""
    below = np.concatenate([[0.0], np.cumsum(run)])
    weights = {1: 0.25, 2: 0.25, 5: 0.5}
    return np.asarray(sum(weight * np.diff(below**count) for count, weight in weights.items()))


@pytest.mark.parametrize("slack", [1e-9, 1e-4, 0.02])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_a_search_whose_runs_differ_by_the_slack_costs_no_more_than_is_said(epsilon: float, slack: float) -> None:
    one, other = (best_of(run, LAW) for run in leaking(epsilon, slack))
    said = account(RoundedDp(PureDp(epsilon), slack), LAW)
    assert said.slack == pytest.approx(3.25 * slack)
    for at in (0.0, 0.5, 1.0, 3.0, 8.0):
        exact = max(hockey_stick(one, other, at), hockey_stick(other, one, at))
        assert exact <= said.delta(at)
    top = hockey_stick(one, other, 8.0)  # what is told, and nothing else
    assert top > account(PureDp(epsilon), LAW).delta(8.0), "the slack is needed"
    assert top > 3.0 * slack * 0.9, "and all of E[T]"


@pytest.mark.parametrize("slack", [1e-9, 1e-3, 0.02])
def test_published_runs_that_differ_by_the_slack_cost_no_more_than_is_said(slack: float) -> None:
    pair = leaking(0.5, slack)
    runs = [
        np.array([math.prod(law[i] for i in seen) for seen in itertools.product(range(3), repeat=3)]) for law in pair
    ]
    said = Composition.of(account_published(RoundedDp(PureDp(0.5), slack), 3))
    for at in (0.0, 0.5, 1.0, 1.6, 4.0):
        assert max(hockey_stick(*runs, at), hockey_stick(*runs[::-1], at)) <= said.delta(at)
    assert hockey_stick(*runs, 4.0) > 2.9 * slack
    silent = Composition.of(account_published(RoundedDp(PureDp(0.0), slack), 3))
    assert 2 * slack < 1 - (1 - slack) ** 3 <= silent.delta(0.0), "three runs that only tell"


def test_epsilon_and_delta_agree() -> None:
    for guarantee in (
        account(RoundedDp(NOISE, 1e-9), Geometric(mean=4)),
        Composition.of(account_published(RoundedDp(NOISE, 1e-9), 4), account_published(NOISE, 1)),
    ):
        for delta in (1e-6, 1e-4):
            epsilon = guarantee.epsilon(delta)
            assert guarantee.delta(epsilon) <= delta * (1 + 1e-9)
        assert guarantee.epsilon(1e-12) == math.inf, "the slack alone is more"
        _, deltas = guarantee.profile()
        assert np.all(np.diff(deltas) <= 0)
        assert deltas[-1] > 4e-9


def test_a_little_slack_costs_a_little() -> None:
    plain, charged = (account(event, Geometric(mean=4)) for event in (NOISE, RoundedDp(NOISE, 1e-17)))
    for name, epsilon in plain.bounds(DELTA).items():
        assert epsilon <= charged.bounds(DELTA)[name] <= epsilon * (1 + 1e-6)
    assert plain.one_run(DELTA)["pld"] <= charged.one_run(DELTA)["pld"] <= plain.one_run(DELTA)["pld"] * (1 + 1e-6)


def test_the_part_of_delta_that_is_given_up_is_the_smallest_that_is_enough() -> None:
    seen: list[float] = []

    def epsilons(delta: float) -> dict[str, float]:
        seen.append(delta)
        return {"one": 1.0, "two": 6.0}

    found = charge_slack(epsilons, 1e-6, 1e-10)
    assert found == {"one": 1.0, "two": 6.0}
    given_up = 1e-10 * (1 + math.e)
    assert seen == pytest.approx([1e-6 - part for part in (1e-15, 1e-12, 1e-9, *[given_up] * 3, 5e-7)], rel=1e-12)
    assert charge_slack(epsilons, 0.0, 1e-12) == {"one": math.inf, "two": math.inf}


def test_a_side_has_the_slack_of_the_terms_that_it_meets() -> None:
    training = account_published(RoundedDp(dp.GaussianDpEvent(8.0), 1e-8), 10)
    scores = account_published(RoundedDp(dp.GaussianDpEvent(2.0), 1e-12), 10)
    plan = Composition((Term(training, SIDES.training), Term(scores, SIDES.scoring, scores=True)))
    assert plan.slack == pytest.approx(1e-7)
    assert plan.costs(1e-8) == {"training": math.inf, "scoring": pytest.approx(Composition.of(scores).epsilon(1e-8))}
    replaced = account_published(RoundedDp(NOISE, 1e-8), 10, relation=dp.NeighboringRelation.REPLACE_ONE)
    assert Composition.of(replaced, replaced).slack == pytest.approx(2e-7)


def test_calibration_pays_for_slack() -> None:
    found = calibrate(
        lambda noise: RoundedDp(dp.GaussianDpEvent(noise), 1e-9), Geometric(mean=5), epsilon=3.0, delta=DELTA
    )
    plain = calibrate(dp.GaussianDpEvent, Geometric(mean=5), epsilon=3.0, delta=DELTA)
    assert found.noise_multiplier > plain.noise_multiplier
    assert 2.999 <= found.guarantee.epsilon(DELTA) <= 3.0


def certificate(slack: float = 1e-9, **public: Any) -> Certificate:
    return account(RoundedDp(NOISE, slack), Geometric(mean=5)).certificate(DELTA, **public)


def test_a_certificate_states_the_slack_and_verify_recomputes_it() -> None:
    document = certificate().to_dict()
    assert document["slack"] == pytest.approx(5e-9)
    assert document["terms"][0]["events"] == [event_to_dict(RoundedDp(NOISE, 1e-9))]
    (size,) = re.findall(r"a total variation of at most ([0-9.e-]+), which is included in delta", document["statement"])
    assert document["slack"] <= float(size) <= 1.03 * document["slack"]
    assert verify(Certificate(document))
    assert guarantee_of(Certificate(document)).slack == document["slack"]
    less = {**document, "slack": 4e-9}
    assert "slack: the certificate says 4e-09" in str(verify(Certificate({**less, "statement": statement(less)})))
    forged = json.loads(json.dumps(document).replace("1e-09", "1e-15"))
    assert not verify(Certificate(forged)), "the numbers are those of the larger slack"
    lowered = certificate(0.0).to_dict()
    assert not verify(Certificate({**document, "epsilon": lowered["epsilon"], "bounds": lowered["bounds"]}))


def test_a_certificate_says_what_is_taken_for_granted_about_numbers() -> None:
    real = "noise drawn in floating point is treated as real-valued"
    exact = [line for line in assumptions(certificate().document) if "an ideal random generator" in line]
    assert len(exact) == 1
    assert real not in assumptions(certificate().document)
    plain = account(NOISE, Geometric(mean=5)).certificate(DELTA)
    assert real in assumptions(plain.document)
    assert real in plain.statement()
    mixed = Composition.of(account_published(NOISE, 1), account_published(RoundedDp(NOISE, 1e-18), 1)).certificate(
        DELTA
    )
    assert {real in mixed.statement(), "is included in delta" in mixed.statement()} == {True}


def test_the_bounds_of_other_means_are_of_the_same_release() -> None:
    rounded, plain = (account(event, Geometric(mean=5)) for event in (RoundedDp(NOISE, 1e-9), NOISE))
    assert epsilon_from_below(rounded, DELTA) == epsilon_from_below(plain, DELTA) <= rounded.epsilon(DELTA)
    assert epsilon_from_above(rounded, DELTA) > epsilon_from_above(plain, DELTA)


def test_a_ledger_keeps_a_part_of_delta_for_slack(tmp_path: Any) -> None:
    ledger = Ledger.open(tmp_path / "ledger.db", epsilon=4.0, delta=DELTA)
    most = brentq(lambda slack: max(ledger.terms.budgets(slack)), 1e-6 * DELTA, 4e-3 * DELTA)
    assert most < 1e-2 * DELTA / 2
    silent = dp.GaussianDpEvent(1e4)
    ledger.reserve(Composition.of(account_published(RoundedDp(silent, 0.6 * most), 1)), name="first")
    with pytest.raises(LedgerError, match="would exceed the total"):
        ledger.reserve(Composition.of(account_published(RoundedDp(silent, 0.6 * most), 1)), name="second")
    ledger.reserve(Composition.of(account_published(RoundedDp(silent, 0.3 * most), 1)), name="third")


def test_the_gate_reads_what_it_wrote_and_refuses_the_rest() -> None:
    event = RoundedDp(dp.SelfComposedDpEvent(NOISE, 3), 1e-12)
    assert from_dict(json.loads(json.dumps(event_to_dict(event)))) == canonical(event) == event
    assert ideal(event) == event.event
    for wrong in (-1e-9, 1.5, math.nan, "1", True):
        with pytest.raises((ValueError, TypeError), match="slack"):
            RoundedDp(NOISE, wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="inside another event"):
        canonical(dp.ComposedDpEvent([event, NOISE]))
    with pytest.raises(ValueError, match="inside another event"):
        canonical(RoundedDp(event, 1e-9))
    with pytest.raises(ValueError, match="exact"):
        canonical(RoundedDp(NOISE, 1e-9, exact=1))  # type: ignore[arg-type]
