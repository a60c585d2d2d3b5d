"""The search space, and the points to which a sampler gives weights: fresh Sobol points, or all cells of a grid.

Rows of the unit cube, of parameters and of features correspond. The cube has a coordinate for every parameter. That of
an inactive one is ignored, and its features are neutral constants: the parent's features show that it is inactive.

A prior may be one around a point (:class:`Around`): a floor of the original prior, and a kernel for each parameter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo._validate import Floats
from dphypo.entropy import Entropy, check_entropy, words
from dphypo.space.dimension import (
    MIDDLE,
    Finite,
    Parameter,
    Parameters,
    describe,
    from_words,
    interior,
    plain,
    read,
    read_all,
    read_only,
    under,
    values_of,
)

MOST_CANDIDATES = 2**26
MOST_CELLS = 1_000_000
_LAST = 1 - 1e-15  # beyond it scipy's quantiles may be infinite, or no numbers
Kernel: TypeAlias = Any
"""A frozen distribution of scipy.stats on [0, 1]."""
Spread = float | Mapping[str, float]
Words = npt.NDArray[np.uint64]


class Space:
    """Hyperparameters and their prior π₀, as written for scikit-learn's randomised search.

    Each name has a frozen distribution of ``scipy.stats`` (the prior itself), a list of numbers (ordered levels), a
    list of anything else (categories), or ``(choices, probabilities)``. A list of one value fixes a parameter.

    Every parameter is mapped through its prior's CDF, so that the prior is uniform on the unit cube (unless it was
    shaped by :meth:`around`). A continuous parameter takes 2³² equally likely values, the quantiles at (k + ½)/2³²; an
    integer with prior mass below 2⁻³² is left out.

    >>> from scipy.stats import loguniform, randint
    >>> from dphypo.entropy import Seeded
    >>> space = Space({"lr": loguniform(1e-4, 10), "layers": randint(1, 5), "optimizer": ["sgd", "adam"]})
    >>> space
    Space({'lr': loguniform(a=0.0001, b=10), 'layers': randint(low=1, high=5), 'optimizer': ['sgd', 'adam']})
    >>> params = space.sample(Seeded(0))
    >>> space.from_unit(space.to_unit([params])) == [params]
    True
    """

    _around: Around | None = None

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._parameters = read_all(parameters)

    @classmethod
    def _of(cls, parameters: Parameters, around: Around | None = None) -> Space:
        space = cls.__new__(cls)
        space._parameters, space._around = parameters, around
        return space

    @classmethod
    def from_optuna(cls, distributions: Mapping[str, Any]) -> Space:
        """The space of a dict of Optuna's distributions, with the priors Optuna's random sampler has.

        Parameters that depend on others are added by :meth:`when`.

        >>> from optuna.distributions import CategoricalDistribution, FloatDistribution
        >>> Space.from_optuna({"lr": FloatDistribution(1e-4, 10, log=True), "act": CategoricalDistribution(["relu"])})
        Space({'lr': loguniform(a=0.0001, b=10), 'act': ['relu']})
        """
        from dphypo.space import from_optuna

        return cls(from_optuna.priors(distributions))

    def when(self, parent: str, values: Any, parameters: Mapping[str, Any]) -> Space:
        """A larger space: these parameters exist only while ``parent`` has one of ``values`` (one value, or a list).

        Conditions nest: a parameter added here may be a parent in turn.

        >>> from scipy.stats import uniform
        >>> space = Space({"optimizer": ["sgd", "adam"]}).when("optimizer", "sgd", {"momentum": uniform(0, 0.99)})
        >>> space.from_unit(space.to_unit([{"optimizer": "adam"}, {"optimizer": "sgd", "momentum": 0.0}]))
        [{'optimizer': 'adam'}, {'optimizer': 'sgd', 'momentum': 1.152...e-10}]
        """
        known = self._unshaped("when")
        if parent not in self.names:
            raise _validate.fail("parent", parent, f"it must be one of {', '.join(self.names)}")
        wanted = values if isinstance(values, list) else [values]
        if not wanted:
            raise _validate.fail("values", values, f"give at least one value of {parent!r}")
        added = read_all(parameters)
        if twice := [parameter.name for parameter in added if parameter.name in self.names]:
            raise ValueError(f"{twice[0]!r} is already a parameter: give it another name, such as {parent}_{twice[0]}")
        place = self.names.index(parent)
        return Space._of((*known, *(under(parameter, known, place, wanted) for parameter in added)))

    def around(self, params: Mapping[str, Any], *, spread: Spread = 0.1, floor: float = 0.1) -> Space:
        """The same space with its prior shaped around a point: ``floor`` of the prior, the rest a kernel about it.

        The kernel is a product over the parameters, in the coordinates in which the prior is uniform. Of a number it is
        a normal distribution, cut off at the ends of the unit interval; of a category, it keeps the one given with
        probability 1 − spread. A parameter that is inactive at the point keeps its prior, and so does one that a dict
        of spreads does not name.

        Args:
            params: the point.
            spread: the kernel's standard deviation in the unit interval, and the share that goes to other categories;
                one for all, or by name.
            floor: how much of the prior stays.

        >>> space = Space({"optimizer": ["sgd", "adam", "lion"]}).around({"optimizer": "adam"}, spread=0.2, floor=0.3)
        >>> space.grid().masses.round(2).tolist()
        [0.17, 0.66, 0.17]
        """
        return Space._of(self._unshaped("around"), around(self, params, spread, floor))

    @property
    def shaped(self) -> bool:
        """Whether the prior is shaped around a point."""
        return self._around is not None

    def with_priors(self, priors: Mapping[str, Any]) -> Space:
        """The same parameters, those named with other priors; conditions stay.

        >>> from scipy.stats import loguniform, uniform
        >>> Space({"clip": uniform(1, 99), "layers": [1, 2]}).with_priors({"clip": loguniform(1, 100)})
        Space({'clip': loguniform(a=1, b=100), 'layers': [1, 2]})
        """
        parameters = self._unshaped("with_priors")
        if unknown := sorted(set(priors) - set(self.names)):
            raise _validate.fail("priors", unknown[0], "it is none of the parameters")
        found: list[Parameter] = []
        for old in parameters:
            new = read(old.name, priors[old.name]) if old.name in priors else old
            if old.parent is not None:  # it stays with the values of its parent
                parent, needed = parameters[old.parent].name, values_of(parameters[old.parent], old.cases)
                try:
                    new = under(new, found, old.parent, needed)
                except ValueError as error:
                    remedy = f"{old.name!r} exists while it is one of {needed!r}: give a list with all of these"
                    raise _validate.fail(f"the prior of {parent!r}", priors[parent], remedy) from error
            found.append(new)
        return Space._of(tuple(found))

    def renamed(self, names: Mapping[str, str]) -> Space:
        """The same space, its parameters by other names.

        >>> Space({"step__width": [8, 16]}).renamed({"step__width": "width"})
        Space({'width': [8, 16]})
        """
        return Space._of(tuple(replace(one, name=names[one.name]) for one in self._unshaped("renamed")))

    def _unshaped(self, method: str) -> Parameters:
        if self.shaped:
            raise ValueError(f"space.{method}() of a space whose prior is shaped around a point: call it first")
        return self._parameters

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all parameters, in the order of the coordinates of the unit cube."""
        return tuple(parameter.name for parameter in self._parameters)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters themselves: the dimension of each, and when it is active."""
        return self._parameters

    def candidates(self, n: int, entropy: Entropy) -> Candidates:
        """``n`` Sobol points with a scramble fresh for this call: each single point is a draw from the prior."""
        n = _validate.integer(at_least=1, n=n)
        if n > MOST_CANDIDATES:
            raise _validate.fail("n", n, f"give at most {MOST_CANDIDATES}")
        check_entropy(entropy)
        return Candidates(self, read_only(self._warp(candidate_points(n, self._coordinates, entropy))))

    def sample(self, entropy: Entropy) -> dict[str, Any]:
        """One draw from the prior."""
        return self.from_unit(self._warp(from_words(words(self._coordinates, entropy))[None]))[0]

    @property
    def _coordinates(self) -> int:
        """The number of uniform numbers that a draw takes."""
        return len(self._parameters) + self.shaped

    def _warp(self, points: Floats) -> Floats:
        return points if self._around is None else self._around.warp(points)

    def grid(self, /, **cells: int) -> Grid:
        """All cells with their prior masses: one per value, and for a parameter named here this many of equal mass.

        A continuous parameter must be named; a long list of numbers may be.
        """
        return build_grid(self, cells, self._around)

    def features(self, unit: Floats) -> Floats:
        """One row of features for each point of the unit cube, for a surrogate model.

        A number has one column in (0, 1), the prior's CDF at it; a category one column per choice. Inactive
        parameters have constants.
        """
        columns = self._columns()
        result = np.empty((len(unit), columns[-1].stop))
        for column, (parameter, block) in enumerate(zip(self._parameters, columns, strict=True)):
            dimension = parameter.dimension
            result[:, block] = dimension.features(unit[:, column])
            if parameter.parent is not None:
                neutral = MIDDLE if dimension.ordered else 1 / dimension.width
                result[~is_active(parameter, self._parameters, unit), block] = neutral
        return result

    def _columns(self) -> list[slice]:
        """The columns of the features that each parameter has."""
        ends = np.cumsum([0, *(parameter.dimension.width for parameter in self._parameters)]).tolist()
        return [slice(start, end) for start, end in pairwise(ends)]

    def from_unit(self, unit: npt.ArrayLike) -> list[dict[str, Any]]:
        """The parameters at points of the unit cube: the prior's quantiles."""
        given, columns = np.asarray(unit, dtype=np.float64), len(self._parameters)
        if given.ndim != 2 or given.shape[1] != columns:
            raise ValueError(f"unit has shape {given.shape}: give rows of {columns} columns")
        if not np.isfinite(given).all():
            raise ValueError("unit has numbers that are not finite: give finite numbers only")
        points = interior(given)
        rows: list[dict[str, Any]] = [{} for _ in points]
        for column, parameter in enumerate(self._parameters):
            where = np.flatnonzero(is_active(parameter, self._parameters, points))
            for row, value in zip(where, parameter.dimension.values(points[where, column]), strict=True):
                rows[row][parameter.name] = value
        return rows

    def to_unit(self, params: Iterable[Mapping[str, Any]]) -> Floats:
        """For each dict of parameters the corresponding point of the unit cube.

        It depends on the parameters alone: a level or category has the middle of its piece of the unit interval, an
        inactive parameter 0.5.
        """
        if isinstance(params, Mapping):
            raise _validate.fail("params", params, "give a list of dicts")
        rows, names = list(params), set(self.names)
        for number, row in enumerate(rows):
            _validate.mapping(**{f"params[{number}]": row})
            if unknown := [name for name in row if name not in names]:
                raise ValueError(f"params[{number}] has {unknown[0]!r}, which is none of {sorted(names)}")
        result = np.full((len(rows), len(self._parameters)), MIDDLE)
        for column, parameter in enumerate(self._parameters):
            active = is_active(parameter, self._parameters, result)
            for number, row in enumerate(rows):
                if active[number] and parameter.name not in row:
                    raise ValueError(f"params[{number}] = {dict(row)!r} lacks {parameter.name!r}")
                if not active[number] and parameter.name in row and parameter.parent is not None:
                    parent = self._parameters[parameter.parent].name
                    state = f"{parent} = {row[parent]!r}" if parent in row else f"{parent} is inactive"
                    raise ValueError(f"params[{number}] has {parameter.name!r}, which has no meaning when {state}")
            where = np.flatnonzero(active).tolist()
            result[where, column] = parameter.dimension.unit([rows[row][parameter.name] for row in where])
        return result

    def to_dict(self) -> dict[str, Any]:
        """The space in JSON: public, and the same in every process.

        >>> Space({"layers": [1, 2]}).to_dict()
        {'parameters': [{'name': 'layers', 'choices': [1, 2]}]}
        """
        entries = [{"name": parameter.name, **parameter.description} for parameter in self._parameters]
        shape = {} if self._around is None else {"around": self._around.description}
        return deepcopy({"parameters": entries, **shape})

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, Space) else NotImplemented

    def __hash__(self) -> int:
        return hash(json.dumps(self.to_dict(), sort_keys=True))

    def __repr__(self) -> str:
        """The Python that makes the space, more or less."""
        result = ""
        for (parent, cases), group in groupby(self._parameters, key=attrgetter("parent", "cases")):
            entries = "{" + ", ".join(f"{parameter.name!r}: {parameter!r}" for parameter in group) + "}"
            if parent is None:
                result += f"Space({entries})"
            else:
                above = self._parameters[parent]
                result += f".when({above.name!r}, {values_of(above, cases)!r}, {entries})"
        return result + ("" if self._around is None else str(self._around))


@dataclass(frozen=True, eq=False)
class Around:
    """The mixture: a kernel for every coordinate, and the share of the original prior."""

    kernels: tuple[Kernel, ...]
    floor: float
    description: dict[str, Any] = field(repr=False)

    def warp(self, points: Floats) -> Floats:
        """Draws from the mixture, one for each row that is uniform on a cube of one coordinate more."""
        near = points[:, 0] >= self.floor
        unit = points[:, 1:].copy()
        for column, kernel in enumerate(self.kernels):
            unit[near, column] = kernel.ppf(np.minimum(unit[near, column], _LAST))
        return interior(unit)

    def within(self, low: Floats, high: Floats, plain: float, point: Floats) -> Floats:
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


def normal(centre: float | Floats, spread: float) -> Kernel:
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


def candidate_points(count: int, dimension: int, entropy: Entropy) -> Floats:
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
class _Points:
    """Points of the unit cube; parameters and features are computed when asked for."""

    space: Space
    unit: Floats

    def __len__(self) -> int:
        return len(self.unit)

    @cached_property
    def features(self) -> Floats:
        """One row per point for a surrogate model."""
        return read_only(self.space.features(self.unit))

    def params(self, index: int) -> dict[str, Any]:
        """The parameters at one point."""
        return self.space.from_unit(self.unit[[index]])[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} points of {self.unit.shape[1]} parameters)"


class Candidates(_Points):
    """Points of the unit cube, each one a draw from the prior.

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

    @cached_property
    def masses(self) -> Floats:
        """The prior masses: 1/n each."""
        return read_only(np.full(len(self), 1 / len(self)))


@dataclass(frozen=True, eq=False, repr=False)
class Grid(_Points):
    """A finite prior fixed before the search: every cell with its mass.

    A cell of a finite parameter is one value; a cell of a continuous one is an interval, from which
    :meth:`draw_within` draws by the prior. ``unit``, ``features`` and :meth:`params` are those of the cells' middles.

    >>> from scipy.stats import uniform
    >>> from dphypo.space import Space
    >>> grid = Space({"clip": uniform(0, 8), "optimizer": (["sgd", "adam"], [0.25, 0.75])}).grid(clip=2)
    >>> [(grid.params(i)["optimizer"], mass) for i, mass in enumerate(grid.masses.tolist())]
    [('sgd', 0.125), ('adam', 0.375), ('sgd', 0.125), ('adam', 0.375)]
    """

    masses: Floats
    spread: Floats  # the length of a cell along each coordinate; 0 where a cell is one value
    around: Around | None = None  # how the prior is shaped
    plain: Floats | None = None  # if it is, the share of each cell's mass that is the unshaped prior's

    def draw_within(self, index: int, entropy: Entropy) -> dict[str, Any]:
        """A draw from the prior within one cell: a cell of single values is returned as it is."""
        if self.around is None or self.plain is None:
            offset = from_words(words(len(self.spread), entropy)) - 0.5
            return self.space.from_unit(self.unit[[index]] + offset * self.spread)[0]
        low, high = self.unit[index] - self.spread / 2, self.unit[index] + self.spread / 2
        point = from_words(words(len(self.spread) + 1, entropy))
        return self.space.from_unit(self.around.within(low, high, self.plain[index], point)[None])[0]


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


def _combine(parameters: Parameters, cuts: list[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
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


def _cut(
    parameter: Parameter, parameters: Parameters, count: int | None
) -> tuple[Floats, Floats, Floats, Floats, float]:
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


def is_active(parameter: Parameter, parameters: Parameters, unit: Floats) -> npt.NDArray[np.bool_]:
    """The rows of the cube in which a parameter has a value; this depends only on the coordinates of its ancestors."""
    if parameter.parent is None:
        return np.ones(len(unit), dtype=np.bool_)
    parent = parameters[parameter.parent]
    assert isinstance(parent.dimension, Finite)
    case = np.isin(parent.dimension.positions(unit[:, parameter.parent]), parameter.cases)
    return case & is_active(parent, parameters, unit)
