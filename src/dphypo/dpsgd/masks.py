"""The random numbers of models and augmentations: a record's own, keyed by run, step, record and view.

They do not depend on who else is in the batch. They are no noise, and come from SplitMix64, a hash of 64 bits. A record
that is added in front of others changes their numbers: it changes nothing that is released because masks of all numbers
are alike, which takes these words as ideal, as those of the noise are.
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


def keys_of_rows(
    run_keys: torch.Tensor, step: int | torch.Tensor, records: torch.Tensor, views: int = 1
) -> torch.Tensor:
    """A word for each row of a step, [runs, records × views].

    ``run_keys`` is [runs, 1], ``records`` holds the records' numbers, [runs, records].
    """
    steps = torch.as_tensor(step, dtype=torch.int64, device=records.device)
    keys = mix(mix(run_keys + steps * _GOLDEN) ^ (records + 1))
    if views > 1:
        keys = mix(keys[..., None] + torch.arange(views, device=keys.device) * _GOLDEN).flatten(1)
    return keys


def uniforms(keys: torch.Tensor, call: int, each: int) -> torch.Tensor:
    """[*keys, each] numbers of [0, 1), multiples of 2⁻²⁴, for the call of this number, from 1 on."""
    start = mix(keys ^ (call * _GOLDEN % 2**62))
    count = torch.arange(1, each + 1, device=start.device) * _GOLDEN
    return ((mix(start[..., None] + count) >> 40) & 0xFFFFFF).to(torch.float32) * 2.0**-24
