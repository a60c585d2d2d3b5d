"""A run that starts from the weights of a public model."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from dphypo.torch import DPSGD

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(200, 4)).astype(np.float32)
LABELS = (INPUTS[:, 0] > 0).astype(np.int64)


def network(width: int = 4) -> nn.Module:
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))


def mechanism(**changes: object) -> DPSGD:
    given = {"data": (INPUTS, LABELS), "epochs": 1, "batch_size": 50, "device": "cpu", **changes}
    return DPSGD(model=network, score=lambda model: 0.5, noise_multiplier=1.0, **given)  # type: ignore[arg-type]


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([value.flatten() for value in model.state_dict().values()])


def test_a_run_starts_from_the_public_model():
    public, still = network(), {"learning_rate": 1e-9}
    assert torch.allclose(weights(mechanism(start=public)(still, seed=1).model), weights(public), atol=1e-5)
    assert not torch.allclose(weights(mechanism()(still, seed=1).model), weights(public), atol=1e-2)


def test_a_model_that_does_not_fit_is_not_started_from():
    params = {"learning_rate": 0.5}
    started, fresh = (mechanism(start=one)(params, seed=3).model for one in (network(8), None))
    assert torch.equal(weights(started), weights(fresh))
