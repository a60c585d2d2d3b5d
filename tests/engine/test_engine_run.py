"""Whole runs: optimisers, averages, views, schedules, records outside the domain, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.dpsgd_models import KINDS, Residual, cross_entropy
from torch import nn

from dphypo.errors import UnsupportedModelError
from dphypo.torch.engine import Program, Run, Setting, Tensors, cuda_graph, optimisers, train
from dphypo.torch.engine.clipped_sum import Layout, Shape
from dphypo.torch.engine.memory import rough

SIZE = 50
RUN = Run(
    seed=3, records=SIZE, rate=0.4, steps=4, batch_size=20, noise_multiplier=0.5, max_grad_norm=1.0, learning_rate=0.3
)
LINEAR = KINDS["linear"]


def program(name: str = "linear", **options: Any) -> Program:
    torch.manual_seed(1)
    return Program.of(KINDS[name].build(), cross_entropy, KINDS[name].records(1), **options)


def trained(run: Run = RUN, setting: Setting | None = None, name: str = "linear", **options: Any) -> torch.Tensor:
    records = Tensors(*KINDS[name].records(SIZE, 5))
    model = train(program(name, **options), KINDS[name].build, records, [run], setting)[0]
    return torch.cat([value.detach().flatten() for value in model.parameters()])


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("sgd", {}),
    ("sgd", {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01}),
    ("sgd", {"momentum": 0.8, "nesterov": True, "maximize": True}),
    ("adam", {"weight_decay": 0.02, "betas": (0.8, 0.9)}),
    ("adam", {"amsgrad": True, "eps": 1e-3}),
    ("adamw", {}),
    ("rmsprop", {"momentum": 0.5, "centered": True, "alpha": 0.9}),
    ("rmsprop", {"weight_decay": 0.1}),
    ("adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.2, "weight_decay": 0.01}),
    *((name, {}) for name in ("nadam", "radam", "adamax", "adadelta", "asgd", "rprop", "adafactor")),
]


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_optimisers_are_pytorchs(name, options):
    """Three runs at once, each with its own learning rate; PyTorch's own optimiser on each alone."""
    models = [LINEAR.build().double() for _ in range(3)]
    layout = Layout.of(models[0])
    rows = layout.stacked(models, torch.device("cpu"))
    ours = optimisers.build(name, rows, [options] * 3, layout)
    kind = optimisers.known()[name]
    theirs = [
        kind(model.parameters(), lr=rate, **options) for model, rate in zip(models, (0.1, 0.02, 0.5), strict=True)
    ]
    rates = torch.tensor([[0.1], [0.02], [0.5]], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        gradient = torch.zeros_like(rows)
        for run, model in enumerate(models):
            for place, value in enumerate(model.parameters()):
                value.grad = torch.randn(value.shape, generator=generator, dtype=torch.float64)
                layout.values(gradient[run : run + 1], place)[0].copy_(value.grad)
            theirs[run].step()
        ours.step(rows, gradient, rates)
    for run, model in enumerate(models):
        for place, value in enumerate(model.parameters()):
            assert torch.allclose(layout.values(rows[run : run + 1], place)[0], value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("name", "options"), [one for one in OPTIONS if one[0] in optimisers._OURS])
def test_optimisers_step_through_ranges_in_the_bits_of_the_whole(name, options, monkeypatch):
    """The state in the runs' own type, from gradients in double precision."""
    generator, wide = torch.Generator().manual_seed(0), {"dtype": torch.float64}
    given = [torch.randn(2, 100, generator=generator, **wide) for _ in range(3)]
    layout, found = Layout(("weights",), (torch.Size([100]),), torch.float32), []
    for size in (2**16, 32):
        monkeypatch.setattr(optimisers, "_RANGE", size)
        rows = torch.ones(2, 100)
        optimiser = optimisers.build(name, rows, [options] * 2, layout)
        for gradient in given:
            optimiser.step(rows, gradient, torch.tensor([[0.1], [0.3]]))
        state = optimisers.state(optimiser).values()
        assert all(one.dtype == torch.float32 for one in state if isinstance(one, torch.Tensor))
        found.append(rows)
    assert torch.equal(*found)


def test_an_unknown_optimiser_is_named():
    with pytest.raises(ValueError, match=r"optimizer = 'lbfgs' is not valid: give one of adadelta"):
        trained(replace(RUN, optimizer="lbfgs"))


def test_options_of_other_optimisers_are_left_out():
    assert torch.equal(trained(replace(RUN, options={"betas": (0.1, 0.2)})), trained())


def test_a_schedule_scales_the_learning_rate():
    slower = trained(replace(RUN, schedule=lambda done: 0.5))
    assert torch.equal(slower, trained(replace(RUN, learning_rate=0.15)))
    seen: list[float] = []
    trained(replace(RUN, schedule=lambda done: seen.append(done) or 1.0))
    assert seen == [0.0, 0.25, 0.5, 0.75]


def test_averages_are_means_of_iterates():
    """Runs of 1, 2, … steps end in the iterates of one run; their mean is the average."""
    iterates = [trained(replace(RUN, steps=4)) for _ in range(1)]
    quiet = [trained(replace(RUN, steps=steps)) for steps in (3, 4)]
    assert torch.equal(quiet[1], iterates[0])
    half = trained(setting=Setting(average="last half"))
    assert torch.allclose(half, (quiet[0] + quiet[1]) / 2, atol=1e-6)
    decayed = trained(setting=Setting(average=0.9))
    assert not torch.equal(decayed, half)
    assert (decayed - quiet[1]).norm() < 10 * (quiet[0] - quiet[1]).norm()


@pytest.mark.parametrize("average", ["first half", 1.0, -0.1])
def test_bad_averages_are_refused(average):
    with pytest.raises(ValueError, match="average"):
        Setting(average=average)


def test_views_are_averaged_before_clipping():
    """Views that are all the record itself change nothing; views that cancel leave nothing."""

    def same(inputs: torch.Tensor, uniforms: Any) -> torch.Tensor:
        return inputs

    quiet = replace(RUN, noise_multiplier=1e-3)
    assert torch.allclose(trained(quiet, views=3, augment=same), trained(quiet), atol=1e-4)

    def half_nothing(inputs: torch.Tensor, uniforms: Any) -> torch.Tensor:
        return inputs * (uniforms(1) < 0.5)

    once, many = (trained(quiet, views=views, augment=half_nothing) for views in (1, 8))
    assert torch.equal(trained(quiet, views=8, augment=half_nothing), many)
    assert not torch.allclose(once, many, atol=1e-3)


def test_passes_in_half_precision_change_little():
    assert torch.allclose(trained(name="residual", autocast=torch.bfloat16), trained(name="residual"), atol=0.05)


def test_no_records_are_noise():
    empty = Tensors(torch.zeros(0, 6), torch.zeros(0, dtype=torch.int64))
    model = train(program(), LINEAR.build, empty, [RUN])[0]
    assert all(bool(value.isfinite().all()) for value in model.parameters())


def test_labels_without_a_class_count_zero():
    inputs, targets = LINEAR.records(SIZE, 5)
    strange = targets.clone()
    strange[[3, 17, 30]] = torch.tensor([7, -1, 10**9])
    kept = torch.ones(SIZE, dtype=torch.bool)
    kept[[3, 17, 30]] = False
    quiet = replace(RUN, noise_multiplier=1e-3, rate=1.0, steps=1)
    ends = [
        train(program(), LINEAR.build, Tensors(*some), [quiet])[0][0].weight
        for some in ((inputs, strange), (inputs[kept], targets[kept]))
    ]
    assert torch.allclose(*ends, atol=1e-5)


def test_what_a_factory_keeps_is_not_trained():
    kept = LINEAR.build()
    before = [value.detach().clone() for value in kept.parameters()]
    models = train(program(), lambda: kept, Tensors(*LINEAR.records(SIZE)), [RUN, replace(RUN, seed=9)])
    assert all(torch.equal(old, new) for old, new in zip(before, kept.parameters(), strict=True))
    assert not torch.equal(models[0][0].weight, models[1][0].weight)
    assert {value.data_ptr() for model in models for value in model.parameters()}.isdisjoint(
        value.data_ptr() for value in kept.parameters()
    )


def test_runs_that_differ_in_frozen_weights_keep_their_own():
    kind = KINDS["low-rank"]
    made = program("low-rank")
    records = Tensors(*kind.records(SIZE, 5))
    others = [RUN, replace(RUN, seed=8)]
    among, alone = (
        train(made, kind.build, records, others),
        [train(made, kind.build, records, [one])[0] for one in others],
    )
    assert not torch.equal(among[0].base.weight, among[1].base.weight)
    for one, other in zip(among, alone, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_groups_are_cut_to_fit_into_memory():
    made = program()
    records = Tensors(*LINEAR.records(SIZE, 5))
    runs = [replace(RUN, seed=seed) for seed in range(5)]
    whole = train(made, LINEAR.build, records, runs)
    cut = train(made, LINEAR.build, records, runs, memory=2.5 * rough(made, Shape(1, 64)))
    for one, other in zip(whole, cut, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def _batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(inputs - inputs.mean(0))  # type: ignore[no-any-return]


class Noisy(nn.Module):
    """Random numbers besides dropout: they are a record's own, as its masks are."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(inputs + torch.randn_like(inputs))  # type: ignore[no-any-return]


def test_random_numbers_are_fresh_in_each_step_and_repeat_with_the_seed():
    made, records = Program.of(Noisy(), cross_entropy, LINEAR.records(1)), Tensors(*LINEAR.records(SIZE, 5))
    quiet = replace(RUN, noise_multiplier=1e-3, rate=1.0)
    one, two, other = (
        train(made, Noisy, records, [run])[0].last.weight for run in (quiet, quiet, replace(quiet, seed=9))
    )
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last, self.extra = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(inputs)  # type: ignore[no-any-return]


def _two_types() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3).double())


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    ("model", "message"),
    [
        (_batch_norm, r"layer '1' is BatchNorm1d: .* Replace it with GroupNorm"),
        (lambda: nn.Linear(6, 3).bfloat16(), r"parameter 'weight' is torch.bfloat16, .* float32"),
        (lambda: nn.Linear(6, 3).half(), r"parameter 'weight' is torch.float16"),
        (_two_types, r"parameter '1.weight' is torch.float64, others are torch.float32"),
        (lambda: nn.LazyLinear(3), "parameter 'weight' has no shape yet"),
        (lambda: torch.compile(nn.Linear(6, 3)), r"compiled with torch.compile"),
        (lambda: nn.Linear(6, 3).to("meta"), r"the model is on 'meta'"),
        (lambda: nn.Sequential(nn.Embedding(7, 3, max_norm=1.0)), "layer '0' is Embedding with max_norm"),
        (lambda: nn.Linear(6, 3).requires_grad_(False), "no trainable parameter"),
        (Mixed, "mixes records"),
        (Unused, "'extra.weight' does not affect the output"),
    ],
)
def test_unfit_models_are_refused_by_name(model, message):
    with pytest.raises(UnsupportedModelError, match=message):
        Program.of(model(), cross_entropy, LINEAR.records(1))


def test_a_loss_that_averages_is_refused():
    with pytest.raises(UnsupportedModelError, match=r"values of shape \(\) for 1 records: return one value per record"):
        Program.of(LINEAR.build(), nn.functional.cross_entropy, LINEAR.records(1))


def test_a_frozen_batch_norm_stays_in_evaluation():
    model = Residual()
    model.fixed.running_mean += 1
    made = Program.of(model, cross_entropy, KINDS["residual"].records(1))
    assert not made.model.fixed.training
    done = train(made, lambda: model, Tensors(*KINDS["residual"].records(SIZE)), [RUN])[0]
    assert torch.equal(done.fixed.running_mean, model.fixed.running_mean)
    with pytest.raises(UnsupportedModelError, match=r"layer 'fixed' is BatchNorm2d: .* call eval\(\) on it"):
        Program.of(model.train(), cross_entropy, KINDS["residual"].records(1))


@pytest.mark.parametrize("change", [{"rate": 0.0}, {"steps": 0}, {"noise_multiplier": 0.0}, {"learning_rate": -1.0}])
def test_bad_values_are_named(change):
    (name,) = change
    with pytest.raises(ValueError, match=f"{name} = "):
        replace(RUN, **change)
    assert "seed" not in repr(RUN)


def test_a_clipping_norm_whose_square_is_zero_is_refused():
    with pytest.raises(ValueError, match="max_grad_norm = 1e-150"):
        replace(RUN, max_grad_norm=1e-150).grid(100, lambda piece, pieces: piece + pieces, Setting())


def test_a_gpu_draws_the_batches_of_runs_with_one_rate_alone(monkeypatch):
    """Its kernel takes one rate for all runs of a group: others are drawn as on a CPU."""
    monkeypatch.setattr(cuda_graph, "AVAILABLE", True)
    rows, records = SimpleNamespace(is_cuda=True, device=torch.device("cpu")), Tensors(*LINEAR.records(SIZE, 5))
    assert cuda_graph.on_device(rows, records, [RUN, replace(RUN, seed=9)])
    other = replace(RUN, rate=0.41)
    assert not cuda_graph.on_device(rows, records, [RUN, other])
    assert not cuda_graph.on_device(rows, records, [other, RUN])
