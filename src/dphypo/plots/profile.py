"""What a search costs and what it draws from: privacy profiles, ε against a number, and densities in the band.

Each point (ε, δ) of a profile is a guarantee: with one record more or less, no event is more likely than e^ε times what
it was, plus δ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.accounting import Certificate, Composition, Guarantee
from dphypo.accounting.second_opinion import epsilon_from_below
from dphypo.accounting.solve import round_up
from dphypo.audit import WorstCase
from dphypo.audit.empirical import Audit
from dphypo.band import L2, Band
from dphypo.band.band import BandLike
from dphypo.band.problem import Projection
from dphypo.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BOUNDS = {  # in the order of a legend
    "profile": "profile (Theorem 4)",
    "composition": "composition",
    "renyi": "Rényi (Theorem 3)",
    "paper": "DP-HyPO, Theorems 1 and 2",
    "history": "history only (Theorem H)",
    "prior start": "first runs from the prior (4′)",
}
_ATTACK = "explicit attack (lower bound)"
_CROSS: dict[str, Any] = {"color": canvas.ALARM, "marker": "x", "markersize": 6, "zorder": 4}  # over other markers
_PAPER = L2()
_PROFILE = ("ε", "δ that goes with this ε")  # the axes of a profile


def privacy_profile(
    guarantee: Guarantee | Composition,
    *,
    delta: float = 1e-5,
    attack: bool = True,
    points: int = 25,
    size: tuple[float, float] = canvas.SIZE,
) -> Figure:
    """δ against ε by every bound that applies, and by an explicit attack: the truth lies between the two.

    Args:
        guarantee: what :func:`dphypo.account` returns, or the guarantee of a study or a plan.
        delta: the δ at which the cost is marked.
        attack: whether the attack is drawn; it takes half a second a point.
        points: how many δ each bound is evaluated at.
        size: of the picture, in inches.

    >>> import dphypo
    >>> from dphypo.accounting import PureDp
    >>> figure = privacy_profile(dphypo.account(PureDp(1.0), dphypo.Geometric(mean=10)), points=5)
    >>> [line.get_text() for line in figure.legends[0].get_texts()]
    ['profile (Theorem 4)', ..., 'explicit attack (lower bound)', ...]
    """
    delta = _validate.delta(delta=delta)
    points = _validate.integer(at_least=2, points=points)
    deltas = np.geomspace(min(1e-8, delta / 10) if delta else 1e-8, 0.1, points)
    curves: dict[str, list[float]] = {}
    for one in deltas:
        for name, epsilon in guarantee.bounds(float(one)).items():
            curves.setdefault(name, []).append(epsilon)
    axes = canvas.new_axes(size, *_PROFILE)
    ranked = dict.fromkeys(name for name in (*BOUNDS, *curves) if name in curves)
    for (colour, line, _), name in zip(cycle(canvas.STYLES), ranked, strict=False):
        axes.plot(curves[name], deltas, color=colour, linestyle=line, label=BOUNDS.get(name, name))
    if attack:
        some = deltas[:: max(1, points // 8)]
        achieved = [epsilon_from_below(guarantee, float(one)) for one in some]
        axes.plot(achieved, some, linestyle="none", label=_ATTACK, **_CROSS)
    _mark_cost(axes, guarantee.epsilon(delta), delta)
    return _finish(axes, float(deltas[0]))


def certificate_profile(
    certificate: Certificate, *, attack: float | None = None, size: tuple[float, float] = canvas.SIZE
) -> Figure:
    """The profile that a certificate has, with the ε of every bound, of one run alone and of an attack, at its δ.

    Args:
        certificate: the certificate.
        attack: an ε that an explicit attack achieves at the certificate's δ, if one is known.
        size: of the picture, in inches.
    """
    document, delta = certificate.document, certificate.delta
    epsilons, deltas = (np.array([float(x) for x in document["profile"][name]]) for name in ("epsilon", "delta"))
    axes = canvas.new_axes(size, *_PROFILE)
    kept = deltas > 1e-12
    axes.plot(epsilons[kept], deltas[kept], color=canvas.BLUE, label="what the release costs, at most")
    others = {name: float(epsilon) for name, epsilon in document["bounds"].items() if name != document["bound"]}
    for (name, epsilon), marker in zip(others.items(), "D^vp<>", strict=False):
        words = f"the same by {BOUNDS.get(name, name)}"
        _mark(axes, epsilon, delta, words, marker=marker, color=canvas.PURPLE, fillstyle="none")
    alone = min((float(value) for value in document["one_run"].values()), default=math.inf)
    _mark(axes, alone, delta, "one run alone would have claimed", marker="s", color=canvas.ORANGE)
    if attack:
        _mark(axes, attack, delta, _ATTACK, **_CROSS)
    _mark_cost(axes, certificate.epsilon, delta)
    return _finish(axes, min(1e-9, delta / 10) if delta else 1e-9)


def audit_profile(
    guarantee: Guarantee, worst: WorstCase, found: Audit, *, size: tuple[float, float] = canvas.SIZE
) -> Figure:
    """Three curves, each below the one before: what is claimed, what the worst case achieves, what runs have proven.

    Args:
        guarantee: what the search claims, for any policy in the band.
        worst: its worst case.
        found: what came of :meth:`dphypo.audit.WorstCase.audit`.
        size: of the picture, in inches.
    """
    least = min(1e-6, found.delta / 10)
    epsilons, claimed = guarantee.profile(60)
    last = float(next((one for one, delta in zip(epsilons, claimed, strict=True) if delta < least), epsilons[-1]))
    axes = canvas.new_axes(size, *_PROFILE)
    fine, seen = np.linspace(0.0, last, 300), np.linspace(0.0, found.epsilon, 3000)  # the last falls steeply at its end
    proven = [found.delta_at(float(epsilon)) for epsilon in seen]
    how = f"proven by {found.repetitions} searches on each side, confidence {found.confidence:.10g}"
    axes.plot(epsilons, claimed, color=canvas.BLUE, label="claimed: no policy in the band costs more")
    axes.plot(fine, [worst.attack_delta(float(one)) for one in fine], "--", color=canvas.ORANGE, label="worst case")
    axes.plot(seen, proven, "-.", color=canvas.GREEN, label=how)
    _mark(axes, found.epsilon, found.delta, f"proven at δ = {found.delta:g}", marker="o", color=canvas.GREEN)
    return _finish(axes, least, last)


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
    axes = canvas.new_axes(size, label, f"ε at δ = {delta:g}")
    for (colour, line, marker), (name, guarantees) in zip(cycle(canvas.STYLES), curves.items(), strict=False):
        epsilons = [guarantee.epsilon(delta) for guarantee in guarantees]
        axes.plot(places, epsilons, color=colour, linestyle=line, marker=marker, label=name)
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
    return canvas.with_legend(axes)


def sampling_density(
    weights: npt.ArrayLike,
    band: BandLike,
    *,
    prior: npt.ArrayLike | None = None,
    places: npt.ArrayLike | None = None,
    projection: Projection = _PAPER,
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
        projection: how the weights are projected.
        label: of the axis.
        size: of the picture, in inches.

    >>> figure = sampling_density([1, 4, 9, 4, 1], Band(0.75, 2))
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['asked for by the search rule', 'drawn from, after projection', 'prior', 'between 0.75 and 2 times the prior']
    """
    band = Band.of(band)
    after = band.project(weights, prior, projection)
    before = np.asarray(weights, dtype=np.float64)
    before = before / before.sum()
    masses = np.full(len(before), 1 / len(before)) if prior is None else np.asarray(prior, dtype=np.float64)
    where = np.arange(1, len(before) + 1) if places is None else np.asarray(places, dtype=np.float64)
    if where.shape != before.shape:
        raise _validate.fail("places", f"{where.shape}", f"give one place for each of the {len(before)} weights")
    axes = canvas.new_axes(size, label, "probability of a cell")
    axes.plot(where, before, color=canvas.ORANGE, linestyle="--", label="asked for by the search rule")
    axes.plot(where, after, color=canvas.BLUE, linewidth=2.2, label="drawn from, after projection")
    axes.plot(where, masses, color=canvas.QUIET, linewidth=1, label="prior")
    for limit in (band.c, band.C):
        axes.plot(where, limit * masses, color=canvas.QUIET, linewidth=1, linestyle=":")
        spot, above = (float(where[-1]), float(limit * masses[-1])), limit > 1
        place: dict[str, Any] = {"xytext": (0, 3 if above else -3), "va": "bottom" if above else "top", "ha": "right"}
        axes.annotate(f"{limit:g} × prior", spot, textcoords="offset points", fontsize=9, color=canvas.INK, **place)
    between = f"between {band.c:g} and {band.C:g} times the prior"
    axes.fill_between(where, band.c * masses, band.C * masses, color=canvas.BLUE, alpha=0.1, linewidth=0, label=between)
    if places is not None and where.min() > 0 and where.max() / where.min() >= 30:
        axes.set_xscale("log")
    axes.set_ylim(bottom=0.0)
    return canvas.with_legend(axes)


def _mark(axes: Axes, epsilon: float, delta: float, label: str, **look: Any) -> None:
    """A marker at (ε, δ). There is no δ = 0 on a logarithmic axis: it stands on the lower edge of the picture."""
    if not math.isfinite(epsilon):
        return
    if delta == 0:
        look |= {"transform": axes.get_xaxis_transform(), "clip_on": False}
    axes.plot([epsilon], [delta], linestyle="none", label=label, **({"zorder": 3} | look))


def _mark_cost(axes: Axes, epsilon: float, delta: float) -> None:
    edge = " (at the lower edge)" if delta == 0 else ""
    words = f"ε = {round_up(epsilon, 5):.5f} at δ = {delta:g}{edge}" if math.isfinite(epsilon) else ""
    _mark(axes, epsilon, delta, words, marker="o", color=canvas.INK, markersize=7)


def _finish(axes: Axes, least: float, last: float | None = None) -> Figure:
    axes.set_yscale("log")
    axes.set_ylim(max(least / 2, 1e-12), 1.0)
    axes.set_xlim(0.0, last)
    return canvas.with_legend(axes, 2 if cast("Figure", axes.figure).get_figwidth() > 6 else 1)
