"""A projection of your own, given as ``projection=Halfway()``: half of the greedy one, half of the prior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dphypo.band import Greedy, Problem


@dataclass(frozen=True)
class Halfway:
    """The average of a density of the band and the prior is a density of the band."""

    def ratios(self, problem: Problem) -> npt.NDArray[np.float64]:
        return 0.5 + 0.5 * Greedy().ratios(problem)
