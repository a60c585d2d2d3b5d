"""Every setting and every fraction of it is charged for the steps that it trains."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from support.torch_witness import Net, no_gradient, numbered, watching

import dphypo
from dphypo.accounting.events import ideal
from dphypo.mechanisms import over_space
from dphypo.torch import DPSGD

COUNT = 200


def mechanism(**changes: Any) -> DPSGD:
    arguments: dict[str, Any] = {
        "model": Net,
        "data": numbered(COUNT),
        "score": lambda model: 0.0,
        "noise_multiplier": 1.0,
        "loss": no_gradient,
        "epochs": 8,
        "batch_size": 15,
        "device": "cpu",
    }
    return DPSGD(**{**arguments, **changes})


def test_a_fraction_of_the_epochs_also_where_they_are_tuned() -> None:
    full = mechanism(epochs=30)
    assert full.at(fraction=0.1).event({}) == mechanism(epochs=3).event({})
    assert full.at(fraction=0.1).event({"epochs": 60}) == mechanism(epochs=6).event({})
    with watching() as seen:
        full.at(fraction=0.1)({"epochs": 60}, seed=1)
    assert seen.steps == 80
    with pytest.raises(ValueError, match="fraction"):
        full.at(fraction=1.1)


@pytest.mark.parametrize("fraction", [0.37, 0.003])
def test_every_setting_is_charged_for_the_steps_it_trains(fraction: float) -> None:
    ours = mechanism(fraction=fraction)
    space = dphypo.Space({"epochs": [1, 2.7, 8], "batch_size": [7, 15]})
    charged = {repr(event) for event in over_space.events(ours, space)}
    for epochs, batch_size in product([1, 2.7, 8], [7, 15]):
        params = {"epochs": epochs, "batch_size": batch_size}
        with watching() as seen:
            ours(params, seed=1)
        event = ours.event(params)
        assert repr(event) in charged
        assert ideal(event).count == seen.steps > 0
