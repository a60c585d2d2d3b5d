"""The hyperparameter grids of the paper's appendix D, and the points at which real models are trained.

A point is (learning rate η, clipping norm R). Grids are flat, η varying slowest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Grid:
    """All pairs of a log-spaced axis and another axis.

    >>> len(MNIST), len(CIFAR), len(CIFAR_COARSE)
    (320, 2500, 160)
    """

    first: Floats
    second: Floats

    def __len__(self) -> int:
        return len(self.first) * len(self.second)

    @property
    def pairs(self) -> Floats:
        """(points, 2), the first axis varying slowest."""
        return np.stack(np.meshgrid(self.first, self.second, indexing="ij"), axis=-1).reshape(-1, 2)

    def design(self, count: int) -> npt.NDArray[np.intp]:
        """Indices of ``count`` different cells spread evenly: the two-dimensional golden-ratio sequence."""
        shape = np.array([len(self.first), len(self.second)])
        golden = 1.32471795724474602596  # the root of x³ = x + 1
        unit = (0.5 + np.arange(1, 4 * count)[:, None] / golden ** np.array([1, 2])) % 1
        cells = (unit * shape).astype(np.intp)
        flat: npt.NDArray[np.intp] = np.asarray(cells[:, 0] * shape[1] + cells[:, 1])
        return flat[np.sort(np.unique(flat, return_index=True)[1])][:count]


# Setting 1: η from 1e-4 to 10 by a factor of ∛10, R from 0.3 to 6 by 0.3.
MNIST = Grid(np.logspace(-4, 1, 16), 0.3 * np.arange(1.0, 21.0))

# Setting 2. The text says η from 1e-4 to 1 by a factor of 10^0.1, which makes 41 values, not the 50 it counts; the
# caption of its figure says 1e-5 to 1. Fifty values from 1e-5 to 1 have a factor of 10^0.102, so that is taken. R "from
# 0 to 100 by 2" makes 51 values and R = 0 trains nothing: 2 to 100 makes the 50 it counts.
CIFAR = Grid(np.logspace(-5, 0, 50), np.arange(2.0, 101.0, 2.0))

# A coarser real grid of cells of the same one: every third η from the fifth on (below it nothing is learnt),
# ten clipping norms, closer where the accuracy changes faster.
CIFAR_COARSE = Grid(CIFAR.first[4::3], np.array([2.0, 4.0, 8.0, 14.0, 22.0, 32.0, 46.0, 62.0, 80.0, 100.0]))

# Federated learning: server (FedAdagrad) and client (SGD) learning rates. The paper gives no grid.
FEDERATED = Grid(np.logspace(-3, 0.5, 20), np.logspace(-3, 0.5, 20))
