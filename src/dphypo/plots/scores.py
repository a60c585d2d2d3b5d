"""Scores in order and against each hyperparameter: of a survey, whose table is public, and of a study for its curator.

Pictures of surveys take ``release.survey`` or one of ``release.surveys``; ``release.survey.to_optuna()`` gives a study
for all pictures of ``optuna.visualization`` and for Optuna's dashboard. Those of a study show what is secret, and say
so in the picture itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dphypo import _validate
from dphypo.plots import canvas
from dphypo.plots.columns import Column, Floats, Scales, columns
from dphypo.search.curator import Curator
from dphypo.search.table import Surveyed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SECRET = "SECRET"
WARNING = "SECRET: for the curator alone. Nothing in this picture carries a privacy guarantee."
_STRIP, _ON_STRIP = "#b3261f", "#fefefe"  # the same in a dark page


def survey_history(table: Surveyed, *, size: tuple[float, float] = canvas.SIZE) -> Figure:
    """The score of every run in order, the best so far, and which runs failed.

    >>> from dphypo.search.table import Row
    >>> survey_history(Surveyed((Row({"lr": 0.1}, 0.9), Row({"lr": 9.0}, None)))).axes[0].get_xlabel()
    'run, in the order of the proposals'
    """
    return _draw_history(_scores(table), "proposals", maximize=table.maximize, size=size)


def survey_slices(
    table: Surveyed, *, names: Sequence[str] | None = None, space: Scales = None, width: float = 9.0
) -> Figure:
    """The scores against each hyperparameter.

    Args:
        table: what the survey has published.
        names: the hyperparameters; by default all that differ between runs.
        space: the search space, or what the certificate says of it: it tells which scales are logarithmic.
        width: of the picture, in inches.
    """
    found = {column.name: column for column in columns([row.params for row in table.rows], space)}
    for name in names or ():
        if name not in found:
            raise _validate.fail("names", name, f"give some of {', '.join(found)}")
    shown = [found[name] for name in names] if names else [one for one in found.values() if len(one.levels) > 1]
    if not shown:
        raise _validate.fail("table", table, "no hyperparameter differs between its runs")
    return _draw_slices(shown, _scores(table), width)


def curator_history(curator: Curator, *, size: tuple[float, float] = canvas.SIZE) -> Figure:
    """The score of every run of a study, in the order in which the hyperparameters were drawn. **Secret.**

    Args:
        curator: ``study.curator()``.
        size: of the picture, in inches.
    """
    _, scores = _ended(curator)
    return _mark_secret(_draw_history(scores, "draws", maximize=curator.maximize, size=size))


def curator_slices(curator: Curator, *, width: float = 9.0) -> Figure:
    """The scores of a study against each hyperparameter that differs between its runs, and where runs failed.
    **Secret.**

    Args:
        curator: ``study.curator()``.
        width: of the picture, in inches.
    """
    params, scores = _ended(curator)
    shown = [column for column in columns(params, curator.space) if len(column.levels) > 1]
    if not shown:
        raise _validate.fail("curator", curator, "no hyperparameter differs between the runs that have ended")
    return _mark_secret(_draw_slices(shown, scores, width))


def _scores(table: Surveyed) -> Floats:
    return np.array([np.nan if row.score is None else row.score for row in table.rows], dtype=np.float64)


def _draw_history(scores: Floats, order: str, *, maximize: bool, size: tuple[float, float]) -> Figure:
    """Scores in order; nan is a failed run."""
    figure = canvas.new_figure(size)
    better = "larger is better" if maximize else "smaller is better"
    axes = canvas.add_axes(figure, xlabel=f"run, in the order of the {order}", ylabel=f"score ({better})")
    runs, done = np.arange(1, len(scores) + 1), np.isfinite(scores)
    axes.plot(runs[done], scores[done], "o", color=canvas.BLUE, markersize=5, label="score of a run")
    if done.any():
        worst = -math.inf if maximize else math.inf
        best = (np.maximum if maximize else np.minimum).accumulate(np.where(done, scores, worst))
        known = np.isfinite(best)
        axes.step(runs[known], best[known], where="post", color=canvas.ORANGE, linewidth=1.5, label="best so far")
    _mark_failed(axes, runs[~done])
    axes.set_xlim(0.5, max(len(scores), 1) + 0.5)
    axes.locator_params("x", integer=True)
    canvas.legend(figure, 3)
    return figure


def _draw_slices(shown: Sequence[Column], scores: Floats, width: float) -> Figure:
    """Scores against each of some hyperparameters, as many side by side as the width has room for."""
    across = max(1, min(3, int(width // 2.8), len(shown)))
    down = math.ceil(len(shown) / across)
    figure = canvas.new_figure((width, 0.9 + 2.5 * down))
    done = np.isfinite(scores)
    for place, column in enumerate(shown, 1):
        axes = canvas.add_axes(figure, down, across, place, ylabel="score")
        column.label(axes)
        axes.plot(column.places[done], scores[done], "o", color=canvas.BLUE, markersize=4.5, label="run")
        _mark_failed(axes, column.places[~done & np.isfinite(column.places)])
    canvas.legend(figure)
    return figure


def _mark_failed(axes: Axes, places: Any) -> None:
    """Crosses at the bottom of some axes, for runs that have no score."""
    if len(places):
        from matplotlib.transforms import blended_transform_factory

        foot = blended_transform_factory(axes.transData, axes.transAxes)
        look: dict[str, Any] = {"color": canvas.ALARM, "markersize": 6, "markeredgewidth": 1.6, "transform": foot}
        axes.plot(places, np.full(len(places), 0.03), "x", label=f"failed ({len(places)})", **look)


def _ended(curator: Curator) -> tuple[list[dict[str, Any]], Floats]:
    """The hyperparameters and the scores of the runs that have ended; nan where one failed."""
    ended = [trial for trial in curator.trials() if trial["done"]]
    scores = [np.nan if trial["score"] is None else trial["score"] for trial in ended]
    return [trial["params"] for trial in ended], np.array(scores, dtype=np.float64)


def _mark_secret(figure: Figure) -> Figure:
    """Write across a picture, and above it, that it is secret: a copy or a part of it still says so."""
    words = WARNING if figure.get_figwidth() > 6 else WARNING.replace(". ", ".\n")
    figure.suptitle(words, color=_ON_STRIP, fontsize=9, fontweight="bold", backgroundcolor=_STRIP)
    look: dict[str, Any] = {"color": canvas.ALARM, "alpha": 0.13, "fontweight": "bold", "rotation": 20, "zorder": 1}
    letters = 48 if len(figure.axes) == 1 else 28
    for axes in figure.axes:
        axes.text(0.5, 0.5, SECRET, transform=axes.transAxes, ha="center", va="center", fontsize=letters, **look)
    return figure
