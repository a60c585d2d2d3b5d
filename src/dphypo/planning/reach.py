"""What a way of tuning reaches on a landscape, in expectation: by quadrature, no simulation."""

from __future__ import annotations

import math

import numpy as np

from dphypo.laws import Law
from dphypo.planning.expected import Floats, winners
from dphypo.planning.landscape import Landscape
from dphypo.planning.spend import Spent
from dphypo.planning.ways import fixed
from dphypo.search.plan_file import PlannedRuns, PlannedStudy


def expected_score(spent: Spent, landscape: Landscape) -> float | None:
    """The expected mean score of what is released; None where the landscape has no runs of that length or noise.

    It is on the safe side where a search rule decides. The λ of a survey are taken as drawn from the prior and its best
    score is followed, where the Gaussian process of :func:`dphypo.tune` does better. A band counts as uniform search
    with its noise. A search with T = 0 has no release: the score is given that T ≥ 1. Without tuning, the middle of the
    space is run.

    Args:
        spent: the way, with its noise.
        landscape: public scores, read by fraction and noise multiplier alone.
    """
    full = landscape.mean(1.0, spent.noise_multiplier)
    if full is None:
        return None
    if len(spent.parts) == 1:
        (only,) = spent.parts
        won = _middle(landscape) if isinstance(only, PlannedRuns) else _won(landscape, full, only.runs)
        return float(won @ full)
    first, last = spent.parts
    seen = _seen(landscape, first)
    if seen is None:
        return None
    law = fixed(first.runs or 1) if isinstance(first, PlannedRuns) else first.runs
    won = _won(landscape, seen, law)
    if isinstance(last, PlannedRuns):
        return float(won @ full)
    assert first.around is not None
    spread = first.around.spread
    assert isinstance(spread, (int, float))
    priors = landscape.priors(spread, first.around.floor)
    return float(won @ winners(priors, full, landscape.score_noise, last.runs) @ full)


def _seen(landscape: Landscape, part: PlannedRuns | PlannedStudy) -> Floats | None:
    """The mean scores of the runs of a part that is not the last."""
    if part.fraction not in landscape.fractions:
        return None
    matched = isinstance(part, PlannedRuns)
    noise = part.noise_multiplier / math.sqrt(part.fraction) if matched else part.noise_multiplier
    return landscape.mean(part.fraction, noise)


def _won(landscape: Landscape, means: Floats, law: Law) -> Floats:
    flat = np.full((1, len(landscape)), 1.0 / len(landscape))
    return np.asarray(winners(flat, means, landscape.score_noise, law)[0])


def _middle(landscape: Landscape) -> Floats:
    """The cells about the middle of the space, equally likely."""
    masses: Floats = np.ones(1)
    for cells in landscape.shape:
        axis = np.zeros(cells)
        axis[[(cells - 1) // 2, cells // 2]] = 1.0
        masses = np.asarray(np.kron(masses, axis / axis.sum()))
    return masses
