"""Projections into the band against CVXOPT's quadratic programming, which the paper used, and against numpy.sort."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
from cvxopt import matrix, solvers, sparse, spmatrix

from benchmarks.timing import best_of
from dphypo.band import KL, L2, Band, Greedy, Mixed
from dphypo.band.projections import Projection
from dphypo.entropy import SYSTEM

BAND = Band(0.75, 2)
PROJECTIONS: list[Projection] = [L2(), KL(), Mixed(0.1), Greedy()]


def main() -> None:
    """Print the ratios."""
    print("band: projection into (0.75, 2) of softmax weights")
    for cells in (320, 2500):
        weights = _weights(cells)
        peer = best_of(20, partial(_cvxopt, weights))
        ours = best_of(200, partial(BAND.project, weights))
        difference = np.abs(BAND.project(weights) - _cvxopt(weights)).max() * cells
        goal = "  (target: at least 200)" if cells == 2500 else ""
        print(
            f"  {cells:>9,} cells  L2: {ours * 1e6:8.1f} µs, CVXOPT's sparse QP {peer * 1e3:.1f} ms: "
            f"{peer / ours:.0f} times faster{goal}; density ratios differ by at most {difference:.1g}"
        )
    cells = 10**6
    weights = _weights(cells)
    prior = np.random.default_rng(1).dirichlet(np.full(cells, 2.0))
    sort = best_of(7, partial(np.sort, weights))
    for projection in PROJECTIONS:
        flat = best_of(5, partial(BAND.project, weights, projection=projection)) / sort
        informed = best_of(5, partial(BAND.project, weights, prior, projection)) / sort
        goal = "  (target: at most 10)" if projection == L2() else ""
        print(f"  {cells:>9,} cells  {projection!r}: {flat:.2f} times numpy.sort, {informed:.2f} with a prior{goal}")
    masses = BAND.project(weights)
    drawing = best_of(7, partial(BAND.draw, masses, SYSTEM)) / sort
    print(f"  {cells:>9,} cells  draw: {drawing:.2f} times numpy.sort")


def _weights(cells: int) -> npt.NDArray[np.float64]:
    """A softmax of normal scores at inverse temperature 2."""
    return np.exp(2.0 * np.random.default_rng(0).normal(size=cells))


def _cvxopt(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The same projection by the solver, at its best here: sparse, in density ratios, the default KKT solver."""
    cells = len(weights)
    solvers.options["show_progress"] = False
    identity = spmatrix(1.0, range(cells), range(cells))
    limits = np.concatenate([np.full(cells, BAND.C), np.full(cells, -BAND.c)])
    solution = solvers.qp(
        identity,
        matrix(-weights / weights.mean()),
        sparse([identity, -identity]),
        matrix(limits),
        sparse(matrix(1.0, (1, cells))),
        matrix(float(cells)),
    )
    return np.asarray(solution["x"]).ravel() / cells
