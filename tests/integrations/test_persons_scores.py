"""Private scores of persons: a person's value is the mean over the drawn rows, and one person moves a score by one."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import Dataset

import dphypo
from dphypo import jax as dphypo_jax
from dphypo import noise
from dphypo.torch import DPSGD, PrivateAccuracy, PrivateConfusion, PrivateLoss
from dphypo.training.persons import GRID, PersonKeys, person_cells
from dphypo.training.scores import noisy_matrix
from dphypo.training.split import split_by_hash

SMALL = 1e-6  # noise, in persons
PERSON: list[Any] = [0, 0, 0, 1, 1, 2, None, 3]
ROWS = np.array([[1.0], [1.0], [-1.0], [1.0], [-1.0], [1.0], [1.0], [math.nan]], dtype=np.float32)
LABELS = np.array([1, 1, 1, 1, 1, 0, 1, 1])
CORRECT = [2 / 3, 1 / 2, 0.0]  # of persons 0, 1 and 2; the others have no row that counts


class Sign(nn.Module):
    """Predicts class 1 where the input is positive."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(1, 2, bias=False)
        with torch.no_grad():
            self.inner.weight.copy_(torch.tensor([[-0.5], [0.5]]))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.inner(inputs)  # type: ignore[no-any-return]


class Listed(Dataset[Any]):
    def __len__(self) -> int:
        return len(ROWS)

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(ROWS[index]), int(LABELS[index])


def made(kind: Any, data: Any = (ROWS, LABELS), **changes: Any) -> Any:
    return kind(data, **{"noise_multiplier": SMALL, "records": 3, "person": PERSON, "rows_per_person": 5, **changes})


@pytest.mark.filterwarnings("ignore:.*noise")
@pytest.mark.parametrize("data", [(ROWS, LABELS), Listed()], ids=["arrays", "data set"])
def test_scores_are_means_over_persons(data):
    """The oracle: a mean over each person's rows, then over the declared persons."""
    more = {} if isinstance(data, tuple) else {"example": (torch.zeros(1), 0)}
    accuracy = made(PrivateAccuracy, data, **more)
    assert accuracy(Sign(), seed=1) == pytest.approx(sum(CORRECT) / 3, abs=1e-3)
    right, wrong = math.log(1 + math.exp(-1)), math.log(1 + math.exp(1))
    losses = [(2 * right + wrong) / 3, (right + wrong) / 2, wrong]
    assert made(PrivateLoss, data, bound=5.0, **more)(Sign(), seed=1) == pytest.approx(-sum(losses) / 3, abs=1e-3)
    matrix = made(PrivateConfusion, data, **more).drawn(Sign(), 1)
    assert matrix == pytest.approx(np.array([[0, 1], [1 / 3 + 1 / 2, 2 / 3 + 1 / 2]]), abs=2e-3)


@pytest.mark.filterwarnings("ignore:.*noise")
def test_at_most_so_many_rows_of_a_person_score():
    rows = np.concatenate([np.ones((6, 1)), -np.ones((6, 1))]).astype(np.float32)
    score = made(PrivateAccuracy, (rows, np.ones(12, int)), person=[0] * 12, records=1, rows_per_person=1)
    found = {round(score(Sign(), seed=seed), 3) for seed in range(12)}
    assert found == {0.0, 1.0}


cells = st.lists(st.integers(-1, 60), min_size=1, max_size=60)


@given(cells, st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60)), max_size=20))
def test_one_person_fills_cells_by_at_most_one(mine, others):
    """The exact oracle of a matrix: in whole units, one person more has a norm of at most the grid."""
    owners = np.array([owner for owner, _ in others], dtype=np.int64)
    there = np.array([cell for _, cell in others], dtype=np.int64)
    without = person_cells(there, owners, 60)
    whole = person_cells(np.array([*mine, *there]), np.concatenate([np.full(len(mine), 9), owners]), 60)
    added = (whole - without).astype(object)
    assert (added >= 0).all()
    assert sum(one**2 for one in added) <= GRID**2
    assert sum(added) <= GRID


def test_fifty_cells_of_one_person_are_rounded_down():
    units = person_cells(np.arange(50), np.zeros(50, np.int64), 50)
    assert units.tolist() == [GRID // 50] * 50
    up = math.sqrt(50 * math.ceil(8 / 50) ** 2) / 8  # on a grid of 8 parts, rounded up
    assert up > 0.88 > math.sqrt(50 * (8 // 50) ** 2) / 8


def test_the_noise_of_a_matrix_is_that_of_persons():
    """400 persons in one cell of four, 300 times; the root of the mean square of 300 draws is 6 deviations from 4.9."""
    cells, owners = np.full(400, 3.0), np.arange(400)
    drawn = [noisy_matrix(cells, (2, 2), 4.0, noise.Words.of_seed(seed), owners)[1, 1] - 400 for seed in range(300)]
    assert 3.1 < math.sqrt(np.mean(np.square(drawn))) < 4.9
    assert any(one % 1 for one in drawn)  # parts of a person
    score = made(PrivateConfusion, noise_multiplier=4.0, records=1000)
    assert score.event.event.noise_multiplier == 4.0


def trained(library: Any, **changes: Any) -> Any:
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 300, 1500)
    labels = keys % 2
    rows = (rng.normal(size=(1500, 3)) + 3 * labels[:, None] - 1.5).astype(np.float32)
    options: dict[str, Any] = {"data": (rows, labels), "person": keys, "rows_per_person": 3, "persons": 300}
    options |= {"epochs": 3, "batch_size": 60, "noise_multiplier": 1.0, **changes}
    if library is DPSGD:
        return DPSGD(model=lambda: nn.Linear(3, 2), device="cpu", **options)
    return dphypo_jax.DPSGD(
        init=lambda key: {"w": jnp.zeros((3, 2))}, predict=lambda params, inputs: inputs @ params["w"], **options
    )


@pytest.mark.parametrize("library", [DPSGD, dphypo_jax.DPSGD], ids=["torch", "jax"])
@pytest.mark.parametrize("score", ["accuracy", ("f1", "loss")], ids=str)
def test_a_named_score_sets_persons_apart(library, score):
    mechanism = trained(library, score=score)
    ranking = mechanism.ranking_score
    assert (mechanism.records, ranking.records, ranking.rows_per_person) == (240, 60, 3)
    mine, theirs = (set(one.person.rows) for one in (mechanism.data, ranking.data))
    assert not mine & theirs
    assert len(mine | theirs) == mechanism.on_all_records().data.person.count
    assert mechanism.split is not None
    found = mechanism.at(score_noise_multiplier=2.0)({}, seed=3).score
    assert 0.6 < found < 1.2
    assert {name: value[1] for name, value in mechanism.fitting_records().items()}["train"] == len(mine)


@pytest.mark.slow
def test_a_search_over_persons_ends_in_a_certificate_of_persons():
    plan: dict[str, Any] = {"epsilon": 8, "delta": 1e-3, "survey": 2, "progress": False, "journal": None}
    space = dphypo.Space({"learning_rate": [0.5, 1.0]})
    release = dphypo.tune(space, trained(DPSGD, score="accuracy", noise_multiplier="calibrate"), **plan)
    stated = release.certificate.statement()
    assert (
        "Each person was used either to train or to score, never both." in stated or "sets apart the persons" in stated
    )
    assert dphypo.verify(release.certificate).holds if hasattr(dphypo.verify(release.certificate), "holds") else True


def test_training_and_scoring_protect_one_unit():
    keys = PersonKeys.of(PERSON, 8)
    train, held_out = split_by_hash(ROWS, LABELS, share=0.5, person=keys)
    options: dict[str, Any] = {"model": Sign, "noise_multiplier": 1.0, "device": "cpu", "batch_size": 1}
    rows = PrivateAccuracy((held_out[0], held_out[1]), noise_multiplier=2.0, records=40, split="same")
    with pytest.raises(ValueError, match="must protect one unit"):
        DPSGD(data=train, score=rows, persons=2, **options)
    with pytest.raises(ValueError, match="must protect one unit"):
        DPSGD(data=(train[0], train[1]), score=PrivateAccuracy(held_out, noise_multiplier=2.0, records=40), **options)
    with pytest.raises(ValueError, match=r"rows_per_person = 3 .*person="):
        PrivateAccuracy((ROWS, LABELS), noise_multiplier=2.0, rows_per_person=3)
    score = PrivateAccuracy(held_out, noise_multiplier=2.0, records=40)
    assert DPSGD(data=train, score=score, persons=2, **options).split is not None
