"""The privacy event of one training of the paper's network."""

from __future__ import annotations

import math

import dp_accounting


def dp_sgd(records: int, noise_multiplier: float, batch: int = 256, epochs: float = 10) -> dp_accounting.DpEvent:
    """Poisson batches, ``epochs``·records/batch steps, rounded up.

    >>> dp_sgd(60_000, 0.71).count
    2344
    """
    one = dp_accounting.PoissonSampledDpEvent(batch / records, dp_accounting.GaussianDpEvent(noise_multiplier))
    return dp_accounting.SelfComposedDpEvent(one, math.ceil(epochs * records / batch))
