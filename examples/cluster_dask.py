"""A study on a Dask cluster.

python examples/cluster_dask.py                                    # two worker processes on this machine
python examples/cluster_dask.py --scheduler tcp://head:8786        # a cluster that runs

Start the scheduler of a cluster with DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES=0, and its workers with one thread:
dask worker --nthreads 1 tcp://head:8786.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping
from typing import Any

import dask
import distributed
import dp_accounting
import numpy as np
from scipy.stats import loguniform

import dphypo
from dphypo.executors import Dask

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
    parser.add_argument("--scheduler", help="the address of a scheduler; by default a cluster on this machine")
    parser.add_argument("--journal", help="a file, or postgresql://user@host/database")
    parser.add_argument("--workers", type=int, default=2, help="how many runs to make at a time")
    parser.add_argument("--mean", type=float, default=8, help="the mean number of runs")
    options = parser.parse_args()
    space = dphypo.Space({"bound": loguniform(1e4, 1e6)})
    law = dphypo.Geometric(mean=options.mean)
    study = dphypo.Study(space, private_mean, law, delta=0.0, journal=options.journal)
    with contextlib.ExitStack() as stack:
        where = options.scheduler
        if where is None:
            stack.enter_context(dask.config.set({"distributed.scheduler.allowed-failures": 0}))
            cluster = distributed.LocalCluster(  # type: ignore[no-untyped-call]
                n_workers=2, threads_per_worker=1, dashboard_address=None
            )
            where = stack.enter_context(cluster)
        client = stack.enter_context(distributed.Client(where))  # type: ignore[no-untyped-call]
        release = study.run(executor=Dask(client), workers=options.workers)  # resources={"GPU": 1} for a GPU each
    print(release.certificate.statement())


if __name__ == "__main__":
    main()
