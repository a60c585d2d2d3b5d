"""Hyperparameters as axes: numbers on a plain or a logarithmic scale, and categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dphypo.plots import canvas
from dphypo.space import Space

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = npt.NDArray[np.float64]
Scales: TypeAlias = Space | Mapping[str, Any] | None
"""Where scales are read from: the search space, or what a certificate says of it."""
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
    """One hyperparameter of several runs.

    Args:
        name: its name.
        scale: how its values lie on an axis.
        places: of each run, the number, or the index of its category; nan where the run has none.
        categories: the names of the categories.
    """

    name: str
    scale: Scale
    places: Floats
    categories: tuple[str, ...] = ()

    @property
    def levels(self) -> Floats:
        """The different places of the runs."""
        return np.unique(self.places[np.isfinite(self.places)])

    def label(self, axes: Axes) -> None:
        """Name the horizontal axis after this hyperparameter, and give it its scale and its categories."""
        axes.set_xlabel(canvas.plain(_cut(self.name, 2 * _LONG)) + " (log scale)" * (self.scale is Scale.LOG))
        if self.scale is Scale.LOG:
            axes.set_xscale("log")
            canvas.plain_log_ticks(axes.xaxis, np.log10(self.levels[-1] / self.levels[0]))
        elif self.scale is Scale.LINEAR and len(self.levels) <= _FEW:
            axes.set_xticks(self.levels, [f"{level:g}" for level in self.levels])
        elif self.scale is Scale.CATEGORY:
            axes.set_xticks(range(len(self.categories)), [canvas.plain(_cut(one, _LONG)) for one in self.categories])
            axes.set_xlim(-0.5, len(self.categories) - 0.5)


def columns(params: Sequence[Mapping[str, Any]], space: Scales = None) -> list[Column]:
    """The hyperparameters of several runs, in the order in which they first appear.

    Args:
        params: the hyperparameters of each run.
        space: where its prior is uniform in the logarithm, the axis is logarithmic. Without one, positive numbers that
            span a factor of 30 or more are drawn on a logarithmic scale if their median is nearer to the middle of it
            than of a plain one.

    >>> runs = [{"lr": lr, "act": act} for lr, act in ((0.001, "relu"), (0.02, "tanh"), (1.0, "relu"))]
    >>> [(column.name, str(column.scale)) for column in columns(runs)]
    [('lr', 'log'), ('act', 'category')]
    """
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
    low, middle, high = np.nanmin(places), np.nanmedian(places), np.nanmax(places)
    if prior is not None:
        return Scale.LOG if prior in ("loguniform", "reciprocal") and low > 0 else Scale.LINEAR
    if not (low > 0 and high / low >= _WIDE):
        return Scale.LINEAR
    plain, by_log = (middle - low) / (high - low), np.log(middle / low) / np.log(high / low)
    return Scale.LOG if abs(by_log - 0.5) < abs(plain - 0.5) else Scale.LINEAR


def _priors(space: Scales) -> dict[str, str]:
    """The name of the prior of every hyperparameter that has one. A certificate's words may be a stranger's."""
    described = space.to_dict() if isinstance(space, Space) else space
    entries = described.get("parameters", []) if isinstance(described, Mapping) else []
    return {
        str(entry["name"]): str(entry["distribution"])
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, Mapping) and "name" in entry and "distribution" in entry
    }


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "…"
