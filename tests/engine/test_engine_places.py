"""A record adds the same bits at every address, whatever the first weights were and whichever pass raised."""

from __future__ import annotations

import copy

import torch
from support.dpsgd_models import KINDS, cross_entropy, gradients
from torch import nn

from dphypo.torch.engine import Program, Run, Setting, Tensors, train
from dphypo.torch.engine.clipped_sum import Shape, Sums

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
    bound, room, target = made.on(rows, shape).bound(rows, shape), torch.zeros(64), torch.zeros(1, dtype=torch.int64)
    for record in torch.randn(50, 13):
        found = []
        for start in range(4):
            room[start : start + 13] = record
            parts, _ = bound.parts(room[None, start : start + 13], target, torch.zeros((1, 1), dtype=torch.int64))
            found.append(torch.cat([factor.flatten() for part in parts for factor in part.factors]))
        assert all(torch.equal(found[0], other) for other in found)


def test_records_of_small_pieces_are_differentiated_one_by_one():
    made = Program.of(LINEAR.build(), cross_entropy, LINEAR.records(1))
    rows = rows_of(made, LINEAR.build())
    assert [made.on(rows, Shape(1, size)).alone for size in (1, 10, 31, 32, 64)] == [True, True, True, False, False]


def test_an_augmentation_sees_one_record():
    sizes = set()

    def seen(inputs, uniforms):
        sizes.add(tuple(inputs.shape))
        return inputs + 0.1 * uniforms(6)

    made = Program.of(LINEAR.build(), cross_entropy, LINEAR.records(1), augment=seen, views=2)
    assert sizes == {(1, 6)}
    train(made, LINEAR.build, Tensors(*LINEAR.records(SIZE)), [RUN], Setting(physical_batch_size=10))
    assert sizes == {(1, 6)}


def test_what_was_found_out_belongs_to_a_number_of_threads_and_to_a_process():
    made = Program.of(LINEAR.build(), cross_entropy, LINEAR.records(1))
    for threads in (1, 2, 1):
        train(made, LINEAR.build, Tensors(*LINEAR.records(SIZE)), [RUN], Setting(threads=threads))
    assert len(made.found) == 2
    assert not copy.deepcopy(made).found  # as in pickles


class Shrinking(nn.Module):
    """Writes to its inputs, and looks up a row that there may not be."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        inputs.mul_(torch.where(inputs > 5, 0.1, 1.0))
        beyond = torch.zeros(2, 1)[5 * (inputs[:, 0] == 1e8).long()]  # no number of Python
        return self.last(inputs) + beyond  # type: ignore[no-any-return]


def test_a_record_that_would_raise_does_not_change_what_the_others_add():
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


@torch.no_grad()
def test_views_have_their_weights_in_the_sum():
    """A record of several rows: Σ w · grad. A view of weight zero holds what another holds, and adds nothing."""
    made = Program.of(LINEAR.build(), cross_entropy, LINEAR.records(1), views=3)
    model, shape = LINEAR.build(), Shape(1, 32, 3)
    rows, (inputs, targets) = rows_of(made, model), LINEAR.records(96, 4)
    weights = torch.rand(1, 32, 3)
    weights[0, ::2, 1] = 0
    keys, labels = torch.zeros((1, 96), dtype=torch.int64), targets.unflatten(0, (32, 3)).clone()
    labels[::2, 1] = 7  # has no class
    found = []
    for given in (targets, labels.flatten()):
        parts, outside = made.bound(rows, shape).parts(inputs, given, keys, weights)
        assert not outside.any()
        sums = Sums(rows)
        for part in parts:
            part.add(torch.ones(1, 32, dtype=torch.float64), sums)
        found.append(sums.rows.clone())
    assert torch.equal(*found)
    single = Program.of(model, cross_entropy, LINEAR.records(1))
    each, _, _ = gradients(single, model, inputs, targets)
    assert torch.allclose((each * weights.flatten()[:, None]).sum(0), found[0][0], atol=1e-5)
