"""``plan(epsilons=)``: the noise of each ε, and what such noise cost on public tasks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import dphypo
from dphypo.accounting import Composition
from dphypo.accounting.composition import account_published
from dphypo.cli.options import joined, several
from dphypo.mechanisms import SampledGaussian
from dphypo.planning import lost_at, public_tasks
from dphypo.torch import DPSGD

TASK = {"records": 6000, "batch_size": 300, "epochs": 5}


def test_each_epsilon_is_what_one_run_with_its_noise_costs() -> None:
    found = dphypo.plan(epsilons=(1, 4), delta=1e-5, **TASK)
    for row in found.rows:
        run = SampledGaussian.of(noise_multiplier=row.noise_multiplier, **TASK)
        cost = Composition.of(account_published(run.event, 1)).epsilon(1e-5)
        assert row.epsilon - 2e-3 < cost <= row.epsilon
        assert row.reach == pytest.approx(300 * math.sqrt(run.steps) / row.noise_multiplier)
        assert row.lost == lost_at(row.reach)
    picture = " ".join(str(found).split())
    assert "what such noise cost on public tasks" in picture
    assert all(name in picture for name in public_tasks())
    assert found.to_dict()["epsilons"][1]["epsilon"] == 4.0


def test_a_mechanism_is_planned_for_as_its_numbers_are() -> None:
    data = torch.zeros(6000, 2), torch.zeros(6000, dtype=torch.long)
    mechanism = DPSGD(
        model=lambda: nn.Linear(2, 2), data=data, score=lambda _: 0.0, epochs=5, batch_size=300, device="cpu"
    )
    (by_mechanism,) = dphypo.plan(mechanism, epsilons=(2,), delta=1e-5).rows
    (by_numbers,) = dphypo.plan(epsilons=(2,), delta=1e-5, **TASK).rows
    assert by_mechanism.noise_multiplier == pytest.approx(by_numbers.noise_multiplier, rel=1e-3)
    assert by_mechanism.reach == pytest.approx(by_numbers.reach, rel=1e-3)


def test_more_noise_never_cost_less_on_any_public_task() -> None:
    assert len(public_tasks()) >= 3
    for name, points in public_tasks().items():
        reaches, lost = np.array(points).T
        assert (np.diff(reaches) > 0).all(), name
        assert (np.diff(lost) <= 0).all(), name
        assert (lost[-1], 0 < lost[0] < 1) == (0.0, True), name
        assert name not in lost_at(0.9 * reaches[0]), "what was not tried is not guessed"


@pytest.mark.parametrize("given", [{}, {"epsilon": 1.0, "epsilons": (1, 2)}])
def test_one_epsilon_or_several(given: dict) -> None:
    with pytest.raises(ValueError, match="give one total as epsilon=, or several to compare as epsilons="):
        dphypo.plan(delta=1e-5, **TASK, **given)


def test_the_command_line_takes_several_numbers() -> None:
    assert joined(["plan", "--epsilons", "0.5", "1", "--records", "9"])[2] == "0.5 1"
    assert joined(["plan", "--records", "9", "--epsilons"]) == ["plan", "--records", "9", "--epsilons"]
    assert joined(["plan", "--epsilon", "1"]) == ["plan", "--epsilon", "1"]
    assert several("0.5, 1 2") == (0.5, 1.0, 2.0)
