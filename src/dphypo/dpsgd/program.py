"""A model and a loss, ready to be trained: how its per-record gradients are found, decided on made-up records.

There are three ways, from fast to slow: by formulas (``book.py``, ``perceptron.py``), by ``vmap(grad)`` over the
records, and one record after the other. The last two serve any model.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from dphypo.dpsgd import trainable
from dphypo.dpsgd.batches import Batch, Loss
from dphypo.dpsgd.book import COMMON, Axis, Book, Masks, UnknownUse
from dphypo.dpsgd.draws import MULTIPLE
from dphypo.dpsgd.layers import HANDLERS
from dphypo.dpsgd.layers.products import held
from dphypo.dpsgd.perceptron import Pass, Perceptron
from dphypo.dpsgd.stack import Layout, Shape, Slot, trained
from dphypo.dpsgd.step import RecordGradients
from dphypo.errors import UnsupportedModelError

Augment = Callable[[torch.Tensor, Callable[[int], torch.Tensor]], torch.Tensor]
_ROWS = (31, 37)  # sizes of a made-up batch that no layer is likely to have
_AFTER_VIEWS = 2**20  # calls, more than an augmentation makes
_DRAWS = 3  # weights at which places are compared


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """What is the same for all runs of one architecture.

    Args:
        model: a copy that serves as code: its trainable parameters are names, its buffers and frozen parameters are
            used as they are, by every run.
        layout: where the trainable parameters lie in a row of numbers.
        axes: where tensors hold the rows, for each watched call; None if no formulas cover the model: ``vmap(grad)``.
        terms: how many terms the longest sum of one record's gradient has.
        elements: how many numbers the parts of one record's gradient hold.
        random: whether the forward pass uses masks.
        loss, example, autocast, views, augment: as in :meth:`of`.
        alone: whether records are differentiated one by one.
        one_by_one: whether they are augmented one by one.
        perceptron: the model as one, if it is one.
        found: which way to differentiate was found for a shape (:meth:`on`).
        labels: how many classes the targets are labels of, and the label that the loss ignores; None if they are none.
    """

    model: nn.Module
    loss: Loss
    layout: Layout
    axes: tuple[Axis, ...] | None
    terms: int
    elements: int
    random: bool
    example: Batch
    autocast: torch.dtype | None = None
    views: int = 1
    augment: Augment | None = None
    alone: bool = False
    one_by_one: bool = False
    labels: tuple[int, int] | None = None
    perceptron: Perceptron | None = None
    found: dict[tuple[Shape, bool, bool, int], int] = field(default_factory=dict)

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
        """Decide how to differentiate a model; :class:`UnsupportedModelError` names the layer that cannot be trained.

        Args:
            model: an untrained model on its device. It is copied.
            loss: a function of (outputs, targets) that gives one value a record.
            example: inputs and targets of one record, [1, ...] each, on the device. Their values are not used.
            autocast: the type of forward and backward passes, torch.bfloat16; None for that of the model.
            views: how many views of a record are averaged before clipping.
            augment: ``augment(inputs, uniforms)`` gives a view of each row; ``uniforms(n)`` gives [rows, n] random
                numbers of [0, 1).
        """
        trainable.refuse_layers(model)
        skeleton = trainable.in_training(copy.deepcopy(model))
        layout = Layout.of(skeleton)
        plain = cls(skeleton, loss, layout, None, 1, layout.width, True, example, autocast, views, augment)
        batches = [trainable.synthetic_records(example, count) for count in _ROWS]
        trial = copy.deepcopy(skeleton).requires_grad_(False)

        def view(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return plain.augmented(inputs, Masks(torch.arange(len(inputs), device=inputs.device)))

        if trainable.looks_across(view, example, trial, backward=False):
            plain = dataclasses.replace(plain, one_by_one=True)
        if not trainable.looks_across(lambda inputs, targets: loss(trial(inputs), targets), example, trial):
            with contextlib.suppress(UnknownUse, RuntimeError):  # there are uses that the formulas do not expect
                made = plain._by_formulas(batches)
                trainable.refuse_wrong(made, batches[0])
                return made
        try:
            trainable.refuse_wrong(plain, batches[0])
        except UnsupportedModelError as error:
            if not isinstance(error.__cause__, RuntimeError):
                raise
            plain = dataclasses.replace(plain, alone=True)  # vmap takes no decisions by values
            trainable.refuse_wrong(plain, batches[0])
        return plain

    def on(self, rows: torch.Tensor, shape: Shape) -> Program:
        """The program in the fastest way in which, at this shape, a record's place changes no bit.

        The formulas; ``vmap(grad)``; one record at a time. It is found out once for each shape, precision and number of
        threads, which decide how a device computes, at random weights: initial ones may be zeros, which round nothing.
        Pieces that are no multiple of 32 records take the last way: a record's address in them depends on its place.
        """
        formulas = dataclasses.replace(self, perceptron=None)
        slower = dataclasses.replace(formulas, axes=None, terms=1, elements=self.layout.width, random=True, alone=False)
        ways = (self, formulas, slower, dataclasses.replace(slower, alone=True))
        precision = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
        key = (shape, *precision, torch.get_num_threads())
        if key in self.found:
            return ways[self.found[key]]
        for place, way in enumerate(ways):
            if shape.records % MULTIPLE and not way.alone:
                continue
            tried = (trainable.random_weights(self.layout, rows, seed) for seed in range(_DRAWS))
            try:
                if all(trainable.same_places(way, some, shape) for some in tried):
                    self.found[key] = place
                    return way
            except RuntimeError:
                if way.axes is not None or way.alone:  # only vmap refuses what the other ways can do
                    raise
        raise UnsupportedModelError(
            "a record's gradient changes in its last bits with the other records of the batch, even if each record is "
            "differentiated alone: one bit can flip a decision of the model, which no noise covers. Make each record's "
            'output and loss a function of that record alone, or use engine="opacus", which takes rounding as exact'
        )

    @torch.no_grad()
    def _by_formulas(self, batches: Sequence[Batch]) -> Program:
        """The program by formulas, with the rows where batches of two sizes show them."""
        tried = []
        for inputs, targets in batches:
            book = self.book(self.layout.stacked([self.model], inputs.device), Shape(1, len(inputs)))
            book.begin(book.masks, targets)
            losses = self._losses(book, inputs, targets)
            tried.append((book, inputs, losses, book.differentiate(losses)))  # before the next pass, which may write
        (book, inputs, losses, parts), (other, *_) = tried
        axes = []
        for some, others in zip(book.found, other.found, strict=True):
            possible = [axis for axis in some if axis in others]
            if len(possible) - (possible[-1:] == [COMMON]) > 1 or possible[:1] != some[:1]:
                raise UnknownUse("which dimension holds the records is not clear")
            axes.append(possible[0])
        slots = sorted({slot for part in parts for slot in part.slots})
        if any(one.start + one.size > other.start for one, other in itertools.pairwise(slots)):
            raise UnknownUse("a parameter is used as a whole and in groups")
        if len({self.layout.place_of(slot) for slot in slots}) < len(self.layout.names):
            raise UnknownUse("a parameter without a gradient")
        plain = self.autocast is None and self.views == 1 and not inputs.is_cuda
        perceptron = Perceptron.of(book, inputs, losses) if plain else None
        numbers = sum(factor[0, 0].numel() for part in parts for factor in part.factors)
        return dataclasses.replace(
            self,
            axes=tuple(axes),
            terms=max(part.terms for part in parts),
            elements=numbers + sum(part.terms**2 for part in parts),
            random=book.masks.calls > 0 or self.augment is not None,
            labels=book.labels if perceptron is None else (perceptron.classes, 0),  # what it ignores has no class
            perceptron=perceptron,
        )

    def sum_terms(self, piece: int, count: int) -> int:
        """How many terms a sum over ``count`` pieces of so many records has."""
        return piece * self.terms * self.views + count

    def book(self, rows: torch.Tensor, shape: Shape) -> Book:
        """What passes of several runs are noted in; ``rows`` are the parameters, and may change between passes."""
        return Book(self.layout, rows, shape, trained(self.model), HANDLERS, self.axes)

    def parts(
        self,
        rows: torch.Tensor,
        book: Book,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        masks: Masks,
        weights: torch.Tensor | None = None,
    ) -> tuple[list[RecordGradients], torch.Tensor | None]:
        """The per-record gradients of a piece, and which of its records are outside the domain, [runs, records].

        The book is of these rows and the piece's shape; inputs and targets are [runs × records, ...]. With weights,
        [runs, records, views], they are the rows of each record, [runs × records × views, ...].
        """
        shape = book.shape
        if shape.views > 1 and weights is None:
            inputs, targets = (part.repeat_interleave(shape.views, 0) for part in (inputs, targets))
        if not self.alone:
            inputs = self.augmented(inputs, masks)
        outside: torch.Tensor | None
        if self.axes is None:
            with self._cast(rows.device):
                found, outside = self._held(rows, shape, inputs, targets, masks, weights)
        else:
            book.begin(masks, targets, weights)
            if self.perceptron is not None:
                book.perceptron = book.perceptron or Pass(self.perceptron, book)
                found = [book.perceptron.part(inputs, targets)]
            else:
                found = book.differentiate(self._losses(book, inputs, targets))
            outside = book.outside
        return found, None if outside is None else outside.reshape(shape.runs, shape.records, -1).any(-1)

    def augmented(self, inputs: torch.Tensor, masks: Masks) -> torch.Tensor:
        """A view of each row."""
        if self.augment is None:
            return inputs
        if not self.one_by_one:
            return self.augment(inputs, masks.uniforms)
        rows = zip(inputs[:, None], masks.keys[:, None], strict=True)
        masks.calls = _AFTER_VIEWS  # however many numbers a record takes, dropout is the same for the others
        return torch.cat([self.augment(row.clone(), Masks(key).uniforms) for row, key in rows])

    def _losses(self, book: Book, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad(), self._cast(inputs.device), book:
            losses = self.loss(self.model(inputs), targets)
        trainable.refuse_average(losses, book.shape.rows)
        return losses

    def _held(
        self,
        rows: torch.Tensor,
        shape: Shape,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        masks: Masks,
        weights: torch.Tensor | None,
    ) -> tuple[list[RecordGradients], torch.Tensor]:
        """The gradients of all records, held as numbers, and which rows are outside the domain.

        Alone, each record is copied, augmented and differentiated as a batch of its own.
        """
        layout, sizes = self.layout, (shape.runs, shape.records, shape.views)
        shares = torch.full(sizes, 1 / shape.views, device=rows.device) if weights is None else weights
        shares = shares.to(rows.dtype).reshape(-1)
        some = [part.reshape(*sizes, *part.shape[1:]) for part in (inputs, targets, shares, masks.keys)]

        def value(
            row: torch.Tensor,
            inputs: torch.Tensor,
            targets: torch.Tensor,
            shares: torch.Tensor,
            keys: torch.Tensor,
            calls: int,
        ) -> tuple[torch.Tensor, torch.Tensor]:
            parameters = dict(zip(layout.names, layout.each(row), strict=True))
            book = Book(layout, rows[:1], Shape(1, 1, shape.views), (), HANDLERS, None)
            book.begin(Masks(keys, calls))
            with book:
                losses = self.loss(functional_call(self.model, parameters, (inputs,)), targets)
            return (losses * shares).sum(), keys != keys if book.outside is None else book.outside

        single: Callable[..., Any] = grad(value, has_aux=True)
        together: Callable[..., Any] = vmap(single, in_dims=(None, 0, 0, 0, 0, None), randomness="error")
        gradients = rows.new_zeros((shape.runs, shape.records, layout.width))
        outside = torch.zeros(sizes, dtype=torch.bool, device=rows.device)
        for run, row in enumerate(rows):
            if not self.alone:
                gradients[run], outside[run] = together(row, *(part[run] for part in some), masks.calls)
            for record in range(shape.records if self.alone else 0):
                seen, wanted, share, keys = (part[run, record].clone() for part in some)
                own = Masks(keys)
                seen = self.augmented(seen, own)
                # A pass that writes to the weights writes to a copy: no other record sees it.
                gradients[run, record], outside[run, record] = single(row.clone(), seen, wanted, share, keys, own.calls)
        return [held(Slot(0, layout.width), gradients)], outside.reshape(-1)

    def _cast(self, device: torch.device) -> contextlib.AbstractContextManager[None]:
        if self.autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(device.type, dtype=self.autocast)

    def __getstate__(self) -> dict[str, Any]:
        """Without what was found out: another machine may compute otherwise."""
        return {**vars(self), "found": {}}
