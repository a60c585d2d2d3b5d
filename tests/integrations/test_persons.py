"""Persons with several rows: whose row a row is, which rows are drawn, and what one person adds to a step."""

from __future__ import annotations

import math
import re
import uuid
from typing import Any

import dp_accounting
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import nn

import dphypo
from dphypo.audit import audit_observations
from dphypo.mechanisms import OwnTraining, SampledGaussian
from dphypo.torch import DPSGD
from dphypo.training.persons import PersonKeys, Persons
from dphypo.training.split import split_by_hash

FALSE_ALARM = 1e-6
KEY = st.one_of(st.integers(-(2**70), 2**70), st.text(max_size=4), st.floats(), st.booleans(), st.none())


def numbers(keys: Any) -> list[int]:
    return PersonKeys.of(keys, len(keys)).numbers().tolist()


# Keys


def test_keys_are_compared_exactly():
    assert numbers(np.array([2**24, 2**24 + 1, 2**24])) == [0, 1, 0]
    assert numbers(["007", 7, "7", 7.0, "007"]) == [0, 1, 2, 1, 0]
    assert numbers([uuid.UUID(int=1), uuid.UUID(int=2), str(uuid.UUID(int=1))]) == [0, 1, 0]
    assert numbers([2**53 - 1, 2**53, 2**53 + 1, float(2**53)]) == [0, -1, -1, -1]  # doubles do not tell them apart


def test_a_key_that_is_missing_or_of_another_type_counts_for_nothing():
    broken = [None, math.nan, math.inf, 1.5, "", " ", "nan", "None", pd.NA, pd.NaT, True, (1,), np.float32(3), 1j]
    assert numbers([*broken, 4]) == [-1] * len(broken) + [0]


@given(st.lists(KEY, max_size=8), KEY)
def test_one_more_key_changes_nobody_elses_rows(keys, more):
    alone = numbers(keys)
    assert numbers([*keys, more])[:-1] == alone
    beside = numbers([more, *keys])[1:]
    same = [[one == two and one >= 0 for one in found] for found in (alone, beside) for two in found]
    assert same[: len(keys)] == same[len(keys) :]


def test_the_column_that_holds_keys_changes_nothing():
    """One missing key turns integers into doubles, or into objects."""
    plain = np.random.default_rng(0).integers(0, 2**53, 50)
    plain[7] = plain[3]
    wanted = numbers(plain)
    doubles = plain.astype(np.float64)
    doubles[49] = math.nan
    nullable = pd.Series(plain, dtype="Int64")
    nullable[49] = pd.NA
    for other in (doubles, nullable, pd.Series(doubles), [*plain.tolist()[:49], None], torch.tensor(doubles)):
        assert numbers(other) == [*wanted[:49], -1]
    sides = [
        set(split_by_hash(np.arange(50.0), np.zeros(50), person=keys)[1][0].tolist()) - {49.0}
        for keys in (plain, doubles, nullable, pd.Series(plain).astype(str))
    ]
    assert all(one == sides[0] for one in sides)
    assert 0 < len(sides[0]) < 49


@pytest.mark.parametrize(
    "keys",
    [np.zeros(4, np.float32), np.zeros(4, bool), np.zeros((4, 2), int), pd.Series(pd.to_datetime(["2020-01-01"] * 4))],
)
def test_a_column_of_another_type_is_refused_by_its_type(keys):
    with pytest.raises(ValueError, match=r"person = .*whole numbers or texts"):
        PersonKeys.of(keys, 4)


def test_no_error_or_text_shows_a_key():
    assert "secret" not in repr(PersonKeys.of(["secret"], 1))
    with pytest.raises(ValueError, match="give one key per row") as error:
        PersonKeys.of(["secret"], 2)
    assert "secret" not in str(error.value)


# Draws


def test_rows_are_drawn_without_repetition_and_in_the_order_of_the_table():
    keys = PersonKeys.of([0] * 9 + [1] * 3 + [0] * 41 + [2], 54)
    persons = keys.grouped(8)
    words = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 500)
    rows, held = persons.drawn(np.zeros(500, np.int64), words)
    mine = [*range(9), *range(12, 53)]
    assert rows.shape == (500, 8)
    assert held.all()
    assert (np.diff(rows, axis=1) > 0).all()
    assert set(rows.ravel().tolist()) == set(mine)
    counts = np.bincount(rows.ravel(), minlength=54)[mine]
    assert stats.chisquare(counts).pvalue > FALSE_ALARM
    rows, held = persons.drawn(np.array([1, 2]), words[:2])
    assert rows[:, :3].tolist() == [[9, 10, 11], [53, 53, 53]]
    assert held.sum(1).tolist() == [3, 1]


def test_what_is_drawn_of_a_person_depends_on_its_rows_and_the_word_alone():
    words = np.arange(7, 10) * 2**40
    alone = Persons.of(PersonKeys.of([5] * 50, 50), 4).drawn(np.zeros(3, np.int64), words)[0]
    beside = Persons.of(PersonKeys.of([1, 2, 3] + [5] * 50, 53), 4).drawn(np.full(3, 3), words)[0]
    assert np.array_equal(alone + 3, beside)
    assert len({tuple(row) for row in alone.tolist()}) == 3


# Steps


def straight(width: int) -> nn.Module:
    model = nn.Linear(width, 1, bias=False)
    nn.init.zeros_(model.weight)
    return model


def along(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The gradient of a row is the row itself."""
    return -outputs[:, 0]


def mechanism(inputs: Any, person: Any, **changes: Any) -> DPSGD:
    rows = torch.as_tensor(inputs, dtype=torch.float32)
    given: dict[str, Any] = {
        "model": lambda: straight(rows.shape[1]),
        "data": (rows, torch.zeros(len(rows))),
        "person": person,
        "score": lambda model: 0.0,
        "noise_multiplier": 1e-3,
        "loss": along,
        "persons": 4,
        "batch_size": 4,
        "epochs": 1,
        "learning_rate": 4.0,  # times the batch: the sum itself
        "device": "cpu",
    }
    return DPSGD(**{**given, **changes})


def moved(made: DPSGD, seed: int = 3) -> np.ndarray:
    """What one step adds to the weights: the noisy sum of what persons contribute."""
    return made({}, seed=seed).model.weight.detach().double().numpy()[0]


def contributions(rows: np.ndarray, person: list[int], limit: float = 1.0) -> np.ndarray:
    """The oracle: the average of each person's rows, clipped, and summed."""
    total = np.zeros(rows.shape[1])
    for one in set(person):
        average = rows[[key == one for key in person]].mean(0)
        total += average * min(1.0, limit / np.linalg.norm(average))
    return total


@pytest.mark.parametrize("most", [3, 5])
def test_a_step_sums_the_clipped_averages_of_persons(most):
    person = [0, 1, 0, 2, 0, 2]
    rows = np.random.default_rng(1).normal(size=(6, 5)) * np.array([[3], [0.1], [1], [0.2], [2], [0.3]])
    found = moved(mechanism(rows, person, rows_per_person=most))
    assert np.abs(found - contributions(rows, person)).max() < 0.01


def test_at_most_so_many_rows_of_a_person_are_used_at_a_time():
    person = [0] * 10 + [1] * 2
    found = moved(mechanism(np.eye(12), person, rows_per_person=4))
    assert sorted(np.round(4 * found[:10]).tolist()) == [0.0] * 6 + [1.0] * 4
    assert np.allclose(found[10:], 0.5, atol=0.01)
    again = {
        tuple(np.round(4 * moved(mechanism(np.eye(12), person, rows_per_person=4), seed)[:10])) for seed in range(5)
    }
    assert len(again) > 1


def test_which_rows_are_used_is_drawn_afresh_at_every_step():
    found = moved(mechanism(np.eye(40), [0] * 40, rows_per_person=1, epochs=30))
    assert (np.round(found) > 0).sum() > 10
    assert np.round(found).sum() == 30


def test_persons_are_sampled_and_not_rows():
    """In a step at rate ½ either all rows of a person count or none does."""
    rows = np.zeros((40, 4))
    rows[np.arange(40), np.arange(40) % 4] = 1.0
    person = np.arange(40) % 4
    seen = set()
    for seed in range(12):
        found = moved(mechanism(rows, person, batch_size=2, rows_per_person=10, epochs=0.5), seed) / 2
        assert np.abs(found - found.round()).max() < 0.01
        assert set(found.round()) <= {0.0, 1.0}
        seen.add(tuple(found.round()))
    assert len(seen) > 4


@pytest.mark.parametrize("kind", ["linear", "scaled"])
def test_one_person_moves_a_step_by_at_most_the_clipping_norm(kind):
    """Rows that are huge, cancel or are not finite; batches, dither and noise are the same."""

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.more = nn.Linear(4, 3), nn.Parameter(torch.ones(3))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            found = self.inner(inputs)
            return found + self.more if kind == "linear" else found * self.more.cumsum(0)

    def released(extra: np.ndarray | None) -> np.ndarray:
        rows = np.random.default_rng(5).normal(size=(9, 4)).astype(np.float32)
        person = [0, 0, 1, 1, 1, 2, 3, 3, 3]
        if extra is not None:
            rows, person = np.concatenate([rows, extra.astype(np.float32)]), person + [9] * len(extra)
        records = (torch.tensor(rows), torch.zeros(len(rows), dtype=torch.int64))
        options: dict[str, Any] = {"loss": nn.functional.cross_entropy, "batch_size": 5, "persons": 5}
        made = mechanism(rows, person, data=records, model=Own, rows_per_person=3, noise_multiplier=0.5, **options)
        return np.concatenate([one.detach().double().numpy().ravel() for one in made({}, seed=1).model.parameters()])

    without = released(None)
    one = np.random.default_rng(6).normal(size=(50, 4))
    spoilt, raising = one.copy(), one.copy()
    spoilt[::2] = math.nan
    raising[::2] = 77.0
    lengths = []
    for extra in (one, np.concatenate([one, -one]), spoilt, one[:1], 1e6 * one, raising, np.full((2, 4), 77.0)):
        lengths.append(np.linalg.norm(released(extra) - without) / 4 * 5)
        assert lengths[-1] <= 1.0 + 1e-3
    assert max(lengths) > 0.9  # the bound is reached


def test_a_row_that_is_not_finite_leaves_the_average():
    rows = np.array([[0.5, 0, 0], [math.nan, 1, 0], [0, 0.5, 0], [0, 0, 0.7]])
    found = moved(mechanism(rows, [0, 0, 0, 1], rows_per_person=3))
    assert np.allclose(found, [0.25, 0.25, 0.7], atol=0.01)


def test_rows_without_a_key_change_nothing():
    rows = np.random.default_rng(2).normal(size=(9, 3))
    person: list[Any] = [0, 0, 1, 1, 1, 2, 2, 3, 3]
    plain = moved(mechanism(rows, person))
    more = np.concatenate([rows[:4], 1e6 * np.ones((2, 3)), rows[4:], [[math.inf, 0, 0]]])
    keys = [*person[:4], None, math.nan, *person[4:], ""]
    assert np.array_equal(plain, moved(mechanism(more, keys)))


def test_declared_persons_give_rate_steps_and_batch():
    made = mechanism(np.eye(12), [0] * 9 + [1, 2, 3], persons=400, batch_size=None, noise_multiplier=1.0, epochs=3)
    assert (made.unit, made.records, made.batch_size, made.rows_per_person) == ("person", 400, 64, 8)
    event = made.event({}).event
    assert event == dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(64 / 400, dp_accounting.GaussianDpEvent(1.0)), 19
    )
    assert mechanism(np.eye(12), [0] * 9 + [1, 2, None], persons=None, batch_size=1).records == 3
    assert made.fitting_records() == {"train": (4, 4)}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"records": 12}, "records = 12 .*persons="),
        ({"rows_per_person": 0}, "rows_per_person = 0"),
        ({"views": 2}, "views = 2 .*leave views at 1"),
        ({"person": None}, "persons = 4 .*person="),
        ({"person": None, "persons": None, "rows_per_person": 3}, "rows_per_person = 3 .*person="),
        ({"person": [0] * 5}, "5 keys for 6 rows"),
        ({"person": "user"}, "person = 'user' .*pair of arrays"),
    ],
)
def test_wrong_declarations_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        mechanism(np.eye(6), **{"person": [0] * 6, **changes})


def test_keys_and_numbers_of_persons_do_not_decide_how_a_search_ends(capfd):
    """Same exit, declaration and output, but for the noisy numbers in it and lines that a slow machine adds."""
    timed = "ETA", "solving for the noise", "how long runs take"
    rows = np.random.default_rng(3).normal(size=(60, 4))
    plain = [key % 20 for key in range(60)]
    variants: dict[str, list[Any]] = {
        "plain": plain,
        "missing": [None, math.nan, "", *plain[3:]],
        "all missing": [None] * 60,
        "one person": [7] * 60,
        "more than declared": list(range(60)),
        "of another type": [(1,), True, 1.5, *plain[3:]],
    }
    space = dphypo.Space({"learning_rate": [0.5, 1.0]})
    plan: dict[str, Any] = {"epsilon": 4, "delta": 1e-3, "survey": 2, "journal": None, "progress": True}
    found = {}
    for name, keys in variants.items():
        made = mechanism(rows, keys, persons=20, batch_size=5, noise_multiplier="calibrate")
        release = dphypo.tune(space, made, **plan)
        assert release.model is not None
        document = release.certificate.to_dict()
        public = {key: value for key, value in document["public"].items() if key != "released"}
        printed = "".join(capfd.readouterr())
        lines = [line for line in printed.splitlines() if not any(word in line for word in timed)]
        shape = sorted({re.sub(r"[-+0-9.,e ]+|[^\x20-\x7e]", "", line) for line in lines})
        found[name] = {**document, "public": public, "release": None}, shape
    for name, one in found.items():
        assert one[0] == found["plain"][0], name
        assert one[1] == found["plain"][1], name


# Audit


def observed(person: Any, canary: bool, sigma: float) -> list[float]:
    """The weight in the direction of a person with 50 rows, whose gradients are clipped to norm 1."""
    rows = np.zeros((8 + 50 * canary, 4))
    rows[8:, 0] = 100.0
    keys = None if person is None else [*range(8), *[99] * 50 * canary]
    size: dict[str, Any] = {"records": 60, "persons": None} if person is None else {"persons": 60}
    made = mechanism(rows, keys, noise_multiplier=sigma, batch_size=30, epochs=1, **size)
    seeds = range(10_000 * canary, 10_000 * canary + 200)
    return [one.model.weight[0, 0].item() for one in made.many([{}] * 200, seeds=seeds)]


def test_a_person_with_fifty_rows_breaks_a_certificate_of_rows_and_not_one_of_persons():
    sigma, delta = 4.0, 1e-5
    claimed = dp_accounting.pld.PLDAccountant()
    made = mechanism(np.eye(8), range(8), noise_multiplier=sigma, batch_size=30, epochs=1, persons=60)
    claimed.compose(made.event({}).event)
    epsilon = claimed.get_epsilon(delta)
    found = {}
    for person in (None, "key"):
        sets = [observed(person, canary, sigma) for canary in (True, False)]
        found[person] = audit_observations(*sets, delta=delta, confidence=1 - FALSE_ALARM).epsilon
    assert found[None] > epsilon > 0
    assert found["key"] <= epsilon


def test_a_split_of_rows_keeps_no_persons_apart():
    """53 of 60 persons have rows on both sides, so that training and scores compose for them."""
    numbers, person = np.arange(600), np.repeat(np.arange(60), 10)
    trains, scores = split_by_hash(numbers, np.zeros(600))
    assert len(set(person[trains[0]]) & set(person[scores[0]])) == 53
    apart = split_by_hash(numbers, np.zeros(600), person=person)[0]

    def survey(split: Any) -> dphypo.Stages:
        run = SampledGaussian.of(records=60, batch_size=20, epochs=1, noise_multiplier=2.0)
        own = OwnTraining(_never, run, dp_accounting.GaussianDpEvent(5.0), split, person=person)
        return dphypo.Stages(dphypo.Space({"rate": [0.1]}), [dphypo.Survey(own, 2)], delta=1e-5, journal=None)

    cost, both = (survey(split).guarantee.epsilon(1e-5) for split in (apart.split, None))
    assert cost < 2.12 < 2.39 < both
    with pytest.raises(ValueError, match="a person may have rows on both sides: give person= to split_by_hash too"):
        survey(trains.split)
    assert split_by_hash(apart, key="again")[0].split.keep_persons_apart, "parts of persons know them"
    assert survey(dphypo.Split("persons whose number ends in 9 score")).guarantee.epsilon(1e-5) == cost


def _never(params: Any, *, seed: int, run: Any) -> Any:
    raise AssertionError("nothing is run")
