"""The paper's simulated experiments, its printed numbers, and the searches that are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dphypo.band import L2, Band, Greedy
from dphypo.laws import Geometric
from dphypo.samplers import GaussianProcess
from paper.data.points import Floats
from paper.simulate import worlds
from paper.simulate.adaptive import averaged
from paper.simulate.paths import Method, paths
from paper.simulate.worlds import World

GAMMAS = (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.025, 0.03)

# What the paper prints: Tables 1 (accuracy) and 2 (loss, of a task that is not open).
PRINTED_1 = {
    "GP": (0.946, 0.948, 0.948, 0.947, 0.943, 0.937, 0.934, 0.932),
    "Uniform": (0.943, 0.945, 0.945, 0.944, 0.940, 0.935, 0.932, 0.929),
}
PRINTED_2 = {
    "GP, C = 1.25": (0.00853, 0.0088, 0.00906, 0.00958, 0.0108, 0.0129, 0.0138, 0.0146),
    "GP, C = 1.33": (0.00821, 0.00847, 0.00872, 0.00921, 0.0104, 0.0123, 0.0132, 0.0140),
    "GP, C = 1.5": (0.00822, 0.00848, 0.00872, 0.00920, 0.0103, 0.0123, 0.0131, 0.0130),
    "Uniform": (0.0104, 0.0106, 0.0109, 0.0113, 0.0123, 0.0141, 0.0149, 0.0156),
}

WIDE = Band(0.75, 2.0)
WIDTHS = (1.25, 1.33, 1.5)  # C of the federated task's bands (1/C, C)
UNIFORM = Method("Uniform")
PAPER = Method("GP", GaussianProcess.paper(), WIDE, L2())
OURS = Method("ours", GaussianProcess(), WIDE, Greedy())


def within(method: Method, C: float) -> Method:
    """``method`` in the band (1/C, C)."""
    return replace(method, name=f"{method.name}, C = {C:g}", band=Band(1 / C, C))


# Table 1 and Figure 1, left and middle: the adaptive arms pay for the band by more noise in every training.
MNIST = ((0.64, UNIFORM), (0.71, PAPER), (0.71, OURS))
CIFAR = ((0.6, UNIFORM), (0.65, PAPER), (0.65, OURS))
# Table 2 and Figure 1, right: every arm trains alike.
FEDERATED = (UNIFORM, *(within(method, C) for method in (PAPER, OURS) for C in WIDTHS))


def lengths(uniforms: Floats, gamma: float) -> npt.NDArray[np.intp]:
    """Geometric T by inversion: the same uniform number gives the T of every γ.

    >>> lengths(np.array([0.0, 0.5, 0.999]), 0.01)
    array([  1,  69, 688])
    """
    return np.asarray(np.maximum(np.ceil(np.log1p(-uniforms) / np.log1p(-gamma)), 1), dtype=np.intp)


@dataclass(frozen=True)
class Row:
    """A row of a table, a column for each γ: what searches release, and all their runs counted.

    ``ends`` are the actual scores (searches, gammas), one search a cell, as in the paper. ``mean`` and ``half`` are of
    the same expectations by :func:`~paper.simulate.adaptive.averaged`.
    """

    ends: Floats
    mean: Floats
    half: Floats


def by_gamma(world: World, method: Method, runs: int, seed: int, gammas: Sequence[float] = GAMMAS) -> Row:
    """Searches with geometric T; one path serves all γ."""
    uniforms = np.random.default_rng([seed, 999]).random(runs)
    ends = np.stack([lengths(uniforms, gamma) for gamma in gammas], axis=1)
    result, parts, longest = np.empty((runs, len(gammas))), [], ends.max(axis=1)
    for index, found in paths(world, method, longest, seed):
        result[index] = np.take_along_axis(found, ends[index] - 1, axis=1)
        parts.append(found)
    whole = np.array([averaged(parts, longest, Geometric(gamma=gamma)) for gamma in gammas])
    return Row(result, whole[:, 0], whole[:, 1])


def by_length(world: World, method: Method, runs: int, longest: int, seed: int) -> Floats:
    """Actual scores (runs, T = 1 to ``longest``)."""
    result = np.empty((runs, longest))
    for index, found in paths(world, method, np.full(runs, longest), seed):
        result[index] = found
    return result


def interval(values: Floats) -> dict[str, list[float]]:
    """Mean and half-width of its 95 % interval, over the first axis."""
    half = 1.96 * values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return {"mean": np.round(values.mean(axis=0), 6).tolist(), "half": np.round(half, 6).tolist()}


def mnist_row(noise_multiplier: float, method: Method, runs: int, seed: int, gammas: Sequence[float] = GAMMAS) -> Row:
    """One row of Table 1."""
    return by_gamma(worlds.mnist(noise_multiplier), method, runs, seed, gammas)


def federated_row(method: Method, runs: int, seed: int, gammas: Sequence[float] = GAMMAS) -> Row:
    """One row of Table 2: losses."""
    found = by_gamma(worlds.federated(), method, runs, seed, gammas)
    return Row(-found.ends, -found.mean, found.half)
