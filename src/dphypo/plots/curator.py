"""Pictures of a study for its curator. They show what is secret, and say so in the picture itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dphypo import _validate
from dphypo.plots import canvas
from dphypo.plots.columns import Floats, columns
from dphypo.plots.survey import draw_history, draw_slices
from dphypo.search import Curator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SECRET = "SECRET"
WARNING = "SECRET: for the curator alone. Nothing in this picture carries a privacy guarantee."
_STRIP, _ON_STRIP = "#b3261f", "#fefefe"  # the same in a dark page


def curator_history(curator: Curator, *, size: tuple[float, float] = canvas.SIZE) -> Figure:
    """The score of every run of a study, in the order in which the hyperparameters were drawn. **Secret.**

    Args:
        curator: ``study.curator()``.
        size: of the picture, in inches.
    """
    _, scores = _ended(curator)
    return _mark_secret(draw_history(scores, "draws", maximize=curator.maximize, size=size))


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
    return _mark_secret(draw_slices(shown, scores, width))


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
