"""What a search costs: ε against the mean number of runs, the width of the band, and the noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from dphypo import _validate
from dphypo.accounting import Event, Guarantee, account
from dphypo.band import Band, BandLike
from dphypo.laws import Geometric, Law, NegativeBinomial, Poisson
from dphypo.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEANS = (2, 3, 5, 10, 20, 50, 100)
WIDTHS = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0)
FAMILIES: Mapping[str, Callable[[float], Law]] = {
    "geometric": lambda mean: Geometric(mean=mean),
    "negative binomial, shape 8": lambda mean: NegativeBinomial(8.0, mean=mean),
    "Poisson": Poisson,
}
UNIFORM = Band(1.0, 1.0)


def epsilon_against_runs(
    event: Event,
    *,
    means: Sequence[float] = MEANS,
    laws: Mapping[str, Callable[[float], Law]] = FAMILIES,
    band: BandLike = UNIFORM,
    delta: float = 1e-5,
    size: tuple[float, float] = canvas.SIZE,
) -> Figure:
    """ε of a search against the mean number of its runs, for several laws of T.

    Args:
        event: what one run is.
        means: the means of T.
        laws: by the name in the legend, the law of T with a mean.
        band: the band.
        delta: the δ of all ε.
        size: of the picture, in inches.

    >>> from dphypo.accounting import PureDp
    >>> figure = epsilon_against_runs(PureDp(1.0), means=(2, 10))
    >>> figure.axes[0].get_xlabel()
    'mean number of runs'
    """
    curves = {
        name: [account(event, family(mean), band) for mean in _several(means=means)] for name, family in laws.items()
    }
    figure = canvas.new_figure(size)
    axes = canvas.add_axes(figure, xlabel="mean number of runs", ylabel=_ylabel(delta), title=_band(band))
    _draw(figure, axes, means, curves, delta)
    axes.set_xscale("log")
    _plain_ticks(axes, means)
    return figure


def epsilon_against_band(
    event: Event,
    runs: Law,
    *,
    widths: Sequence[float] = WIDTHS,
    delta: float = 1e-5,
    size: tuple[float, float] = canvas.SIZE,
) -> Figure:
    """ε of a search against C, for the bands (1/C, C): what adaptivity costs at most, for any search rule.

    Args:
        event: what one run is.
        runs: the law of T.
        widths: the values of C; 1 is a search that is not adaptive.
        delta: the δ of all ε.
        size: of the picture, in inches.
    """
    found = [account(event, runs, Band.symmetric(width)) for width in _several(widths=widths)]
    figure = canvas.new_figure(size)
    axes = canvas.add_axes(figure, xlabel="C of the band (1/C, C)", ylabel=_ylabel(delta), title=f"T: {runs!r}")
    _draw(figure, axes, widths, {"any search rule in the band": found}, delta)
    return figure


def epsilon_against_noise(
    make_event: Callable[[float], Event],
    runs: Law,
    band: BandLike = UNIFORM,
    *,
    noises: Sequence[float],
    delta: float = 1e-5,
    size: tuple[float, float] = canvas.SIZE,
) -> Figure:
    """ε of a search against the noise multiplier σ of its runs.

    Args:
        make_event: what one run is, as a function of its noise multiplier.
        runs: the law of T.
        band: the band.
        noises: the noise multipliers.
        delta: the δ of all ε.
        size: of the picture, in inches.
    """
    found = [account(make_event(noise), runs, band) for noise in _several(noises=noises)]
    figure = canvas.new_figure(size)
    title = f"T: {runs!r}, {_band(band)}"
    axes = canvas.add_axes(figure, xlabel="noise multiplier σ (in sensitivities)", ylabel=_ylabel(delta), title=title)
    _draw(figure, axes, noises, {"the whole search": found}, delta)
    return figure


def _several(**named: Sequence[float]) -> list[float]:
    ((name, values),) = named.items()
    if not len(values):
        raise _validate.fail(name, values, "give one number or more")
    return [_validate.positive(**{name: value}) for value in values]


def _draw(
    figure: Figure, axes: Axes, places: Sequence[float], curves: Mapping[str, list[Guarantee]], delta: float
) -> None:
    """One line a curve, the paper's theorem for the first where it applies, and one run alone."""
    for look, (name, guarantees) in zip(canvas.styles(), curves.items(), strict=False):
        epsilons = [guarantee.epsilon(delta) for guarantee in guarantees]
        axes.plot(places, epsilons, color=look.color, linestyle=look.linestyle, marker=look.marker, label=name)
    first, guarantees = next(iter(curves.items()))
    paper = [found["paper"] for guarantee in guarantees if "paper" in (found := guarantee.bounds(delta))]
    if len(paper) == len(places):
        label = f"{first}, by the paper's theorem" if len(curves) > 1 else "by the paper's theorem"
        axes.plot(places, paper, color=canvas.QUIET, linestyle=":", marker="d", markersize=4, label=label)
    alone = [min(guarantee.one_run(delta).values()) for guarantee in guarantees]
    axes.plot(places, alone, color=canvas.INK, linewidth=1, label="one run alone (does not cover the search)")
    axes.set_ylim(bottom=0.0)
    canvas.legend(figure)


def _ylabel(delta: float) -> str:
    return f"ε at δ = {delta:g}"


def _band(given: BandLike) -> str:
    band = Band.of(given)
    return "drawn from the prior" if band.C == 1 else f"band ({band.c:g}, {band.C:g})"


def _plain_ticks(axes: Axes, places: Sequence[float]) -> None:
    axes.set_xticks(list(places), [f"{place:g}" for place in places])
    axes.set_xticks([], minor=True)
