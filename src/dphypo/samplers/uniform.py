"""Search by the prior alone, and the default search rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from dphypo.band import Band
from dphypo.samplers.sampler import Sampler

if TYPE_CHECKING:
    from dphypo.samplers.history import History
    from dphypo.space import Candidates, Grid


@dataclass(frozen=True)
class Uniform:
    """Draw every run from the prior: Algorithm 1 of the paper, private random search.

    It needs no band: with ``Band(1, 1)`` it costs what Papernot and Steinke's random search costs.

    >>> Uniform()
    Uniform()
    """

    history_only: ClassVar[bool] = True

    def weights(self, candidates: Candidates | Grid, history: History) -> npt.NDArray[np.float64]:
        """The prior masses themselves, whatever happened before."""
        return np.asarray(candidates.masses, dtype=np.float64)


def default_sampler(band: Band) -> Sampler:
    """A Gaussian process where the band leaves it room, else draws from the prior.

    ``benchmarks/rules.py`` has the evidence: with the greedy projection it is the best of the rules there.

    >>> default_sampler(Band(1, 1))
    Uniform()
    """
    if band.C == 1:
        return Uniform()
    from dphypo.samplers.gaussian_process import GaussianProcess

    return GaussianProcess()
