"""Which records count: those in the domain of the model and its loss.

A record outside its domain (a label that the model has no output for, a token that it has no row for, a value that is
not a finite number, another shape than stated) is left out of training and of scoring. Whether a record is in the
domain depends only on that record and on public values (the model, the loss, the stated shape and type). So without
these records, neighbouring data sets are still neighbours.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from torch import nn

from dphypo.mechanisms.mechanism import or_none
from dphypo.torch.engine.batch_rows import Batch
from dphypo.torch.fields import Called

_NUMBER, _ANY = 0, 2**62  # in place of a size: for any number, and for any integer


@dataclass(frozen=True, eq=False)
class Domain:
    """The records that can be used: those with the shape and type of a made-up ``example``, all numbers finite.

    Labels are 0, 1, ..., ``classes - 1`` and tokens 0, 1, ..., ``vocabulary - 1``; None if there are no labels or
    tokens. For fields, ``vocabulary`` has one number per column. A record may have a label at each of several
    positions: the ``ignored`` label does not count, and a record whose positions are all ignored is outside the domain.
    Numbers of another precision are converted; fractions are neither labels nor tokens.

    >>> domain = Domain((torch.zeros(1, 2), torch.tensor([0])), classes=3)
    >>> domain.contains(torch.tensor([[0.0, 1.0], [0.0, torch.nan], [0.0, 1.0]]), torch.tensor([2, 2, 3])).tolist()
    [True, False, False]
    >>> pixels = Domain((torch.zeros(1, 2), torch.zeros(1, 2).long()), classes=3, ignored=255)
    >>> pixels.contains(torch.zeros(3, 2), torch.tensor([[2, 255], [255, 255], [3, 255]])).tolist()
    [True, False, False]
    """

    example: Batch
    _: KW_ONLY
    classes: int | None = None
    vocabulary: int | torch.Tensor | None = None
    ignored: int | None = None

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        model: nn.Module,
        example: Batch,
        loss: Callable[..., Any] | None = None,
        *,
        labelled: bool = False,
        ignored: int | None = None,
    ) -> Domain:
        """The domain of records that look like ``example``, found by trying made-up ones on a copy of the model.

        Labels are those that ``loss`` accepts; the label that it ignores is found too. ``labelled`` says that a score
        without a loss compares labels with the model's outputs; ``ignored`` is the label that the training loss
        ignores.
        """
        inputs, targets = (torch.zeros((2, *part.shape[1:]), dtype=part.dtype) for part in example)
        fields = model.fields if isinstance(model, Called) else None
        tokens = fields is not None or not inputs.is_floating_point()
        whole = not targets.is_floating_point()
        labels, labelled = loss if whole else None, labelled and whole
        vocabulary: int | torch.Tensor | None = None
        classes = None
        if not tokens and labels is None and not labelled:
            return cls(example)
        with contextlib.suppress(RuntimeError, NotImplementedError):  # a model that runs only on its device
            tried = copy.deepcopy(model).cpu().eval()
            if fields is not None:
                vocabulary = torch.full((inputs.shape[1],), _NUMBER)
                for name, place in fields.places():
                    if not fields.kinds[name].is_floating_point:
                        vocabulary[place] = _tokens(tried, inputs, place) or _ANY
            elif tokens:
                vocabulary = _tokens(tried, inputs, slice(None))
            outputs = tried(inputs) if labelled or labels is not None else None
            if isinstance(outputs, torch.Tensor) and labelled:
                classes = 2 if is_single(outputs) else outputs.shape[1]
            elif isinstance(outputs, torch.Tensor) and outputs.dim() > 1 and labels is not None:
                filled = targets.long()

                def use(label: int) -> object:
                    return labels(outputs, torch.full_like(filled, label))

                sizes, ignored = set(outputs.shape[1:]), getattr(loss, "ignored", None)
                classes = _first_refused(sizes, use)
                ignored = _ignored(classes or outputs.shape[1], use) if ignored is None else ignored
                if classes is None and ignored in sizes and not _works(use, ignored + 1):
                    classes = ignored  # the first label without a class is accepted because it is ignored
        return cls(example, classes=classes, vocabulary=vocabulary, ignored=ignored)

    def contains(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """For each record of a batch, whether it is in the domain."""
        if targets.dtype.is_floating_point or targets.dtype.is_complex or self.ignored is None:
            return _within(inputs, self.vocabulary) & _within(targets, self.classes)
        labels = _flat(targets).long()  # −100 as an unsigned byte would be 156
        counts = labels != self.ignored
        inside = counts.any(1) | (labels.shape[1] == 0)
        return _within(inputs, self.vocabulary) & _within(torch.where(counts, labels, 0), self.classes) & inside

    def chosen(self, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Two arrays in the domain's types, and which of their records are in it.

        A fraction is neither a label nor a token.
        """
        (inputs, whole), (targets, also) = map(_as_type, (inputs, targets), self.example)
        return inputs, targets, whole & also & self.contains(inputs, targets)

    def read(self, inputs: torch.Tensor, targets: torch.Tensor) -> Batch | None:
        """A record read by itself, in the types of the domain and on the CPU; None if it is outside the domain.

        Such records are stacked into batches, where a record of another type would change the type of all. They are
        copied, because a data set may give the same memory for the next record.
        """
        for part, shown in zip((inputs, targets), self.example, strict=True):
            kinds = part.dtype.is_floating_point, shown.dtype.is_floating_point
            if part.shape[1:] != shown.shape[1:] or part.is_complex() or kinds[0] != kinds[1]:
                return None
        if not self.contains(inputs, targets):
            return None
        inputs, targets = inputs.detach().cpu(), targets.detach().cpu()
        return inputs.to(self.example[0].dtype, copy=True), targets.to(self.example[1].dtype, copy=True)


def _tokens(model: nn.Module, inputs: torch.Tensor, place: slice) -> int | None:
    """How many tokens the model accepts at some places of its inputs (the size of a table); None if any."""
    tables = (layer for layer in model.modules() if isinstance(layer, nn.Embedding | nn.EmbeddingBag))

    def use(token: int) -> object:
        filled = inputs.clone()
        filled[:, place] = token
        return model(filled)

    return _first_refused({layer.num_embeddings for layer in tables}, use)


def _first_refused(sizes: set[int], use: Callable[[int], object]) -> int | None:
    """The smallest size that is refused as an index where the one below it is not."""
    return next((size for size in sorted(sizes) if _works(use, size - 1) and not _works(use, size)), None)


def _ignored(classes: int, use: Callable[[int], object]) -> int | None:
    """The label that a custom loss ignores: it has no class and is accepted, while the label below it is refused."""
    usual = (-100, 255, -1)
    return next(
        (one for one in usual if not 0 <= one < classes and _works(use, one) and not _works(use, one - 1)), None
    )


def _works(use: Callable[[int], object], value: int) -> bool:
    return or_none(lambda: (use(value),)) is not None


def is_single(outputs: torch.Tensor) -> bool:
    """Whether the model has a single output, whose sign distinguishes two classes."""
    return outputs.dim() == 1 or outputs.shape[1] == 1


def _as_type(values: torch.Tensor, like: torch.Tensor) -> Batch:
    """The values in the type of others, and for each record whether it can be written in that type."""
    converted = values.to(like.dtype)
    if converted.dtype.is_floating_point or converted.dtype == values.dtype:
        return converted, torch.ones(len(values), dtype=torch.bool, device=values.device)
    return converted, _flat(converted.to(values.dtype) == values).all(1)


def _flat(values: torch.Tensor) -> torch.Tensor:
    """One row per record. A table without records remains a table: no record may decide whether a run fails."""
    return values.reshape(len(values), -1 if values.numel() else 0)


def _within(values: torch.Tensor, size: int | torch.Tensor | None) -> torch.Tensor:
    flat = _flat(values)
    if isinstance(size, torch.Tensor):  # of fields, one a column
        sizes = size.to(flat.device)
        whole = (flat == flat.round()) & ((sizes == _ANY) | ((flat >= 0) & (flat < sizes)))
        return (flat.isfinite() & ((sizes == _NUMBER) | whole)).all(1)
    if flat.dtype.is_floating_point or flat.dtype.is_complex:
        return flat.isfinite().all(1)
    if size is None:
        return torch.ones(len(flat), dtype=torch.bool, device=flat.device)
    flat = flat.long()  # PyTorch cannot compare all unsigned numbers
    return ((flat >= 0) & (flat < size)).all(1)
