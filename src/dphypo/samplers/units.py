"""Units: of scores on their way into a surrogate and out of it, as weights; and of the distance of two points."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from dphypo.samplers.history import Array, History

if TYPE_CHECKING:
    from dphypo.space import Space

# Exponents stop here, so that no weight becomes zero or subnormal and the order of the scores is kept above it.
_LEAST = -600.0
# Scores closer than this, in their own units, are the same: what is left below it is rounding, which depends on how a
# posterior was computed and must not decide between candidates.
_DIGITS = 9


class Units(Enum):
    """In what units the scores enter the softmax exp(β s)."""

    RAW = "the scores' own units, as Algorithm 2 is written"
    STANDARD = "standard deviations of the scores seen so far"
    RANKS = "normal quantiles of the scores' ranks: any increasing function of the score gives the same search"


@dataclass(frozen=True, repr=False)
class Values:
    """Scores as ``centre + deviation · values``, the values with mean 0 and deviation 1 (or all 0 when equal)."""

    values: Array
    centre: float
    deviation: float


def filled(history: History) -> Array:
    """The scores, a failed run counted as the worst score seen (0 when every run failed)."""
    if history.failed.all():
        return np.zeros(len(history))
    return np.where(history.failed, history.scores[~history.failed].min(), history.scores)


def lowest(history: History) -> Array:
    """The scores, a failed run below them all: for rules that look at their order alone."""
    return np.where(history.failed, -np.inf, history.scores)


def standardised(scores: Array) -> Values:
    """Scores less their mean, over their deviation."""
    # Scores may be as large as floats go (a diverged loss): squares are taken of scaled numbers only.
    scale = float(np.abs(scores).max(initial=0.0)) or 1.0
    relative = scores / scale
    centre, deviation = float(relative.mean()), float(relative.std())
    if not deviation > 1e-12:
        return Values(np.zeros(len(scores)), centre * scale, 1.0)
    return Values((relative - centre) / deviation, centre * scale, deviation * scale)


def seen(history: History, units: Units) -> Values:
    """What a surrogate is fitted to."""
    if units is Units.RANKS:
        return standardised(ndtri(_middles(lowest(history))))
    return standardised(filled(history))


def _middles(scores: Array) -> Array:
    """Of each score, the share of scores below it and half of those equal: a plateau stays one."""
    order = np.sort(scores)
    below = np.searchsorted(order, scores, side="left") + np.searchsorted(order, scores, side="right")
    middles: Array = below / (2 * len(scores))
    return middles


def softmax(scores: Array, beta: float, masses: Array) -> Array:
    """Algorithm 2's π ∝ exp(β s), as relative masses: times the prior masses, and with the largest exponent 0."""
    exponent = beta * np.round(scores - scores.max(), _DIGITS)
    weights: Array = masses * np.exp(np.maximum(exponent, _LEAST))
    return weights


def scales(space: Space) -> Array:
    """What each feature column is multiplied by, so that a parameter adds 2 to the mean squared distance of two draws.

    A number is uniform on (0, 1) as a feature: its squared distance has mean 1/6. A category of k equally likely
    choices is k columns, one of them 1: two draws differ with probability 1 − 1/k, and then by 2.
    """
    columns: list[float] = []
    for parameter in space.parameters:
        width = parameter.dimension.width
        if parameter.dimension.ordered:
            columns += [np.sqrt(12.0)] * width
        else:
            columns += [1.0 / np.sqrt(max(1.0 - 1.0 / width, 0.5))] * width
    return np.array(columns)
