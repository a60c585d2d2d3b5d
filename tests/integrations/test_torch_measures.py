"""Scores that people use: AUC from a histogram, perplexity, gaps between groups; what one record changes in each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.nn.functional import cross_entropy

from dphypo.errors import UnfitModelError
from dphypo.integrations.measures import GAPS, auc
from dphypo.integrations.torch import DPSGD, PrivateConfusion, PrivateLoss

GENERATOR = np.random.default_rng(3)
X = GENERATOR.normal(size=(600, 3)).astype(np.float32)
Y = (X[:, 0] + 0.7 * GENERATOR.normal(size=600) > 0).astype(np.int64)


def network(outputs: int = 2) -> nn.Module:
    torch.manual_seed(1)
    return nn.Linear(3, outputs)


def margin(model: nn.Module) -> Any:
    with torch.no_grad():
        outputs = model(torch.from_numpy(X))
    return (outputs[:, 0] if outputs.shape[1] == 1 else outputs[:, 1] - outputs[:, 0]).numpy()


@pytest.mark.parametrize("outputs", [1, 2])
def test_auc_is_that_of_scikit_learn_up_to_the_bins(outputs: int) -> None:
    score = PrivateConfusion((X, Y), noise_multiplier=1e-6, measure="auc")
    assert score(network(outputs), seed=1) == pytest.approx(roc_auc_score(Y, margin(network(outputs))), abs=0.01)
    assert auc(np.zeros((2, 64))) == 0.5
    with pytest.raises(UnfitModelError, match="'auc' is of two classes, and the model tells 3 apart"):
        score(network(3), seed=1)


def group(inputs: torch.Tensor) -> torch.Tensor:
    if inputs.shape != (1, 3):
        raise ValueError("not one record")
    return inputs[0, 2] > 0


def by_groups(measure: Any, data: Any = (X, Y), **options: Any) -> PrivateConfusion:
    return PrivateConfusion(data, 1e-6, measure=measure, group=group, **options)


def test_gaps_are_those_of_the_groups() -> None:
    right, second = (margin(network()) > 0) == Y, X[:, 2] > 0
    wanted = -abs(right[second].mean() - right[~second].mean())
    assert by_groups("accuracy_gap")(network(), seed=1) == pytest.approx(wanted)
    recalls = [[right[side & (y == Y)].mean() for y in (0, 1)] for side in (second, ~second)]
    assert by_groups("recall_gap")(network(), seed=1) == pytest.approx(-np.abs(np.subtract(*recalls)).max())
    rates = [(margin(network())[side] > 0).mean() for side in (second, ~second)]
    assert by_groups("rate_gap")(network(), seed=1) == pytest.approx(-abs(np.subtract(*rates)))
    assert by_groups("f1")(network(), seed=1) == PrivateConfusion((X, Y), 1e-6)(network(), seed=1)
    same = np.stack([np.eye(2), np.eye(2)])
    assert all(gap(same) == 0 for gap in GAPS.values())
    with pytest.raises(ValueError, match="measure = 'recall_gap' is not valid: give one of f1, balanced_accuracy, auc"):
        PrivateConfusion((X, Y), 1e-6, measure="recall_gap")


@pytest.mark.parametrize("kind", ["groups", "auc"])
def test_a_record_changes_one_cell_by_one(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    monkeypatch.setattr("dphypo.integrations.torch.confusion.auc", lambda matrix: found.append(matrix) or 0.0)
    for left_out in (None, 0, 1, 2):
        rows = np.arange(len(X)) != (-1 if left_out is None else left_out)
        data, options = (X[rows], Y[rows]), {"records": 600}
        if kind == "groups":
            by_groups(lambda matrix: found.append(matrix) or 0.0, data, **options)(network(), seed=1)
        else:
            PrivateConfusion(data, 1e-6, measure="auc", **options)(network(), seed=1)
    assert found[0].shape == ((2, 2, 2) if kind == "groups" else (2, 64))
    for matrix in found[1:]:
        assert np.abs(found[0] - matrix).sum() == (found[0] - matrix).max() == 1


def test_a_record_of_no_group_is_in_no_cell() -> None:
    found: list[Any] = []

    def odd(inputs: torch.Tensor) -> int:
        if inputs[0, 2] > 1:
            raise ValueError("no group")
        return 7 if inputs[0, 2] < -1 else 0

    PrivateConfusion((X, Y), 1e-6, lambda matrix: found.append(matrix) or 0.0, group=odd)(network(), seed=1)
    assert found[0].sum() == (np.abs(X[:, 2]) <= 1).sum()


def test_the_noise_is_on_every_cell() -> None:
    found: list[Any] = []
    score = PrivateConfusion((X, Y), 20.0, lambda matrix: found.append(matrix) or 0.0, group=group, records=600)
    for seed in range(40):
        score(network(), seed=seed)
    assert score.event.event.noise_multiplier == 20.0  # type: ignore[attr-defined]
    assert (np.stack(found).std(0) > 10).all()
    assert (np.stack(found) == np.rint(found)).all()


def test_perplexity_is_e_to_the_mean_of_bounded_losses() -> None:
    with torch.no_grad():
        losses = cross_entropy(network()(torch.from_numpy(X)), torch.from_numpy(Y), reduction="none")
    options: dict[str, Any] = {"noise_multiplier": 1e-6, "bound": 0.7, "measure": "perplexity"}
    score = PrivateLoss((X, Y), **options)
    assert score(network(), seed=1) == pytest.approx(-math.exp(float(losses.clamp(0, 0.7).mean())), rel=1e-4)
    assert score.event == PrivateLoss((X, Y), noise_multiplier=1e-6, bound=0.7).event
    with pytest.raises(ValueError, match="measure = 'auc' is not valid"):
        PrivateLoss((X, Y), **{**options, "measure": "auc"})


@pytest.mark.parametrize("name", ["auc", "perplexity"])
def test_the_scores_have_names(name: str) -> None:
    mechanism = DPSGD(model=network, data=(X, Y), score=name, noise_multiplier=1.0, epochs=1, device="cpu")
    scored = mechanism.at(score_noise_multiplier=1.0)
    assert scored.split is not None
    assert scored({}, seed=1).ok
    assert scored.rehearse({}, seed=1).ok
