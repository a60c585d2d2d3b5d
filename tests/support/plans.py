"""Configurations of jax_privacy's execution plans, under the names of whichever version is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax_privacy.batch_selection import PartitionType

try:
    from jax_privacy.execution_plan import BandMFConfig as Config  # since 2.2
    from jax_privacy.execution_plan import PerformanceFlags

    FLAGS: dict[str, Any] = {"performance_flags": PerformanceFlags(keep_batch_dim=False)}
    OF_GRADIENT: dict[str, Any] = {"batch_argnums": 1}
    NEW = True
except ImportError:
    from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig as Config

    FLAGS = {}
    OF_GRADIENT = {"batch_argnums": 1, "keep_batch_dim": False}
    NEW = False


def plan_config(**changes: Any) -> Any:
    """A configuration in which records are put into groups independently."""
    given = {"iterations": 20, "strategy": np.ones(1), "noise_multiplier": 2.0, "sampling_prob": 0.1, **changes}
    if NEW:
        rate = given.pop("sampling_prob") * given["iterations"] / len(given["strategy"])
        return Config(**{"expected_participations": rate, **given})
    bands = len(given["strategy"])
    partition = PartitionType.INDEPENDENT if bands > 1 else PartitionType.EQUAL_SPLIT
    return Config(**{"epsilon": None, "delta": None, "partition_type": partition, **given})


def made_plan(config: Any) -> Any:
    """The plan of a configuration, as jax_privacy makes it."""
    return config.make() if NEW else config.plan
