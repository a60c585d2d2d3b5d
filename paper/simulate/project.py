"""Projections into the band for many searches at once, each row of weights for itself, uniform prior."""

from __future__ import annotations

import math

import numpy as np

from dphypo.band import KL, L2, Band, Greedy
from dphypo.band.projections import Projection
from paper.data.points import Floats


def project(weights: Floats, band: Band, projection: Projection) -> Floats:
    """Density ratios (searches, cells), each row of mean 1 and within the band: ``Band.project`` times the cells.

    >>> rows = np.array([[5.0, 1.0, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0]])
    >>> project(rows, Band(0.75, 2), L2()).round(3)
    array([[1.75, 0.75, 0.75, 0.75],
           [0.75, 0.75, 1.05, 1.45]])
    """
    ratios = weights / weights.mean(axis=1, keepdims=True)
    match projection:
        case Greedy():
            return _greedy(ratios, band)
        case KL():
            return _root(ratios, band, shift=False)
        case L2():
            return _root(ratios, band, shift=True)
        case _:
            raise ValueError(f"projection = {projection!r} is not among L2(), KL() and Greedy()")


def _root(ratios: Floats, band: Band, shift: bool) -> Floats:
    """clip(a + ν) or clip(s a) with mean 1: Newton's method on a monotone piecewise linear function, bracketed."""
    c, C = band.c, band.C
    tolerance = 1e-9 if ratios.dtype == np.float64 else 1e-5
    least, most = ratios.min(axis=1).astype(np.float64), ratios.max(axis=1).astype(np.float64)
    if shift:
        low, high, x = c - most, C - least, np.zeros(len(ratios))
    else:
        low, high, x = c / most, C / np.maximum(least, 1e-30), np.ones(len(ratios))
    while True:
        by = x[:, None].astype(ratios.dtype)
        moved = ratios + by if shift else ratios * by
        result = np.clip(moved, c, C)
        excess = result.mean(axis=1, dtype=np.float64) - 1.0
        if np.abs(excess).max() < tolerance:
            return result
        np.copyto(high, x, where=excess > 0)
        np.copyto(low, x, where=excess < 0)
        inside = (moved > c) & (moved < C)
        slope = inside.mean(axis=1) if shift else (inside * ratios).mean(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = x - excess / slope
        middle = 0.5 * (low + high) if shift else np.sqrt(low * high)
        x = np.where((step > low) & (step < high), step, middle)


def _greedy(ratios: Floats, band: Band) -> Floats:
    """C on the best cells, c on the rest; cells on the boundary share what is left."""
    c, C, cells = band.c, band.C, ratios.shape[1]
    place = max(cells - math.ceil(band.p * cells), 0)
    boundary = np.partition(ratios, place, axis=1)[:, place, None]
    result = np.where(ratios > boundary, C, c).astype(ratios.dtype)
    on = ratios == boundary
    held = on.sum(axis=1)
    left = cells - result.sum(axis=1, dtype=np.float64) + c * held
    np.copyto(result, np.clip(left / held, c, C)[:, None], where=on, casting="same_kind")
    return result
