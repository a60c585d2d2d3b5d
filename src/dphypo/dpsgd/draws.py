"""The dither and the noise of each step, drawn on the CPU some steps ahead, in streams of each run's own.

Both are added to the sum in units of h·2^−bits before it is rounded down: with a dither V, uniform on 0, …, 2^bits − 1,
and noise Z, ⌊(S + V)/2^bits⌋ + Z = ⌊(S + V + 2^bits·Z)/2^bits⌋.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from dphypo import noise

_EACH = 3  # dithers of 20 bits that one word gives
_MASK = np.uint64(2**20 - 1)
_AHEAD = 2**17  # numbers drawn at a time, about: the table stays in the processor's cache


class Draws:
    """V + 2^bits·Z for every parameter of every run, fresh at each step.

    Args:
        words: the runs'; "dither" and "noise" are streams of each.
        width: how many numbers a run has.
        deviation: s; Z = ⌊N + ½⌋ with N ∼ N(0, s²).
        bits: of the dither.
    """

    def __init__(self, words: Sequence[noise.Words], width: int, deviation: float, bits: int) -> None:
        self._streams = [(one.stream("dither"), one.stream("noise")) for one in words]
        self._table, self._width, self._bits = noise.table(deviation), width, bits
        self._ahead = max(1, min(32, _AHEAD // (width * len(words))))
        self._waiting: list[torch.Tensor] = []

    def release(self, sums: torch.Tensor) -> torch.Tensor:
        """Round sums, [runs, width] in units of h·2^−bits, to the grid with dither, and add noise."""
        drawn = self.draw().to(sums.device)
        return sums.round().to(torch.int64).add_(drawn).bitwise_right_shift_(self._bits)

    def draw(self) -> torch.Tensor:
        """V + 2^bits·Z of the next step."""
        if not self._waiting:
            self._waiting = list(torch.from_numpy(self._block()).unbind(1))
        return self._waiting.pop(0)

    def _block(self) -> noise.I64:
        size = self._ahead * self._width
        made = np.empty((len(self._streams), size), dtype=np.int64)
        for row, (dither, gaussian) in zip(made, self._streams, strict=True):
            words = dither.draw(-(-size // _EACH))
            for part in range(_EACH):
                some = (words >> np.uint64(20 * part)) & _MASK
                row[part * len(words) : (part + 1) * len(words)] = some[: size - part * len(words)]
            row >>= 20 - self._bits
            bits = gaussian.draw(-(-size // 2)).view(np.int32)[:size]
            row += np.left_shift(self._table.draw(bits, gaussian), self._bits, dtype=np.int64)
        return made.reshape(len(self._streams), self._ahead, self._width)
