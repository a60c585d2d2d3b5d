"""Plans with two sides against an exact oracle on small discrete worlds, and broken bounds that it catches."""

from __future__ import annotations

import json
import math

import dp_accounting as dp
import numpy as np
import pytest

from dphypo.accounting import Certificate, PureDp, account, composition, verify
from dphypo.accounting.composition import Composition, Term
from dphypo.accounting.published import account_published
from dphypo.accounting.sides import BOTH, Side
from dphypo.laws import Geometric, Pmf

ADD, REPLACE = dp.NeighboringRelation.ADD_OR_REMOVE_ONE, dp.NeighboringRelation.REPLACE_ONE
TRAINING, SCORING = frozenset({Side.TRAINING}), frozenset({Side.SCORING})
EPSILONS = np.array([0.0, 0.2, 0.5, 1.0, 1.7, 2.5, 3.5])


def answers(epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """Randomised response on D and on its neighbour."""
    likely = 1 / (1 + math.exp(-epsilon))
    return np.array([likely, 1 - likely]), np.array([1 - likely, likely])


def run(train: float, score: float, changed: frozenset[Side]) -> tuple[np.ndarray, np.ndarray]:
    """All outcomes (model, score) of one run on D and on a neighbour that differs on these sides."""
    model, model_ = answers(train)
    rank, rank_ = answers(score)
    model_, rank_ = (model_ if Side.TRAINING in changed else model), (rank_ if Side.SCORING in changed else rank)
    return np.outer(model, rank).ravel(), np.outer(model_, rank_).ravel()


def exact(steps: list[list[tuple[np.ndarray, np.ndarray]]], epsilon: float) -> float:
    """The largest hockey-stick divergence over all adaptive policies that pick the setting of each run.

    ``steps[j]`` holds, for every setting, the outcomes of run j on D and on its neighbour. The policy may use all that
    was published, so the best one is found backwards, from every history.
    """

    def value(p: float, q: float, step: int) -> float:
        if step == len(steps):
            return max(p - math.exp(epsilon) * q, 0.0)
        return max(
            sum(value(p * on, q * off, step + 1) for on, off in zip(*setting, strict=True)) for setting in steps[step]
        )

    return value(1.0, 1.0, 0)


class World:
    """Two short runs and a last one; each has two settings with privacy of their own."""

    def __init__(self, rng: np.random.Generator, *, both: bool) -> None:
        self.train, self.score, self.last = (rng.uniform(0.05, 1.2, 2) for _ in range(3))
        self.both = both

    def truth(self, relation: dp.NeighboringRelation, epsilon: float) -> float:
        changed = [TRAINING, SCORING] + ([BOTH] if relation is REPLACE else [])
        return max(self._truth(one, epsilon) for one in changed)

    def _truth(self, changed: frozenset[Side], epsilon: float) -> float:
        short = [run(t, s, changed) for t, s in zip(self.train, self.score, strict=True)]
        read = BOTH if self.both else TRAINING
        last = [(on, off if changed & read else on) for on, off in map(answers, self.last)]
        return exact([short, short, last], epsilon)

    def plan(self, relation: dp.NeighboringRelation) -> Composition:
        def term(epsilons: np.ndarray, count: int, read: frozenset[Side]) -> Term:
            return Term(account_published([PureDp(e) for e in epsilons], count, relation=relation), read)

        last = term(self.last, 1, BOTH if self.both else TRAINING)
        return Composition((term(self.train, 2, TRAINING), term(self.score, 2, SCORING), last))


def worlds(count: int = 12):
    rng = np.random.default_rng(0)
    return [World(rng, both=bool(i % 2)) for i in range(count)]


def shortfall(relation: dp.NeighboringRelation, change=lambda plan: plan) -> float:
    """By how much the truth exceeds a plan's δ on the worst of the worlds."""
    worst = -1.0
    for world in worlds():
        plan = change(world.plan(relation))
        worst = max(worst, *(world.truth(relation, float(e)) - plan.delta(float(e)) for e in EPSILONS))
    return worst


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_no_plan_costs_more_than_is_said(relation):
    assert shortfall(relation) <= 1e-12


def test_the_bound_is_attained():
    """The runs are randomised response, which attains its own bound: what is left is the rounding of the grid."""
    assert max(world.plan(ADD).delta(0.5) - world.truth(ADD, 0.5) for world in worlds()) < 1e-6
    # Under replacement training and scoring are bounded one by one, though no setting may be the worst of both.
    assert min(world.plan(REPLACE).delta(0.5) - world.truth(REPLACE, 0.5) for world in worlds()) < 1e-6


def without_one_run(plan: Composition) -> Composition:
    first = plan.terms[0].releases
    fewer = account_published(first.events, first.count - 1, relation=first.relation)
    return Composition((Term(fewer, plan.terms[0].sides), *plan.terms[1:]))


def last_run_on_one_side(plan: Composition) -> Composition:
    return Composition((*plan.terms[:-1], Term(plan.terms[-1].releases, TRAINING)))


def without_the_worse_setting(plan: Composition) -> Composition:
    last = plan.terms[-1].releases
    better = account_published(min(last.events, key=lambda event: event.epsilon), 1, relation=last.relation)
    return Composition((*plan.terms[:-1], Term(better, plan.terms[-1].sides)))


@pytest.mark.parametrize("mutant", [without_one_run, last_run_on_one_side, without_the_worse_setting])
def test_a_broken_plan_is_caught(mutant):
    assert shortfall(ADD, mutant) > 1e-3


def test_sides_taken_as_disjoint_under_replacement_are_caught(monkeypatch):
    monkeypatch.setattr(composition, "REPLACE_ONE", None)
    assert shortfall(ADD) <= 1e-12
    assert shortfall(REPLACE) > 1e-3


def test_a_plan_of_one_side_is_the_composition():
    plan = Composition((Term(account_published(dp.GaussianDpEvent(10.0), 25), TRAINING),))
    alone = account(dp.GaussianDpEvent(2.0), Pmf({1: 1.0}))  # 25 runs of noise 10 are one of noise 2
    assert plan.epsilon(1e-6) == pytest.approx(alone.epsilon(1e-6), abs=2e-3)
    assert plan.epsilon(1e-6) >= alone.epsilon(1e-6) - 1e-5


def test_a_search_and_published_runs_compose():
    search = account(dp.GaussianDpEvent(8.0), Pmf({1: 1.0}))
    runs = account_published(dp.GaussianDpEvent(6.0), 1)
    plan = Composition((Term(runs), Term(search)))
    alone = account(dp.GaussianDpEvent(4.8), Pmf({1: 1.0}))  # 1/4.8² = 1/6² + 1/8²
    assert plan.epsilon(1e-6) == pytest.approx(alone.epsilon(1e-6), abs=2e-3)


def test_scores_on_their_own_side_are_free_up_to_the_cost_of_training():
    training = Term(account_published(dp.GaussianDpEvent(2.0), 1), TRAINING)
    cheap, dear = (Term(account_published(dp.GaussianDpEvent(noise), 20), SCORING) for noise in (20.0, 8.0))
    alone = Composition((training,)).epsilon(1e-6)
    assert Composition((training, cheap)).epsilon(1e-6) == alone
    assert Composition((training, dear)).epsilon(1e-6) > alone
    assert Composition((training, cheap)).costs(1e-6).keys() == BOTH


def test_terms_of_different_relations_or_grids_are_refused():
    one = account_published(PureDp(0.1), 2)
    with pytest.raises(ValueError, match="ADD_OR_REMOVE_ONE, REPLACE_ONE"):
        Composition((Term(one), Term(account_published(PureDp(0.1), 1, relation=REPLACE))))
    with pytest.raises(ValueError, match="grid"):
        Composition((Term(one), Term(account_published(PureDp(0.1), 1, grid=1e-2))))
    with pytest.raises(ValueError, match="terms"):
        Composition(())
    with pytest.raises(ValueError, match="sides"):
        Term(one, frozenset())
    with pytest.raises(ValueError, match="count = 0"):
        account_published(PureDp(0.1), 0)


def test_half_a_search_is_no_term_under_replacement():
    search = account(PureDp(0.1), Geometric(mean=4), relation=REPLACE)
    with pytest.raises(ValueError, match="composes both"):
        Composition((Term(search, TRAINING), Term(search, SCORING)))
    assert Composition((Term(search),)).epsilon(1e-6) > 0.1


def test_the_certificate_of_a_plan_is_confirmed_and_says_what_was_released(tmp_path):
    search = account(dp.GaussianDpEvent(20.0), Geometric(mean=4))
    survey, scores = account_published(dp.GaussianDpEvent(40.0), 20), account_published(dp.GaussianDpEvent(30.0), 20)
    last = account_published([dp.GaussianDpEvent(4.0), dp.GaussianDpEvent(5.0)], 1)
    plan = Composition((Term(survey, TRAINING), Term(scores, SCORING), Term(last, TRAINING)))
    certificate = plan.certificate(1e-6, releases=[{"part": "survey"}, {"part": "last run"}])
    assert 0 <= certificate.epsilon - plan.epsilon(1e-6) < 2e-5
    assert "21 runs were made; all results of the first 20 are public" in certificate.statement()
    assert verify(certificate.save(tmp_path / "certificate.json"))
    mixed = Composition((Term(survey, TRAINING), Term(search))).certificate(1e-6)
    assert verify(mixed)
    assert "a search with 4 runs on average" in mixed.statement()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda terms: terms[0].update(published=10), "epsilon"),
        (lambda terms: terms[1].update(sides=["training"]), "epsilon"),
        (lambda terms: terms[0]["events"][0].update(noise_multiplier=80.0), "epsilon"),
        (lambda terms: terms[0].update(published=0), "count = 0"),
        (lambda terms: terms[0].update(sides=["other"]), "other"),
    ],
)
def test_a_changed_term_of_a_certificate_is_found(change, line):
    survey, scores = account_published(dp.GaussianDpEvent(20.0), 20), account_published(dp.GaussianDpEvent(30.0), 20)
    document = Composition((Term(survey, TRAINING), Term(scores, SCORING))).certificate(1e-6).to_dict()
    document = json.loads(json.dumps(document))
    change(document["terms"])
    checked = verify(Certificate.from_dict(document))
    assert not checked
    assert line in str(checked)


def test_pure_privacy_adds_up_at_delta_zero():
    runs, last = account_published([PureDp(0.1), PureDp(0.05)], 5), account_published(PureDp(0.2), 1)
    plan = Composition((Term(runs, TRAINING), Term(account_published(PureDp(0.4), 1), SCORING), Term(last, TRAINING)))
    assert plan.costs(0.0) == {Side.TRAINING: pytest.approx(0.7), Side.SCORING: pytest.approx(0.4)}
    assert plan.epsilon(0.0) >= 0.7
    assert plan.delta(0.71) == 0.0
    assert plan.delta(0.5) > 0.0
    assert math.isinf(Composition((Term(runs), Term(account_published(dp.GaussianDpEvent(1.0), 1)))).epsilon(0.0))
    assert plan.one_run(1e-6)["pld"] == pytest.approx(0.2, abs=1e-3)
