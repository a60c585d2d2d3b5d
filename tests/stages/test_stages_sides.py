"""A survey and a study whose runs train on some records and score on others, against an exact oracle of two sides."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math

import dp_accounting as dp
import numpy as np
import pytest

import dphypo
from dphypo.accounting import Composition, PureDp, Split, solve_noise, verify
from dphypo.accounting.composition import EVERYONE, Role
from dphypo.laws import Pmf
from dphypo.search import Stage, Stages, Survey

ADD, REPLACE = dp.NeighboringRelation.ADD_OR_REMOVE_ONE, dp.NeighboringRelation.REPLACE_ONE
TRAINING, SCORING, BOTH = frozenset({Role.TRAINING}), frozenset({Role.SCORING}), frozenset(Role)
APART = Split("odd numbers score").sides
SPACE = dphypo.Space({"which": [0, 1]})
EPSILONS = np.array([0.0, 0.3, 0.8, 1.5, 2.5, 4.0])
RUNS, LAW = 2, Pmf({1: 0.5, 3: 0.5})  # of the survey; of the study


def mechanism(train, score, relation, **options):
    """Runs that answer at random about training records, then about scoring records; which λ says how privately."""

    def run(params, *, seed):
        return 1, 0.0

    return dphypo.mechanism(
        event=lambda params: PureDp(float(train[params["which"]])),
        score_event=None if score is None else lambda params: PureDp(float(score[params["which"]])),
        relation=relation,
        **({"split": None if score is None else APART} | options),
    )(run)


def answers(epsilon: float, changed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Randomised response on D and on its neighbour."""
    likely = 1 / (1 + math.exp(-epsilon))
    on = np.array([likely, 1 - likely])
    return on, on[::-1] if changed else on


def parts_of(first, second) -> list[Survey | Stage]:
    return [Survey(first, RUNS), Stage(second, LAW)]


@dataclasses.dataclass(frozen=True)
class World:
    """A survey, then a study; each has two λ, and its runs have privacy of their own for each side."""

    train: np.ndarray  # part, λ
    score: np.ndarray

    @classmethod
    def draw(cls, rng: np.random.Generator) -> World:
        return cls(rng.uniform(0.05, 1.2, (2, 2)), rng.uniform(0.05, 1.2, (2, 2)))

    def stages(self, relation: dp.NeighboringRelation) -> list[Survey | Stage]:
        first, second = (mechanism(*events, relation) for events in zip(self.train, self.score, strict=True))
        return parts_of(first, second)

    def guarantee(self, relation: dp.NeighboringRelation):
        return Stages(SPACE, self.stages(relation), delta=1e-6, journal=None).guarantee

    def truth(self, relation: dp.NeighboringRelation, epsilon: float) -> float:
        sides = [TRAINING, SCORING] + ([BOTH] if relation is REPLACE else [])
        return max(self.exact(changed, epsilon) for changed in sides)

    def exact(self, changed: frozenset[Role], epsilon: float) -> float:
        """δ where the survey publishes all runs and the study ranks by whatever is worst after that."""
        first, second = self.tables(changed), self.releases(1, changed)
        worst = 0.0
        for p, q in first:
            after = [np.maximum(np.outer(p, p2) - math.exp(epsilon) * np.outer(q, q2), 0).sum(1) for p2, q2 in second]
            worst = max(worst, float(np.max(after, axis=0).sum()))
        return worst

    def tables(self, changed: frozenset[Role]) -> list[tuple[np.ndarray, np.ndarray]]:
        """The law of all models and scores of the survey, for every choice of the λ of its runs."""
        one = []
        for train, score in zip(self.train[0], self.score[0], strict=True):
            model, rank = answers(train, Role.TRAINING in changed), answers(score, Role.SCORING in changed)
            one.append(tuple(np.outer(model[side], rank[side]).ravel() for side in (0, 1)))
        chosen = itertools.combinations_with_replacement(one, RUNS)
        return [tuple(np.outer(p[side], q[side]).ravel() for side in (0, 1)) for p, q in chosen]

    def releases(self, stage: int, changed: frozenset[Role]) -> list[tuple[np.ndarray, np.ndarray]]:
        """The law of the best run's (λ, model, score), on D and on its neighbour, for many ways to rank."""
        on, off = [], []
        for train, score in zip(self.train[stage], self.score[stage], strict=True):
            model, rank = answers(train, Role.TRAINING in changed), answers(score, Role.SCORING in changed)
            on.append(np.outer(model[0], rank[0]).ravel() / 2)
            off.append(np.outer(model[1], rank[1]).ravel() / 2)
        p, q = np.concatenate(on), np.concatenate(off)
        by_loss = np.argsort(p / q, kind="stable")
        orders = [by_loss, by_loss[::-1]]
        orders += [np.concatenate([by_loss[:k], by_loss[k:][::-1]]) for k in range(1, len(p))]
        rng = np.random.default_rng(1)
        orders += [rng.permutation(len(p)) for _ in range(6)]
        return [(best(p, order, LAW), best(q, order, LAW)) for order in orders]


def best(run: np.ndarray, order: np.ndarray, law: Pmf) -> np.ndarray:
    """The law of the best of T runs, where outcomes rank in this order, worst first."""
    below = np.minimum(np.append(0.0, np.cumsum(run[order])), 1.0)
    found = np.empty(len(run))
    found[order] = np.diff(law.pgf(below))
    return found


WORLDS = [World.draw(np.random.default_rng(seed)) for seed in range(8)]


def shortfall(relation, change=lambda guarantee: guarantee) -> float:
    """By how much the truth exceeds what is said, on the worst of the worlds."""
    worst = -1.0
    for world in WORLDS:
        guarantee = change(world.guarantee(relation))
        worst = max(worst, *(world.truth(relation, float(e)) - guarantee.delta(float(e)) for e in EPSILONS))
    return worst


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_no_stages_cost_more_than_is_said(relation):
    assert shortfall(relation) <= 1e-12


def test_a_record_of_each_side_meets_its_own_searches_only():
    for world in WORLDS[:3]:
        plan = world.guarantee(ADD)
        assert isinstance(plan, Composition)
        together = [world.guarantee(ADD).costs(1e-6)[part] for part in Role]
        alone = [
            Stages(
                SPACE,
                parts_of(*(mechanism(e, None, ADD) for e in events)),
                delta=1e-6,
                journal=None,
            ).guarantee.epsilon(1e-6)
            for events in (world.train, world.score)
        ]
        assert together == pytest.approx(alone, abs=1e-5)


def test_sides_cost_less_than_the_worse_event_of_every_run():
    train, score = [[1.0, 1.0], [0.1, 0.1]], [[0.1, 0.1], [1.0, 1.0]]  # each stage is dear for another side
    world = World(np.array(train), np.array(score))
    worse = parts_of(*[mechanism([1.0, 1.0], None, ADD)] * 2)
    composed = Stages(SPACE, worse, delta=1e-6, journal=None).guarantee.epsilon(1e-6)
    assert world.guarantee(ADD).epsilon(1e-6) < 0.75 * composed
    assert world.guarantee(REPLACE).epsilon(1e-6) > composed, "under replacement a record may meet both"


def without(place: int):
    return lambda plan: Composition(tuple(term for number, term in enumerate(plan.terms) if number != place))


@pytest.mark.slow
@pytest.mark.parametrize("place", range(4), ids=["training 1", "scoring 1", "training 2", "scoring 2"])
def test_a_search_that_is_left_out_of_a_side_is_caught(place):
    assert shortfall(ADD, without(place)) > 1e-3


@pytest.mark.slow
def test_sides_taken_as_disjoint_under_replacement_are_caught():
    worst = max(
        world.truth(REPLACE, float(e)) - world.guarantee(ADD).delta(float(e)) for world in WORLDS for e in EPSILONS
    )
    assert worst > 1e-3


def test_a_part_that_names_no_records_apart_counts_for_both_sides():
    """A survey or a stage with public scores may train on the records that score elsewhere in the plan."""
    scored, plain = mechanism([0.5, 0.5], [0.4, 0.4], ADD), mechanism([0.3, 0.3], None, ADD)
    for parts in (parts_of(plain, scored), parts_of(scored, plain)):
        plan = Stages(SPACE, parts, delta=1e-6, journal=None).guarantee
        assert {term.side for term in plan.terms} == {APART.training, APART.scoring, EVERYONE}
        (scores,) = (term.releases for term in plan.terms if term.scores)
        assert plan.costs(1e-6)["scoring"] > Composition.of(scores).epsilon(1e-6) + 0.1


def test_scores_on_the_training_records_compose_with_training():
    same = parts_of(*[mechanism([0.5, 0.5], [0.4, 0.4], ADD, split="same")] * 2)
    both = parts_of(*[mechanism([0.9, 0.9], None, ADD)] * 2)
    costs = [Stages(SPACE, stages, delta=1e-6, journal=None).guarantee.epsilon(1e-6) for stages in (same, both)]
    assert costs[0] == pytest.approx(costs[1], abs=1e-6)


def test_the_certificate_of_stages_with_sides_is_confirmed_and_reads_well():
    search = Stages(SPACE, WORLDS[0].stages(ADD), delta=1e-6, journal=None)
    certificate = search.certificate
    document = json.loads(json.dumps(certificate.to_dict()))
    assert [[one["part"] for one in term["reads"]] for term in document["terms"]] == [["training"], ["scoring"]] * 2
    assert verify(certificate)
    stated = certificate.statement()
    assert "What was released: all results of 2 runs, and the best run of a search" in stated
    assert "Nothing else about a search may be published" in stated
    assert "0 runs" not in stated
    assert "Each record was used either to train or to score, never both." in stated
    released = search.run(progress=False)
    assert verify(released.certificate)


def test_what_history_only_searches_rely_on_is_stated_with_sides_too():
    train = mechanism([0.5, 0.5], [0.4, 0.4], ADD)
    study = Stage(train, LAW, dphypo.Band(0.5, 2.0), policy="history")
    stated = Stages(SPACE, [Survey(train, 2), study], delta=1e-6, journal=None).certificate.statement()
    assert "- the search rule saw only the hyperparameters and outcomes of earlier runs" in stated
    assert "density between 0.5 and 2 times the prior's" in stated


def test_calibration_spends_the_total_where_sides_differ():
    """Scores cost the survey more than training does, and the study less."""

    def training(noise_multiplier, score):
        return dphypo.mechanisms.Declared(
            lambda params, *, seed: (1, 0.0),
            event=dp.GaussianDpEvent(noise_multiplier),
            relation=ADD,
            score_event=dp.GaussianDpEvent(score),
            split=APART,
        )

    def plan_at(noise):
        parts = parts_of(training(40.0, 8.0), training(noise, 40.0))
        return Stages(SPACE, parts, delta=1e-6, journal=None).guarantee

    plan = solve_noise(plan_at, epsilon=2.0, delta=1e-6).guarantee
    assert 1.999 <= plan.epsilon(1e-6) <= 2.0
    assert plan.costs(1e-6)["scoring"] < 1.9
