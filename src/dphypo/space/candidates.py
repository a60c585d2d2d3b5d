"""Where a search rule may put mass: fresh Sobol points from the prior, each set with its own scramble; or all cells.

A prior may be one around a point (:class:`Around`): a floor of the original prior, and a kernel for each parameter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.entropy import Entropy, words
from dphypo.space.dimension import (
    MIDDLE,
    Array,
    Finite,
    Parameter,
    Parameters,
    describe,
    from_words,
    interior,
    plain,
    read_only,
)

if TYPE_CHECKING:
    from dphypo.space.space import Space


Kernel: TypeAlias = Any
"""A frozen distribution of scipy.stats on [0, 1]."""
Spread = float | Mapping[str, float]
_LAST = 1 - 1e-15  # beyond it scipy's quantiles may be infinite, or no numbers


@dataclass(frozen=True, eq=False)
class Around:
    """The mixture: a kernel for every coordinate, and the share of the original prior."""

    kernels: tuple[Kernel, ...]
    floor: float
    description: dict[str, Any] = field(repr=False)

    def warp(self, points: Array) -> Array:
        """Draws from the mixture, one for each row that is uniform on a cube of one coordinate more."""
        near = points[:, 0] >= self.floor
        unit = points[:, 1:].copy()
        for column, kernel in enumerate(self.kernels):
            unit[near, column] = kernel.ppf(np.minimum(unit[near, column], _LAST))
        return interior(unit)

    def within(self, low: Array, high: Array, plain: float, point: Array) -> Array:
        """A draw from the mixture given that it lies in a box, of whose mass the share ``plain`` is π₀'s."""
        shares = point[1:]
        if point[0] < plain:
            return low + shares * (high - low)
        drawn = []
        for kernel, ends, share in zip(self.kernels, np.column_stack([low, high]), shares, strict=True):
            first, last = np.clip(kernel.cdf(ends), 0.0, _LAST)
            drawn.append(kernel.ppf(first + share * (last - first)))
        return np.clip(np.array(drawn, dtype=np.float64), low, high)

    def __str__(self) -> str:
        return f".around({self.description['params']!r}, spread={self.description['spread']!r}, floor={self.floor:g})"


def around(space: Space, params: Mapping[str, Any], spread: Spread, floor: float) -> Around:
    """The mixture about ``params``, which must be a point of the space."""
    (centre,) = space.to_unit([params])
    spreads = read_spread(space.parameters, spread)
    near = zip(space.parameters, centre.tolist(), strict=True)
    kernels = tuple(_kernel(parameter, params, coordinate, spreads) for parameter, coordinate in near)
    floor = _validate.within(0.0, 1.0, closed="right", floor=floor)
    given = {name: describe(plain(name, value)) for name, value in params.items()}
    return Around(kernels, floor, {"params": given, "spread": spreads, "floor": floor})


def _kernel(parameter: Parameter, params: Mapping[str, Any], coordinate: float, spreads: dict[str, float]) -> Kernel:
    from scipy.stats import rv_histogram, uniform

    name, dimension = parameter.name, parameter.dimension
    if name not in params or name not in spreads or dimension.size == 1:
        return uniform()  # the coordinate keeps its prior
    if not isinstance(dimension, Finite) or dimension.ordered:
        return normal(coordinate, spreads[name])
    # Of categories the one given keeps 1 − spread, and the others share the rest as they do in the prior.
    position = dimension.position(params[name])
    shares = dimension.masses * (spreads[name] / (1.0 - dimension.masses[position]))
    shares[position] = 1.0 - spreads[name]
    return rv_histogram((shares, np.append(dimension.pieces[0], 1.0)), density=False)


def normal(centre: float | Array, spread: float) -> Kernel:
    """A normal distribution about ``centre`` with standard deviation ``spread``, given that it lies in [0, 1]."""
    from scipy.stats import truncnorm

    return truncnorm(-centre / spread, (1 - centre) / spread, centre, spread)


def read_spread(parameters: Parameters, spread: Spread) -> dict[str, float]:
    """The spread of each parameter that has one, checked."""
    dimensions = {parameter.name: parameter.dimension for parameter in parameters}
    named = dict(spread) if isinstance(spread, Mapping) else dict.fromkeys(dimensions, spread)
    for name, value in named.items():
        if name not in dimensions:
            raise _validate.fail("spread", spread, f"{name!r} is none of the parameters {', '.join(dimensions)}")
        why = "a standard deviation in the unit interval, or the share of the other categories"
        closed = "right" if dimensions[name].ordered else "neither"
        named[name] = _validate.within(0.0, 1.0, closed=closed, why=why, **{f"the spread of {name!r}": value})
    return named


Words = npt.NDArray[np.uint64]


@lru_cache(maxsize=64)
def directions(dimension: int, levels: int) -> Words:
    """The public generator of the sequence: direction numbers (dimension, levels), aligned to the top of 64 bits."""
    from scipy.stats import qmc

    engine = qmc.Sobol(dimension, scramble=False, bits=32)
    found = np.empty((dimension, levels), dtype=np.uint64)
    for level in range(levels):
        # Points come in Gray-code order: point number 2^(level+1) − 1 is direction number `level` alone.
        engine.fast_forward(max(1, 2**level - 1))
        found[:, level] = (engine.random(1)[0] * 2.0**32).astype(np.uint64) << np.uint64(32)
    found.flags.writeable = False
    return found


def candidate_points(count: int, dimension: int, entropy: Entropy) -> Array:
    """The first ``count`` points of a Sobol set under a random linear matrix scramble and a random digital shift.

    The shift alone, exclusive-or with 64 uniform bits per coordinate, makes every single point exactly uniform on the
    grid of the cube; the matrix breaks up poor two-dimensional projections. Both are fresh on every call: a sequence
    continued from one run to the next would not be from the prior given the history, and the band would not hold.
    """
    levels = (count - 1).bit_length()
    random = words(dimension * (levels + 1), entropy).reshape(dimension, levels + 1)
    generator = directions(dimension, levels)
    scrambled = np.zeros_like(generator)
    for level in range(levels):
        # Column `level` of a lower-triangular matrix over two elements: one on the diagonal, random below it.
        diagonal = np.uint64(1 << (63 - level))
        column = (random[:, 1 + level] & (diagonal - np.uint64(1))) | diagonal
        scrambled ^= np.where(generator & diagonal, column[:, None], np.uint64(0))
    result = np.empty((1 << levels, dimension), dtype=np.uint64)
    result[0] = random[:, 0]
    for level in range(levels):
        half = 1 << level
        result[half : 2 * half] = result[:half] ^ scrambled[:, level]
    return from_words(result[:count])


@dataclass(frozen=True, eq=False, repr=False)
class Candidates:
    """Points of the unit cube, each one a draw from the prior; parameters and features are computed when asked for.

    Weights w with c/n ≤ w ≤ C/n and sum 1 on a fresh set give a draw whose density against the prior lies in [c, C],
    in any dimension: each point is from the prior given everything before it, whatever the points are jointly.

    >>> from dphypo.entropy import Seeded
    >>> from dphypo.space import Space
    >>> candidates = Space({"batch": [64, 128], "optimizer": ["sgd", "adam"]}).candidates(4, Seeded(1))
    >>> len(candidates), candidates.masses.tolist(), candidates.features.shape
    (4, [0.25, 0.25, 0.25, 0.25], (4, 3))
    >>> candidates.params(0)
    {'batch': 64, 'optimizer': 'adam'}
    """

    space: Space
    unit: Array

    def __len__(self) -> int:
        return len(self.unit)

    @cached_property
    def masses(self) -> Array:
        """The prior masses: 1/n each."""
        return read_only(np.full(len(self), 1 / len(self)))

    @cached_property
    def features(self) -> Array:
        """One row per candidate for a surrogate model."""
        return read_only(self.space.features(self.unit))

    def params(self, index: int) -> dict[str, Any]:
        """The parameters of one candidate."""
        return self.space.from_unit(self.unit[[index]])[0]

    def __repr__(self) -> str:
        return f"Candidates({len(self)} points of {self.unit.shape[1]} parameters)"


MOST_CELLS = 1_000_000


@dataclass(frozen=True, eq=False, repr=False)
class Grid:
    """A finite prior fixed before the search: every cell with its mass.

    A cell of a finite parameter is one value; a cell of a continuous one is an interval, from which
    :meth:`draw_within` draws by the prior. ``unit``, ``features`` and :meth:`params` are those of the cells' middles.

    >>> from scipy.stats import uniform
    >>> from dphypo.space import Space
    >>> grid = Space({"clip": uniform(0, 8), "optimizer": (["sgd", "adam"], [0.25, 0.75])}).grid(clip=2)
    >>> [(grid.params(i)["optimizer"], mass) for i, mass in enumerate(grid.masses.tolist())]
    [('sgd', 0.125), ('adam', 0.375), ('sgd', 0.125), ('adam', 0.375)]
    """

    space: Space
    unit: Array
    masses: Array
    spread: Array  # the length of a cell along each coordinate; 0 where a cell is one value
    around: Around | None = None  # how the prior is shaped
    plain: Array | None = None  # if it is, the share of each cell's mass that is the unshaped prior's

    def __len__(self) -> int:
        return len(self.unit)

    @cached_property
    def features(self) -> Array:
        """One row per cell for a surrogate model."""
        return read_only(self.space.features(self.unit))

    def params(self, index: int) -> dict[str, Any]:
        """The parameters in the middle of one cell."""
        return self.space.from_unit(self.unit[[index]])[0]

    def draw_within(self, index: int, entropy: Entropy) -> dict[str, Any]:
        """A draw from the prior within one cell: a cell of single values is returned as it is."""
        if self.around is None or self.plain is None:
            offset = from_words(words(len(self.spread), entropy)) - 0.5
            return self.space.from_unit(self.unit[[index]] + offset * self.spread)[0]
        low, high = self.unit[index] - self.spread / 2, self.unit[index] + self.spread / 2
        point = from_words(words(len(self.spread) + 1, entropy))
        return self.space.from_unit(self.around.within(low, high, self.plain[index], point)[None])[0]

    def __repr__(self) -> str:
        return f"Grid({len(self)} cells of {self.unit.shape[1]} parameters)"


def build_grid(space: Space, cells: Mapping[str, int], around: Around | None) -> Grid:
    """Every combination of the cells of all parameters; an inactive parameter does not multiply them."""
    parameters = space.parameters
    if unknown := [name for name in cells if name not in space.names]:
        raise ValueError(f"space.grid({unknown[0]}=...): the parameters are {', '.join(sorted(space.names))}")
    if missing := [p.name for p in parameters if p.dimension.size is None and cells.get(p.name) is None]:
        remedy = ", ".join(f"{name}=16" for name in missing)
        raise ValueError(
            f"{', '.join(map(repr, missing))} cannot be listed: say into how many cells of equal prior mass to cut it, "
            f"for example space.grid({remedy})"
        )
    cuts = [_cut(parameter, parameters, cells.get(parameter.name)) for parameter in parameters]
    spread = read_only(np.array([length for *_, length in cuts]))
    unit, masses = _combine(parameters, [(centres, shares) for centres, shares, *_ in cuts])
    if around is None:
        return Grid(space, read_only(unit), read_only(masses), spread)
    kernels = zip(cuts, around.kernels, strict=True)
    near = [(centres, kernel.cdf(high) - kernel.cdf(low)) for (centres, _, low, high, _), kernel in kernels]
    plain = around.floor * masses
    mixed = plain + (1 - around.floor) * _combine(parameters, near)[1]
    return Grid(space, read_only(unit), read_only(mixed / mixed.sum()), spread, around, read_only(plain / mixed))


def _combine(parameters: Parameters, cuts: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """The middles and the masses of all combinations of cells."""
    unit = np.full((1, len(parameters)), MIDDLE)
    masses = np.ones(1)
    for column, (parameter, (centres, shares)) in enumerate(zip(parameters, cuts, strict=True)):
        active = is_active(parameter, parameters, unit)
        counts = np.where(active, len(centres), 1)
        if counts.sum() > MOST_CELLS:
            raise ValueError(
                f"the grid would have more than {MOST_CELLS:,} cells: cut {parameter.name!r} into fewer, "
                "or search by space.candidates"
            )
        rows = np.repeat(np.arange(len(unit)), counts)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        unit, masses = unit[rows], masses[rows]
        unit[active[rows], column] = centres[within[active[rows]]]
        masses[active[rows]] *= shares[within[active[rows]]]
    return unit, masses


def _cut(parameter: Parameter, parameters: Parameters, count: int | None) -> tuple[Array, Array, Array, Array, float]:
    """Middles, masses, beginnings, ends and length of the cells of one parameter; a single value has length 0."""
    dimension, name = parameter.dimension, f"the number of cells of {parameter.name!r}"
    if count is None:
        assert isinstance(dimension, Finite)
        return dimension.centres, dimension.masses, *dimension.pieces, 0.0
    count = _validate.integer(at_least=1, **{name: count})
    if count > MOST_CELLS:
        raise _validate.fail(name, count, f"give at most {MOST_CELLS:,}")
    if not dimension.ordered:
        raise _validate.fail(name, count, "categories are not cut into cells: leave it out")
    if dimension.size is not None and count >= dimension.size:
        raise _validate.fail(name, count, f"it has only {dimension.size} values: leave it out to have a cell for each")
    if any(child.parent is not None and parameters[child.parent] is parameter for child in parameters):
        raise _validate.fail(name, count, "other parameters depend on its value: leave it out")
    centres, length = (np.arange(count) + 0.5) / count, 1 / count
    return centres, np.full(count, length), centres - length / 2, centres + length / 2, length


def is_active(parameter: Parameter, parameters: Parameters, unit: Array) -> npt.NDArray[np.bool_]:
    """The rows of the cube in which a parameter has a value; this depends only on the coordinates of its ancestors."""
    if parameter.parent is None:
        return np.ones(len(unit), dtype=np.bool_)
    parent = parameters[parameter.parent]
    assert isinstance(parent.dimension, Finite)
    case = np.isin(parent.dimension.positions(unit[:, parameter.parent]), parameter.cases)
    return case & is_active(parent, parameters, unit)
