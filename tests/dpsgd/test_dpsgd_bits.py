"""One record, one contribution, to the bit; a run alone and a run among others end in the same bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.dpsgd_models import KINDS, cross_entropy
from support.slow import mostly_slow
from torch import nn

from dphypo.dpsgd import Program, Run, Setting, Tensors, train, trainable
from dphypo.dpsgd.stack import Shape
from dphypo.errors import UnsupportedModelError

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
        assert trainable.same_alone(made, rows, Shape(runs, 32))


class Mixing(nn.Module):
    """Adds a trace of the record before it to each, too little for a comparison of gradients to see."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(inputs + 1e-7 * inputs.roll(1, 0).nan_to_num())  # type: ignore[no-any-return]


def test_a_model_whose_records_touch_in_the_last_bits_is_not_trained_together(monkeypatch):
    """Also if no operator gives it away, its records are differentiated one by one, where they cannot touch."""
    monkeypatch.setattr(trainable, "looks_across", lambda *_, **__: False)
    made = Program.of(Mixing(), cross_entropy, KINDS["linear"].records(1))
    rows = made.layout.stacked([Mixing()], torch.device("cpu"))
    assert not trainable.same_places(made, rows, Shape(1, 32))
    assert made.on(rows, Shape(1, 32)).axes is None


class Alternating(nn.Module):
    """Adds a trace to every other place."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        places = torch.arange(len(inputs), device=inputs.device)[:, None] % 2
        return self.last(inputs + 1e-6 * places)  # type: ignore[no-any-return]


def test_places_are_moved_by_an_odd_number_too():
    made = Program.of(Alternating(), cross_entropy, KINDS["linear"].records(1))
    rows = made.layout.stacked([Alternating()], torch.device("cpu"))
    assert not trainable.same_places(made, rows, Shape(1, 64))


class Counting(nn.Module):
    """Knows how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.calls = nn.Linear(6, 3), 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.last(inputs + 1e-7 * self.calls)  # type: ignore[no-any-return]


def test_a_model_whose_passes_differ_in_the_last_bits_is_refused():
    made = Program.of(Counting(), cross_entropy, KINDS["linear"].records(1))
    rows = made.layout.stacked([Counting()], torch.device("cpu"))
    with pytest.raises(UnsupportedModelError, match="last bits"):
        made.on(rows, Shape(1, 32))


# The last one is differentiated record by record, which takes seconds.
@pytest.mark.parametrize("name", mostly_slow(sorted(KINDS, key="odd-and-decides".__eq__), len(KINDS) - 1))
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
