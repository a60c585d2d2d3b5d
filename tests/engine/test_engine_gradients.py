"""Per-record gradients of every kind of layer, against automatic differentiation and against Opacus."""

from __future__ import annotations

import copy

import pytest
import torch
from opacus import GradSampleModule
from support.dpsgd_models import KINDS, cross_entropy, gradients
from torch import nn
from torch.utils.checkpoint import checkpoint

from dphypo.errors import UnsupportedModelError
from dphypo.torch.engine import Run, Setting, Tensors, factors, layers
from dphypo.torch.engine.clipped_sum import Shape, Slot
from dphypo.torch.engine.program import Program
from dphypo.torch.engine.run import Group

COUNT = 5
EXAMPLE = torch.zeros(1, 4), torch.zeros(1, dtype=torch.int64)


def made(name: str, dtype: torch.dtype = torch.float64, **options: object) -> tuple[Program, nn.Module]:
    torch.manual_seed(1)
    kind = KINDS[name]
    model = kind.build().to(dtype)
    inputs, targets = kind.records(1, dtype=dtype)
    return Program.of(model, cross_entropy, (inputs, targets), **options), model


@pytest.mark.parametrize("name", KINDS)
def test_gradients_and_norms_of_every_kind(name):
    """``Program.of`` itself compares with automatic differentiation; here the bounds."""
    program, model = made(name)
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
    "recurrent",
    "gated",
    "weight-norm",
    "transposed",
    "straight-through",
    "frames",
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
def test_labels_that_are_ignored_or_have_no_class_add_nothing(ignored):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 5, bias=False), nn.ReLU(), nn.Linear(5, 3))
    inputs, targets = torch.randn(32, 2, 3), torch.arange(32) % 3
    targets[3], targets[4], targets[5] = ignored, 50, -1
    kept = (targets >= 0) & (targets < 3) & (targets != ignored)

    def loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, labels, reduction="none", ignore_index=ignored)

    way = Program.of(model, loss, (inputs[:1], targets[:1]))
    values = {"noise_multiplier": 1e-3, "max_grad_norm": 1.0, "learning_rate": 1.0}
    run = Run(seed=1, records=32, rate=1.0, steps=1, batch_size=32, **values)
    rows = way.layout.stacked([model], inputs.device)
    found = [
        Group(way, rows.clone(), records, [run], Setting()).finish()
        for records in (Tensors(inputs, targets), Tensors(inputs[kept], targets[kept]))
    ]
    assert (found[0] - found[1]).norm() <= 1e-4 * (found[0] - rows).norm()


class BothWays(nn.Module):
    """One matrix, used as it is and turned."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return (inputs @ self.weight) @ self.weight.T


def test_uses_of_a_weight_are_positions_of_one():
    """The gradients of both uses may cancel: the norm is that of their sum."""
    torch.manual_seed(0)
    model, records = BothWays().double(), (torch.randn(COUNT, 3, dtype=torch.float64), torch.arange(COUNT) % 3)
    program = Program.of(model, cross_entropy, (records[0][:1], records[1][:1]))
    assert len(program.parts) == 1
    found, norms, _ = gradients(program, model, *records)
    assert torch.allclose(norms, found.norm(dim=1))


class Reshaped(nn.Module):
    """Uses a weight, and a table, in shapes other than their own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.table = nn.Parameter(torch.randn(4, 2, 2)), nn.Parameter(torch.randn(5, 4))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.embedding(tokens, self.table.view(10, 2)).flatten(1)
        wide = torch.tanh(hidden @ self.weight.view(4, 4)) @ self.weight.view(4, 4).t()
        return (
            wide @ self.weight.view(8, 2)[:4]
            + torch.tanh(wide.repeat(1, 2) @ self.weight.view(8, 2)) @ (self.weight.view(2, 8)[:, :2])
        )


def test_a_weight_may_be_used_in_several_shapes():
    """Factors of other widths are not positions of one use."""
    model, records = Reshaped().double(), (torch.arange(2 * COUNT).view(COUNT, 2), torch.arange(COUNT) % 2)
    program = Program.of(model, cross_entropy, (records[0][:1], records[1][:1]))  # compares with plain autograd
    found, norms, _ = gradients(program, model, *records)
    assert bool((norms >= found.norm(dim=1) * (1 - 1e-15)).all())


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
        _, outside = made.bound(rows, Shape(1, 32)).parts(inputs, targets, torch.arange(32)[None])
    assert outside.nonzero().tolist() == [[0, 3]]


def test_the_norm_of_an_embedding_has_room_for_all_its_roundings():
    """L terms for each number, and then a sum of L·r: γ(Lr + L + 4)·A² beyond the computed square."""
    positions, width = 2, 64
    tokens, slopes = torch.tensor([[[0, 1]]]), torch.ones(1, 1, positions, width)
    square = layers.rows(Slot(0, 3 * width), tokens, slopes).square.item()
    spread = positions * width**0.5
    assert square - positions * width >= 0.99 * (positions * width + positions + 4) * 2.0**-53 * spread**2


class Attention(nn.Module):
    def __init__(self, masked_from: int | None) -> None:
        super().__init__()
        self.masked_from, self.last = masked_from, nn.Linear(6, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        heads = inputs[:, None]
        mask = None if self.masked_from is None else torch.full((4, 4), -torch.inf).triu(self.masked_from)
        made = nn.functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask)
        return self.last(made[:, 0].mean(1))  # type: ignore[no-any-return]


@pytest.mark.parametrize(("masked_from", "careful"), [(None, False), (4, False), (1, False), (0, True)])
def test_attention_is_careful_about_rows_that_are_masked_whole_where_there_are_some(masked_from, careful):
    """From 0 on, the first row is masked whole: its softmax is zero."""
    records = torch.randn(COUNT, 4, 6), torch.arange(COUNT) % 3
    model = Attention(masked_from)
    program = Program.of(model, cross_entropy, (records[0][:1], records[1][:1]))  # compares with plain autograd
    names = {str(node.target) for node in program.record.graph.graph.nodes}
    assert ("aten._safe_softmax.default" in names) is careful
    found, _, _ = gradients(program, model, *records)
    assert bool(found.isfinite().all())


class Masked(nn.Module):
    """Adds zeros of another precision than its products."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        short = inputs.bfloat16()
        return self.last(((short @ short.transpose(1, 2)) + torch.zeros(4, 4)).mean(1))  # type: ignore[no-any-return]


def test_a_mask_of_zeros_in_another_precision_is_not_dropped():
    """What is left would have another type: the model failed as it was captured."""
    program = Program.of(Masked(), cross_entropy, (torch.zeros(1, 4, 6), EXAMPLE[1]))
    assert any("add.Tensor" in str(node.target) for node in program.record.graph.graph.nodes)


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool | None) -> None:
        super().__init__()
        self.first, self.last = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.5)), nn.Linear(8, 3)
        self.reentrant = reentrant

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.reentrant is None:
            return self.last(self.first(inputs))  # type: ignore[no-any-return]
        return self.last(checkpoint(self.first, inputs, use_reentrant=self.reentrant))  # type: ignore[no-any-return]


def test_a_checkpointed_layer_draws_its_dropout_once():
    """Called again in the backward pass, it would draw another mask than that of its outputs."""
    found = []
    for reentrant in (None, False, True):
        torch.manual_seed(0)
        model, records = Checkpointed(reentrant), (torch.randn(COUNT, 4), torch.arange(COUNT) % 3)
        program = Program.of(model, cross_entropy, (records[0][:1], records[1][:1]))
        found.append(gradients(program, model, *records)[0])
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_a_gradient_that_is_put_together_wrongly_is_refused(monkeypatch):
    """What is compared with plain automatic differentiation is what training sums, not only the graph."""
    split = factors.split

    def swapped(graph, layout):
        first, second, *others = split(graph, layout)
        return second, first, *others

    monkeypatch.setattr(factors, "split", swapped)
    with pytest.raises(UnsupportedModelError, match="a record's gradient depends on"):
        Program.of(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), cross_entropy, EXAMPLE)
