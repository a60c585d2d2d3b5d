"""The search space.

Rows of the unit cube, of parameters and of features belong together. The cube has a coordinate for every parameter;
that of an inactive one is ignored, and its features rest at a neutral constant: the parent's features say that it is
inactive.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.entropy import Entropy, check_entropy, words
from dphypo.space.candidates import Around, Candidates, Grid, Spread, around, build_grid, candidate_points, is_active
from dphypo.space.dimension import (
    MIDDLE,
    Array,
    Parameter,
    Parameters,
    from_words,
    interior,
    read,
    read_all,
    read_only,
    under,
    values_of,
)

MOST_CANDIDATES = 2**26


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
    >>> space.decode(space.encode([params])) == [params]
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
    def from_optuna(cls, distributions: Any) -> Space:
        """The space of a dict of Optuna's distributions, with the priors Optuna's random sampler has.

        A study of Optuna does too: its finished trials say which parameters there are, and on which others they depend.
        The space must be fixed before anybody looks at the data, so the study is one on public data, or published.

        >>> from optuna.distributions import CategoricalDistribution, FloatDistribution
        >>> Space.from_optuna({"lr": FloatDistribution(1e-4, 10, log=True), "act": CategoricalDistribution(["relu"])})
        Space({'lr': loguniform(a=0.0001, b=10), 'act': ['relu']})
        """
        from dphypo.space import from_optuna

        if not hasattr(distributions, "trials"):
            return cls(from_optuna.priors(distributions))
        always, conditions = from_optuna.parts(distributions)
        space = cls(always)
        for parent, values, added in conditions:
            space = space.when(parent, values, added)
        return space

    def when(self, parent: str, values: Any, parameters: Mapping[str, Any]) -> Space:
        """A larger space: these parameters exist only while ``parent`` has one of ``values`` (one value, or a list).

        Conditions nest: a parameter added here may be a parent in turn.

        >>> from scipy.stats import uniform
        >>> space = Space({"optimizer": ["sgd", "adam"]}).when("optimizer", "sgd", {"momentum": uniform(0, 0.99)})
        >>> space.decode(space.encode([{"optimizer": "adam"}, {"optimizer": "sgd", "momentum": 0.0}]))
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
        """How many uniform numbers a draw takes."""
        return len(self._parameters) + self.shaped

    def _warp(self, points: Array) -> Array:
        return points if self._around is None else self._around.warp(points)

    def grid(self, /, **cells: int) -> Grid:
        """All cells with their prior masses: one per value, and for a parameter named here this many of equal mass.

        A continuous parameter must be named; a long list of numbers may be.
        """
        return build_grid(self, cells, self._around)

    def encode(self, params: Iterable[Mapping[str, Any]]) -> Array:
        """One row of features for each dict of parameters, for a surrogate model.

        A number has one column in (0, 1), the prior's CDF at it; a category one column per choice. Inactive
        parameters have constants.
        """
        return self.features(self.to_unit(params))

    def decode(self, features: npt.ArrayLike) -> list[dict[str, Any]]:
        """The parameters with these features: exactly those encoded, where the space had produced them.

        Any finite features decode: numbers go to the nearest value, categories to the largest column.
        """
        columns = self._columns()
        rows, blocks = _finite_rows(columns[-1].stop, features=features), zip(self._parameters, columns, strict=True)
        return self.from_unit(
            np.column_stack([parameter.dimension.coordinates(rows[:, block]) for parameter, block in blocks])
        )

    def features(self, unit: Array) -> Array:
        """The features of points of the unit cube."""
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
        """Which columns of the features each parameter has."""
        ends = np.cumsum([0, *(parameter.dimension.width for parameter in self._parameters)]).tolist()
        return [slice(start, end) for start, end in pairwise(ends)]

    def from_unit(self, unit: npt.ArrayLike) -> list[dict[str, Any]]:
        """The parameters at points of the unit cube: the prior's quantiles."""
        points = interior(_finite_rows(len(self._parameters), unit=unit))
        rows: list[dict[str, Any]] = [{} for _ in points]
        for column, parameter in enumerate(self._parameters):
            where = np.flatnonzero(is_active(parameter, self._parameters, points))
            for row, value in zip(where, parameter.dimension.values(points[where, column]), strict=True):
                rows[row][parameter.name] = value
        return rows

    def to_unit(self, params: Iterable[Mapping[str, Any]]) -> Array:
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


def _finite_rows(columns: int, **named: npt.ArrayLike) -> Array:
    """Rows of as many finite numbers as there are columns."""
    ((name, given),) = named.items()
    rows = np.asarray(given, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != columns:
        raise ValueError(f"{name} has shape {rows.shape}: give rows of {columns} columns")
    if not np.isfinite(rows).all():
        raise ValueError(f"{name} has numbers that are not finite: give finite numbers only")
    return rows
