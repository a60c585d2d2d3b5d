"""The hyperparameters of a published table as axes: numbers on a plain or a logarithmic scale, and categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dphypo.plots import canvas
from dphypo.space import Space
from dphypo.table import Surveyed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = npt.NDArray[np.float64]
ABSENT = "(absent)"
_WIDE = 30.0  # a logarithmic scale is for numbers whose largest is that many times the smallest, or more
_LONG = 24  # letters of a category that are shown
_FEW = 5  # numbers that are ticks themselves


class Scale(StrEnum):
    """How the values of a hyperparameter lie on an axis."""

    LINEAR = "linear"
    LOG = "log"
    CATEGORY = "category"


@dataclass(frozen=True, eq=False)
class Column:
    """One hyperparameter of a table.

    Args:
        name: its name.
        scale: how its values lie on an axis.
        places: of each run, where it lies: the number, or the place of its category; nan where the run has none.
        categories: the names of the categories.
    """

    name: str
    scale: Scale
    places: Floats
    categories: tuple[str, ...] = ()

    @property
    def varies(self) -> bool:
        """Whether two runs differ in it."""
        return len(np.unique(self.places[np.isfinite(self.places)])) > 1

    @property
    def _ends(self) -> tuple[float, float]:
        low, high = float(np.nanmin(self.places)), float(np.nanmax(self.places))
        return (float(np.log(low)), float(np.log(high))) if self.scale is Scale.LOG else (low, high)

    def to_unit(self) -> Floats:
        """The places of the runs in [0, 1], from the least in the table to the greatest; a missing one is ½."""
        low, high = self._ends
        numbers = np.log(self.places) if self.scale is Scale.LOG else self.places
        unit = (numbers - low) / (high - low) if high > low else np.full(len(numbers), 0.5)
        return np.asarray(np.where(np.isfinite(unit), unit, 0.5))

    def from_unit(self, unit: Floats) -> Floats:
        """The places of points of [0, 1]."""
        low, high = self._ends
        numbers = low + unit * (high - low)
        return np.asarray(np.exp(numbers) if self.scale is Scale.LOG else numbers)

    def label(self, axes: Axes, way: str) -> None:
        """Name an axis, "x" or "y", after this hyperparameter, with its scale and its categories."""
        name = canvas.plain(self.name if len(self.name) <= 2 * _LONG else self.name[: 2 * _LONG] + "…")
        getattr(axes, f"set_{way}label")(f"{name} (log scale)" if self.scale is Scale.LOG else name)
        if self.scale is Scale.LOG:
            getattr(axes, f"set_{way}scale")("log")
            _plain_ticks(getattr(axes, f"{way}axis"), np.log10(np.nanmax(self.places) / np.nanmin(self.places)))
        levels = np.unique(self.places[np.isfinite(self.places)])
        if self.scale is Scale.LINEAR and len(levels) <= _FEW:
            getattr(axes, f"set_{way}ticks")(levels, [f"{level:g}" for level in levels])
        if self.scale is Scale.CATEGORY:
            shown = [canvas.plain(c if len(c) <= _LONG else c[:_LONG] + "…") for c in self.categories]
            getattr(axes, f"set_{way}ticks")(range(len(shown)), shown)
            getattr(axes, f"set_{way}lim")(-0.5, len(shown) - 0.5)


def _plain_ticks(axis: Any, decades: float) -> None:
    """Numbers such as 0.02 on a logarithmic axis; powers of ten alone where it spans many of them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if decades < 3:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def columns(table: Surveyed, space: Space | Mapping[str, Any] | None = None) -> list[Column]:
    """The hyperparameters of a table, in its order.

    Args:
        table: what a survey has published.
        space: the search space, or what a certificate says of it: where its prior is uniform in the logarithm, so is
            the axis. Without one, positive numbers that span a factor of 30 or more are drawn on a logarithmic scale
            if their median is nearer to the middle of it than of a plain one.

    >>> from dphypo.table import Row
    >>> points = ((0.001, "relu"), (0.02, "tanh"), (1.0, "relu"))
    >>> table = Surveyed(tuple(Row({"lr": lr, "act": act}, 0.8) for lr, act in points))
    >>> [(column.name, str(column.scale)) for column in columns(table)]
    [('lr', 'log'), ('act', 'category')]
    """
    return columns_of([row.params for row in table.rows], space)


def columns_of(params: Sequence[Mapping[str, Any]], space: Space | Mapping[str, Any] | None = None) -> list[Column]:
    """The same of hyperparameters that are in no table, such as those of a study, which are secret."""
    names = list(dict.fromkeys(name for one in params for name in one))
    priors = _priors(space)
    return [_column(name, [one.get(name) for one in params], priors.get(name)) for name in names]


def _column(name: str, values: list[Any], prior: str | None) -> Column:
    given = [value for value in values if value is not None]
    if given and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in given):
        places = np.array([np.nan if value is None else float(value) for value in values])
        return Column(name, _scale(places, prior), places)
    words = [ABSENT if value is None else str(value) for value in values]
    categories = tuple(dict.fromkeys(words))
    return Column(name, Scale.CATEGORY, np.array([float(categories.index(word)) for word in words]), categories)


def _scale(places: Floats, prior: str | None) -> Scale:
    low, high = np.nanmin(places), np.nanmax(places)
    if prior is not None:
        return Scale.LOG if prior in ("loguniform", "reciprocal") and low > 0 else Scale.LINEAR
    if not (low > 0 and high / low >= _WIDE):
        return Scale.LINEAR
    middle = np.nanmedian(places)
    plain, by_log = (middle - low) / (high - low), np.log(middle / low) / np.log(high / low)
    return Scale.LOG if abs(by_log - 0.5) < abs(plain - 0.5) else Scale.LINEAR


def _priors(space: Space | Mapping[str, Any] | None) -> dict[str, str]:
    """By the name, the distribution of every hyperparameter that has one."""
    described = space.to_dict() if isinstance(space, Space) else space
    entries = described.get("parameters", []) if isinstance(described, Mapping) else []
    return {
        str(entry["name"]): str(entry["distribution"])
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, Mapping) and "name" in entry and "distribution" in entry
    }
