"""A picture of a study for its curator. It shows what is secret, and says so in the picture itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dphypo.plots import canvas
from dphypo.plots.survey import history_on
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
    trials = curator.trials()
    scores = np.array([np.nan if trial["score"] is None else trial["score"] for trial in trials if trial["done"]])
    figure = canvas.new_figure(size)
    better = "larger is better" if curator.maximize else "smaller is better"
    axes = canvas.add_axes(figure, xlabel="run, in the order of the draws", ylabel=f"score ({better})")
    history_on(axes, scores, maximize=curator.maximize)
    canvas.legend(figure, 3)
    mark_secret(figure)
    return figure


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
            fontsize=48,
            fontweight="bold",
            rotation=20,
            ha="center",
            va="center",
            zorder=1,
        )
