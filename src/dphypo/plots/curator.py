"""Pictures of a study for its curator. They show what is secret, and say so in the picture itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dphypo import _validate
from dphypo.plots import canvas
from dphypo.plots.survey import history_on, slices_of
from dphypo.plots.table_columns import Floats, columns_of
from dphypo.study import Curator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SECRET = "SECRET"
_STRIP, _ON_ALARM = "#b3261f", "#fefefe"  # the same in a dark page
WARNING = "SECRET: for the curator alone. Nothing in this picture carries a privacy guarantee."


def curator_history(curator: Curator, *, size: tuple[float, float] = canvas.SIZE) -> Figure:
    """The score of every run of a study, in the order in which the hyperparameters were drawn. **Secret.**

    Args:
        curator: ``study.curator()``.
        size: of the picture, in inches.
    """
    _, scores = _ended(curator)
    figure = canvas.new_figure(size)
    better = "larger is better" if curator.maximize else "smaller is better"
    axes = canvas.add_axes(figure, xlabel="run, in the order of the draws", ylabel=f"score ({better})")
    history_on(axes, scores, maximize=curator.maximize)
    canvas.legend(figure, 3)
    mark_secret(figure)
    return figure


def curator_slices(curator: Curator, *, width: float = 9.0) -> Figure:
    """The scores of a study against each hyperparameter that differs between its runs, and where runs failed.
    **Secret.**

    Args:
        curator: ``study.curator()``.
        width: of the picture, in inches.
    """
    params, scores = _ended(curator)
    shown = [column for column in columns_of(params, curator.space) if column.varies]
    if not shown:
        raise _validate.fail("curator", curator, "no hyperparameter differs between the runs that have ended")
    figure = slices_of(shown, scores, {}, width)
    mark_secret(figure)
    return figure


def _ended(curator: Curator) -> tuple[list[dict[str, Any]], Floats]:
    """The hyperparameters and the scores of the runs that have ended; nan where one failed."""
    ended = [trial for trial in curator.trials() if trial["done"]]
    scores = [np.nan if trial["score"] is None else trial["score"] for trial in ended]
    return [trial["params"] for trial in ended], np.array(scores, dtype=np.float64)


def mark_secret(figure: Figure) -> None:
    """Write across a picture, and above it, that it is secret: a copy or a part of it still says so."""
    words = WARNING if figure.get_figwidth() > 6 else WARNING.replace(". ", ".\n")
    figure.suptitle(words, color=_ON_ALARM, fontsize=9, fontweight="bold", backgroundcolor=_STRIP)
    for axes in figure.axes:
        axes.text(
            0.5,
            0.5,
            SECRET,
            transform=axes.transAxes,
            color=canvas.ALARM,
            alpha=0.13,
            fontsize=48 if len(figure.axes) == 1 else 28,
            fontweight="bold",
            rotation=20,
            ha="center",
            va="center",
            zorder=1,
        )
