"""A search rule of your own: prefer candidates near the best run so far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dphypo.samplers import History
from dphypo.space import Candidates, Grid


@dataclass(frozen=True)
class NearTheBest:
    """Weights that fall with the distance to the best run."""

    width: float = 0.3
    history_only = True  # weights depend on the history and nothing else

    def weights(self, candidates: Candidates | Grid, history: History) -> npt.NDArray[np.float64]:
        masses = np.asarray(candidates.masses, dtype=np.float64)
        if history.failed.all():
            return masses
        best = history.unit[history.scores == np.nanmax(history.scores)].mean(axis=0)
        distance = np.linalg.norm(candidates.unit - best, axis=1)
        weights: npt.NDArray[np.float64] = masses * np.exp(-distance / self.width)
        return weights


if __name__ == "__main__":
    from dphypo.testing import check_sampler

    check_sampler(NearTheBest())
    print("NearTheBest conforms")
