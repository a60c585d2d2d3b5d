"""Canaries in runs of the engine: what they show of ε is at most the claim, and not much less."""

from __future__ import annotations

import dp_accounting as dp
import pytest
import torch
from torch import nn

from dphypo.accounting import account
from dphypo.audit import audit_observations
from dphypo.laws import Pmf
from dphypo.torch.engine import Program, Run, Setting, Tensors, train

SURE = 1 - 1e-6
RECORDS, DELTA = 32, 1e-3


def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return outputs[:, 0] * targets


def untrained() -> nn.Module:
    layer = nn.Linear(4, 1, bias=False)
    nn.init.zeros_(layer.weight)
    return layer


def first_weights(inputs: torch.Tensor, runs: int, first: int, **changes: object) -> list[float]:
    example = torch.zeros(1, 4), torch.zeros(1)
    program = Program.of(untrained(), loss, example)
    values = {"records": RECORDS, "rate": 0.5, "steps": 3, "batch_size": 16, "max_grad_norm": 2.0}
    values |= {"noise_multiplier": 0.5, "learning_rate": 1.0} | changes
    made = [Run(seed=first + seed, **values) for seed in range(runs)]  # type: ignore[arg-type]
    models = train(program, untrained, Tensors(inputs, torch.ones(len(inputs))), made, Setting())
    return [next(model.parameters())[0, 0].item() for model in models]


@pytest.mark.slow
def test_a_canary_shows_at_most_the_claim():
    """False alarms: 1e-6. A huge canary among records that pull elsewhere; it counts with its clipped norm."""
    inputs = torch.zeros(RECORDS, 4)
    inputs[0, 0], inputs[1:, 1:] = 1e30, torch.linspace(-3, 3, 31)[:, None]
    event = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.5, dp.GaussianDpEvent(0.5)), 3)
    claimed = account(event, Pmf({1: 1.0})).epsilon(DELTA)
    on, off = first_weights(inputs, 300, 0), first_weights(inputs[1:], 300, 10**6)
    found = audit_observations(on, off, delta=DELTA, claimed=claimed, confidence=SURE)
    assert found.passed, str(found)
    weak = account(dp.GaussianDpEvent(20.0), Pmf({1: 1.0})).epsilon(DELTA)
    assert found.epsilon > weak  # the attack sees something
