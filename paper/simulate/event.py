"""The privacy event of one training of the paper's network."""

from __future__ import annotations

import dp_accounting

from dphypo.mechanisms import SampledGaussian


def dp_sgd(records: int, noise_multiplier: float, batch: int = 256, epochs: float = 10) -> dp_accounting.DpEvent:
    """Poisson batches, ``epochs``·records/batch steps, rounded up.

    >>> dp_sgd(60_000, 0.71).count
    2344
    """
    return SampledGaussian.of(records=records, batch_size=batch, epochs=epochs, noise_multiplier=noise_multiplier).event
