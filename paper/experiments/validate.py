"""The simulator against the library itself: the same searches run by ``dphypo``'s sampler, band and draw."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.stats import uniform

from dphypo.entropy import Seeded
from dphypo.samplers import History
from dphypo.space import Space
from paper import parallel
from paper.data.points import Floats
from paper.experiments import paper_settings as e
from paper.simulate import worlds
from paper.simulate.paths import Method

RUNS, LONGEST = 1000, 30


def real(method: Method, runs: range, longest: int) -> Floats:
    """(runs, T) actual scores on MNIST by the library, which refits its Gaussian process as the search goes on."""
    assert method.sampler is not None
    assert method.projection is not None
    world = worlds.mnist(0.71)
    grid = Space({"rate": uniform(), "clip": uniform()}).grid(rate=16, clip=20)
    result = np.empty((len(runs), longest))
    for row, run in enumerate(runs):
        sampler = replace(method.sampler)
        entropy, random = Seeded(run).child("paper"), np.random.default_rng([run, 3])
        cells: list[int] = []
        scores: list[float] = []
        for t in range(longest):
            history = History(
                grid.features[cells],
                grid.unit[cells],
                np.array(scores),
                np.zeros(t, dtype=bool),
                tuple({} for _ in cells),
            )
            masses = method.band.project(sampler.weights(grid, history), grid.masses, method.projection)
            cells.append(method.band.draw(masses, entropy, grid.masses))
            scores.append(float(world.mean[cells[-1]] + world.noise[cells[-1]] * random.standard_normal()))
            result[row, t] = world.mean[cells[int(np.argmax(scores))]]
    return result


def validation() -> dict[str, Any]:
    """Both at T = 3, 10 and 30, with the difference in standard errors."""
    result: dict[str, Any] = {"runs": RUNS}
    parts = [range(start, start + RUNS // 4) for start in range(0, RUNS, RUNS // 4)]
    for method in (e.PAPER, e.OURS):
        library = np.concatenate(parallel.each([(real, (method, part, LONGEST)) for part in parts]))
        simulated = e.by_length(worlds.mnist(0.71), method, 4 * RUNS, LONGEST, 51)
        rows = {}
        for t in (3, 10, 30):
            a, b = library[:, t - 1], simulated[:, t - 1]
            error = float(np.hypot(a.std() / len(a) ** 0.5, b.std() / len(b) ** 0.5))
            rows[f"T = {t}"] = {
                "library": round(float(a.mean()), 4),
                "simulator": round(float(b.mean()), 4),
                "difference in standard errors": round(float((b.mean() - a.mean()) / error), 2),
            }
        result[method.name] = rows
    return result
