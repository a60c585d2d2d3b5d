"""On a GPU: batches and noise are made there, and a step is captured once as a CUDA graph and replayed.

What differs from step to step (the batch, dither and noise, masks, the learning rate) is looked up or drawn by the
number of the step, which the graph itself counts up on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from dphypo import noise
from dphypo.dpsgd import kernels
from dphypo.dpsgd.batches import Piece, Records, Tensors, gathered

_AHEAD, _NUMBERS = 64, 2**22  # steps whose batches are drawn at a time, and how many numbers those may be
_WARM = 2  # steps made before the capture


def on_device(rows: torch.Tensor, records: Records, subsample: float) -> bool:
    """Whether batches and noise can be made on the device: there is Triton, and the records are there."""
    near = isinstance(records, Tensors) and records.inputs.device == rows.device and len(records) > 0
    return rows.is_cuda and kernels.AVAILABLE and near and subsample == 1


class DeviceBatches:
    """The rows of the runs' steps, as of :class:`dphypo.dpsgd.batches.Batches`, drawn on the device.

    Args:
        records: the private records, on the device.
        words: of the runs; "batches" is a stream of each.
        rate: the probability with which a step takes a record.
        size, count: the records of a piece, and how many pieces every step has.
        largest: the largest batch that there is room for.
        cursor: the number of the step, on the device.
    """

    def __init__(
        self,
        records: Records,
        words: Sequence[noise.Words],
        *,
        rate: float,
        size: int,
        count: int,
        largest: int,
        cursor: torch.Tensor,
    ) -> None:
        self._records, self._rate, self._cursor = records, rate, cursor
        self._size, self.usual, self.count = size, count, count
        self._keys = kernels.keys_of(words, "batches", cursor.device)
        room = size * max(count, -(-largest // size))  # whole pieces
        self._ahead = max(1, min(_AHEAD, _NUMBERS // (len(words) * room)))
        self._numbers = torch.zeros((self._ahead, len(words), room), dtype=torch.int64, device=cursor.device)
        self._lengths = torch.zeros((self._ahead, len(words)), dtype=torch.int32, device=cursor.device)
        self._places = torch.arange(room, device=cursor.device)
        self._longest: list[int] = []

    def __len__(self) -> int:
        return len(self._records)

    def skip(self, steps: int) -> None:
        """Have the block drawn to which the step after so many belongs."""
        self.draw(steps - steps % self._ahead)

    def draw(self, step: int) -> None:
        """Have the batch of a step ready. The first step of a block draws the block."""
        if step % self._ahead == 0:
            rooms = self._numbers.shape[2]
            drawn = kernels.coins(self._keys, step, self._ahead, self._rate, len(self._records), rooms)
            for into, part in zip((self._numbers, self._lengths), drawn, strict=True):
                into.copy_(part)
            self._longest = drawn[1].max(1).values.tolist()
            if max(self._longest) > rooms:
                raise RuntimeError("a batch is larger than twice the declared records can give")
        self.count = max(self.usual, -(-self._longest[step % self._ahead] // self._size))

    def pieces(self) -> list[Piece]:
        """The pieces of the step at the cursor."""
        at = self._cursor % self._ahead
        numbers, lengths = (part.index_select(0, at)[0] for part in (self._numbers, self._lengths))
        valid = self._places < lengths[:, None]
        ranges = [slice(start, start + self._size) for start in range(0, self.count * self._size, self._size)]
        return [gathered(self._records, numbers[:, some], valid[:, some]) for some in ranges]


class DeviceDraws:
    """Dither and noise of the step at the cursor, drawn on the device in the stream "release" of each run."""

    def __init__(self, words: Sequence[noise.Words], deviation: float, bits: int, cursor: torch.Tensor) -> None:
        self._releases, self._cursor = kernels.Releases(words, deviation, bits, cursor.device), cursor

    def release(self, sums: torch.Tensor) -> torch.Tensor:
        """As of :meth:`dphypo.dpsgd.draws.Draws.release`."""
        return self._releases.of(sums, self._cursor)

    def skip(self, steps: int) -> None:
        """Nothing is drawn ahead."""


def replay(
    batches: DeviceBatches,
    step: Callable[[], None],
    steps: range,
    *,
    capture: bool,
    told: Callable[[int], None] | None = None,
) -> None:
    """Make the steps of a group: the first ones as they are, the others by replaying one captured step.

    Steps with more pieces than usual are made as they are; so are all if they cannot be captured. ``told`` is called
    after each with how many are made.
    """
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()  # type: ignore[no-untyped-call]
    captured = False
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for number in steps:
            batches.draw(number)
            if not capture or number < steps.start + _WARM or batches.count > batches.usual:
                step()
            else:
                if not captured:
                    captured = True
                    graph.capture_begin()  # torch.cuda.graph would give memory back before
                    try:
                        step()
                    finally:
                        graph.capture_end()
                graph.replay()
            if told is not None:
                told(number + 1)
    torch.cuda.current_stream().wait_stream(stream)
