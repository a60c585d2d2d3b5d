"""The dither and the noise of each step, drawn on the CPU: a stream of words for each run and purpose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from dphypo import noise

_EACH = 3  # dithers of 20 bits that one word gives
_MASK = np.uint64(2**20 - 1)


class Draws(Protocol):
    """Whole numbers for every parameter of every run, [runs, width], fresh each time."""

    def dither(self) -> torch.Tensor:
        """Uniform on 0, …, 2^bits − 1."""
        ...

    def noise(self) -> torch.Tensor:
        """⌊N + ½⌋, N ∼ N(0, s²)."""
        ...


class HostDraws:
    """Drawn by numpy's Philox on the CPU, in the streams "dither" and "noise" of each run."""

    def __init__(self, words: Sequence[noise.Words], width: int, deviation: float, bits: int) -> None:
        self._dither = [one.stream("dither") for one in words]
        self._noise = [one.stream("noise") for one in words]
        self._table, self._width, self._shift = noise.table(deviation), width, np.uint64(20 - bits)

    def dither(self) -> torch.Tensor:
        made = np.empty((len(self._dither), self._width), dtype=np.uint64)
        for row, words in zip(made, self._dither, strict=True):
            drawn = words.draw(-(-self._width // _EACH))
            for part in range(_EACH):
                start = part * len(drawn)
                row[start : start + len(drawn)] = ((drawn >> np.uint64(20 * part)) & _MASK)[: self._width - start]
        return torch.from_numpy((made >> self._shift).view(np.int64))

    def noise(self) -> torch.Tensor:
        made = [self._table.draw(words.draw(self._width), words) for words in self._noise]
        return torch.from_numpy(made[0][None] if len(made) == 1 else np.stack(made))
