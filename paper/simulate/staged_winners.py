"""What a search in stages finds, exactly: each stage by :func:`dphypo.planning.landscape.winners`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dphypo.laws import Law
from dphypo.planning.landscape import winners
from paper.data.points import Floats


def winners_of_stages(
    means: Sequence[npt.ArrayLike], laws: Sequence[Law], around: Sequence[npt.ArrayLike], noise: float
) -> Floats:
    """The probability of each cell to win the last stage of a search in stages, the first prior being uniform.

    The winner of a stage chooses the prior of the next; a stage with T = 0 leaves the prior as it was, and the last
    stage is given to have T ≥ 1.

    Args:
        means: for each stage, the mean score of each of n cells.
        laws: for each stage, the law of T.
        around: for each stage but the last, (n, n): row i is the next prior if cell i is released.
        noise: the standard deviation of the noise on one shown score.

    >>> from dphypo.laws import Pmf
    >>> three = Pmf({3: 1.0})
    >>> winners_of_stages([[0.0, 9.0], [0.0, 9.0]], [three, three], [np.eye(2)], 1.0).round(4).tolist()
    [0.125, 0.875]
    """
    if not len(means) == len(laws) == len(around) + 1:
        raise ValueError(
            f"{len(means)} means, {len(laws)} laws and {len(around)} priors: give as many, priors one less"
        )
    cells = len(np.asarray(means[0]))
    for rows in map(np.shape, around):
        if rows != (cells, cells):
            raise ValueError(f"around has shape {rows}: give a prior of {cells} masses for each of {cells} cells")
    uniform = np.full((1, cells), 1.0 / cells)
    priors, chosen = uniform, np.ones(1)  # the priors a stage may have, and with what probability
    for mean, law, following in zip(means[:-1], laws[:-1], around, strict=True):
        none = float(law.pgf(0.0))
        released = (1.0 - none) * (chosen @ winners(priors, mean, noise, law))
        priors = np.concatenate([priors, np.asarray(following, dtype=np.float64)]) if none else np.asarray(following)
        chosen = np.concatenate([none * chosen, released]) if none else released
    return np.asarray(chosen @ winners(priors, means[-1], noise, laws[-1]))
