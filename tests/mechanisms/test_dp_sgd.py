"""The one event of DP-SGD, its short versions, and the transfer rules from full to short runs."""

from __future__ import annotations

import math
from typing import Any

import dp_accounting as dp
import pytest

from dphypo.accounting import account
from dphypo.laws import Pmf
from dphypo.mechanisms import DpSgd, SmallerBatches, transfer

ONCE = Pmf({1: 1.0})


def test_the_event_is_built_from_public_numbers() -> None:
    run = DpSgd.of(records=60_000, batch_size=256, epochs=10, noise_multiplier=0.71)
    expected = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(256 / 60_000, dp.GaussianDpEvent(0.71)), 2344)
    assert run.event == expected
    assert DpSgd.of(records=60_000, batch_size=256, steps=2344, noise_multiplier=0.71).event == expected
    sampled = DpSgd.of(records=60_000, batch_size=256, epochs=1, noise_multiplier=0.71, subsample=0.1)
    assert sampled.rate == 256 / 6_000
    assert sampled.event == dp.PoissonSampledDpEvent(0.1, sampled.on_the_subsample)


@pytest.mark.parametrize(("fraction", "steps"), [(1.0, 2344), (0.1, 235), (0.03, 71), (1e-6, 1)])
def test_a_short_run_has_matched_noise(fraction: float, steps: int) -> None:
    full = DpSgd.of(records=60_000, batch_size=256, epochs=10, noise_multiplier=0.63)
    short = full.at(fraction=fraction, match=True)
    assert short.steps == steps
    assert short.noise_multiplier == pytest.approx(0.63 / math.sqrt(fraction))
    assert full.at(fraction=fraction).noise_multiplier == 0.63


def test_a_short_run_with_matched_noise_costs_little() -> None:
    full = DpSgd.of(records=60_000, batch_size=256, epochs=10, noise_multiplier=0.63)
    costs = [account(run.event, ONCE).epsilon(1e-5) for run in (full, full.at(fraction=0.1, match=True))]
    assert costs[1] < 0.1 * costs[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 201}, "declared 200 records"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 2.5}, "batch_size"),
        ({"epochs": -1}, "epochs"),
        ({"epochs": None}, "one of epochs and steps"),
        ({"steps": 3}, "one of epochs and steps"),
        ({"epochs": None, "steps": 0}, "steps"),
        ({"noise_multiplier": 0}, "noise_multiplier"),
        ({"noise_multiplier": math.nan}, "noise_multiplier"),
        ({"fraction": 0}, "fraction"),
        ({"fraction": 1.5}, "fraction"),
        ({"subsample": 2}, "subsample"),
        ({"records": 0}, "records"),
    ],
)
def test_wrong_runs_are_named(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"records": 200, "batch_size": 20, "epochs": 2, "noise_multiplier": 1.0}
    with pytest.raises(ValueError, match=message):
        DpSgd.of(**arguments | changes)


def test_a_rule_cannot_change_what_a_run_costs() -> None:
    full = {"learning_rate": 0.1, "batch_size": 64}
    assert transfer.apply(lambda params, fraction: {**params, "learning_rate": 1.0}, full, 0.1)["learning_rate"] == 1.0
    for changed in ({"batch_size": 32}, {"epochs": 1}, {"noise_multiplier": 0.1}):
        with pytest.raises(ValueError, match="may not change it"):
            transfer.apply(lambda params, fraction, changed=changed: {**params, **changed}, full, 0.1)
    with pytest.raises(ValueError, match="may not change it"):
        transfer.apply(lambda params, fraction: {"learning_rate": 1.0}, full, 0.1)
    assert transfer.describe(SmallerBatches(0.5))["batch_exponent"] == 0.5
    assert transfer.describe(halved) == {"rule": f"{__name__}.halved"}


def halved(params: Any, fraction: float) -> Any:
    return {**params, "learning_rate": params["learning_rate"] / 2}
