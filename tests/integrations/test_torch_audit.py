"""A canary audit of one run: what an attacker who knows everything but one record learns, against the claimed ε.

The worst case that the event allows: all other records have zero gradient, the canary's is the same in every step, has
the clipping norm and points one way. The attacker looks at the released weight in that direction. A lower bound on ε
follows from how often a threshold is passed with the canary and without it (Clopper and Pearson).
"""

from __future__ import annotations

import math
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from scipy import stats
from torch import nn

from dphypo.accounting.events import ideal
from dphypo.noise import Table
from dphypo.torch import DPSGD

DELTA = 1e-5
RECORDS = 8
CONFIDENCE = 1e-6


def weights() -> nn.Module:
    model = nn.Linear(4, 1, bias=False)
    nn.init.zeros_(model.weight)
    return model


def along(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return -outputs[:, 0]


def mechanism(canary: bool, sigma: float) -> DPSGD:
    inputs = torch.zeros(RECORDS - 1 + canary, 4)
    if canary:
        inputs[-1, 0] = 100.0  # clipped to norm 1
    return DPSGD(
        model=weights,
        data=(inputs, torch.zeros(len(inputs))),
        score=lambda model: 0.0,
        noise_multiplier=sigma,
        loss=along,
        records=RECORDS,
        batch_size=6,
        epochs=3.75,
        learning_rate=1.0,
        device="cpu",
    )


def observed(canary: bool, sigma: float, count: int) -> np.ndarray:
    seeds = range(1_000_000 * canary, 1_000_000 * canary + count)
    outcomes = mechanism(canary, sigma).many([{}] * count, seeds=seeds)
    return np.array([outcome.model.weight[0, 0].item() for outcome in outcomes])


def lower_bound(without: np.ndarray, with_it: np.ndarray, confidence: float) -> float:
    """The largest ε that the counts rule out, with the threshold chosen on one half and counted on the other."""
    half = len(without) // 2
    thresholds = np.quantile(np.concatenate([without[:half], with_it[:half]]), np.linspace(0.02, 0.98, 49))

    def bound(null: np.ndarray, alternative: np.ndarray, threshold: float) -> float:
        hits, alarms = int((alternative > threshold).sum()), int((null > threshold).sum())
        hit_rate = stats.beta.ppf(confidence / 2, hits, len(alternative) - hits + 1) if hits else 0.0
        alarm_rate = stats.beta.ppf(1 - confidence / 2, alarms + 1, len(null) - alarms) if alarms < len(null) else 1.0
        return math.log((hit_rate - DELTA) / alarm_rate) if hit_rate > DELTA else 0.0

    best = max(thresholds, key=lambda threshold: bound(without[:half], with_it[:half], threshold))
    return max(0.0, bound(without[half:], with_it[half:], best))


def claimed(sigma: float) -> float:
    accountant = PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(ideal(mechanism(True, sigma).event({})))
    return float(accountant.get_epsilon(DELTA))


def audited(sigma: float, count: int, confidence: float) -> float:
    return lower_bound(*(observed(canary, sigma, count) for canary in (False, True)), confidence)


def rounded_without_noise(self: Table, high: np.ndarray, words: Any) -> np.ndarray:
    return np.zeros(len(high), dtype=np.int64)


@pytest.mark.slow
def test_the_audit_stays_below_the_claim_with_noise_and_exceeds_it_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sigma, count = 4.5, 200
    epsilon = claimed(sigma)
    assert 1.0 < epsilon < 2.0
    assert audited(sigma, count, CONFIDENCE) <= epsilon
    monkeypatch.setattr(Table, "draw", rounded_without_noise)
    assert audited(sigma, count, CONFIDENCE) > epsilon


@pytest.mark.slow
def test_the_audit_comes_close_to_the_claim() -> None:
    """So that the test above is not passed by an attack too weak to see anything."""
    sigma, count = 1.5, 4000
    assert 0.3 * claimed(sigma) < audited(sigma, count, 0.05) <= claimed(sigma)
