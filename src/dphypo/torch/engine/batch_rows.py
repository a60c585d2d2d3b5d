"""The rows of Poisson batches, in pieces of fixed shape, read ahead (``poisson_draws.py`` draws the batches).

Models and augmentations draw random numbers for each record separately, keyed by run, step, record and view. They do
not depend on the other records of the batch. They are not noise, and come from SplitMix64, a hash of 64 bits. A record
that is added in front of others changes their numbers. This does not change the distribution of what is released: masks
have the same distribution whatever their record's number is, if these words are ideal, as those of the noise are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import torch

from dphypo import noise
from dphypo.training.poisson_draws import BatchSampler, draw, filled

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15
_FIRST, _SECOND = -4658895280553007687, -7723592293110705685  # 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mix(values: torch.Tensor) -> torch.Tensor:
    """SplitMix64's output function, on words held as int64.

    >>> mix(torch.tensor([_GOLDEN])).item() % 2**64 == 0xE220A8397B1DCDAF
    True
    """
    values = (values ^ ((values >> 30) & 0x3FFFFFFFF)) * _FIRST
    values = (values ^ ((values >> 27) & 0x1FFFFFFFFF)) * _SECOND
    return values ^ ((values >> 31) & 0x1FFFFFFFF)


def keys_of_runs(words: Sequence[noise.Words], stream: str, device: torch.device) -> torch.Tensor:
    """A key for each run, [runs, 1], from one of its streams."""
    return torch.tensor([[int(one.stream(stream).draw(1)[0]) >> 1] for one in words], device=device)


def keys_of_rows(
    run_keys: torch.Tensor, step: int | torch.Tensor, records: torch.Tensor, views: int = 1
) -> torch.Tensor:
    """A key for each row of a step, [runs, records × views].

    ``run_keys`` is [runs, 1], and ``records`` are the records' numbers, [runs, records].
    """
    steps = torch.as_tensor(step, dtype=torch.int64, device=records.device)
    keys = mix(mix(run_keys + steps * _GOLDEN) ^ (records + 1))
    if views > 1:
        keys = mix(keys[..., None] + torch.arange(views, device=keys.device) * _GOLDEN).flatten(1)
    return keys


def uniforms(keys: torch.Tensor, call: int, each: int) -> torch.Tensor:
    """Numbers in [0, 1), multiples of 2⁻²⁴, [*keys, each]; ``call`` says which call asks for them, from 1 on."""
    start = mix(keys ^ (call * _GOLDEN % 2**62))
    count = torch.arange(1, each + 1, device=start.device) * _GOLDEN
    return ((mix(start[..., None] + count) >> 40) & 0xFFFFFF).to(torch.float32) * 2.0**-24


Batch = tuple[torch.Tensor, torch.Tensor]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""A function of outputs and targets that gives one value per record."""
_WORDS, _BYTES = 2**16, 2**19  # about how many words are drawn, and how many bytes are read, at a time


class Records(Protocol):
    """The private records, read by number."""

    def __len__(self) -> int: ...

    def rows(self, numbers: torch.Tensor, valid: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Inputs, targets, and which rows count: one row for each number.

        A valid row counts if its record can be used. Rows that are not valid do not count, and may hold anything.
        """


@runtime_checkable
class Grouped(Protocol):
    """Records of several rows each, such as persons: the rows of a record are its views."""

    def __len__(self) -> int: ...

    def views(
        self, numbers: torch.Tensor, valid: torch.Tensor, words: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Inputs and targets, [numbers × views, ...], and which of these rows count, [numbers, views].

        A record's word decides which of its rows are used; it is keyed by run, step and record.
        """


@dataclass(frozen=True, eq=False, repr=False)
class Tensors:
    """Records in two tensors; all of them can be used."""

    inputs: torch.Tensor
    targets: torch.Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def rows(self, numbers: torch.Tensor, valid: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if not len(self.inputs):
            blank = (part.new_zeros((len(numbers), *part.shape[1:])) for part in (self.inputs, self.targets))
            return *blank, valid  # type: ignore[return-value]
        return self.inputs.index_select(0, numbers), self.targets.index_select(0, numbers), valid


class Piece(NamedTuple):
    """Rows of all runs, [runs × records, ...]; their records' numbers, and which records count, [runs, records].

    For records of several rows, rows are [runs × records × views, ...], and ``weights``, [runs, records, views], are
    those of the rows in the mean of their record.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    numbers: torch.Tensor
    valid: torch.Tensor
    weights: torch.Tensor | None = None


class Batches:
    """The rows of each step, in pieces of ``size`` records a run, drawn and read some steps ahead.

    The run with the largest batch decides how many pieces a step has: nothing is cut off. ``mine`` returns which of
    a number of pieces this process reads. ``keys``, [runs, 1], decide which rows of :class:`Grouped` records are used.
    """

    def __init__(
        self,
        records: Records | Grouped,
        samplers: Sequence[BatchSampler],
        size: int,
        example: Batch,
        steps: int,
        keys: torch.Tensor,
        mine: Callable[[int], Sequence[int]] = range,
        shards: int = 1,
    ) -> None:
        bytes_of_piece = len(samplers) * size * sum(part.numel() * part.element_size() for part in example)
        ahead = max(1, min(32, _WORDS // max(1, len(records)))), _BYTES // bytes_of_piece
        drawn = partial(draw, samplers, size=size, shards=shards)
        # The generator has no reference to this object: its rows are freed with it, without garbage collection.
        self._begin = partial(_read, records, drawn, ahead, keys, mine, steps)
        self._steps = self._begin(0)

    def skip(self, steps: int) -> None:
        """Skip the first steps, before any is asked for: they are drawn, and not read."""
        self._steps = self._begin(steps)

    def pieces(self) -> list[Piece]:
        """The pieces of the next step."""
        return next(self._steps)


def _read(
    records: Records | Grouped,
    draw_some: Callable[[int], tuple[Any, Any]],
    ahead: tuple[int, int],
    keys: torch.Tensor,
    mine: Callable[[int], Sequence[int]],
    left: int,
    skipped: int,
) -> Iterator[list[Piece]]:
    """Yield the pieces of each step: some steps are drawn at a time, and some of those are read at a time."""
    begun = 0  # steps that were drawn
    while True:
        steps = max(1, min(ahead[0], left))
        left -= steps
        drawn = draw_some(steps)
        own, passed = list(mine(drawn[0].shape[1])), min(steps, skipped)
        skipped -= passed
        numbers, valid = (part[passed:, own] for part in drawn)
        each = max(1, ahead[1] // max(1, filled(valid).sum(1).max(initial=0)))  # steps to read at a time
        for first in range(0, len(valid), each):
            some = slice(first, first + each)
            step, piece = filled(valid[some]).nonzero()
            chosen, counts = (torch.from_numpy(part[some][step, piece]).to(keys.device) for part in (numbers, valid))
            pieces = _pieces(records, chosen, counts, keys, begun + passed + first + torch.from_numpy(step))
            for at in range(len(valid[some])):
                yield [one for own_step, one in zip(step, pieces, strict=True) if own_step == at]
            del pieces  # before the next are read
        begun += steps


def _pieces(
    records: Records | Grouped, numbers: torch.Tensor, valid: torch.Tensor, keys: torch.Tensor, steps: torch.Tensor
) -> list[Piece]:
    """Some pieces, whose rows are read together; numbers of records are [pieces, runs, size], and steps [pieces]."""
    if not len(numbers):
        return []
    words = keys_of_rows(keys, steps[:, None, None], numbers) if isinstance(records, Grouped) else None
    whole = gathered(records, numbers, valid, words)
    rows = [part.reshape(len(numbers), -1, *part.shape[1:]) for part in whole[:2]]
    rest = [part for part in whole[2:] if part is not None]
    return [Piece(*one) for one in zip(*rows, *rest, strict=True)]


def gathered(
    records: Records | Grouped, numbers: torch.Tensor, valid: torch.Tensor, words: torch.Tensor | None = None
) -> Piece:
    """The rows of the records of some numbers, [..., records]; ``words`` are needed for :class:`Grouped` records."""
    if words is None:
        inputs, targets, counts = cast(Records, records).rows(numbers.reshape(-1), valid.reshape(-1))
        return Piece(inputs, targets, numbers, counts.view(valid.shape))
    inputs, targets, counts = cast(Grouped, records).views(numbers.reshape(-1), valid.reshape(-1), words.reshape(-1))
    return averaged(inputs, targets, numbers, counts.view(*valid.shape, -1))


def averaged(inputs: torch.Tensor, targets: torch.Tensor, numbers: torch.Tensor, counts: torch.Tensor) -> Piece:
    """Weight the rows of each record for their mean: those that count, [..., records, views], have equal weights.

    The others are replaced by the first row of the same record that counts, with weight zero: so a record's
    contribution is a function of its own rows. A record without a row that counts does not count.
    """
    views = counts.shape[-1]
    own = torch.arange(views, device=counts.device).expand(counts.shape)
    places = torch.where(counts, own, counts.int().argmax(-1, keepdim=True)).reshape(-1, views)
    starts = views * torch.arange(len(places), device=counts.device)
    chosen = (starts[:, None] + places).reshape(-1)
    total = counts.sum(-1, keepdim=True)
    weights = counts / total.clamp(min=1)
    inputs, targets = (part.index_select(0, chosen) for part in (inputs, targets))
    return Piece(inputs, targets, numbers, total[..., 0] > 0, weights)
