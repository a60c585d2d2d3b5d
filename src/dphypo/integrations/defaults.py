"""What DP-SGD takes where nothing is given, from public numbers alone: batch size, learning rates, who scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from scipy.stats import loguniform

_SHARE, _ENOUGH = 0.2, 4000
"""Of so many records a share scores; no more than this many do, which rank well."""

_RATES = {"sgd": (0.1, 30.0), "adagrad": (3e-3, 1.0), "rmsprop": (1e-4, 0.03)}
_RATES_LIKE_ADAM = (3e-4, 0.1)


def batch_size(records: int) -> int:
    """The power of two next to 4·√records: 128 of a thousand records, 1 024 of sixty thousand.

    >>> batch_size(1200), batch_size(60_000)
    (128, 1024)
    """
    return max(1, min(int(2 ** round(math.log2(4 * math.sqrt(records)))), records // 2))


def scoring_share(records: int) -> tuple[float, int]:
    """The share of so many records that is set apart for scoring, and how many that is taken to be.

    >>> scoring_share(1000), scoring_share(60_000)
    ((0.2, 200), (0.0667, 4002))
    """
    share = round(min(_SHARE, _ENOUGH / records), 4)
    return share, max(1, round(share * records))


def learning_rates(optimizer: str, fixed: Mapping[str, Any], max_grad_norm: float) -> Any:
    """The distribution of learning rates on the scale of the optimiser, for gradients that are normalised.

    Where the optimiser follows the size of gradients, they are in units of one over the clipping norm.
    """
    low, high = _RATES.get(optimizer, _RATES_LIKE_ADAM)
    scale = (1 - fixed.get("momentum", 0.0)) / max_grad_norm if optimizer == "sgd" else 1.0
    return loguniform(low * scale, high * scale)
