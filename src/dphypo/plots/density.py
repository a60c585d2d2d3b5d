"""The sampling density before and after it is projected into the band."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.band import L2, Band
from dphypo.band.band import BandLike
from dphypo.band.problem import Rule
from dphypo.plots import canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PAPER = L2()


def sampling_density(
    weights: npt.ArrayLike,
    band: BandLike,
    *,
    prior: npt.ArrayLike | None = None,
    places: npt.ArrayLike | None = None,
    rule: Rule = _PAPER,
    label: str = "cell of the hyperparameter space",
    size: tuple[float, float] = canvas.SIZE,
) -> Figure:
    """What a search rule asks for, and what is drawn from instead: between c and C times the prior everywhere.

    The weights of a study come from its secret history, and so does this picture of them; those of a survey or of an
    example are public.

    Args:
        weights: what the search rule asks for, one number a cell; any scale.
        band: the band.
        prior: the prior masses of the cells; by default all are equal.
        places: where the cells lie on the axis, such as the values of a hyperparameter; by default 1, 2, 3 and so on.
        rule: how the weights are projected.
        label: of the axis.
        size: of the picture, in inches.

    >>> figure = sampling_density([1, 4, 9, 4, 1], Band(0.75, 2))
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['asked for by the search rule', 'drawn from, after projection', 'prior', 'between 0.75 and 2 times the prior']
    """
    band = Band.of(band)
    after = band.project(weights, prior, rule)
    before = np.asarray(weights, dtype=np.float64)
    before = before / before.sum()
    masses = np.full(len(before), 1 / len(before)) if prior is None else np.asarray(prior, dtype=np.float64)
    where = np.arange(1, len(before) + 1) if places is None else np.asarray(places, dtype=np.float64)
    if where.shape != before.shape:
        raise _validate.fail("places", f"{where.shape}", f"give one place for each of the {len(before)} weights")
    figure = canvas.new_figure(size)
    axes = canvas.add_axes(figure, xlabel=label, ylabel="probability of a cell")
    axes.plot(where, before, color=canvas.ORANGE, linestyle="--", label="asked for by the search rule")
    axes.plot(where, after, color=canvas.BLUE, linewidth=2.2, label="drawn from, after projection")
    axes.plot(where, masses, color=canvas.QUIET, linewidth=1, label="prior")
    for limit in (band.c, band.C):
        axes.plot(where, limit * masses, color=canvas.QUIET, linewidth=1, linestyle=":")
        words = f"{limit:g} × prior"
        spot = (float(where[-1]), float(limit * masses[-1]))
        above = limit > 1
        place: dict[str, Any] = {"xytext": (0, 3 if above else -3), "va": "bottom" if above else "top", "ha": "right"}
        axes.annotate(words, spot, textcoords="offset points", fontsize=9, color=canvas.INK, **place)
    between = f"between {band.c:g} and {band.C:g} times the prior"
    axes.fill_between(where, band.c * masses, band.C * masses, color=canvas.BLUE, alpha=0.1, linewidth=0, label=between)
    if places is not None and where.min() > 0 and where.max() / where.min() >= 30:
        axes.set_xscale("log")
    axes.set_ylim(bottom=0.0)
    canvas.legend(figure)
    return figure
