"""Models that cannot be captured, or whose graph of one record is not what they mean, are refused with the remedy."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from opacus.validators import ModuleValidator
from torch import nn
from torch.nn import functional

from dphypo.errors import UnsupportedModelError
from dphypo.torch import DPSGD
from dphypo.torch.engine import Program
from dphypo.torch.record_values import captured, per_record

CPU = torch.device("cpu")
CLASSES = (torch.zeros(1, 8), torch.zeros(1, dtype=torch.long))
TOKENS = (torch.zeros(1, 10, dtype=torch.long), torch.zeros(1, dtype=torch.long))


class Layers(nn.Module):
    """A model whose forward pass is a function of its layers."""

    def __init__(self, forward: Any, **layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(layers)
        self.function = forward

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.function(self.layers, inputs, self.training)  # type: ignore[no-any-return]


def batch_statistics(layers: Any, x: torch.Tensor, _: bool) -> Any:
    return layers["a"]((x - x.mean(0)) / x.std(0))


def divides_by_batch(layers: Any, x: torch.Tensor, _: bool) -> Any:
    return layers["a"](x) / len(x)


def counts_places(layers: Any, x: torch.Tensor, _: bool) -> Any:
    """A positional encoding along the dimension of the records: a common mistake."""
    return layers["a"](x + torch.arange(len(x))[:, None])


def normalises_large_batches(layers: Any, x: torch.Tensor, _: bool) -> Any:
    return layers["a"](x - x.mean(0) if len(x) > 8 else x)


def places_in_training(layers: Any, x: torch.Tensor, training: bool) -> Any:
    return layers["a"](x * torch.linspace(1, 2, len(x))[:, None] if training else x)


def attends(layers: Any, x: torch.Tensor, _: bool) -> Any:
    tokens = x.unflatten(1, (2, 4))
    return layers["b"](layers["a"](tokens, tokens, tokens)[0].flatten(1))


def leaves_one_out(layers: Any, x: torch.Tensor, _: bool) -> Any:
    return layers["a"](x)


def functional_dropout(layers: Any, x: torch.Tensor, training: bool) -> Any:
    return layers["b"](functional.dropout(layers["a"](x), 0.5, training))


def twice(layers: Any, x: torch.Tensor, _: bool) -> Any:
    return layers["c"](layers["b"](torch.relu(layers["b"](layers["a"](x)))))


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 3)
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean = self.mean + inputs.detach().mean(0)
        return self.linear(inputs)  # type: ignore[no-any-return]


class OwnWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 3))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs @ self.weight


def fit(model: nn.Module, example: Any = CLASSES, loss: Any = functional.cross_entropy) -> Program:
    """The program of a model that can be trained."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return captured(model, per_record(loss), example)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)), "GroupNorm"),
        (nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4, affine=False), nn.Linear(4, 3)), "GroupNorm"),
        (Layers(batch_statistics, a=nn.Linear(8, 3)), "other records of its batch"),
        (Layers(divides_by_batch, a=nn.Linear(8, 3)), "other records of its batch"),
        (Layers(counts_places, a=nn.Linear(8, 3)), "on its position"),
        (Layers(places_in_training, a=nn.Linear(8, 3)), "on its position"),
        (Layers(leaves_one_out, a=nn.Linear(8, 3), b=nn.Linear(8, 3)), "does not affect the output"),
        (Counter(), "'mean' of the model changes"),
        (nn.Sequential(nn.LazyLinear(3)), "'0.weight' has no shape yet"),
        (nn.Sequential(nn.Flatten(), nn.MultiheadAttention(8, 2)), "missing 2 required positional arguments"),
        (nn.Linear(5, 3), "made-up records"),
        (nn.Linear(8, 3).requires_grad_(False), "no trainable parameter"),
    ],
)
def test_unfit_models_are_refused_with_the_remedy(model: nn.Module, message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        fit(model)


def test_the_remedy_for_batch_normalisation_works() -> None:
    model = nn.Sequential(
        nn.Unflatten(1, (1, 2, 4)), nn.Conv2d(1, 4, 2), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(12, 3)
    )
    with pytest.raises(UnsupportedModelError, match="BatchNorm2d"):
        fit(model)
    assert fit(ModuleValidator.fix(model))


def test_an_unfit_model_is_refused_when_the_mechanism_is_made() -> None:
    with pytest.raises(UnsupportedModelError, match="GroupNorm"):
        DPSGD(
            model=lambda: nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 3)),
            data=(torch.randn(20, 8), torch.zeros(20, dtype=torch.long)),
            score=lambda model: 0.0,
            noise_multiplier=1.0,
            batch_size=10,
        )


@pytest.mark.parametrize("loss", [functional.mse_loss, nn.MSELoss(), nn.MSELoss(reduction="sum")])
def test_losses_that_broadcast_over_the_batch_are_refused(loss: Any) -> None:
    """Outputs of shape (n, 1) and targets of shape (n,) make an n by n table: each record meets all others."""
    with pytest.raises(UnsupportedModelError, match="mixes records"):
        fit(nn.Linear(8, 1), (torch.zeros(1, 8), torch.zeros(1)), loss)
    assert fit(nn.Linear(8, 1), (torch.zeros(1, 8), torch.zeros(1, 1)), loss)


def test_a_loss_that_averages_over_the_batch_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match=r"one value (a|per) record"):
        fit(nn.Linear(8, 3), loss=lambda outputs, targets: (outputs**2).mean())


@pytest.mark.parametrize(
    ("model", "example"),
    [
        (nn.Linear(8, 3), CLASSES),
        (nn.Sequential(nn.Linear(8, 30), nn.ReLU(), nn.Dropout(), nn.Linear(30, 3)), CLASSES),
        (Layers(functional_dropout, a=nn.Linear(8, 30), b=nn.Linear(30, 3)), CLASSES),
        (Layers(twice, a=nn.Linear(8, 60), b=nn.Linear(60, 60), c=nn.Linear(60, 3)), CLASSES),
        (OwnWeights(), CLASSES),
        (Layers(attends, a=nn.MultiheadAttention(4, 1, batch_first=True), b=nn.Linear(8, 3)), CLASSES),
        (Layers(normalises_large_batches, a=nn.Linear(8, 3)), CLASSES),  # the graph is of one record
        (nn.Sequential(nn.Embedding(50, 64), nn.Flatten(), nn.Linear(640, 3)), TOKENS),
        (
            Layers(
                lambda layers, x, _: layers["out"](layers["lstm"](layers["in"](x))[0][:, -1]),
                **{"in": nn.Embedding(50, 16), "lstm": nn.LSTM(16, 16, batch_first=True), "out": nn.Linear(16, 3)},
            ),
            TOKENS,
        ),
    ],
)
def test_models_that_are_trained(model: nn.Module, example: Any) -> None:
    assert fit(model, example)


def test_training_that_diverges_is_a_failed_run() -> None:
    mechanism = DPSGD(
        model=lambda: nn.Sequential(nn.Linear(8, 30), nn.Linear(30, 30), nn.Linear(30, 3)),
        data=(torch.randn(40, 8), torch.randint(3, (40,))),
        score=lambda model: 0.0,
        noise_multiplier=1.0,
        batch_size=20,
        epochs=20,
    )
    with pytest.raises(ArithmeticError, match="diverged"):
        mechanism({"learning_rate": 3e38, "max_grad_norm": 1e3}, seed=1)
    outcomes = mechanism.many([{"learning_rate": 3e38, "max_grad_norm": 1e3}, {}], seeds=[1, 2])
    assert [outcome.ok for outcome in outcomes] == [False, True]
