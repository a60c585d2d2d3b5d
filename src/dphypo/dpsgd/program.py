"""A model and a loss, ready to be trained: the graph of one record's gradient, and passes over pieces of records."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn

from dphypo.dpsgd import factors, flat_graph, masks, trainable
from dphypo.dpsgd.batches import Batch, Loss
from dphypo.dpsgd.draws import MULTIPLE
from dphypo.dpsgd.factors import Part
from dphypo.dpsgd.flat_graph import FlatGraph
from dphypo.dpsgd.layers import convolution
from dphypo.dpsgd.record_graph import Augment, RecordGraph
from dphypo.dpsgd.stack import Layout, Shape
from dphypo.dpsgd.step import RecordGradients
from dphypo.errors import UnsupportedModelError

_DRAWS = 3  # weights at which places are compared


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """What is the same for all runs of one architecture.

    Args:
        model: what holds the frozen parameters and the buffers, which every run of a group uses as they are.
        loss, example, autocast, views, augment: as in :meth:`of`.
        layout: where the trainable parameters lie in a row of numbers.
        record: the graph of one record; its outputs are what the ``parts`` of the gradient are made of.
        terms: how many terms the longest sum of one record's gradient has.
        elements: how many numbers the parts of one record's gradient hold.
        alone: whether records go through the graph one by one.
        found: whether they must at a shape (:meth:`on`).
        flat: the graphs of shapes that were asked for.
        scores: graphs of this architecture in evaluation mode, which whoever scores it keeps here.
    """

    model: nn.Module
    loss: Loss
    layout: Layout
    record: RecordGraph
    parts: tuple[Part, ...]
    terms: int
    elements: int
    example: Batch
    autocast: torch.dtype | None = None
    views: int = 1
    augment: Augment | None = None
    alone: bool = False
    found: dict[tuple[Any, ...], bool] = field(default_factory=dict)
    flat: dict[tuple[int, int], FlatGraph] = field(default_factory=dict)
    scores: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        model: nn.Module,
        loss: Loss,
        example: Batch,
        *,
        autocast: torch.dtype | None = None,
        views: int = 1,
        augment: Augment | None = None,
    ) -> Program:
        """Capture a model; :class:`UnsupportedModelError` says what cannot be captured, and where.

        Args:
            model: an untrained model on its device. It is copied.
            loss: a function of (outputs, targets) that gives one value per record.
            example: inputs and targets of one record, [1, ...] each, on the device. Their values are not used.
            autocast: the type of forward and backward passes, torch.bfloat16; None for that of the model.
            views: how many views of a record are averaged before clipping.
            augment: ``augment(inputs, uniforms)`` gives a view of each row; ``uniforms(n)`` gives [rows, n] random
                numbers of [0, 1). It is captured with the model, for one row.
        """
        trainable.refuse_layers(model)
        code = trainable.code_of(model)
        record = RecordGraph.of(code, loss, example, autocast=autocast, augment=augment)
        changed = autocast is not None or augment is not None
        trainable.refuse_other_gradients(code, loss, example, record, changed=changed)
        layout = Layout.of(code)
        parts = factors.split(record.graph, layout)
        convolution.lower(record.graph)
        zeros = [
            torch.zeros((1, 1, 1, *one.shape), dtype=one.dtype, device=one.device) for one in outputs(record.graph)
        ]
        tried = factors.gradients(layout, parts, zeros)
        numbers = sum(factor.numel() for one in tried for factor in one.factors) + sum(one.terms**2 for one in tried)
        terms = max(one.terms for one in tried)
        return cls(code, loss, layout, record, parts, terms, numbers, example, autocast, views, augment)

    @property
    def random(self) -> bool:
        """Whether a pass uses random numbers."""
        return bool(self.record.uniforms)

    def sum_terms(self, piece: int, count: int) -> int:
        """How many terms a sum over ``count`` pieces of so many records has."""
        return piece * self.terms * self.views + count

    def on(self, rows: torch.Tensor, shape: Shape) -> Program:
        """The program in the faster way in which, at this shape, a record's place changes no bit.

        All records at once, or one at a time. It is found out once for each shape, precision and number of threads,
        which decide how a device computes, at random weights: initial ones may be zeros, which round nothing. Pieces
        that are no multiple of 32 records go one at a time: a record's address in them depends on its place.
        """
        precision = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
        key = (shape, *precision, torch.get_num_threads())
        for alone in (False, True):
            way = dataclasses.replace(self, alone=alone)
            if self.found.get(key) is alone:
                return way
            if key in self.found or (shape.records % MULTIPLE and not alone):
                continue
            tried = (trainable.random_weights(self.layout, rows, seed) for seed in range(_DRAWS))
            if all(trainable.same_places(way, some, shape) for some in tried):
                self.found[key] = alone
                return way
        raise UnsupportedModelError(
            "a record's gradient changes in its last bits with its place, even if each record is differentiated alone: "
            "this device does not compute the same twice, and one bit can flip a decision of the model, which no noise "
            "covers. Train on another device"
        )

    def bound(self, rows: torch.Tensor, shape: Shape) -> Pass:
        """Passes of several runs whose parameters are ``rows``, which may change between passes."""
        return Pass(self, rows, shape)

    def __reduce__(self) -> Any:
        """It is captured again in another process, which may compute otherwise."""
        options = {"autocast": self.autocast, "views": self.views, "augment": self.augment}
        return _again, (self.model, self.loss, self.example, options)


def _again(model: nn.Module, loss: Loss, example: Batch, options: dict[str, Any]) -> Program:
    return Program.of(model, loss, example, **options)


class Pass:
    """Passes of one shape: from records to the parts of their gradients."""

    def __init__(self, program: Program, rows: torch.Tensor, shape: Shape) -> None:
        self.program, self.shape = program, shape
        layout, record = program.layout, program.record
        self._trained = [layout.values(rows, place) for place in range(len(layout.names))]
        held = {**dict(program.model.named_parameters()), **dict(program.model.named_buffers())}
        given = [held[name].detach() for name in record.given]
        at_once = 1 if program.alone else shape.records * shape.views
        key = (shape.runs, at_once)
        if key not in program.flat:
            one = [part[0] for part in program.example]
            one += [torch.empty(size, device=rows.device) for size in record.uniforms]
            program.flat[key] = flat_graph.flatten(record.graph, self._trained, given, one, *key)
        self.graph, self._run = program.flat[key]
        self._given = given if rows.is_cuda else [one.expand(shape.runs, *one.shape) for one in given]

    def parts(
        self,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        keys: torch.Tensor,
        weights: torch.Tensor | None = None,
    ) -> tuple[list[RecordGradients], torch.Tensor]:
        """The per-record gradients of a piece, and which of its records are outside the domain, [runs, records].

        Args:
            inputs, targets: [runs × records, ...], or [runs × records × views, ...] if the views of a record differ.
            keys: of the random numbers, [runs, records × views].
            weights: of the views of a record, [runs, records, views]; None for their mean. A view of weight zero
                repeats another one of its record.
        """
        shape, program = self.shape, self.program
        sizes = (shape.runs, shape.records, shape.views)
        rows = []
        for part in (inputs, targets):
            each = part.repeat_interleave(shape.rows // len(part), 0) if len(part) < shape.rows else part
            rows.append(each.reshape(shape.runs, -1, *part.shape[1:]))
        rows += [
            masks.uniforms(keys, call, math.prod(size)).reshape(*keys.shape, *size)
            for call, size in enumerate(program.record.uniforms, 1)
        ]
        *outputs, outside = self._alone(rows) if program.alone else self._run(*self._trained, *self._given, *rows)
        outside = outside.reshape(sizes)
        split = [one.reshape(*sizes, *one.shape[2:]) for one in outputs]
        if weights is not None:
            outside = outside & (weights != 0)
        return factors.gradients(program.layout, program.parts, split, weights), outside.any(2)

    def _alone(self, rows: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """One row after the other, each at an address of its own."""
        each = [
            self._run(*self._trained, *self._given, *(part[:, at : at + 1].clone() for part in rows))
            for at in range(rows[0].shape[1])
        ]
        return [torch.cat(list(some), 1) for some in zip(*each, strict=True)]


def outputs(graph: fx.GraphModule) -> list[torch.Tensor]:
    """What a record's graph gives, without values, but for the last output."""
    (end,) = (node for node in graph.graph.nodes if node.op == "output")
    return [one.meta["val"] for one in end.args[0]][:-1]
