"""The tree-structured Parzen estimator as a search rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.spatial.distance import cdist

from dphypo import _validate
from dphypo.samplers.sampler import Array, History, collapsed, lowest, scales

if TYPE_CHECKING:
    from dphypo.space import Candidates, Grid

_ROWS = 512  # kernels at most, for histories of any length


@dataclass(frozen=True)
class Parzen:
    r"""The ratio of two kernel densities: of the better runs, and of the others (Bergstra et al. 2011, TPE).

        w(λ) = π₀(λ) · (1 + Σⱼ gⱼ Kⱼ(λ)) / (1 + Σⱼ gⱼ)  /  ((1 + Σⱼ (1 − gⱼ) Kⱼ(λ)) / (1 + Σⱼ (1 − gⱼ)))

    where g_j is 1 for the ``quantile`` of runs with the best scores and 0 for the others (runs tied at the boundary
    share it), and K_j is a Gaussian kernel about run j. Kernels are densities against the prior: each integrates to 1
    over the candidates, so the edges of the cube, categories, levels and conditional parameters need no special case,
    and the 1 is the prior itself. All parameters are in one kernel, whose width falls with the number of runs by
    Scott's rule. A failed run ranks below all others.

    Args:
        quantile: the share of runs that count as good.
        width: the kernels' width after one run, in units of the prior's standard deviation.

    >>> from scipy.stats import uniform
    >>> from dphypo.entropy import Seeded
    >>> from dphypo.samplers import History
    >>> from dphypo.space import Space
    >>> space = Space({"x": uniform()})
    >>> params = [{"x": 0.1}, {"x": 0.5}, {"x": 0.9}]
    >>> history = History(space.encode(params), space.to_unit(params), np.array([0.0, 0.5, 1.0]), np.zeros(3, bool),
    ...                   tuple(params))
    >>> grid = space.grid(x=3)
    >>> Parzen().weights(grid, history).argmax()
    np.int64(2)

    References:
        Bergstra, Bardenet, Bengio, Kégl: Algorithms for hyper-parameter optimization, NeurIPS 2011.
    """

    history_only: ClassVar[bool] = True
    quantile: float = 0.25
    width: float = 0.7

    def __post_init__(self) -> None:
        _validate.within(0.0, 1.0, quantile=self.quantile)
        _validate.positive(width=self.width)

    def weights(self, candidates: Candidates | Grid, history: History) -> Array:
        """The prior mass times the ratio of the densities; before the first run, the prior."""
        masses = np.asarray(candidates.masses, dtype=np.float64)
        if len(history) == 0:
            return masses.copy()
        values = lowest(history)
        rows = collapsed(history.features, values, _ROWS)
        good = rows.means(_good(values, self.quantile)) * rows.counts
        bad = rows.counts - good
        scale = scales(candidates.space)
        points, centres = candidates.features * scale, history.features[rows.first] * scale
        squares = cdist(points, centres, "sqeuclidean")
        dimension = candidates.unit.shape[1]
        densities = [_density(squares, share, masses, self.width, dimension) for share in (good, bad)]
        return masses * densities[0] / densities[1]


def _good(values: Array, quantile: float) -> Array:
    """1 for the best ⌈quantile · t⌉ values, 0 for the rest, and an equal share for those tied at the boundary."""
    wanted = int(np.ceil(quantile * len(values)))
    boundary = np.sort(values)[-wanted]
    above, tied = values > boundary, values == boundary
    share = (wanted - np.count_nonzero(above)) / np.count_nonzero(tied)
    return np.asarray(above + share * tied)


def _density(squares: Array, shares: Array, masses: Array, width: float, dimension: int) -> Array:
    """The density against the prior, at every candidate, of the prior and kernels about the runs."""
    total = float(shares.sum())
    bandwidth = width * max(total, 1.0) ** (-1.0 / (dimension + 4))
    # The nearest candidate's exponent is taken off first: a kernel narrower than the set is spaced stays a density.
    kernels = np.exp(-0.5 * (squares - squares.min(axis=0)) / bandwidth**2)
    kernels /= masses @ kernels
    return np.asarray((1.0 + kernels @ shares) / (1.0 + total))
