"""A mechanism of your own, no deep learning: where to cut off incomes before a private mean.

python examples/own_mechanism.py

A private mean needs a bound: values are cut off at λ, and the Laplace noise is proportional to λ. Too low a bound
biases the mean, too high a bound drowns it. The bound is a hyperparameter, and choosing it by looking at the incomes
costs privacy: so it is searched for, and the certificate says what the search costs.

One run is two Laplace mechanisms on the same records: the mean that is released, and the count of incomes above the
bound. The score is how far that share is from two per cent. They compose. (The noise here is drawn in floating point,
good enough for an example; a library for such releases would draw it from the integers.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dp_accounting
import numpy as np
from scipy.stats import loguniform

import dphypo

INCOMES = np.random.default_rng(0).lognormal(mean=10.5, sigma=0.7, size=20_000)  # the private records, one a person
PEOPLE = 20_000  # as a public constant
MEAN_EPSILON, COUNT_EPSILON = 0.05, 0.05
SHARE = 0.02  # of incomes to be cut off


@dphypo.mechanism(
    event=dp_accounting.LaplaceDpEvent(1 / MEAN_EPSILON),
    score_event=dp_accounting.LaplaceDpEvent(1 / COUNT_EPSILON),
    split="same",
    relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
)
def private_mean(params: Mapping[str, Any], *, seed: int) -> tuple[float, float]:
    """The mean with incomes cut off at ``bound``, and how far the share that is cut off is from two per cent."""
    rng, bound = np.random.default_rng(seed), params["bound"]
    mean = (np.minimum(INCOMES, bound).sum() + rng.laplace(scale=bound / MEAN_EPSILON)) / PEOPLE
    above = (np.count_nonzero(bound < INCOMES) + rng.laplace(scale=1 / COUNT_EPSILON)) / PEOPLE
    return float(mean), -abs(above - SHARE)


def main() -> None:
    space = dphypo.Space({"bound": loguniform(1e4, 1e6)})
    study = dphypo.Study(space, private_mean, dphypo.NegativeBinomial(8, mean=40), delta=0.0, journal=None)
    release = study.run()
    assert release.params is not None
    print(f"Incomes cut off at {release.params['bound']:,.0f}: mean {release.model:,.0f}.")
    print(f"(The true mean, which nobody should print: {INCOMES.mean():,.0f}.)\n")
    assert abs(release.model / INCOMES.mean() - 1) < 0.2  # these are made up, so that we may look
    print(release.certificate.statement())


if __name__ == "__main__":
    main()
