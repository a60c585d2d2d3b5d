"""DP-SGD as a mechanism: who takes which hyperparameter, seeds, data, models, and what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any, ClassVar
from unittest import mock

import dp_accounting as dp
import numpy as np
import pytest
import torch
from support.slow import mostly_slow
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from dphypo.accounting.events import ideal
from dphypo.errors import UnsupportedModelError
from dphypo.laws import Poisson
from dphypo.mechanisms import Mechanism, Saver
from dphypo.mechanisms.mechanism import attempt
from dphypo.torch import DPSGD, PublicAccuracy, own_loop
from dphypo.torch.saver import GRAPH, Safetensors, metadata

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 2, 200)
INPUTS = (RNG.normal(size=(200, 5)) + 2 * LABELS[:, None]).astype(np.float32)


def net(width: int = 4, dropout: float = 0.0) -> nn.Module:
    return nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 2))


def dpsgd(**changes: Any) -> DPSGD:
    arguments: dict[str, Any] = {
        "model": net,
        "data": (INPUTS, LABELS),
        "score": PublicAccuracy((INPUTS, LABELS)),
        "noise_multiplier": 1.0,
        "epochs": 3,
        "batch_size": 40,
        "learning_rate": 0.5,
        "device": "cpu",
    }
    return DPSGD(**{**arguments, **changes})


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_it_is_a_mechanism_and_learns() -> None:
    mechanism = dpsgd()
    assert isinstance(mechanism, Mechanism)
    assert mechanism.relation is dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    assert mechanism.score_event is None
    assert mechanism.split is None
    outcome = mechanism({"learning_rate": 1.0}, seed=1)
    assert outcome.score > 0.9
    assert not outcome.model.training
    assert "net" in repr(mechanism)
    assert "[" not in repr(mechanism)  # no data


def test_the_event_is_that_of_opacus_own_accountant() -> None:
    from opacus.accountants import RDPAccountant

    event: Any = ideal(dpsgd().event({}))
    ours = dp.rdp.RdpAccountant()
    ours.compose(event)
    theirs = RDPAccountant()
    theirs.history = [(event.event.event.noise_multiplier, event.event.sampling_probability, event.count)]
    assert ours.get_epsilon(1e-5) == pytest.approx(theirs.get_epsilon(1e-5), rel=0.02)


def test_the_event_reads_batch_size_and_epochs_alone() -> None:
    class Watched(dict[str, Any]):
        read: ClassVar[set[str]] = set()

        def __getitem__(self, name: str) -> Any:
            self.read.add(name)
            return super().__getitem__(name)

        def get(self, name: str, default: Any = None) -> Any:
            self.read.add(name)
            return super().get(name, default)

    params = Watched(width=3, learning_rate=1.0, batch_size=20, epochs=2, momentum=0.5)
    event: Any = ideal(dpsgd().event(params))
    assert params.read == {"batch_size", "epochs"}
    assert (event.count, event.event.sampling_probability) == (20, 0.1)


def test_hyperparameters_reach_whom_they_belong_to() -> None:
    given = {"width": 7, "optimizer": "NAdam", "learning_rate": 0.01, "betas": (0.8, 0.9), "momentum": 0.9}
    plain = torch.optim.NAdam.__init__
    with mock.patch.object(torch.optim.NAdam, "__init__", autospec=True, side_effect=plain) as made:
        outcome = dpsgd(
            fixed={"weight_decay": 0.1, "dropout": 0.25},
        )(given, seed=1)
    assert outcome.model[0].out_features == 7
    assert outcome.model[2].p == 0.25
    # NAdam knows no momentum: it is left out, so that one space can hold several optimisers.
    assert made.call_args.kwargs == {"lr": 1.0, "betas": (0.8, 0.9), "weight_decay": 0.1}  # rates come with steps


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "rmsprop", "adagrad"])
def test_optimisers(optimizer: str) -> None:
    assert np.isfinite(dpsgd()({"optimizer": optimizer, "learning_rate": 0.05}, seed=1).score)


def test_the_same_seed_gives_the_same_model_and_another_seed_another() -> None:
    mechanism = dpsgd(fixed={"dropout": 0.3})
    first, again, other = (weights(mechanism({}, seed=seed).model) for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
    # Two seeds that agree in their low 32 bits, all that PyTorch's own seeding would use.
    assert not torch.allclose(first, weights(mechanism({}, seed=5 + 2**32).model))
    assert not torch.allclose(first, weights(mechanism({}, seed=5 + 2**62).model))


def test_global_generators_and_threads_are_left_as_they_were() -> None:
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002 - the global generator is what is tested
    before, threads = (torch.get_rng_state(), np.random.get_state()[1].copy()), torch.get_num_threads()  # type: ignore[index, union-attr] # noqa: NPY002
    dpsgd()({}, seed=1)
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # type: ignore[index] # noqa: NPY002
    assert torch.get_num_threads() == threads


def test_no_gradient_of_a_record_stays_on_the_model() -> None:
    for width in (4, 500):  # hooks and ghost
        model = dpsgd()({"width": width}, seed=1).model
        for owner in (*model.modules(), *model.parameters()):
            assert not {"grad_sample", "summed_grad", "_norm_sample", "activations"} & set(vars(owner))
        assert all(parameter.grad is None for parameter in model.parameters())
        assert not any(m._forward_hooks or m._backward_hooks for m in model.modules())


TENSORS = TensorDataset(torch.from_numpy(INPUTS), torch.from_numpy(LABELS))


class Items(Dataset[Any]):
    def __len__(self) -> int:
        return len(INPUTS)

    def __getitem__(self, index: int) -> Any:
        return INPUTS[index], int(LABELS[index])


@pytest.mark.parametrize(
    ("data", "example"),
    mostly_slow(
        [
            ((torch.from_numpy(INPUTS), torch.from_numpy(LABELS)), None),
            (Items(), (torch.zeros(5), 0)),
            ((INPUTS.astype(np.float64), LABELS), None),
            (Subset(Subset(TENSORS, list(range(200))[::-1]), range(199, -1, -1)), None),
            (Subset(Items(), range(200)), (np.zeros(5), 1)),
            ((torch.from_numpy(INPUTS), torch.from_numpy(LABELS)), (torch.zeros(5), 0)),
            (TENSORS, None),
            (Items(), (np.zeros(5), np.int64(1))),
        ],
        2,
    ),
)
def test_data_in_any_form_gives_the_same_model(data: Any, example: Any) -> None:
    wanted = weights(dpsgd()({}, seed=1).model)
    given = {"data": data, "example": example}
    assert torch.equal(weights(dpsgd(**given)({}, seed=1).model), wanted)
    assert torch.isfinite(weights(dpsgd(**given, batch_size=1, epochs=0.5)({}, seed=1).model)).all()  # empty batches


def test_pieces_of_a_batch_give_the_same_model() -> None:
    whole, pieces = dpsgd()({}, seed=1).model, dpsgd(physical_batch_size=7)({}, seed=1).model
    assert torch.allclose(weights(whole), weights(pieces), atol=1e-5)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(Items())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": (INPUTS, LABELS[:-1])}, f"different lengths, {len(INPUTS)} and {len(INPUTS) - 1}"),
        ({"data": (INPUTS[:0], LABELS[:0]), "records": None}, "data holds no records"),
        ({"data": (LABELS, INPUTS)}, r"If inputs and targets were swapped, give data=\(inputs, targets\)"),
        ({"data": (INPUTS, LABELS, LABELS)}, "takes 2 positional arguments but 3 were given"),
        ({"data": Stream()}, "IterableDataset"),
        ({"data": 3}, "give a pair"),
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"noise_multiplier": "auto"}, "calibrate"),
        ({"batch_size": 201}, "declared 200 records"),
        ({"batch_size": 0}, "batch_size"),
        ({"epochs": 0}, "epochs"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"max_grad_norm": 0.0}, "max_grad_norm"),
        ({"records": 0}, "records"),
        ({"threads": 0}, "threads"),
        ({"physical_batch_size": 0}, "physical_batch_size"),
        ({"clipping": "hard"}, "clipping"),
        ({"average": 2.0}, "average"),
        ({"views": 0}, "views"),
        ({"autocast": "float16"}, "bfloat16"),
        ({"fixed": {"epochs": 3}}, "epochs=..."),
        ({"fixed": {"depth": 3}}, "depth"),
        ({"score": 0.5}, "score"),
        ({"noise_multiplier": {(400, 3): 1.0}}, "declared 200 records"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        dpsgd(**changes)


def test_a_name_that_nobody_takes_is_an_error_of_the_declaration() -> None:
    with pytest.raises(ValueError, match="'depth' is used neither"):
        dpsgd().event({"depth": 3})
    dpsgd(model=lambda **options: nn.Linear(5, 2)).event({"depth": 3})


def test_an_optimiser_that_cannot_work_is_refused() -> None:
    with pytest.raises(ValueError, match="adamw"):
        dpsgd()({"optimizer": "lbfgs"}, seed=1)


def test_uncalibrated_noise_says_what_to_call() -> None:
    with pytest.raises(ValueError, match=r"calibrated\(space, runs, epsilon=..., delta=...\)"):
        dpsgd(noise_multiplier="calibrate").event({})
    with pytest.raises(ValueError, match=r"space = Poisson\(mean=2\) is not valid: give a dphypo\.Space"):
        dpsgd().calibrated(Poisson(2), Poisson(2), epsilon=4, delta=1e-5)  # type: ignore[arg-type]


def test_a_setting_without_noise_of_its_own_is_an_error_of_the_declaration() -> None:
    with pytest.raises(ValueError, match=r"\(40, 3\), only for \(20, 3\)"):
        dpsgd(noise_multiplier={(20, 3): 1.0}).event({})
    with pytest.raises(ValueError, match=r"noise_multiplier = \{\} is not valid: give a number"):
        dpsgd(noise_multiplier={})


def test_at_gives_a_copy() -> None:
    cheap: Any = ideal(dpsgd().at(epochs=1, noise_multiplier=2.0).event({}))
    assert (cheap.count, cheap.event.event.noise_multiplier) == (5, 2.0)


def test_models_are_saved_and_loaded_without_pickle() -> None:
    mechanism = dpsgd()
    model = mechanism({"width": 6}, seed=1).model
    assert isinstance(mechanism.saver, Saver)
    data = mechanism.saver.dump(model)
    assert data == mechanism.saver.dump(model)
    loaded = mechanism.saver.load(data)
    assert torch.equal(weights(loaded), weights(model))
    assert not loaded.training
    assert metadata(data).keys() == {"arguments", GRAPH}  # nothing else about the run
    assert metadata(data)["arguments"] == '{"width": 6}'
    assert Safetensors().load(data).keys() == model.state_dict().keys()
    with pytest.raises(UnsupportedModelError):
        mechanism.saver.dump({"weights": 1})


def test_tied_weights_are_saved() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
            self.second.weight = self.first.weight

    saver = Safetensors(Tied)
    model = Tied()
    assert torch.equal(saver.load(saver.dump(model)).second.weight, model.first.weight)


def test_it_travels_to_other_processes() -> None:
    mechanism = pickle.loads(pickle.dumps(dpsgd()))
    assert torch.equal(weights(mechanism({}, seed=1).model), weights(dpsgd()({}, seed=1).model))


def test_failures_inside_a_run_are_outcomes_and_an_unfit_model_is_not() -> None:
    def broken(model: nn.Module) -> float:
        raise OSError("disk")

    assert attempt(dpsgd(score=broken), {}, 1).score is None
    assert attempt(dpsgd(score=lambda model: float("nan")), {}, 1).score is None

    def factory(norm: bool) -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 2)) if norm else nn.Linear(5, 2)

    with pytest.raises(UnsupportedModelError):
        attempt(dpsgd(model=factory), {"norm": True}, 1)


def test_the_state_of_pytorchs_generator_is_what_the_seeding_expects() -> None:
    """If PyTorch changes its layout, seeding refuses rather than use fewer bits."""
    generator = own_loop.noise_generator(1, torch.device("cpu"))
    draws = torch.randn(200_000, generator=generator)
    assert abs(draws.mean().item()) < 5.5 / np.sqrt(200_000)
    assert abs(draws.var().item() - 1) < 5.5 * np.sqrt(2 / 200_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(own_loop, "_STATE_BYTES", 16)
        with pytest.raises(RuntimeError, match="refuses"):
            own_loop.noise_generator(1, torch.device("cpu"))


def test_regression() -> None:
    targets = (INPUTS.sum(1, keepdims=True) / 10).astype(np.float32)
    mechanism = dpsgd(
        model=lambda: nn.Linear(5, 1),
        data=(INPUTS, targets),
        loss=functional.mse_loss,
        score=lambda model: -float(functional.mse_loss(model(torch.from_numpy(INPUTS)), torch.from_numpy(targets))),
        epochs=10,
    )
    assert mechanism({"learning_rate": 0.2}, seed=1).score > -0.2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu() -> None:
    outcome = dpsgd(device="cuda")({"learning_rate": 1.0}, seed=1)
    assert outcome.score > 0.9
    assert next(outcome.model.parameters()).device.type == "cpu"
