"""Every run starts from the factory's weights: none goes on where another one ended."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support.torch_world import INPUTS, LABELS, dpsgd
from torch import nn

import dphypo
from dphypo.errors import UnsupportedModelError
from dphypo.torch import PrivateLoss
from dphypo.torch.saver import Safetensors, SavedGraph, build

BACKBONE = nn.Sequential(nn.Linear(5, 8), nn.ReLU())
MADE: list[nn.Module] = []


def kept() -> nn.Module:
    """A factory that keeps every model that it gives."""
    MADE.append(nn.Linear(5, 2))
    return MADE[-1]


@functools.cache
def cached() -> nn.Module:
    return nn.Linear(5, 2)


FACTORIES: dict[str, Callable[[], nn.Module]] = {
    "one model": lambda: WHOLE,
    "a backbone that is trained": lambda: nn.Sequential(BACKBONE, nn.Linear(8, 2)),
    "a backbone that is frozen": lambda: nn.Sequential(FROZEN, nn.Linear(8, 2)),
    "a factory that keeps its models": kept,
    "a factory with a cache": cached,
    "shared weights in a new module": lambda: with_weights(WHOLE),
}
WHOLE = nn.Linear(5, 2)
FROZEN = nn.Sequential(nn.Linear(5, 8), nn.ReLU()).requires_grad_(False)


def with_weights(model: nn.Linear) -> nn.Module:
    again = nn.Linear(5, 2)
    again.weight = model.weight
    return again


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [value.detach().clone() for value in model.state_dict().values()]


@pytest.mark.parametrize("name", FACTORIES)
def test_a_run_does_not_depend_on_the_runs_before(name: str) -> None:
    """Before, run j went on from run j - 1: a search that was certified 0.803 released what costs 6.1."""
    factory, watched = FACTORIES[name], (WHOLE, BACKBONE, FROZEN)
    before = [weights(model) for model in watched]
    mechanism = dpsgd(model=factory)
    first = weights(mechanism({}, seed=1).model)
    mechanism({}, seed=2)
    other = dpsgd(model=factory, data=(INPUTS[::-1].copy(), 1 - LABELS))
    other({"learning_rate": 10.0}, seed=3)
    assert all(torch.equal(*pair) for pair in zip(weights(mechanism({}, seed=1).model), first, strict=True))
    for model, values in zip(watched, before, strict=True):
        assert all(torch.equal(*pair) for pair in zip(weights(model), values, strict=True))


def test_a_built_model_shares_no_tensor_with_what_its_factory_gives() -> None:
    given = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3))
    built = build(lambda: given, {})
    theirs = {value.data_ptr() for value in given.state_dict().values()}
    assert not theirs & {value.data_ptr() for value in built.state_dict().values()}


class Keeps(nn.Module):
    """Draws numbers that are no weights: a tensor, a number, and a list of tensors."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, width), nn.Linear(width, 2))
        self.shift, self.scale, self.others = 3 * torch.randn(2), float(torch.rand(())), [torch.randn(2)]

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layers(inputs) * self.scale + self.shift + self.others[0]


def test_no_run_has_the_numbers_of_another() -> None:
    """A model is captured once: what the first run of a process drew was in the scores and releases of all others."""
    score = PrivateLoss((INPUTS, LABELS), 1e-3, bound=50.0)

    def ended(mechanism: Any, seed: int) -> tuple[float | None, bytes]:
        outcome = mechanism({"width": 3}, seed=seed)
        return outcome.score, mechanism.saver.dump(outcome.model)

    alone, after = (dpsgd(model=Keeps, score=score) for _ in range(2))
    ended(after, seed=1)
    assert ended(after, seed=2) == ended(alone, seed=2)


def test_a_tensor_that_is_no_weight_is_that_of_its_run() -> None:
    class Shifts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.shift = nn.Linear(5, 2), 3 * torch.randn(2)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.layer(inputs) + self.shift

    inputs, labels = torch.as_tensor(INPUTS), torch.as_tensor(LABELS)
    mechanism = dpsgd(model=Shifts, score=PrivateLoss((INPUTS, LABELS), 1e-3, bound=50.0))
    for seed in (1, 2):
        made = mechanism({}, seed=seed)
        with torch.no_grad():
            outputs = made.model(inputs)
            loaded = SavedGraph().load(mechanism.saver.dump(made.model))(inputs)
        assert made.score == pytest.approx(-float(nn.functional.cross_entropy(outputs, labels)), abs=0.01)
        assert torch.allclose(loaded, outputs, atol=1e-5)


@pytest.mark.slow
def test_a_search_over_a_shared_backbone_starts_each_run_anew(tmp_path: Any) -> None:
    """Kept models are loaded between the runs of a search: the factory's own weights stay as they were."""
    before = weights(BACKBONE)
    study = dphypo.Study(
        dphypo.Space({"learning_rate": [0.1, 1.0]}),
        dpsgd(model=lambda: nn.Sequential(BACKBONE, nn.Linear(8, 2))),
        dphypo.Pmf({3: 1.0}),
        delta=1e-5,
        journal=tmp_path / "study.db",
    )
    study.run(progress=False)
    assert all(torch.equal(*pair) for pair in zip(weights(BACKBONE), before, strict=True))


def test_loading_a_model_leaves_the_factorys_alone() -> None:
    saver, before = Safetensors(lambda: WHOLE), weights(WHOLE)
    trained = dpsgd(model=lambda: WHOLE)({}, seed=1).model
    loaded = saver.load(saver.dump(trained))
    assert torch.equal(loaded.weight, trained.weight)
    assert torch.equal(WHOLE.weight, before[0])


def test_a_score_that_writes_back_what_a_run_has_learnt_ends_the_search() -> None:
    whole = nn.Linear(5, 2)

    def write_back(model: nn.Module) -> float:
        whole.load_state_dict(model.state_dict())
        return 0.5

    with pytest.raises(UnsupportedModelError, match=r"copy\.deepcopy\(backbone\)"):
        dpsgd(model=lambda: whole, score=write_back)({}, seed=1)


def test_a_factory_with_a_generator_of_its_own_is_refused() -> None:
    generator = np.random.default_rng(0)

    def drawn() -> nn.Module:
        model = nn.Linear(5, 2)
        with torch.no_grad():
            model.bias += float(generator.normal())
        return model

    with pytest.raises(UnsupportedModelError, match="the factory has its own random generator"):
        dpsgd(model=drawn)({}, seed=1)


class Clinging(nn.Linear):
    """Its copy has the same weights."""

    def __deepcopy__(self, memo: Any) -> Any:
        again = Clinging(5, 2)
        again.weight = self.weight
        return again


class Computed(nn.Linear):
    def __init__(self) -> None:
        super().__init__(5, 2)
        self.scale = 2 * self.bias


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (lambda: Clinging(5, 2), r"'weight' of the model is still shared.*copy\.deepcopy\(backbone\)"),
        (Computed, r"cannot be copied.*detach\(\)"),
        (lambda: torch.zeros(3), "returns a Tensor"),
    ],
)
def test_what_cannot_be_copied_is_refused_with_the_remedy(factory: Any, message: str) -> None:
    with pytest.raises((UnsupportedModelError, TypeError), match=message):
        dpsgd(model=factory)


def test_a_start_is_copied() -> None:
    start = nn.Linear(5, 2)
    before = weights(start)
    mechanism = dpsgd(model=lambda: nn.Linear(5, 2), start=start)
    assert torch.equal(weights(mechanism({}, seed=1).model)[0], weights(mechanism({}, seed=1).model)[0])
    assert all(torch.equal(*pair) for pair in zip(weights(start), before, strict=True))
