"""Sides are identities: compositions against an exact oracle on small worlds, and broken bounds that it catches."""

from __future__ import annotations

import copy
import functools
import itertools
import json
import math
import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

import dp_accounting as dp
import numpy as np
import pytest

from dphypo import LastRun, Space, Stages, Survey
from dphypo.accounting import Certificate, PureDp, account, composition, verify
from dphypo.accounting.certificate import to_json
from dphypo.accounting.composition import (
    EVERYONE,
    Composition,
    Role,
    Side,
    Sides,
    Split,
    Term,
    _Composed,
    account_published,
    read_sides,
)
from dphypo.accounting.verify import guarantee_of
from dphypo.laws import Geometric, Pmf
from dphypo.mechanisms.mechanism import Declared
from dphypo.training.split import Origin, sides_of, split_by_hash

ADD, REPLACE = dp.NeighboringRelation.ADD_OR_REMOVE_ONE, dp.NeighboringRelation.REPLACE_ONE
SPLITS = (Split("even numbers score"), Split("hash", key="a", share=0.2), Split("hash", key="a", share=0.3))
TRAINING, SCORING = SPLITS[0].sides.training, SPLITS[0].sides.scoring
EPSILONS = np.array([0.0, 0.3, 1.0, 2.0, 3.5])
INPUTS, TARGETS = np.random.default_rng(1).normal(size=(200, 2)), np.zeros(200)


def answers(epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """Randomised response on D and on its neighbour."""
    likely = 1 / (1 + math.exp(-epsilon))
    return np.array([likely, 1 - likely]), np.array([1 - likely, likely])


def exact(runs: list[np.ndarray], epsilon: float) -> float:
    """The largest hockey-stick divergence over all adaptive policies that pick the setting of each run.

    ``runs[j]`` has the ε of every setting of run j. The policy may use all that was published, so the best one is found
    backwards, from every history.
    """

    def value(p: float, q: float, step: int) -> float:
        if step == len(runs):
            return max(p - math.exp(epsilon) * q, 0.0)
        return max(
            sum(value(p * on, q * off, step + 1) for on, off in zip(*answers(setting), strict=True))
            for setting in runs[step]
        )

    return value(1.0, 1.0, 0)


def met(side: Side, parts: Iterable[tuple[Split, Role]]) -> bool:
    """Whether a record on these parts is read."""
    return all(condition in set(parts) for condition in side.conditions)


@dataclass(frozen=True)
class World:
    """Published runs, each with two settings and a side; what a record meets is enumerated."""

    runs: tuple[tuple[np.ndarray, int, Side], ...]

    @classmethod
    def draw(cls, rng: np.random.Generator) -> World:
        def side() -> Side:
            chosen = EVERYONE
            for split in rng.choice(len(SPLITS), size=rng.integers(0, 3), replace=False):
                chosen = chosen.inside(SPLITS[split], list(Role)[rng.integers(2)])
            return chosen

        return cls(tuple((rng.uniform(0.05, 1.2, 2), int(rng.integers(1, 3)), side()) for _ in range(4)))

    def truth(self, relation: dp.NeighboringRelation, epsilon: float) -> float:
        places = [tuple(zip(SPLITS, parts, strict=True)) for parts in itertools.product(Role, repeat=len(SPLITS))]
        moves = itertools.product(places, places) if relation is REPLACE else zip(places, places, strict=True)
        read = {
            tuple(number for number, run in enumerate(self.runs) if met(run[2], here) or met(run[2], there))
            for here, there in moves
        }
        return max(
            exact([self.runs[one][0] for one in some for _ in range(self.runs[one][1])], epsilon) for some in read
        )

    def plan(self, relation: dp.NeighboringRelation) -> Composition:
        return Composition(
            tuple(
                Term(account_published([PureDp(e) for e in settings], count, relation=relation), side)
                for settings, count, side in self.runs
            )
        )


WORLDS = [World.draw(np.random.default_rng(seed)) for seed in range(12)]


@functools.cache
def truth(number: int, relation: dp.NeighboringRelation, epsilon: float) -> float:
    return WORLDS[number].truth(relation, epsilon)


def shortfall(
    relation: dp.NeighboringRelation, change: Callable[[Composition], Composition] = lambda plan: plan
) -> float:
    """By how much the truth exceeds what is said, at worst."""
    plans = [change(world.plan(relation)) for world in WORLDS]
    return max(
        truth(number, relation, float(epsilon)) - plan.delta(float(epsilon))
        for number, plan in enumerate(plans)
        for epsilon in EPSILONS
    )


@pytest.mark.parametrize("relation", [ADD, REPLACE], ids=["add", "replace"])
def test_no_plan_costs_more_than_is_said(relation):
    assert shortfall(relation) <= 1e-12


def test_the_bound_is_met():
    """Enumeration over combinations of parts is exact, up to the grid, where no run has settings to choose from."""
    for world in WORLDS[:4]:
        one = World(tuple((settings[:1], count, side) for settings, count, side in world.runs))
        for epsilon in (0.0, 0.5, 1.7):
            assert one.plan(ADD).delta(epsilon) <= one.truth(ADD, epsilon) + 5e-3


def changed(side_of: Callable[[Side], Side]) -> Callable[[Composition], Composition]:
    return lambda plan: Composition(tuple(Term(term.releases, side_of(term.side)) for term in plan.terms))


def by_name(side: Side) -> Side:
    """Sides as names: every split is taken for the first. ``Side`` refuses both parts of one, so it is passed by."""
    named = copy.copy(side)
    object.__setattr__(named, "conditions", frozenset((SPLITS[0], part) for _, part in side.conditions))
    return named


def unknown_trains(side: Side) -> Side:
    return side if side.conditions else TRAINING


def without_one_run(plan: Composition) -> Composition:
    first = plan.terms[0]
    if first.releases.count == 1:
        return plan
    fewer = account_published(list(first.releases.events), first.releases.count - 1, relation=plan.relation)
    return Composition((Term(fewer, first.side), *plan.terms[1:]))


def without_the_worse_setting(plan: Composition) -> Composition:
    last = plan.terms[-1]
    better = min(last.releases.events, key=lambda event: event.epsilon)
    smaller = account_published(better, last.releases.count, relation=plan.relation)
    return Composition((*plan.terms[:-1], Term(smaller, last.side)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "broken", [changed(by_name), changed(unknown_trains), without_one_run, without_the_worse_setting]
)
def test_broken_compositions_are_caught(broken):
    assert shortfall(ADD, broken) > 1e-3


@pytest.mark.slow
def test_sides_under_replacement_are_caught(monkeypatch):
    monkeypatch.setattr(composition, "REPLACE_ONE", None)
    assert shortfall(ADD) <= 1e-12
    assert shortfall(REPLACE) > 1e-3


def test_what_a_record_meets_twice_counts_twice():
    """Equal runs are one object: as a set, the runs of a record that trains are fewer than those of one that scores."""
    run, other = account_published(PureDp(0.9), 1), account_published(PureDp(0.1), 1)
    plan = Composition((Term(run, TRAINING), Term(run, TRAINING), Term(run, SCORING), Term(other, SCORING)))
    assert plan.epsilon(0.0) == pytest.approx(1.8)


def test_with_many_splits_everything_composes():
    sides = [Split("hash", key=str(number)).sides for number in range(9)]
    runs = [account_published(PureDp(0.2), 1) for _ in sides]
    many = Composition(tuple(Term(run, side.training) for run, side in zip(runs, sides, strict=True)))
    assert many.epsilon(0.0) == pytest.approx(1.8)
    assert many.costs(0.0).keys() == {"every record"}
    few = Composition(tuple(Term(run, sides[0].training) for run in runs))
    assert few.epsilon(0.0) == pytest.approx(1.8)


@pytest.mark.parametrize("seed", range(6))
def test_records_that_were_really_split_pay_for_what_they_meet(seed):
    """Random keys and shares: the certified cost covers every record, placed by the hashes themselves."""
    rng = np.random.default_rng(seed)
    inputs, targets = rng.normal(size=(400, 3)), rng.integers(0, 2, 400)
    runs: list[tuple[float, Side, set[bytes]]] = []
    keys = [str(rng.integers(3)) for _ in range(3)]
    for key in keys:
        parts = split_by_hash(inputs, targets, share=float(rng.uniform(0.2, 0.6)), key=key)
        for part in (*parts, (inputs, targets)) if rng.uniform() < 0.3 else parts:
            runs.append((float(rng.uniform(0.05, 1.0)), Origin.of(part).side, {row.tobytes() for row in part[0]}))
    terms = [Term(account_published(PureDp(epsilon), 1), side) for epsilon, side, _ in runs]
    certified = Composition(tuple(terms)).epsilon(0.0)
    paid = [sum(epsilon for epsilon, _, read in runs if row.tobytes() in read) for row in inputs]
    assert max(paid) <= certified + 1e-9
    if len(set(keys)) == len(keys):  # else one share may be inside another
        assert certified <= max(paid) + 1e-6, "with 400 records every combination occurs"


def test_parts_know_their_side_and_what_is_unpacked_counts_for_every_side():
    inputs, targets = INPUTS, TARGETS
    train, held_out = split_by_hash(inputs, targets, key="a")
    (x, y), _ = train, held_out
    assert Origin.of(train).side == train.split.training
    assert Origin.of(held_out).side == train.split.scoring
    assert Origin.of((inputs, targets)).side == Origin.of((x, y)).side == Origin.of(x / 255).side == EVERYONE
    assert Origin.of(train.like(x / 255)).side == train.side
    assert sides_of((x, y), held_out) is sides_of(train, (inputs, targets)) is None
    assert sides_of(train, held_out) == train.split
    again, _ = split_by_hash(inputs, targets, key="a")
    assert again.split != train.split, "one split is passed along; a second one composes with it"
    for other in ({"key": "b"}, {"key": "a", "share": 0.3}):
        assert split_by_hash(inputs, targets, **other)[0].split != train.split
        assert split_by_hash(inputs, targets, **other)[0].side.to_json() != train.side.to_json()
    inner, _ = split_by_hash(train, key="b")
    assert inner.side.conditions > train.side.conditions
    assert inner.side.apart_from(held_out.side)


def test_records_are_split_again_with_another_key():
    """With the same one, records that score would be on both parts of one split: where no record is, nothing costs."""
    train, held_out = split_by_hash(INPUTS, TARGETS)
    for part in (train, held_out, train.like(train[0] / 255)):
        with pytest.raises(ValueError, match=r"key = '' is not valid: .* give another key"):
            split_by_hash(part)
        with pytest.raises(ValueError, match=r"key = '' is not valid: .* give another key"):
            split_by_hash(part, share=0.5)
    fit, scored = split_by_hash(train, key="again")
    assert sides_of(fit, scored) == fit.split
    assert sides_of(fit, held_out) is not None, "both are parts of the first split"


def test_arrays_that_were_unpacked_and_split_again_with_the_same_key_are_another_split():
    """Unscaled, they are on the part that they were on; scaled, records that trained score, and are said to train."""
    train, held_out = split_by_hash(INPUTS, TARGETS)
    for part, empty in ((train, 1), (held_out, 0)):
        assert len(split_by_hash(*part)[empty][0]) == 0, "the same key puts each record on the part that it was on"
    x, y = train
    fit, scored = split_by_hash(x / 255, y)
    trained = {row.tobytes() for row in x / 255}
    assert all(row.tobytes() in trained for row in scored[0]), "they are on the scoring part of what is stated equally"
    for one, other in ((train, scored), (train, fit), (held_out, fit), (held_out, scored)):
        assert not one.side.apart_from(other.side)
    survey, scores = account_published(PureDp(0.5), 1), account_published(PureDp(4.0), 1)
    both = Composition((Term(survey, train.side), Term(scores, scored.side)))
    assert both.epsilon(0.0) == pytest.approx(4.5), "what a record that trained and scored costs"
    with pytest.raises(ValueError, match=r"different records were split with the same key.*give another key="):
        to_json(both)


def test_a_search_of_parts_on_differently_scaled_splits_is_refused():
    """Each part alone is right; together, records that the first trains on score in the second."""
    (x, y), (scored_x, scored_y) = forms = split_by_hash(INPUTS, TARGETS)
    scaled = split_by_hash(np.concatenate([x, scored_x]) / 255, np.concatenate([y, scored_y]))
    score = dp.GaussianDpEvent(4.0)
    first, last = (
        Declared(lambda params, *, seed: (0, 0.5), dp.GaussianDpEvent(4.0), ADD, score, parts[0].split)
        for parts in (forms, scaled)
    )
    space = Space({"lr": [0.1, 1.0]})
    Stages(space, [Survey(first, 2), LastRun(first, score=True)], delta=1e-6, journal=None)
    with pytest.raises(ValueError, match="different records were split with the same key"):
        Stages(space, [Survey(first, 2), LastRun(last, score=True)], delta=1e-6, journal=None)


def on_two_sides(split, training, scoring):
    trains, scores = (account_published(dp.GaussianDpEvent(sigma), 1) for sigma in (training, scoring))
    return Composition((Term(trains, split.training), Term(scores, split.scoring, scores=True)))


def of_two_forms():
    """Two searches on the same records, scaled for the second, and their certificates, which state the same split."""
    inputs = np.random.default_rng(0).normal(size=(400, 3))
    (train, _), (_, scored) = (split_by_hash(form, np.zeros(400), share=0.5) for form in (inputs, 2 * inputs))
    trained = {row.tobytes() for row in train[0]}
    assert any((row / 2).tobytes() in trained for row in scored[0]), "records train in one and score in the other"
    searches = on_two_sides(train.split, 1.5, 40.0), on_two_sides(scored.split, 40.0, 1.5)
    return searches, [one.certificate(1e-5).document for one in searches]


def test_certificates_of_two_forms_of_the_records_are_composed_as_two_splits():
    """A record may train in one search and score in the other: 2.76 was printed for 4.09."""
    searches, documents = of_two_forms()
    both = Composition.of(*map(guarantee_of, documents))
    assert both.epsilon(1e-5) >= Composition.of(account_published(dp.GaussianDpEvent(1.5), 2)).epsilon(1e-5) * 0.999
    for one, document in zip(searches, documents, strict=True):
        assert guarantee_of(document).epsilon(1e-5) == one.epsilon(1e-5)
    stated = [Split("records whose number is odd score").sides] * 2
    said = [on_two_sides(split, 1.5, 40.0).certificate(1e-5).document for split in stated]
    named = Composition.of(*map(guarantee_of, said))
    assert set(named.costs(1e-5)) == {"training", "scoring"}, "a rule in words is the same rule everywhere"


def test_every_split_by_a_hash_has_a_name_of_its_own():
    one, other = (split_by_hash(INPUTS, TARGETS)[0].split for _ in range(2))
    assert not one.training.apart_from(other.scoring)


def test_a_side_has_one_part_of_a_split():
    sides = Split("odd numbers score").sides
    with pytest.raises(ValueError, match="both parts of one split"):
        sides.training.inside(Split("odd numbers score"), Role.SCORING)
    with pytest.raises(ValueError, match="both parts of one split"):
        Side.from_json([*sides.training.to_json(), *sides.scoring.to_json()])


def test_two_forms_of_the_same_records_are_not_apart():
    """Their hashes are different, so that most of the records that score would train, too."""
    train, held_out = split_by_hash(INPUTS, TARGETS)
    _, scaled = split_by_hash(INPUTS / 255, TARGETS)
    assert train.side.to_json()[0]["split"] == scaled.side.to_json()[0]["split"], "what is stated of both is equal"
    assert not train.side.apart_from(scaled.side)
    assert sides_of(train, scaled) is None
    assert sides_of(train, pickle.loads(pickle.dumps(scaled))) is None
    for inputs in (INPUTS, INPUTS.copy()):
        again = split_by_hash(inputs, TARGETS)[1]
        assert sides_of(train, again) is None, "equal values decide nothing: they may be equal up to one record"
    assert sides_of(*pickle.loads(pickle.dumps((train, held_out)))) == train.split
    assert sides_of(train.like(train[0] / 255), held_out.like(held_out[0] / 255)) == train.split


def test_the_same_array_does_not_train_and_score():
    inputs, targets = np.zeros((10, 2)), np.zeros(10)
    rule = Split("odd numbers score").sides
    assert sides_of((inputs[:5], targets[:5]), (inputs[5:], targets[5:]), rule) == rule
    for held_out in ((inputs, targets), (inputs[3:], targets[3:].copy())):
        with pytest.raises(ValueError, match=r"same array .* \(training of 'odd .*'; scoring of 'odd numbers score'\)"):
            sides_of((inputs, targets), held_out, rule)
    assert sides_of((inputs, targets), (inputs, targets)) is None


def test_a_rule_has_to_be_stated():
    assert read_sides(None) is read_sides("same") is None
    assert read_sides(SPLITS[0]) == SPLITS[0].sides == read_sides(SPLITS[0].sides)
    with pytest.raises(ValueError, match=r"split = 'disjoint'.*state the rule"):
        read_sides("disjoint")
    for bad in ("", "a\nb", 3):
        with pytest.raises(ValueError, match="how"):
            Split(bad)
    with pytest.raises(ValueError, match="share"):
        Split("hash", share=1.5)
    with pytest.raises(ValueError, match="not two sides"):
        Sides(TRAINING, SPLITS[1].sides.scoring)


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
    assert Composition((training, cheap)).costs(1e-6).keys() == {"training", "scoring"}


def test_terms_of_different_relations_or_grids_are_refused():
    one = account_published(PureDp(0.1), 2)
    with pytest.raises(ValueError, match="ADD_OR_REMOVE_ONE, REPLACE_ONE"):
        Composition((Term(one), Term(account_published(PureDp(0.1), 1, relation=REPLACE))))
    with pytest.raises(ValueError, match="grid"):
        Composition((Term(one), Term(account_published(PureDp(0.1), 1, grid=1e-2))))
    with pytest.raises(ValueError, match="terms"):
        Composition(())
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
    plan = Composition((Term(survey, TRAINING), Term(scores, SCORING, scores=True), Term(last, TRAINING)))
    certificate = plan.certificate(1e-6, releases=[{"part": "survey"}, {"part": "last run"}])
    assert 0 <= certificate.epsilon - plan.epsilon(1e-6) < 2e-5
    assert "21 runs were executed; all results of the first 20 are public" in certificate.statement()
    assert verify(certificate.save(tmp_path / "certificate.json"))
    mixed = Composition((Term(survey, TRAINING), Term(search))).certificate(1e-6)
    assert verify(mixed)
    assert "a search with 4 runs on average" in mixed.statement()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda terms: terms[0].update(published=10), "epsilon"),
        (lambda terms: terms[1].update(reads=terms[0]["reads"]), "epsilon"),
        (lambda terms: terms[1].update(reads=[]), "epsilon"),
        (lambda terms: terms[1]["reads"][0]["split"].update(rule="odd numbers score"), "epsilon"),
        (lambda terms: terms[0]["events"][0].update(noise_multiplier=80.0), "epsilon"),
        (lambda terms: terms[0].update(published=0), "published"),
        (lambda terms: terms[0]["reads"][0].update(part="other"), "other"),
        (lambda terms: terms[0]["reads"][0]["split"].update(color="blue"), "color"),
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
    assert plan.costs(0.0) == {"training": pytest.approx(0.7), "scoring": pytest.approx(0.4)}
    assert plan.epsilon(0.0) >= 0.7
    assert plan.delta(0.71) == 0.0
    assert plan.delta(0.5) > 0.0
    assert math.isinf(Composition((Term(runs), Term(account_published(dp.GaussianDpEvent(1.0), 1)))).epsilon(0.0))
    assert plan.one_run(1e-6)["pld"] == pytest.approx(0.2, abs=1e-3)


def test_the_sum_of_pure_epsilons_is_not_below_the_exact_one():
    """Each 1/b, each product and the sum are rounded, and all of them may be rounded down."""
    random = np.random.default_rng(3)
    for _ in range(200):
        scales, counts = random.uniform(0.5, 50.0, 3), random.integers(1, 100, 3)
        each = list(zip(scales.tolist(), counts.tolist(), strict=True))
        runs = [account_published(dp.SelfComposedDpEvent(dp.LaplaceDpEvent(b), count), 3) for b, count in each]
        exact = sum(3 * count / Fraction(b) for b, count in each)
        assert exact <= Fraction(_Composed(tuple(runs))._pure) <= exact * Fraction(1 + 1e-11)


def test_records_of_a_side_that_no_term_names_meet_what_all_records_meet():
    run, other = account_published(dp.GaussianDpEvent(4.0), 1), Split("records of the north score").sides
    assert Composition.of(run).cost(other.scoring, 1e-6) == Composition.of(run).epsilon(1e-6)
    replaced = account_published(dp.GaussianDpEvent(4.0), 1, relation=REPLACE)
    assert Composition((Term(replaced, other.training),)).cost(other.scoring, 1e-6) > 0
