"""The dither and the noise of each step, drawn on the CPU some steps ahead, in streams of each run's own.

Both are added to the sum in units of h·2^−bits before it is rounded down: with a dither V, uniform on 0, …, 2^bits − 1,
and noise Z, ⌊(S + V)/2^bits⌋ + Z = ⌊(S + V + 2^bits·Z)/2^bits⌋. All of it is exact in double precision: the numbers are
whole and below 2⁵³, and 2^−bits is a power of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dphypo import noise

if TYPE_CHECKING:
    import torch

_AHEAD = 2**16  # numbers of a run that are drawn at a time, about: the table then stays in the processor's cache


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
        self._ahead = max(1, min(32, _AHEAD // width))
        self._waiting: list[npt.NDArray[np.float64]] = []

    def release(self, sums: torch.Tensor) -> torch.Tensor:
        """Round sums, [runs, width] in units of h·2^−bits, to the grid with dither, and add noise; in place."""
        import torch

        return sums.round_().add_(torch.from_numpy(self.draw()).to(sums.device)).mul_(2.0**-self._bits).floor_()

    def skip(self, steps: int) -> None:
        """Pass over the next steps."""
        for _ in range(steps):
            self.draw()

    def draw(self) -> npt.NDArray[np.float64]:
        """V + 2^bits·Z of the next step, [runs, width]."""
        if not self._waiting:
            self._waiting = list(self._block().swapaxes(0, 1))
        return self._waiting.pop(0)

    def _block(self) -> npt.NDArray[np.float64]:
        size = self._ahead * self._width
        made = np.empty((len(self._streams), size))
        for row, (dither, gaussian) in zip(made, self._streams, strict=True):
            bits = gaussian.draw(-(-size // 2)).view(np.int32)[:size]
            np.multiply(self._table.draw(bits, gaussian), 2.0**self._bits, out=row)
            row += dither.draw(-(-size // 4)).view(np.uint16)[:size] >> np.uint16(16 - self._bits)
        return made.reshape(len(self._streams), self._ahead, self._width)
