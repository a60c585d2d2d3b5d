"""What searches cost: ε against the mean number of runs, the width of the band, the noise, or any other number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dphypo import _validate
from dphypo.accounting import Guarantee
from dphypo.plots import canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def epsilon_against(
    label: str,
    places: Sequence[float],
    curves: Mapping[str, Sequence[Guarantee]],
    *,
    delta: float = 1e-5,
    log: bool = False,
    size: tuple[float, float] = canvas.SIZE,
) -> Figure:
    """ε of searches against a number that they differ in, one line for each kind of search.

    The picture has the paper's theorem for the first line, where it applies, and ε of one run alone.

    Args:
        label: what the number is.
        places: its values.
        curves: by the name in the legend, what the search costs at each of the values.
        delta: the δ of all ε.
        log: whether the axis of the number is logarithmic.
        size: of the picture, in inches.

    >>> import dphypo
    >>> from dphypo.accounting import PureDp
    >>> costs = [dphypo.account(PureDp(1.0), dphypo.Geometric(mean=mean)) for mean in (2, 10)]
    >>> figure = epsilon_against("mean number of runs", [2, 10], {"geometric": costs})
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['geometric', "geometric, by the paper's theorem", 'one run alone (does not cover the search)']
    """
    if not curves or not len(places):
        raise _validate.fail("curves", dict(curves), "give one curve or more, with one place or more")
    for name, guarantees in curves.items():
        if len(guarantees) != len(places):
            raise _validate.fail("curves", name, f"give one guarantee for each of the {len(places)} places")
    figure = canvas.new_figure(size)
    axes = canvas.add_axes(figure, xlabel=label, ylabel=f"ε at δ = {delta:g}")
    for look, (name, guarantees) in zip(canvas.styles(), curves.items(), strict=False):
        epsilons = [guarantee.epsilon(delta) for guarantee in guarantees]
        axes.plot(places, epsilons, color=look.color, linestyle=look.linestyle, marker=look.marker, label=name)
    first, guarantees = next(iter(curves.items()))
    paper = [found["paper"] for guarantee in guarantees if "paper" in (found := guarantee.bounds(delta))]
    if len(paper) == len(places):
        axes.plot(places, paper, ":d", color=canvas.QUIET, markersize=4, label=f"{first}, by the paper's theorem")
    alone = [min(guarantee.one_run(delta).values()) for guarantee in guarantees]
    axes.plot(places, alone, color=canvas.INK, linewidth=1, label="one run alone (does not cover the search)")
    axes.set_ylim(bottom=0.0)
    if log:
        axes.set_xscale("log")
        axes.set_xticks(list(places), [f"{place:g}" for place in places])
        axes.set_xticks([], minor=True)
    canvas.legend(figure)
    return figure
