"""Per-record gradients of every kind of layer, against automatic differentiation and against Opacus."""

from __future__ import annotations

import copy
import dataclasses
from types import SimpleNamespace

import pytest
import torch
from opacus import GradSampleModule
from support.dpsgd_models import KINDS, cross_entropy, gradients
from torch import nn

from dphypo.dpsgd import Run, Setting, Tensors
from dphypo.dpsgd.batches import in_classes
from dphypo.dpsgd.book import Axis, Masks, Note
from dphypo.dpsgd.layers.linear import Embedding
from dphypo.dpsgd.program import Program
from dphypo.dpsgd.run import Group
from dphypo.dpsgd.stack import Layout, Shape


class Unchecked:
    """Records whose labels are looked at in each step."""

    def __init__(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        self._held = Tensors(inputs, targets)

    def __len__(self) -> int:
        return len(self._held)

    def rows(self, numbers: torch.Tensor, valid: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self._held.rows(numbers, valid)


COUNT = 5


def made(name: str, dtype: torch.dtype = torch.float64, **options: object) -> tuple[Program, nn.Module]:
    torch.manual_seed(1)
    kind = KINDS[name]
    model = kind.build().to(dtype)
    inputs, targets = kind.records(1, dtype=dtype)
    return Program.of(model, cross_entropy, (inputs, targets), **options), model


@pytest.mark.parametrize("name", KINDS)
def test_gradients_and_norms_of_every_kind(name):
    """``Program.of`` itself compares with automatic differentiation; here the bounds, and which way was taken."""
    program, model = made(name)
    assert (program.axes is not None) == KINDS[name].formulas
    found, norms, spreads = gradients(program, model, *KINDS[name].records(COUNT, 3, torch.float64))
    true = found.norm(dim=1)
    assert bool((norms >= true * (1 - 1e-15)).all())
    assert bool((spreads >= true * (1 - 1e-15)).all())
    if name != "tied":  # norms of a weight with two kinds of uses are added
        assert bool((norms <= true * (1 + 1e-6)).all())
    else:
        assert bool((norms <= 2 * true).all())


# Opacus has no rule for parameters of their own, refuses writes in place, and gives the padding token a gradient.
WITHOUT_OPACUS = {
    "low-rank",
    "odd",
    "transformer-places-first",
    "linear",
    "residual",
    "padding",
    "causal",
    "odd-and-decides",
}


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize(
    "name", sorted(set(KINDS) - {"dropout", "line", "transformer", "odd-with-dropout", "causal-with-dropout"})
)
def test_gradients_equal_those_of_opacus(name):
    """In double precision, to 1e-5 of the norm; what Opacus does not know is compared with autograd."""
    program, model = made(name)
    inputs, targets = KINDS[name].records(COUNT, 3, torch.float64)
    found, _, _ = gradients(program, model, inputs, targets)
    layout = program.layout
    reference = _by_autograd if name in WITHOUT_OPACUS else _by_opacus
    for record, row in enumerate(reference(copy.deepcopy(model), inputs, targets)):
        ours = torch.cat([layout.values(found[record][None], at).flatten() for at in range(len(layout.names))])
        assert (ours - row).norm() <= 1e-5 * row.norm()


def _by_opacus(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> list[torch.Tensor]:
    wrapped = GradSampleModule(model, loss_reduction="sum", strict=False)
    cross_entropy(wrapped(inputs), targets).sum().backward()
    parts = [value.grad_sample for value in model.parameters() if value.requires_grad]
    return [torch.cat([part[record].flatten() for part in parts]) for record in range(len(inputs))]


def _by_autograd(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> list[torch.Tensor]:
    losses = cross_entropy(model(inputs), targets)
    trained = [value for value in model.parameters() if value.requires_grad]
    return [
        torch.cat([part.flatten() for part in torch.autograd.grad(loss, trained, retain_graph=True)]) for loss in losses
    ]


@pytest.mark.parametrize("ignored", [-100, 2, 7])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.Sigmoid])
def test_a_perceptron_sums_what_the_formulas_sum(activation, ignored):
    """Labels that are ignored, and those without a class, add nothing: a perceptron or the loss leaves them out."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 5, bias=False), activation(), nn.Linear(5, 3))
    inputs, targets = torch.randn(32, 2, 3), torch.arange(32) % 3
    targets[3], targets[4], targets[5] = ignored, 50, -1

    def loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, labels, reduction="none", ignore_index=ignored)

    made = Program.of(model, loss, (inputs[:1], targets[:1]))
    assert (made.perceptron is None) == (ignored == 2)  # a class that is ignored is left to the loss
    found = []
    for way in (made, dataclasses.replace(made, perceptron=None)):
        run = Run(
            seed=1,
            records=32,
            rate=1.0,
            steps=1,
            batch_size=32,
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            learning_rate=1.0,
        )
        for records in (Tensors(inputs, targets), Unchecked(inputs, targets)):
            rows = way.layout.stacked([model], inputs.device)
            found.append(Group(way, rows, records, [run], Setting()).finish())
    assert all((one - found[0]).norm() <= 1e-6 * found[0].norm() for one in found)


@pytest.mark.parametrize("shared", ["weight", "bias"])
def test_a_parameter_that_is_used_twice_is_no_perceptron(shared):
    """The norms of its two gradients add up; in a perceptron their squares would."""
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    example = torch.zeros(1, 3), torch.zeros(1, dtype=torch.int64)
    assert Program.of(model, cross_entropy, example).perceptron is not None
    setattr(model[2], shared, getattr(model[0], shared))
    assert Program.of(model, cross_entropy, example).perceptron is None


def test_labels_in_unsigned_bytes_have_no_ignored_class():
    """−100 is not 156."""
    inside, wrong = in_classes(torch.tensor([0, 1, 156, 200], dtype=torch.uint8), 2, -100)
    assert inside.tolist() == [0, 1, 1, 1]
    assert wrong.tolist() == [False, False, True, True]


def test_labels_are_looked_at_where_classes_have_weights():
    classes = torch.tensor([1.0, 2.0, 0.5])
    made = Program.of(
        KINDS["odd"].build(),
        lambda outputs, targets: nn.functional.cross_entropy(outputs, targets, classes, reduction="none"),
        KINDS["odd"].records(1),
    )
    inputs, targets = KINDS["odd"].records(32)
    targets[3] = 7
    rows = made.layout.stacked([KINDS["odd"].build()], inputs.device)
    with torch.no_grad():
        _, outside = made.parts(rows, made.book(rows, Shape(1, 32)), inputs, targets, Masks(torch.arange(32)))
    assert outside.nonzero().tolist() == [[0, 3]]


def test_the_norm_of_an_embedding_has_room_for_all_its_roundings():
    """L terms for each number, and then a sum of L·r: γ(Lr + L + 4)·A² beyond the computed square."""
    positions, width = 2, 64
    book = SimpleNamespace(shape=Shape(1, 1), layout=Layout.of(nn.Embedding(3, width)))
    note = Note(torch.tensor([[0, 1]]), torch.ones(1, positions, width), Axis(0))
    square = Embedding(0, None).parts(book, [note])[0].square.item()
    spread = positions * width**0.5
    assert square - positions * width >= 0.99 * (positions * width + positions + 4) * 2.0**-53 * spread**2
