"""Which records a hash sets apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dphypo.accounting.composition import EVERYONE
from dphypo.training.split import split_within


def hashed_apart(inputs: Any, targets: Any, *, share: float) -> npt.NDArray[np.bool_]:
    numbers = np.arange(len(targets))
    _, held_out = split_within(EVERYONE, inputs, targets, share=share, form=(numbers, numbers))
    return np.isin(numbers, held_out[0])
