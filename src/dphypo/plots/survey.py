"""Pictures of a survey: its history, slices, contours and what matters. All of a survey's table is public.

They take ``release.survey``, one of ``release.surveys``, or any :class:`dphypo.survey.Surveyed`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dphypo import _validate
from dphypo.plots import canvas
from dphypo.plots.effects import Effect, Surrogate
from dphypo.plots.table_columns import Column, Floats, Scale, columns
from dphypo.space import Space
from dphypo.table import Surveyed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Described = Space | Mapping[str, Any] | None
_LEVELS = 10


def survey_history(table: Surveyed, *, size: tuple[float, float] = canvas.SIZE) -> Figure:
    """The score of every run in order, the best so far, and which runs failed.

    >>> from dphypo.table import Row
    >>> survey_history(Surveyed((Row({"lr": 0.1}, 0.9), Row({"lr": 9.0}, None)))).axes[0].get_xlabel()
    'run, in the order of the proposals'
    """
    figure = canvas.new_figure(size)
    axes = canvas.add_axes(figure, xlabel="run, in the order of the proposals", ylabel=f"score ({_better(table)})")
    history_on(axes, scores_of(table), maximize=table.maximize)
    canvas.legend(figure, 3)
    return figure


def history_on(axes: Axes, scores: Floats, *, maximize: bool) -> None:
    """Draw scores in order on some axes; nan is a failed run."""
    from matplotlib.ticker import MaxNLocator

    runs = np.arange(1, len(scores) + 1)
    done = np.isfinite(scores)
    axes.plot(runs[done], scores[done], "o", color=canvas.BLUE, markersize=5, label="score of a run")
    if done.any():
        worst = -math.inf if maximize else math.inf
        best = (np.maximum if maximize else np.minimum).accumulate(np.where(done, scores, worst))
        known = np.isfinite(best)
        axes.step(runs[known], best[known], where="post", color=canvas.ORANGE, linewidth=1.5, label="best so far")
    mark_failed(axes, runs[~done])
    axes.set_xlim(0.5, max(len(scores), 1) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def mark_failed(axes: Axes, places: Any) -> None:
    """Crosses at the bottom of some axes, for runs that have no score."""
    if len(places):
        from matplotlib.transforms import blended_transform_factory

        foot = blended_transform_factory(axes.transData, axes.transAxes)
        label = f"failed ({len(places)})"
        axes.plot(
            places,
            np.full(len(places), 0.03),
            "x",
            color=canvas.ALARM,
            markersize=6,
            markeredgewidth=1.6,
            transform=foot,
            label=label,
        )


def survey_slice(
    table: Surveyed,
    name: str,
    *,
    space: Described = None,
    fitted: Surrogate | None = None,
    size: tuple[float, float] = canvas.SIZE,
) -> Figure:
    """The scores against one hyperparameter, with their mean over the others by a Gaussian process.

    Args:
        table: what the survey has published.
        name: the hyperparameter.
        space: the search space, or what the certificate says of it: it tells which scales are logarithmic.
        fitted: a :class:`Surrogate` of the same table and space, so that pictures share one fit.
        size: of the picture, in inches.
    """
    figure = canvas.new_figure(size)
    effect = _effects(table, space, fitted).get(name)
    slice_on(canvas.add_axes(figure, ylabel="score"), _named(table, space, name=name), scores_of(table), effect)
    canvas.legend(figure, 3)
    return figure


def survey_slices(
    table: Surveyed, *, names: Sequence[str] | None = None, space: Described = None, width: float = 9.0
) -> Figure:
    """One slice for every hyperparameter; those that matter most first.

    Args:
        table: what the survey has published.
        names: the hyperparameters; by default all that differ between runs.
        space: as for :func:`survey_slice`.
        width: of the picture, in inches.
    """
    effects = _effects(table, space, None)
    if names is None:
        shown = [e.column for e in effects.values()] or [c for c in columns(table, space) if c.varies]
    else:
        shown = [_named(table, space, names=name) for name in names]
    if not shown:
        raise _validate.fail("table", table, "no hyperparameter differs between its runs")
    return slices_of(shown, scores_of(table), effects, width)


def slices_of(shown: Sequence[Column], scores: Floats, effects: Mapping[str, Effect], width: float) -> Figure:
    """Scores against each of some hyperparameters, as many side by side as the width has room for."""
    across = max(1, min(3, int(width // 2.8), len(shown)))
    down = math.ceil(len(shown) / across)
    figure = canvas.new_figure((width, 0.6 + 2.5 * down))
    for place, column in enumerate(shown, 1):
        axes = canvas.add_axes(figure, down, across, place, ylabel="score")
        slice_on(axes, column, scores, effects.get(column.name))
    canvas.legend(figure, 3)
    return figure


def survey_contour(
    table: Surveyed,
    first: str,
    second: str,
    *,
    space: Described = None,
    fitted: Surrogate | None = None,
    size: tuple[float, float] = (6.4, 4.6),
) -> Figure:
    """The mean score over two hyperparameters, by a Gaussian process, with the runs that were made.

    Args:
        table: what the survey has published.
        first: the hyperparameter across.
        second: the hyperparameter up.
        space, fitted: as for :func:`survey_slice`.
        size: of the picture, in inches.
    """
    fitted = Surrogate(table, space) if fitted is None else fitted
    known = {column.name: column for column in fitted.columns}
    for argument, name in (("first", first), ("second", second)):
        if name not in known:
            raise _validate.fail(argument, name, f"give one of {', '.join(known)}")
    if first == second:
        raise _validate.fail("second", second, "give two different hyperparameters")
    one, other = known[first], known[second]
    figure = canvas.new_figure(size)
    axes = canvas.add_axes(figure)
    axes.grid(visible=False)
    across, up, means = fitted.surface(one, other)
    one.label(axes, "x")
    other.label(axes, "y")
    drawn: Any
    if Scale.CATEGORY in (one.scale, other.scale):
        drawn = axes.pcolormesh(across, up, means, cmap="cividis", shading="nearest", rasterized=True)
    else:
        drawn = axes.contourf(across, up, means, _LEVELS, cmap="cividis")
    bar = figure.colorbar(drawn, ax=axes)
    bar.set_label(f"mean score ({_better(table)})", color=canvas.INK, fontsize=10)
    bar.ax.tick_params(labelcolor=canvas.INK, color=canvas.QUIET, labelsize=9)
    bar.outline.set_visible(False)
    done = np.isfinite(scores_of(table))
    ring: dict[str, Any] = {"markeredgecolor": "#fefefe", "markeredgewidth": 0.8, "linestyle": "none", "clip_on": False}
    axes.plot(one.places[done], other.places[done], marker="o", color="#111111", markersize=5, label="run", **ring)
    if (~done).any():
        label = f"failed ({int((~done).sum())})"
        spots = one.places[~done], other.places[~done]
        axes.plot(*spots, marker="X", color=canvas.ALARM, markersize=8, label=label, **ring)
    canvas.legend(figure, above=True)
    return figure


def survey_importance(
    table: Surveyed,
    *,
    space: Described = None,
    fitted: Surrogate | None = None,
    size: tuple[float, float] | None = None,
) -> Figure:
    """How much of the variance of the score each hyperparameter explains, by itself and together with others.

    See ``dphypo.plots.effects`` for the method.

    Args:
        table: what the survey has published; at least five runs with a score.
        space, fitted: as for :func:`survey_slice`.
        size: of the picture, in inches.
    """
    fitted = Surrogate(table, space) if fitted is None else fitted
    effects = fitted.effects[::-1]
    figure = canvas.new_figure(size or (6.4, 1.4 + 0.45 * len(effects)))
    axes = canvas.add_axes(figure, xlabel="share of the variance of the score")
    places = np.arange(len(effects))
    shares = [effect.total for effect in effects], [effect.main for effect in effects]
    options: dict[str, Any] = {"edgecolor": canvas.BLUE, "height": 0.6, "linewidth": 1.2}
    axes.barh(places, shares[0], color="none", label="together with others", hatch="////", **options)
    axes.barh(places, shares[1], color=canvas.BLUE, label="by itself", **options)
    axes.set_yticks(places, [canvas.plain(effect.column.name[:40]) for effect in effects])
    axes.set_xlim(0.0, 1.0)
    axes.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes.grid(visible=False, axis="y")
    canvas.legend(figure)
    return figure


def scores_of(table: Surveyed) -> Floats:
    """The scores of a table; nan where a run failed."""
    return np.array([np.nan if row.score is None else row.score for row in table.rows])


def slice_on(axes: Axes, column: Column, scores: Floats, effect: Effect | None) -> None:
    """Draw scores against one hyperparameter on some axes, with its mean over the others where that is known."""
    done, present = np.isfinite(scores), np.isfinite(column.places)
    column.label(axes, "x")
    axes.plot(column.places[done], scores[done], "o", color=canvas.BLUE, markersize=4.5, label="run")
    if effect is not None:
        line = "_" if column.scale is Scale.CATEGORY else "-"
        look: dict[str, Any] = {"markersize": 18, "markeredgewidth": 2} if line == "_" else {"linewidth": 1.6}
        axes.plot(effect.places, effect.means, line, color=canvas.ORANGE, label="mean over the others", **look)
    mark_failed(axes, column.places[~done & present])


def _effects(table: Surveyed, space: Described, fitted: Surrogate | None) -> dict[str, Effect]:
    """The effects by name; none where the table has too few scores for them."""
    try:
        fitted = Surrogate(table, space) if fitted is None else fitted
    except ValueError:
        return {}
    return {effect.column.name: effect for effect in fitted.effects}


def _named(table: Surveyed, space: Described, **given: str) -> Column:
    ((argument, name),) = given.items()
    found = columns(table, space)
    for column in found:
        if column.name == name:
            return column
    raise _validate.fail(argument, name, f"give one of {', '.join(column.name for column in found)}")


def _better(table: Surveyed) -> str:
    return "larger is better" if table.maximize else "smaller is better"
