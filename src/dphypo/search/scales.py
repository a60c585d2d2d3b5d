"""The scales on which a survey searches: a positive number that spans a decade or more is searched by its logarithm.

Learning rates, clipping norms and the like act by factors. A prior that is uniform on such a number puts most of its
mass near the upper end, and so would a design that follows it; a Gaussian process with one lengthscale fits neither
end. Published runs need not follow the prior: they may be anywhere in the space. On MNIST, whose clipping norm has a
uniform prior from 0.3 to 6, this takes a third off the regret of a survey (``python -m benchmarks.scales``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import loguniform

from dphypo.space import Space
from dphypo.space.finite import Finite
from dphypo.space.parameter import Parameter

DECADE = 10.0
_FEWEST = 5  # values of a list of numbers, for it to be taken as a scale


def on_scales(space: Space) -> Space:
    """The same values with another prior: log-uniform where it was uniform on a positive range of a decade or more.

    A list of five fractional numbers or more, all equally likely, is taken likewise. Other parameters stay as they are,
    and so does a prior that was shaped around a point.

    >>> from scipy.stats import uniform
    >>> on_scales(Space({"clip": uniform(0.5, 9.5), "dropout": uniform(0, 0.9), "layers": [1, 2, 4]}))
    Space({'clip': loguniform(a=0.5, b=10), 'dropout': uniform(scale=0.9), 'layers': [1, 2, 4]})
    """
    changed = {parameter.name: prior for parameter in space.parameters if (prior := _logarithmic(parameter))}
    return space.with_priors(changed) if changed and not space.shaped else space


def _logarithmic(parameter: Parameter) -> Any:
    """The prior of a parameter on a logarithmic scale; None if it stays."""
    stated, dimension = parameter.description, parameter.dimension
    if isinstance(dimension, Finite):
        return None if "probabilities" in stated or "distribution" in stated else _weighed(dimension)
    low, high = (float(end) for end in dimension.prior.support())  # type: ignore[attr-defined]
    wide = stated.get("distribution") == "uniform" and 0 < DECADE * low <= high
    return loguniform(low, high) if wide else None


def _weighed(dimension: Finite) -> Any:
    """A list of numbers, each with the share of the logarithmic scale that is nearest to it."""
    choices = dimension.choices
    if not dimension.ordered or len(choices) < _FEWEST or not any(isinstance(value, float) for value in choices):
        return None
    values = np.array(choices, dtype=np.float64)
    if values.min() <= 0 or values.max() < DECADE * values.min():
        return None
    rank = np.argsort(values)
    gaps = np.diff(np.log(values[rank]))
    widths = np.empty(len(values))
    widths[rank] = (np.append(gaps[0], gaps) + np.append(gaps, gaps[-1])) / 2
    return list(choices), (widths / widths.sum()).tolist()
