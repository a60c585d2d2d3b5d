"""An integration of your own: a mechanism that releases a clipped mean with Gaussian noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import dp_accounting
import numpy as np
import numpy.typing as npt

from dphypo.mechanisms import Mechanism, Outcome


@dataclass(frozen=True)
class NoisyMean(Mechanism):
    """The mean of records clipped to [−clip, clip], from a noisy sum and a public count; scored on a public value.

    The hyperparameter ``clip`` sets the sensitivity of the sum and its noise alike, so the event is the same for all.
    """

    records: npt.NDArray[np.float64] = field(repr=False)
    count: int  # public, and not the number of records
    expected: float  # public: what the score compares with
    noise_multiplier: float = 4.0
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    seeded = True  # all randomness comes from the seed

    @property
    def event(self) -> dp_accounting.DpEvent:
        return dp_accounting.GaussianDpEvent(self.noise_multiplier)

    def __call__(self, params: Mapping[str, Any], *, seed: int) -> Outcome:
        clip = params["clip"]
        noise = np.random.default_rng(seed).normal(scale=clip * self.noise_multiplier)
        mean = (float(np.clip(self.records, -clip, clip).sum()) + noise) / self.count
        return Outcome({"mean": mean}, -abs(mean - self.expected))


if __name__ == "__main__":
    from scipy.stats import loguniform

    import dphypo
    from dphypo.testing import check_mechanism

    records = np.random.default_rng(0).normal(1.0, 1.0, 500)
    check_mechanism(NoisyMean(records, 500, 1.0), dphypo.Space({"clip": loguniform(0.1, 10)}))
    print("NoisyMean conforms")
