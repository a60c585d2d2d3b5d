"""A record adds the same bits at every address, whatever the first weights were and whichever pass raised."""

from __future__ import annotations

import copy

import torch
from support.dpsgd_models import KINDS, cross_entropy
from torch import nn

from dphypo.dpsgd import Program, Run, Setting, Tensors, train
from dphypo.dpsgd.book import Masks
from dphypo.dpsgd.stack import Shape

LINEAR = KINDS["linear"]
SIZE = 20
RUN = Run(
    seed=1, records=SIZE, rate=1.0, steps=1, batch_size=1, noise_multiplier=1e-3, max_grad_norm=1.0, learning_rate=1.0
)


def rows_of(made: Program, model: nn.Module) -> torch.Tensor:
    return made.layout.stacked([model], torch.device("cpu"))


@torch.no_grad()
def test_a_record_in_a_small_piece_has_the_same_bits_at_every_address():
    """Pieces of one record began at any address, and products of matrices sum by address."""
    torch.manual_seed(3)
    model, shape = nn.Sequential(nn.Linear(13, 2), nn.ReLU(), nn.Linear(2, 2)), Shape(1, 1)
    made = Program.of(model, cross_entropy, (torch.zeros(1, 13), torch.zeros(1, dtype=torch.int64)))
    rows = rows_of(made, model)
    code, room, target = made.on(rows, shape), torch.zeros(64), torch.zeros(1, dtype=torch.int64)
    for record in torch.randn(50, 13):
        found = []
        for start in range(4):
            room[start : start + 13] = record
            given = room[None, start : start + 13]
            parts, _ = code.parts(rows, code.book(rows, shape), given, target, Masks(torch.zeros(1, dtype=torch.int64)))
            found.append(torch.cat([factor.flatten() for part in parts for factor in part.factors]))
        assert all(torch.equal(found[0], other) for other in found)


def test_records_of_small_pieces_are_differentiated_one_by_one():
    made = Program.of(LINEAR.build(), cross_entropy, LINEAR.records(1))
    rows = rows_of(made, LINEAR.build())
    assert [made.on(rows, Shape(1, size)).alone for size in (1, 10, 31, 32, 64)] == [True, True, True, False, False]


def test_augmentations_of_small_pieces_see_one_record():
    sizes = set()

    def seen(inputs, uniforms):
        sizes.add(len(inputs))
        return inputs + 0.1 * uniforms(6)

    made = Program.of(LINEAR.build(), cross_entropy, LINEAR.records(1), augment=seen, views=2)
    sizes.clear()
    train(made, LINEAR.build, Tensors(*LINEAR.records(SIZE)), [RUN], Setting(physical_batch_size=10))
    assert sizes == {2}


class Hidden(nn.Module):
    """Scales its outputs by place, which does not show while they are zero."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 3)
        nn.init.zeros_(self.last.weight), nn.init.zeros_(self.last.bias)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        made = self.last(inputs)
        return made + 1e-6 * torch.arange(len(inputs))[:, None] * made.detach()  # type: ignore[no-any-return]


def test_places_are_compared_at_weights_that_are_not_zero():
    """What is found out at a shape holds for later runs of the program, whatever their weights."""
    made = Program.of(Hidden(), cross_entropy, LINEAR.records(1))
    assert made.on(rows_of(made, Hidden()), Shape(1, 32)).axes is None


def test_what_was_found_out_belongs_to_a_number_of_threads_and_to_a_process():
    made = Program.of(LINEAR.build(), cross_entropy, LINEAR.records(1))
    for threads in (1, 2, 1):
        train(made, LINEAR.build, Tensors(*LINEAR.records(SIZE)), [RUN], Setting(threads=threads))
    assert len(made.found) == 2
    assert not copy.deepcopy(made).found  # as in pickles


class Shrinking(nn.Module):
    """Writes to its inputs, and then may raise."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        inputs.mul_(torch.where(inputs > 5, 0.1, 1.0))
        beyond = torch.zeros(2, 1)[5 * (inputs[:, 0] == 1e8).long()]  # no number of Python
        return self.last(inputs) + beyond  # type: ignore[no-any-return]


def test_a_record_that_raises_does_not_change_what_the_others_add():
    """They were read from rows that the pass had written to: one record moved the sum by 18 clipping norms."""
    inputs, targets = torch.ones(SIZE, 6), torch.zeros(SIZE, dtype=torch.int64)
    inputs[:, 0] = 60.0
    model = Shrinking()
    made = Program.of(model, cross_entropy, (inputs[:1], targets[:1]))
    more = Tensors(torch.cat([inputs, torch.full((1, 6), 1e9)]), torch.cat([targets, targets[:1]]))
    ends = [
        train(made, lambda: copy.deepcopy(model), records, [RUN])[0].last.weight
        for records in (Tensors(inputs, targets), more)
    ]
    assert torch.equal(*ends)


class Shaken(nn.Module):
    """Dropout before a product that no formula covers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.drop = nn.Parameter(torch.randn(6, 3)), nn.Dropout(0.5)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bi,ij->bj", self.drop(inputs), self.weight)


def test_dropout_after_an_augmentation_has_bits_of_its_own():
    made = Program.of(Shaken(), cross_entropy, LINEAR.records(1), augment=lambda inputs, uniforms: inputs + uniforms(6))
    assert made.axes is None


def test_numbers_that_one_record_takes_change_no_other():
    """An augmentation that looks at values sees one record at a time, and the dropout of the others stays."""

    def augment(inputs, uniforms):
        return inputs + uniforms(6) + (uniforms(6) if (inputs > 50).any() else 0.0)

    made = Program.of(Shaken(), cross_entropy, LINEAR.records(1), augment=augment)
    rows, (inputs, targets), found = rows_of(made, Shaken()), LINEAR.records(32), []
    for value in (0.0, 60.0):
        inputs[-1] = value
        with torch.no_grad():
            book, masks = made.book(rows, Shape(1, 32)), Masks(torch.arange(32))
            parts, _ = made.parts(rows, book, inputs.clone(), targets.clone(), masks)
        found.append(torch.cat([factor[:, :-1].flatten() for part in parts for factor in part.factors]))
    assert torch.equal(*found)
