"""Random small worlds for the oracle: rare outcomes with large losses, prior masses at and near p, all laws of T."""

from __future__ import annotations

import numpy as np
from support.oracle import World

from dphypo.band import Band
from dphypo.laws import Geometric, Law, Logarithmic, NegativeBinomial, Pmf, Poisson

BANDS = (Band(1, 1), Band(0.75, 2), Band(0.5, 4), Band(0.25, 4), Band(0.9, 1.1), Band(0.6, 1.2))


def random_law(rng: np.random.Generator) -> Law:
    """A law with finite support, so that the oracle is exact: cut negative binomials and Poissons, and point masses."""
    mean = float(np.exp(rng.uniform(np.log(1.5), np.log(12.0))))
    cap = int(rng.integers(15, 40))
    kind = rng.integers(6)
    if kind == 0:
        return Geometric(mean=mean).capped(cap)
    if kind == 1:
        return Logarithmic(mean=mean).capped(cap)
    if kind == 2:
        return NegativeBinomial(float(rng.choice([-0.5, 0.5, 3.0, 8.0])), mean=mean).capped(cap)
    if kind == 3:
        return Poisson(mean).capped(cap)
    if kind == 4:
        return Pmf({0: 0.25, 1: 0.25, int(rng.integers(2, 20)): 0.5})
    return Pmf({int(rng.integers(1, 20)): 1.0})


def pmf_of(law: Law) -> np.ndarray:
    last = law.quantile(1.0 - 1e-15)
    return np.asarray(law.pmf(np.arange(last + 1)))


def random_world(rng: np.random.Generator, band: Band) -> World:
    n, k = ((2, 3), (3, 2), (2, 2))[rng.integers(3)]
    return World(_prior(rng, n, band), *_runs(rng, n, k), _ranks(rng, n, k))


def attacked_world(rng: np.random.Generator, band: Band) -> World:
    """A world ranked as the attack ranks it: what is likely on D′ on top, then by falling loss."""
    n, k = ((2, 3), (3, 2))[rng.integers(2)]
    prior = _prior(rng, n, band)
    on, off = _runs(rng, n, k)
    loss = (np.log(on + 1e-300) - np.log(off + 1e-300)).ravel()
    top = loss < np.quantile(loss, rng.uniform(0.1, 0.6))
    order = np.lexsort((loss, top))  # worst first: small losses that are not on top, then large ones, then the top
    ranks = np.empty(n * k, dtype=np.int64)
    ranks[order] = np.arange(n * k)
    return World(prior, on, off, ranks.reshape(n, k))


def _prior(rng: np.random.Generator, n: int, band: Band) -> np.ndarray:
    p = band.p
    first = float(np.clip(rng.choice([p, 1 - p, p * rng.uniform(0.9, 1.1), rng.uniform(0.05, 0.95)]), 0.02, 0.96))
    rest = rng.dirichlet(np.ones(n - 1)) * (1 - first)
    if n == 3 and rng.random() < 0.5 and 2 * first < 0.98:
        rest = np.array([first, 1 - 2 * first])  # the three groups of the attack
    return np.concatenate([[first], rest])


def _runs(rng: np.random.Generator, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    on = np.exp(rng.normal(0.0, rng.choice([0.3, 1.0, 4.0]), (n, k)))
    on /= on.sum(axis=1, keepdims=True)
    off = on * np.exp(rng.normal(0.0, rng.choice([0.1, 0.5, 2.0]), (n, k)))
    if rng.random() < 0.3:
        off[:, 0] = 0.0 if rng.random() < 0.5 else off[:, 0]  # an outcome that D′ never shows
    off /= off.sum(axis=1, keepdims=True)
    return (off, on) if rng.random() < 0.5 else (on, off)


def _ranks(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    return rng.permutation(n * k).reshape(n, k)
