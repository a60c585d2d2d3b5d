"""A study on a Ray cluster.

python examples/cluster_ray.py                      # a Ray of two processors, on this machine
python examples/cluster_ray.py --address auto       # the cluster of which this machine is part
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import dp_accounting
import numpy as np
import ray
from scipy.stats import loguniform

import dphypo
from dphypo.executors import Ray

PEOPLE, EPSILON = 5000, 0.05
LAPLACE = dp_accounting.LaplaceDpEvent(1 / EPSILON)


@dphypo.mechanism(
    event=LAPLACE,
    score_event=LAPLACE,
    split="same",
    relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
    seeded=True,
)
def private_mean(params: Mapping[str, Any], *, seed: int) -> tuple[float, float]:
    """A private mean of incomes cut off at ``bound``: see own_mechanism.py. The worker reads the records itself."""
    incomes = np.random.default_rng(0).lognormal(mean=10.5, sigma=0.7, size=PEOPLE)
    rng, bound = np.random.default_rng(seed), params["bound"]
    mean = (np.minimum(incomes, bound).sum() + rng.laplace(scale=bound / EPSILON)) / PEOPLE
    above = (np.count_nonzero(bound < incomes) + rng.laplace(scale=1 / EPSILON)) / PEOPLE
    return float(mean), -abs(above - 0.02)  # two per cent are to be cut off


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", help="of a Ray that runs; by default one is started on this machine")
    parser.add_argument("--journal", help="a file, or postgresql://user@host/database")
    parser.add_argument("--workers", type=int, default=2, help="how many runs to make at a time")
    parser.add_argument("--mean", type=float, default=8, help="the mean number of runs")
    options = parser.parse_args()
    space = dphypo.Space({"bound": loguniform(1e4, 1e6)})
    law = dphypo.Geometric(mean=options.mean)
    study = dphypo.Study(space, private_mean, law, delta=0.0, journal=options.journal)
    local: dict[str, Any] = {} if options.address else {"num_cpus": 2, "include_dashboard": False}
    ray.init(address=options.address, **local)
    release = study.run(executor=Ray(num_cpus=1), workers=options.workers)  # num_gpus=1 for a GPU each
    ray.shutdown()
    print(release.certificate.statement())


if __name__ == "__main__":
    main()
