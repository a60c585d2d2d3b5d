"""The conformance suite of projections into the band."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from dphypo._validate import ensure
from dphypo.band import Band
from dphypo.band.projections import Projection

Array = npt.NDArray[np.float64]

_BANDS = (Band(0.75, 2), Band(0.5, 4), Band(0.1, 20), Band(0.99, 1.01), Band(1, 1))


def check_projection(projection: Projection) -> None:
    """Raise an ``AssertionError`` that says what is wrong with a projection, if anything is.

    For weights of every size and pattern, with equal and unequal prior masses, it must give masses inside the band that
    sum to one; depend neither on the scale of the weights nor on the order of the candidates; never give less to a
    candidate whose weight has grown; and leave its arguments as they were.

    >>> from dphypo.band import L2
    >>> check_projection(L2())
    """
    ensure(isinstance(projection, Projection), "it has no method ratios(problem)")
    ensure(pickle.loads(pickle.dumps(projection)) == projection, "a pickled copy must be equal to it")
    for band in _BANDS:
        for name, weights, prior in _problems():
            _check_projected(band, weights, prior, projection, name)


def _problems() -> Iterator[tuple[str, Array, Array]]:
    """Weights and prior masses, with a name."""
    rng = np.random.default_rng(0)
    for size in (2, 5, 40):
        uneven = rng.dirichlet(np.ones(size)) + 1e-3
        for label, prior in (("equal", np.full(size, 1 / size)), ("unequal", uneven / uneven.sum())):
            one = np.zeros(size)
            one[size // 2] = 1.0
            for name, weights in (
                ("equal weights", np.ones(size)),
                ("one weight", one),
                ("random weights", rng.random(size)),
                ("weights of many sizes", np.exp(20 * rng.standard_normal(size))),
                ("the prior", prior.copy()),
            ):
                yield f"{name} on {size} candidates of {label} mass", weights, prior


def _check_projected(band: Band, weights: Array, prior: Array, projection: Projection, name: str) -> None:
    def project(weights: Array, prior: Array) -> Array:
        return band.project(weights, prior, projection)

    before = weights.copy(), prior.copy()
    try:
        masses = project(weights, prior)
    except RuntimeError as error:
        raise AssertionError(f"{name}: {error}") from None
    kept = np.array_equal(before[0], weights) and np.array_equal(before[1], prior)
    ensure(kept, f"{name}: its arguments were changed")
    ensure(abs(masses.sum() - 1) < 1e-9, f"{name}: the masses sum to {masses.sum()!r}, and not to 1")
    ensure(np.array_equal(masses, project(weights, prior)), f"{name}: asked again, it answers differently")
    falling = np.argsort(-weights)
    for order in (falling, falling[::-1], np.random.default_rng(1).permutation(len(weights))):
        turned = project(weights[order], prior[order])
        ensure(np.allclose(turned, masses[order], atol=1e-9), f"{name}: it depends on the order of the candidates")
    larger = project(1024 * weights, prior)
    ensure(np.allclose(larger, masses, atol=1e-9), f"{name}: it depends on the scale of the weights")
    grown = weights.copy()
    grown[0] = 2 * grown[0] + weights.max()
    ensure(project(grown, prior)[0] >= masses[0] - 1e-9, f"{name}: a candidate got less when its weight grew")
