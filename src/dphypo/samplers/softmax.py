"""From a score of each candidate to weights."""

from __future__ import annotations

import numpy as np

from dphypo.samplers.kernel import Array

# Exponents stop here, so that no weight becomes zero or subnormal and the order of the scores is kept above it.
_LEAST = -600.0
# Scores closer than this, in their own units, are the same: what is left below it is rounding, which depends on how a
# posterior was computed and must not decide between candidates.
_DIGITS = 9


def softmax(scores: Array, beta: float, masses: Array) -> Array:
    """Algorithm 2's π ∝ exp(β s), as relative masses: times the prior masses, and with the largest exponent 0."""
    exponent = beta * np.round(scores - scores.max(), _DIGITS)
    weights: Array = masses * np.exp(np.maximum(exponent, _LEAST))
    return weights
