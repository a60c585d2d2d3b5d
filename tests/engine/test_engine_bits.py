"""One record, one contribution, to the bit; a run alone and a run among others end in the same bits."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.dpsgd_models import KINDS, cross_entropy
from support.padding import pad
from support.slow import mostly_slow
from torch import nn

from dphypo.errors import UnsupportedModelError
from dphypo.torch.engine import Program, Run, Setting, Tensors, batch_rows, layers, train, trainable
from dphypo.torch.engine import program as program_module
from dphypo.torch.engine.clipped_sum import Shape
from dphypo.torch.engine.program import FlatGraph
from dphypo.torch.engine.run import Group

SIZE = 60
RUN = Run(
    seed=1, records=SIZE, rate=0.3, steps=3, batch_size=18, noise_multiplier=1.0, max_grad_norm=0.7, learning_rate=0.2
)


def program(name: str, **options: object) -> Program:
    torch.manual_seed(1)
    return Program.of(KINDS[name].build(), cross_entropy, KINDS[name].records(1), **options)


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([value.detach().flatten() for value in model.parameters()])


@pytest.mark.parametrize("name", KINDS)
def test_a_contribution_has_the_same_bits_in_other_places_and_beside_other_records(name):
    made = program(name)
    for runs in (1, 3):
        models = [KINDS[name].build() for _ in range(runs)]
        rows = made.layout.stacked(models, torch.device("cpu"))
        assert trainable.same_places(made, rows, Shape(runs, 32))
        assert trainable.same_alone(made, rows, Shape(runs, 32)) or name == "transposed"  # then runs are made in turn


class Alternating(nn.Module):
    """Adds a trace to every other place, where there are several: in a graph of one record there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        places = torch.arange(len(inputs), device=inputs.device)[:, None] % 2
        return self.last(inputs + 1e-6 * places)  # type: ignore[no-any-return]


def test_places_are_no_part_of_a_graph():
    made = Program.of(Alternating(), cross_entropy, KINDS["linear"].records(1))
    rows = made.layout.stacked([Alternating()], torch.device("cpu"))
    assert trainable.same_places(made, rows, Shape(1, 64))


class Turned(nn.Module):
    """A weight that is used through a reshape that copies, and one through views."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(4, 6)), nn.Parameter(torch.randn(3, 2))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs[:, :4] @ self.weight.t().reshape(4, 6) + self.bias.t().unsqueeze(0).reshape(1, 6)


@pytest.mark.parametrize("name", mostly_slow(["turned", *KINDS], 2))
@torch.no_grad()
def test_weights_may_change_in_place_between_passes(name):
    kind = KINDS["linear" if name == "turned" else name]
    build = Turned if name == "turned" else kind.build
    made = Program.of(build(), cross_entropy, kind.records(1))
    rows, shape = made.layout.stacked([build(), build()], torch.device("cpu")), Shape(2, 32)
    bound, batch, numbers = made.bound(rows, shape), kind.records(64), torch.arange(32)
    trainable._bits(bound, batch, numbers)
    rows.add_(0.1 * torch.randn(rows.shape))
    found, wanted = (trainable._bits(one, batch, numbers) for one in (bound, made.bound(rows.clone(), shape)))
    assert all(torch.equal(*pair) for pair in zip(found, wanted, strict=True))


def _by_place(flat: FlatGraph, rows: int, every: int) -> FlatGraph:
    """A kernel that rounds some places otherwise."""

    def changed(factor: torch.Tensor, *others: torch.Tensor) -> tuple[torch.Tensor, ...]:
        wrong = torch.arange(factor.shape[1]) % every == 0
        return (torch.where(wrong.view(1, -1, 1, 1) & (factor.shape[1] == rows), factor * (1 + 2e-7), factor), *others)

    return FlatGraph(flat.graph, lambda *held: lambda *given: changed(*flat.bind(*held)(*given)))


@pytest.mark.parametrize("every", [2, 7])
def test_records_go_one_by_one_where_their_place_changes_a_bit(every, monkeypatch):
    made = program("linear")
    rows = made.layout.stacked([KINDS["linear"].build()], torch.device("cpu"))
    flatten = program_module.flatten
    monkeypatch.setattr(program_module, "flatten", lambda *given: _by_place(flatten(*given), 64, every))
    assert not trainable.same_places(made, rows, Shape(1, 64))
    assert made.on(rows, Shape(1, 64)).alone
    monkeypatch.setattr(program_module, "flatten", lambda *given: _by_place(flatten(*given), 1, 1))
    assert made.on(rows, Shape(1, 32)).alone is False


def test_records_go_one_by_one_where_a_large_neighbour_changes_a_bit(monkeypatch):
    made = program("linear")
    rows = made.layout.stacked([KINDS["linear"].build()], torch.device("cpu"))
    flatten = program_module.flatten

    def beside(*given: Any) -> FlatGraph:
        flat = flatten(*given)

        def changed(inputs: torch.Tensor, factor: torch.Tensor, *others: torch.Tensor) -> tuple[torch.Tensor, ...]:
            large = (inputs.nan_to_num() > 1e9).any() & (factor.shape[1] > 1)
            return (torch.where(large, factor * (1 + 2e-7), factor), *others)

        return FlatGraph(flat.graph, lambda *held: lambda *given: changed(given[0], *flat.bind(*held)(*given)))

    monkeypatch.setattr(program_module, "flatten", beside)
    assert made.on(rows, Shape(1, 64)).alone


def test_places_are_compared_at_weights_that_are_not_zero(monkeypatch):
    """What is found out at a shape holds for later runs of the program, whatever their weights."""
    made, flatten = program("linear"), program_module.flatten

    def at_weights(*given: Any) -> FlatGraph:
        right = flatten(*given)
        wrong = _by_place(right, 64, 2)
        return FlatGraph(right.graph, lambda *held: (wrong if held[0].any() else right).bind(*held))

    monkeypatch.setattr(program_module, "flatten", at_weights)
    rows = torch.zeros_like(made.layout.stacked([KINDS["linear"].build()], torch.device("cpu")))
    assert made.on(rows, Shape(1, 64)).alone


def test_a_device_that_computes_otherwise_each_time_is_refused(monkeypatch):
    made = program("linear")
    rows = made.layout.stacked([KINDS["linear"].build()], torch.device("cpu"))
    flatten, calls = program_module.flatten, itertools.count()

    def shaky(*given: Any) -> FlatGraph:
        flat = flatten(*given)
        noisy = lambda one: one if one.dtype is torch.bool else one * (1 + 2e-7 * next(calls))  # noqa: E731
        return FlatGraph(flat.graph, lambda *held: lambda *given: tuple(map(noisy, flat.bind(*held)(*given))))

    monkeypatch.setattr(program_module, "flatten", shaky)
    with pytest.raises(UnsupportedModelError, match="last bits"):
        made.on(rows, Shape(1, 32))


def test_with_several_threads_the_place_of_a_record_changes_no_bit():
    """Threads divide the records into ranges: at their ends, a softmax over two classes has other bits."""
    torch.manual_seed(0)
    model, size, before = torch.nn.Linear(3, 2), 128, torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        made = Program.of(model, cross_entropy, (torch.zeros(1, 3), torch.zeros(1, dtype=torch.int64)))
        rows = made.layout.stacked([model], torch.device("cpu"))
        bound, numbers = made.on(rows, Shape(1, size)).bound(rows, Shape(1, size)), torch.arange(size)[None]
        for _ in range(5):
            inputs, targets, places = torch.randn(size, 3) * 2, torch.randint(0, 2, (size,)), torch.randperm(size)
            with torch.inference_mode():
                here, there = (
                    [one.clone() for part in bound.parts(*some, numbers)[0] for one in (part.square, *part.factors)]
                    for some in ((inputs.clone(), targets.clone()), (inputs[places], targets[places]))
                )
            assert all(torch.equal(one[0][places], two[0]) for one, two in zip(here, there, strict=True))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", mostly_slow(sorted(KINDS), 8))
def test_a_run_alone_and_among_others_ends_in_the_same_bits(name):
    made, records = program(name), Tensors(*KINDS[name].records(SIZE, 5))
    others = [
        replace(RUN, seed=2, learning_rate=0.05, max_grad_norm=3.0),
        RUN,
        replace(RUN, seed=3, noise_multiplier=2.0),
    ]
    build = KINDS[name].build
    among = train(made, build, records, others)
    alone = train(made, build, records, [RUN])
    assert torch.equal(weights(among[1]), weights(alone[0]))
    assert not torch.equal(weights(among[0]), weights(among[2]))


@pytest.mark.parametrize("size", [1, 10, 32])
def test_pieces_change_nothing_but_roundings(size):
    made, records = program("linear"), Tensors(*KINDS["linear"].records(SIZE, 5))
    quiet = replace(RUN, noise_multiplier=1e-3)
    whole = train(made, KINDS["linear"].build, records, [quiet])[0]
    pieces = train(made, KINDS["linear"].build, records, [quiet], Setting(physical_batch_size=size))[0]
    assert torch.allclose(weights(whole), weights(pieces), atol=1e-5)


@pytest.mark.parametrize("rate", [0.3, 0.02])
@pytest.mark.parametrize(("size", "shards"), [(None, None), (32, None), (1, None), (32, 3)])
def test_pieces_without_a_record_are_left_out_and_change_no_bit(rate, size, shards, monkeypatch):
    """A group has the pieces of its run with the largest batch; with the smaller rate some steps have no record."""
    made, records, computed = program("dropout"), Tensors(*KINDS["dropout"].records(SIZE, 5)), []
    runs = [replace(RUN, rate=rate, steps=12, seed=seed) for seed in (1, 2)]
    setting, clipped = Setting(physical_batch_size=size, shards=shards, average="last half"), Group._clipped

    def counted(group, piece):
        computed.append(bool(piece.valid.any()))
        return clipped(group, piece)

    monkeypatch.setattr(Group, "_clipped", counted)
    ends = [weights(one) for one in train(made, KINDS["dropout"].build, records, runs, setting)]
    assert all(computed)
    assert any(computed)
    left_out = len(computed)
    pad(monkeypatch, batch_rows)
    padded = [weights(one) for one in train(made, KINDS["dropout"].build, records, runs, setting)]
    assert len(computed) - left_out >= left_out + 2 * 12
    assert all(torch.equal(*pair) for pair in zip(ends, padded, strict=True))


def test_a_larger_batch_than_expected_makes_more_pieces():
    """Twice the declared records at rate 1: every record counts, none is cut off."""
    made, kind = program("linear"), KINDS["linear"]
    inputs, targets = kind.records(2 * SIZE, 5)
    declared = replace(RUN, rate=1.0, noise_multiplier=1e-3, steps=1)
    more = train(made, kind.build, Tensors(inputs, targets), [declared])[0]
    right = train(made, kind.build, Tensors(inputs, targets), [replace(declared, records=2 * SIZE)])[0]
    assert torch.allclose(weights(more), weights(right), atol=1e-5)


def test_global_settings_are_as_before():
    before = (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), torch.get_rng_state())
    train(program("dropout"), KINDS["dropout"].build, Tensors(*KINDS["dropout"].records(SIZE)), [RUN])
    after = (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), torch.get_rng_state())
    assert before[:2] == after[:2]
    assert np.array_equal(before[2].numpy(), after[2].numpy())


@pytest.mark.parametrize("runs", [None, 1, 3])
@pytest.mark.parametrize("together", [True, False])
def test_a_product_of_all_records_and_one_of_each_are_the_same(runs, together, monkeypatch):
    """What a GPU computes, on a CPU: ``left`` has two rows of each of four records."""
    lead = () if runs is None else (runs,)
    left, right = torch.randn(*lead, 8, 5), torch.randn(*lead, 5, 3)
    bias = torch.randn(3) if runs is None else torch.randn(runs, 1, 3)
    monkeypatch.setattr(layers, "steady", lambda *_: together)
    made = layers.steady_product(4)
    assert torch.allclose(made(left, right), left @ right, atol=1e-6)
    assert torch.allclose(made(left, right, bias), left @ right + bias, atol=1e-6)


def test_a_product_whose_bits_depend_on_the_place_is_noticed(monkeypatch):
    """As in a GPU's kernel that divides the inner sums of the last tiles otherwise."""
    left, right = torch.randn(64, 256), torch.randn(256, 16)
    assert layers.steady(left, right, None, 32)
    halves = torch.mm

    def otherwise(one, other):
        made = halves(one, other)
        made[-2:] = halves(one[-2:, :100], other[:100]) + halves(one[-2:, 100:], other[100:])
        return made

    monkeypatch.setattr(torch, "mm", otherwise)
    assert not layers.steady(left, right, None, 32)
