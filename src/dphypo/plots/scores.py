"""Scores in order and against each hyperparameter: of a survey, whose table is public, and of a study for its curator.

Pictures of surveys take ``release.survey`` or one of ``release.surveys``; ``release.survey.to_optuna()`` gives a study
for all pictures of ``optuna.visualization`` and for Optuna's dashboard. Those of a study show what is secret, and say
so in the picture itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.plots import canvas
from dphypo.search.curator import Curator
from dphypo.search.table import Surveyed, is_logarithmic
from dphypo.space import Space

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]
Scales: TypeAlias = Space | Mapping[str, Any] | None
"""Where scales are read from: the search space, or what a certificate says of it."""
WARNING = "SECRET: for the curator alone. Nothing in this picture carries a privacy guarantee."
_STRIP, _ON_STRIP = "#b3261f", "#fefefe"  # the same in a dark page
_LONG = 24  # letters of a category that are shown
_FEW = 5  # numbers that are ticks themselves
_BEST = 0.2  # the share of the runs that stand out among parallel lines


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


def survey_parallel(table: Surveyed, *, space: Scales = None, size: tuple[float, float] = canvas.SIZE) -> Figure:
    """Parallel coordinates: a line for every run that has a score, through its hyperparameters to the score.

    The best fifth stands out. Arguments as for :func:`survey_slices`.

    >>> from dphypo.search.table import Row
    >>> rows = (Row({"lr": 0.1, "act": "relu"}, 0.9), Row({"lr": 0.3, "act": "tanh"}, 0.7))
    >>> [label.get_text() for label in survey_parallel(Surveyed(rows)).axes[0].get_xticklabels()]
    ['lr', 'act', 'score']
    """
    done = [row for row in table.rows if row.score is not None]
    if not done:
        raise _validate.fail("table", table, "no run of it has a score")
    scores = np.array([float(row.score or 0.0) for row in done])
    shown = [*columns([row.params for row in done], space), Column("score", scores)]
    heights = np.array([column.heights for column in shown])
    figure = canvas.new_figure(size)
    axes = canvas.add_axes(figure)
    best = set(np.argsort(-scores if table.maximize else scores)[: max(1, round(_BEST * len(done)))].tolist())
    for run in sorted(range(len(done)), key=lambda run: run in best):
        colour, alpha = (canvas.BLUE, 1.0) if run in best else (canvas.QUIET, 0.5)
        axes.plot(range(len(shown)), heights[:, run], color=colour, alpha=alpha, linewidth=1.4)
    for place, column in enumerate(shown):
        axes.axvline(place, color=canvas.QUIET, linewidth=0.8)
        for end, height in zip(column.ends, (-0.07, 1.03), strict=True):
            axes.text(place, height, canvas.plain(end), ha="center", fontsize="small")
    axes.set_xticks(range(len(shown)), [canvas.plain(column.name, _LONG) for column in shown])
    axes.tick_params(axis="x", pad=14, length=0)
    axes.set_yticks([])
    axes.set_ylim(-0.02, 1.02)
    return figure


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


def _draw_history(scores: Floats, order: str, *, maximize: bool, size: tuple[float, float]) -> Figure:
    """Scores in order; nan is a failed run."""
    better = "larger is better" if maximize else "smaller is better"
    axes = canvas.new_axes(size, f"run, in the order of the {order}", f"score ({better})")
    runs, done = np.arange(1, len(scores) + 1), np.isfinite(scores)
    axes.plot(runs[done], scores[done], "o", color=canvas.BLUE, markersize=5, label="score of a run")
    if done.any():
        best = (np.fmax if maximize else np.fmin).accumulate(scores)  # nan until a run has a score
        axes.step(runs, best, where="post", color=canvas.ORANGE, linewidth=1.5, label="best so far")
    _mark_failed(axes, runs[~done])
    axes.set_xlim(0.5, max(len(scores), 1) + 0.5)
    axes.locator_params("x", integer=True)
    return canvas.with_legend(axes, 3)


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
    return canvas.with_legend(figure.axes[0])


def _mark_failed(axes: Axes, places: Any) -> None:
    """Crosses at the bottom of some axes, for runs that have no score."""
    if len(places):
        look: dict[str, Any] = {"color": canvas.ALARM, "markersize": 6, "markeredgewidth": 1.6}
        foot = axes.get_xaxis_transform()
        axes.plot(places, np.full(len(places), 0.03), "x", label=f"failed ({len(places)})", transform=foot, **look)


def _mark_secret(figure: Figure) -> Figure:
    """Write across a picture, and above it, that it is secret: a copy or a part of it still says so."""
    words = WARNING if figure.get_figwidth() > 6 else WARNING.replace(". ", ".\n")
    figure.suptitle(words, color=_ON_STRIP, fontsize=9, fontweight="bold", backgroundcolor=_STRIP)
    look: dict[str, Any] = {"color": canvas.ALARM, "alpha": 0.13, "fontweight": "bold", "rotation": 20, "zorder": 1}
    letters = 48 if len(figure.axes) == 1 else 28
    for axes in figure.axes:
        axes.text(0.5, 0.5, "SECRET", transform=axes.transAxes, ha="center", va="center", fontsize=letters, **look)
    return figure


def _scores(table: Surveyed) -> Floats:
    return np.array([row.score for row in table.rows], dtype=np.float64)


def _ended(curator: Curator) -> tuple[list[dict[str, Any]], Floats]:
    """The hyperparameters and the scores of the runs that have ended; nan where one failed."""
    ended = [trial for trial in curator.trials() if trial["done"]]
    return [trial["params"] for trial in ended], np.array([trial["score"] for trial in ended], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Column:
    """One hyperparameter of several runs, as an axis."""

    name: str
    places: Floats  # of each run, the number, or the index of its category; nan where the run has none
    log: bool = False
    categories: tuple[str, ...] = ()  # their names; none for numbers

    @property
    def levels(self) -> Floats:
        """The different places of the runs."""
        return np.unique(self.places[np.isfinite(self.places)])

    @property
    def heights(self) -> Floats:
        """The places of the runs between 0 and 1; 0.5 where all are the same, or a run has none."""
        places = np.log(self.places) if self.log else self.places
        low, high = np.nanmin(places), np.nanmax(places)
        return np.nan_to_num((places - low) / (high - low) if high > low else places * 0 + 0.5, nan=0.5)

    @property
    def ends(self) -> tuple[str, str]:
        """What stands at the lower and the upper end of the axis."""
        names = self.categories or [f"{level:.3g}" for level in self.levels]
        return names[0], names[-1] if len(names) > 1 else ""

    def label(self, axes: Axes) -> None:
        """Name the horizontal axis after this hyperparameter, and give it its scale and its categories."""
        axes.set_xlabel(canvas.plain(self.name, 2 * _LONG) + " (log scale)" * self.log)
        if self.log:
            from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

            axes.set_xscale("log")
            axes.xaxis.set_minor_formatter(NullFormatter())
            if self.levels[-1] < 1000 * self.levels[0]:  # over more decades, powers of ten alone
                axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
                axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        elif self.categories:
            axes.set_xticks(range(len(self.categories)), [canvas.plain(one, _LONG) for one in self.categories])
            axes.set_xlim(-0.5, len(self.categories) - 0.5)
        elif len(self.levels) <= _FEW:
            axes.set_xticks(self.levels, [f"{level:g}" for level in self.levels])


def columns(params: Sequence[Mapping[str, Any]], space: Scales = None) -> list[Column]:
    """The hyperparameters of several runs, in the order in which they first appear.

    >>> runs = [{"lr": lr, "act": act} for lr, act in ((0.001, "relu"), (0.02, "tanh"), (1.0, "relu"))]
    >>> [(column.name, column.log, column.categories) for column in columns(runs)]
    [('lr', True, ()), ('act', False, ('relu', 'tanh'))]
    """
    described = space.to_dict() if isinstance(space, Space) else space
    entries = described.get("parameters", []) if isinstance(described, Mapping) else []
    priors = {  # a certificate's words may be a stranger's
        str(entry["name"]): str(entry["distribution"])
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, Mapping) and "name" in entry and "distribution" in entry
    }
    names = dict.fromkeys(name for one in params for name in one)
    return [_column(name, [one.get(name) for one in params], priors.get(name)) for name in names]


def _column(name: str, values: list[Any], prior: str | None) -> Column:
    given = [value for value in values if value is not None]
    if given and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in given):
        places = np.array(values, dtype=np.float64)
        return Column(name, places, is_logarithmic(places[~np.isnan(places)].tolist(), prior))
    words = ["(absent)" if value is None else str(value) for value in values]
    categories = tuple(dict.fromkeys(words))
    return Column(name, np.array([float(categories.index(word)) for word in words]), categories=categories)
