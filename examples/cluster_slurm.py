"""A study whose runs are jobs of Slurm, through submitit.

python examples/cluster_slurm.py --folder jobs --cluster local     # jobs on this machine
python examples/cluster_slurm.py --folder /shared/jobs --host 10.0.0.1 --workers 100

Run it where jobs may be submitted, on a machine that they can reach, and leave it running: it is the coordinator. If it
ends, run it again with the same journal.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import dp_accounting
import numpy as np
import submitit
from scipy.stats import loguniform

import dphypo
from dphypo.executors import Submitit

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
    parser.add_argument("--folder", required=True, help="which all machines share")
    parser.add_argument("--cluster", help='"local" for jobs on this machine; by default what submitit finds')
    parser.add_argument("--host", default="", help="the address of this machine that jobs can reach")
    parser.add_argument("--journal", help="a file, or postgresql://user@host/database")
    parser.add_argument("--workers", type=int, default=2, help="how many runs to make at a time")
    parser.add_argument("--mean", type=float, default=8, help="the mean number of runs")
    options = parser.parse_args()
    space = dphypo.Space({"bound": loguniform(1e4, 1e6)})
    law = dphypo.Geometric(mean=options.mean)
    study = dphypo.Study(space, private_mean, law, delta=0.0, journal=options.journal)
    executor = submitit.AutoExecutor(options.folder, cluster=options.cluster)
    executor.update_parameters(timeout_min=60, cpus_per_task=1, name="dphypo")  # gpus_per_node=1 for a GPU each
    release = study.run(executor=Submitit(executor, host=options.host), workers=options.workers)
    print(release.certificate.statement())


if __name__ == "__main__":
    main()
