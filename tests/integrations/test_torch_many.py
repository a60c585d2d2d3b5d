"""Many runs of DP-SGD at once, and what a search may tune besides: averages, views, clipping."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.torch_world import dpsgd
from torch import nn

import dphypo
from dphypo.entropy import Seeded
from dphypo.errors import UnsupportedModelError
from dphypo.mechanisms import Outcome
from dphypo.search.proposer import SamplerProposer
from dphypo.torch import DPSGD


def flat(outcome: Outcome) -> torch.Tensor:
    return torch.cat([value.detach().flatten() for value in outcome.model.parameters()])


def noisy(inputs: torch.Tensor, uniforms: Any) -> torch.Tensor:
    return inputs + uniforms(1) - 0.5


OTHERS: dict[str, list[Any]] = {"clipping": ["normalise"], "average": ["last half", 0.9], "views": [3]}
EACH = [(name, value) for name, values in OTHERS.items() for value in values]


@pytest.mark.parametrize(("name", "value"), EACH)
def test_a_field_and_a_hyperparameter_mean_the_same_and_cost_nothing(name: str, value: Any) -> None:
    plain = dpsgd(augment=noisy)
    tuned, fixed = plain({name: value}, seed=1), dpsgd(augment=noisy, **{name: value})({}, seed=1)
    assert torch.equal(flat(tuned), flat(fixed))
    assert not torch.equal(flat(tuned), flat(plain({}, seed=1)))
    assert plain.event({name: value}) == plain.event({})


def test_passes_in_half_precision_are_other_passes() -> None:
    half, whole = (flat(dpsgd(autocast=kind)({}, seed=1)) for kind in ("bfloat16", None))
    assert not torch.equal(half, whole)
    assert torch.allclose(half, whole, atol=0.05)
    assert half.dtype == torch.float32


@pytest.mark.parametrize("space", [{"clipping": ["clip", "hard"]}, {"average": [None, 2.0]}, {"views": [1, 0]}])
def test_values_that_no_run_can_take_are_refused_with_the_space(space: dict[str, list[Any]]) -> None:
    with pytest.raises(ValueError, match=next(iter(space))):
        dpsgd().check_space(dphypo.Space(space))


def test_many_runs_are_those_that_are_made_alone() -> None:
    """To the bit: they differ in architecture, batch, length, optimiser and everything else that a space may hold."""
    mechanism = dpsgd(model=lambda width=4: nn.Sequential(nn.Linear(5, width), nn.Tanh(), nn.Linear(width, 2)))
    params: list[dict[str, Any]] = [
        {},
        {"learning_rate": 1.0},
        {"max_grad_norm": 0.1, "learning_rate": 0.3},
        {"width": 8},
        {"width": 8, "learning_rate": 0.7, "clipping": "normalise"},
        {"batch_size": 20},
        {"epochs": 1, "average": "last half"},
        {"optimizer": "adam", "learning_rate": 0.01},
        {"optimizer": "adam", "learning_rate": 0.02, "weight_decay": 0.1},
        {"momentum": 0.9},
        {"momentum": 0.5},
        {"views": 2},
    ]
    seeds = [10 + place for place in range(len(params))]
    together = mechanism.many(params, seeds=seeds)
    for one, seed, outcome in zip(params, seeds, together, strict=True):
        assert torch.equal(flat(mechanism(one, seed=seed)), flat(outcome)), one
        assert outcome.score == 0.5
    (again,) = mechanism.many(params[3:4], seeds=seeds[3:4])
    assert torch.equal(flat(again), flat(together[3]))


def test_equal_runs_with_other_seeds_have_nothing_in_common() -> None:
    one, other, same = (flat(found) for found in dpsgd().many([{}] * 3, seeds=[1, 2, 1]))
    assert not torch.isclose(one, other).any()
    assert torch.equal(one, same)


def test_a_run_that_fails_leaves_the_others_alone() -> None:
    mechanism = dpsgd()
    fine, wrong, diverged = mechanism.many([{}, {"optimizer": "lbfgs"}, {"learning_rate": 1e300}], seeds=[1, 2, 3])
    assert torch.equal(flat(fine), flat(mechanism({}, seed=1)))
    assert not wrong.ok
    assert not diverged.ok


def probe() -> nn.Module:
    """A layer that all runs share, and one that is trained."""
    model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    nn.init.constant_(model[0].weight, 0.5)
    nn.init.zeros_(model[0].bias)
    return model


def test_a_score_cannot_write_to_the_frozen_weights_of_other_runs() -> None:
    def scored(model: Any) -> float:
        seen.append(float(model[0].weight.sum()))
        model[0].weight.data.add_(1.0)
        raise ValueError

    seen: list[float] = []
    mechanism = dpsgd(model=probe, score=scored)
    assert not any(one.ok for one in mechanism.many([{}] * 3, seeds=[1, 2, 3]))
    assert seen == [10.0] * 3
    with pytest.raises(UnsupportedModelError, match="the score changes the model"):
        dpsgd(model=probe, score=lambda model: float(model[0].weight.data.add_(1.0).sum())).many([{}] * 2, seeds=[1, 2])


def test_models_of_runs_share_what_is_frozen_and_nothing_else() -> None:
    mechanism = dpsgd(model=probe)
    one, other = (found.model for found in mechanism.many([{}] * 2, seeds=[1, 2]))
    assert one[0].weight.data_ptr() == other[0].weight.data_ptr()
    assert one[1].weight.data_ptr() != other[1].weight.data_ptr()
    again = mechanism({}, seed=1).model
    one[0].weight.data.zero_()  # by whoever has the models
    assert torch.equal(flat(mechanism({}, seed=1)), torch.cat([value.flatten() for value in again.parameters()]))


def test_many_runs_with_hyperparameters_of_their_own() -> None:
    mechanism = dpsgd()
    together = mechanism.many([{}, {"learning_rate": 0.5}], seeds=[1, 2])
    assert torch.equal(flat(together[1]), flat(mechanism({"learning_rate": 0.5}, seed=2)))


def test_a_survey_is_made_in_groups_of_the_runs_that_are_made_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, many = [], DPSGD.many

    def counted(self: DPSGD, params: Any, *, seeds: Any) -> Any:
        sizes.append(len(params))
        return many(self, params, seeds=seeds)

    def surveyed(**options: Any) -> Any:
        survey = dphypo.Survey(mechanism, 10, SamplerProposer(start=10))
        search = dphypo.Stages(space, [survey], delta=1e-5, journal=None, entropy=Seeded(3))
        return search.run(progress=False, **options).survey.rows

    monkeypatch.setattr(DPSGD, "many", counted)
    space = dphypo.Space({"learning_rate": [0.1, 0.3, 1.0]})
    mechanism = dpsgd(score=lambda model: float(next(model.parameters()).sum()))
    rows = surveyed()
    assert sizes == [5, 2, 2, 2]
    assert surveyed(executor="in_process") == rows
