"""Random bits that are a record's own: keyed by run, step, call, record and view, wherever the record stands.

Dropout masks (and the random numbers of augmentations) come from here. A record's mask then does not depend on who
else is in the batch. They are no noise: privacy does not rest on them. SplitMix64, a hash of 64 bits, is enough.
"""

from __future__ import annotations

import torch

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


class Masks:
    """The random bits of one step.

    Args:
        keys: [rows], a word for each row, from its run's key, the step, and the record's number and view.
    """

    def __init__(self, keys: torch.Tensor) -> None:
        self.keys, self._calls = keys, 0

    @classmethod
    def of(cls, run_keys: torch.Tensor, step: int | torch.Tensor, records: torch.Tensor, views: int) -> Masks:
        """The bits of a step; ``run_keys`` is [runs, 1], ``records`` holds numbers, [runs, records of a piece]."""
        steps = torch.as_tensor(step, dtype=torch.int64, device=records.device)
        keys = mix(mix(run_keys + steps * _GOLDEN) ^ (records + 1))
        if views > 1:
            keys = mix(keys[..., None] + torch.arange(views, device=keys.device) * _GOLDEN)
        return cls(keys.reshape(-1))

    @property
    def used(self) -> bool:
        """Whether anybody has drawn from them."""
        return self._calls > 0

    def uniforms(self, each: int) -> torch.Tensor:
        """[rows, each] fresh numbers of [0, 1): multiples of 2⁻²⁴."""
        self._calls += 1
        start = mix(self.keys ^ (self._calls * _GOLDEN % 2**62))
        count = torch.arange(1, each + 1, device=start.device) * _GOLDEN
        return ((mix(start[:, None] + count) >> 40) & 0xFFFFFF).to(torch.float32) * 2.0**-24
