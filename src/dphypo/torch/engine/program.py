"""A model and a loss, ready to be trained: the graph of one record's gradient, and passes over pieces of records."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from dphypo.errors import UnsupportedModelError
from dphypo.torch.engine import batch_rows, factors, trainable
from dphypo.torch.engine.batch_rows import Batch, Loss
from dphypo.torch.engine.capture import Augment, RecordGraph
from dphypo.torch.engine.clipped_sum import Layout, RecordGradients, Shape
from dphypo.torch.engine.device import products
from dphypo.torch.engine.factors import Part
from dphypo.torch.engine.flat_graph import FlatGraph, flatten
from dphypo.training.poisson_draws import MULTIPLE

_DRAWS, _MANY = 3, 2**20  # random weights at which places are compared; numbers of a piece for which one is enough


def precision() -> tuple[Any, ...]:
    """What, besides a shape, affects how a device computes: the precision of products and the number of threads."""
    return *(one.fp32_precision for one in products()), torch.get_num_threads()


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """What all runs of one architecture have in common.

    Args:
        model: holds the frozen parameters and the buffers, which all runs of a group share.
        loss, example, autocast, views, augment: as in :meth:`of`.
        layout: the position of each trainable parameter in a row of numbers.
        record: the graph of one record; the ``parts`` of the gradient are computed from its outputs.
        terms: how many terms the longest sum of one record's gradient has.
        elements: how many numbers the parts of one record's gradient hold.
        alone: whether records go through the graph one at a time.
        found: results of :meth:`on` and :meth:`alike`, by shape.
        flat: the flat graphs, by shape.
        scores: graphs of this architecture in evaluation mode, which scores store here.
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
        """Capture a model; an :class:`UnsupportedModelError` says what cannot be captured, and where.

        Args:
            model: an untrained model on its device. It is copied.
            loss: a function of (outputs, targets) that returns one value per record.
            example: inputs and targets of one record, [1, ...] each, on the device. Their values are not used.
            autocast: the type of forward and backward passes, torch.bfloat16; None for the model's own.
            views: how many views of a record are averaged before clipping.
            augment: ``augment(inputs, uniforms)`` returns a view of each row; ``uniforms(n)`` returns random numbers in
                [0, 1), [rows, n]. It is captured with the model, for one row.
        """
        trainable.refuse_layers(model)
        code = trainable.code_of(model)
        record, parts = trainable.captured(code, loss, example, autocast=autocast, augment=augment)
        changed = autocast is not None or augment is not None
        trainable.refuse_other_gradients(code, loss, example, record, parts, changed=changed)
        layout = Layout.of(code)
        end: Any = record.graph.graph.output_node()
        shown = [one.meta["val"] for one in end.args[0][:-1]]
        zeros = [torch.zeros((1, 1, *one.shape), dtype=one.dtype, device=example[0].device) for one in shown]
        tried = factors.Gradients(layout, parts)(zeros, Shape(1, 1))
        numbers = sum(factor.numel() for one in tried for factor in one.factors) + sum(one.terms**2 for one in tried)
        terms = max(one.terms for one in tried)
        return cls(code, loss, layout, record, parts, terms, numbers, example, autocast, views, augment)

    @property
    def random(self) -> bool:
        """Whether a pass uses random numbers."""
        return bool(self.record.uniforms)

    def sum_terms(self, piece: int, count: int) -> int:
        """How many terms the longest sum over a piece of ``piece`` records has; pieces are added as whole numbers."""
        return piece * self.terms * self.views + len(self.parts)

    def on(self, rows: torch.Tensor, shape: Shape) -> Program:
        """The program that processes all records at once, or one at a time where their place would change a bit.

        This is tested once for each shape, precision and number of threads, at random weights: initial weights may be
        zeros, for which nothing is rounded. Pieces whose size is not a multiple of 32 records are processed one record
        at a time, because there a record's address depends on its place. On a CPU, one run is tested;
        :meth:`alike` compares the runs of a group with it.
        """
        if not rows.is_cuda:
            rows, shape = rows[:1], dataclasses.replace(shape, runs=1)
        key = (shape, *precision())
        for alone in (False, True):
            program = dataclasses.replace(self, alone=alone)
            if self.found.get(key) is alone:
                return program
            if key in self.found or (shape.records % MULTIPLE and not alone):
                continue
            draws = 1 if shape.rows * self.elements >= _MANY else _DRAWS
            tried = (trainable.random_weights(self.layout, rows, seed) for seed in range(draws))
            if all(trainable.same_places(program, some, shape) for some in tried):
                self.found[key] = alone
                return program
        raise UnsupportedModelError(
            "a record's gradient changes in its last bits with its place, even if each record is differentiated alone: "
            "this device does not compute the same twice, and one bit can flip a decision of the model, which no noise "
            "covers. Train on another device"
        )

    def alike(self, rows: torch.Tensor, shape: Shape) -> bool:
        """Whether on a CPU every run of a group contributes the same bits as alone; also tested once."""
        key = ("alike", self.alone, shape, *precision())
        if key not in self.found:
            tried = trainable.random_weights(self.layout, rows, 0)
            self.found[key] = trainable.same_alone(self, tried, shape)
        return self.found[key]

    def bound(self, rows: torch.Tensor, shape: Shape) -> Pass:
        """Passes of several runs with the parameters ``rows``, which may change between passes."""
        return Pass(self, rows, shape)

    def __reduce__(self) -> Any:
        """Another process captures the model again, because it may compute differently."""
        options: dict[str, Any] = {"autocast": self.autocast, "views": self.views, "augment": self.augment}
        return partial(Program.of, **options), (self.model, self.loss, self.example)


class Pass:
    """Passes of one shape: from records to the parts of their gradients.

    ``held`` replaces the tensors that runs share, which are those of the program's model.
    """

    def __init__(
        self, program: Program, rows: torch.Tensor, shape: Shape, held: Sequence[torch.Tensor] | None = None
    ) -> None:
        self.program, self.shape = program, shape
        layout, record = program.layout, program.record
        trained = [layout.values(rows, place) for place in range(len(layout.names))]
        self.held = trainable.given_by(program.model, record) if held is None else held
        key = (shape.runs, 1 if program.alone else shape.records * shape.views)
        if key not in program.flat:
            one = [part[0] for part in program.example]
            one += [torch.empty(size, device=rows.device) for size in record.uniforms]
            program.flat[key] = flatten(record.graph, trained, self.held, one, *key)
        self._gradients = factors.Gradients(layout, program.parts)
        self._sizes = [(shape.runs, shape.rows // shape.runs, *part.shape[1:]) for part in program.example]
        self.graph, bind = program.flat[key]
        self._run = bind(*trained, *self.held)

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
            keys: keys of the random numbers, [runs, records × views].
            weights: weights of the views of each record, [runs, records, views]; None for their mean. A view of weight
                zero repeats another view of its record.
        """
        shape, program = self.shape, self.program
        rows = []
        for part, size in zip((inputs, targets), self._sizes, strict=True):
            each = part.repeat_interleave(shape.rows // len(part), 0) if len(part) < shape.rows else part
            rows.append(each.reshape(size))
        rows += [
            batch_rows.uniforms(keys, call, math.prod(size)).reshape(*keys.shape, *size)
            for call, size in enumerate(program.record.uniforms, 1)
        ]
        *outputs, outside = self._alone(rows) if program.alone else self._run(*rows)
        if weights is not None or shape.views > 1:
            outside = outside.reshape(shape.runs, shape.records, shape.views)
            outside = (outside if weights is None else outside & (weights != 0)).any(2)
        return self._gradients(outputs, shape, weights), outside

    def _alone(self, rows: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """One row after the other, each at an address of its own."""
        places = range(rows[0].shape[1])
        each = [self._run(*(part[:, at : at + 1].clone() for part in rows)) for at in places]
        return [torch.cat(list(some), 1) for some in zip(*each, strict=True)]
