"""Parallel coordinates: a line for every run of a survey, through its hyperparameters to its score."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dphypo import _validate
from dphypo.plots import canvas
from dphypo.plots.columns import Column, Floats, Scale, Scales, columns
from dphypo.search.table import Surveyed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BEST = 0.2  # the share of the runs that stand out


def survey_parallel(table: Surveyed, *, space: Scales = None, size: tuple[float, float] = canvas.SIZE) -> Figure:
    """Every run that has a score as a line; the best fifth stands out. Arguments as for :func:`survey_slices`.

    >>> from dphypo.search.table import Row
    >>> rows = (Row({"lr": 0.1, "act": "relu"}, 0.9), Row({"lr": 0.3, "act": "tanh"}, 0.7))
    >>> [label.get_text() for label in survey_parallel(Surveyed(rows)).axes[0].get_xticklabels()]
    ['lr', 'act', 'score']
    """
    done = [row for row in table.rows if row.score is not None]
    if not done:
        raise _validate.fail("table", table, "no run of it has a score")
    scores = np.array([float(row.score or 0.0) for row in done])
    shown = [*columns([row.params for row in done], space), Column("score", Scale.LINEAR, scores)]
    heights = np.array([_heights(column) for column in shown])
    figure = canvas.new_figure(size)
    axes = canvas.add_axes(figure)
    best = set(np.argsort(-scores if table.maximize else scores)[: max(1, round(_BEST * len(done)))].tolist())
    for run in sorted(range(len(done)), key=lambda run: run in best):
        colour, alpha = (canvas.BLUE, 1.0) if run in best else (canvas.QUIET, 0.5)
        axes.plot(range(len(shown)), heights[:, run], color=colour, alpha=alpha, linewidth=1.4)
    for place, column in enumerate(shown):
        axes.axvline(place, color=canvas.QUIET, linewidth=0.8)
        for end, height in zip(_ends(column), (-0.07, 1.03), strict=True):
            axes.text(place, height, canvas.plain(end), ha="center", fontsize="small")
    axes.set_xticks(range(len(shown)), [canvas.plain(column.name[:24]) for column in shown])
    axes.tick_params(axis="x", pad=14, length=0)
    axes.set_yticks([])
    axes.set_ylim(-0.02, 1.02)
    return figure


def _heights(column: Column) -> Floats:
    """The places of the runs between 0 and 1; 0.5 where all are the same, or a run has none."""
    places = np.log(column.places) if column.scale is Scale.LOG else column.places
    low, high = np.nanmin(places), np.nanmax(places)
    heights: Floats = np.nan_to_num((places - low) / (high - low) if high > low else places * 0 + 0.5, nan=0.5)
    return heights


def _ends(column: Column) -> tuple[str, str]:
    """What stands at the lower and the upper end of its axis."""
    if column.scale is Scale.CATEGORY:
        return column.categories[0], column.categories[-1] if len(column.categories) > 1 else ""
    low, high = column.levels[0], column.levels[-1]
    return f"{low:.3g}", f"{high:.3g}" if high > low else ""
