"""A researcher: a law of T, a search rule and a mechanism of your own, and the checks of the last two.

python examples/users/researcher.py
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dp_accounting
import numpy as np
import numpy.typing as npt
from scipy.stats import loguniform

import dphypo
from dphypo.testing import check_mechanism, check_sampler

RECORDS = np.random.default_rng(0).exponential(1.0, 1000)
LAW = dphypo.Pmf({1: 0.2, 3: 0.3, 8: 0.5})  # any list of probabilities


@dataclass(frozen=True)
class Lowest:
    """Prefers small values to large ones, whatever the runs say."""

    history_only = True  # nothing but the history is looked at: inside a band that costs less

    def weights(self, candidates: Any, history: Any) -> npt.NDArray[np.float64]:
        weights: npt.NDArray[np.float64] = candidates.masses * np.exp(-candidates.unit.sum(axis=1))
        return weights


@dphypo.mechanism(
    event=dp_accounting.GaussianDpEvent(5.0),
    relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
    seeded=True,
)
def clipped_mean(params: Mapping[str, Any], *, seed: int) -> tuple[float, float]:
    """A sum of clipped records with Gaussian noise; scored by a public guess of the mean."""
    noise = 5.0 * params["clip"] * np.random.default_rng(seed).normal()
    mean = float((np.minimum(RECORDS, params["clip"]).sum() + noise) / 1000)
    return mean, -abs(mean - 1.0)


def main() -> None:
    space = dphypo.Space({"clip": loguniform(0.1, 100)})
    check_sampler(Lowest(), longest=200)
    check_mechanism(clipped_mean, space)  # it trains: on records that are not private
    study = dphypo.Study(space, clipped_mean, LAW, dphypo.Band(0.5, 2), Lowest(), delta=1e-6, journal=None)
    print(study.guarantee.bounds(1e-6))
    print(study.run(progress=False).certificate.statement())


if __name__ == "__main__":
    main()
