"""The privacy profile: δ against ε, by every bound, with what an explicit attack achieves.

Each point (ε, δ) of a curve is a guarantee: with one record more or less, no event is more likely than e^ε times what
it was, plus δ.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dphypo import _validate
from dphypo.accounting import Certificate, Composition, Guarantee
from dphypo.accounting.second_opinion import epsilon_from_below
from dphypo.accounting.solve import round_up
from dphypo.audit import WorstCase
from dphypo.audit.empirical import Audit
from dphypo.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Accounted: TypeAlias = Guarantee | Composition

BOUNDS = {
    "paper": "DP-HyPO, Theorems 1 and 2",
    "renyi": "Rényi (Theorem 3)",
    "profile": "profile (Theorem 4)",
    "prior start": "first runs from the prior (4′)",
    "history": "history only (Theorem H)",
    "composition": "composition",
}
_ATTACK = "explicit attack (lower bound)"
_CROSS: dict[str, Any] = {"color": canvas.ALARM, "marker": "x", "markersize": 6, "zorder": 4}  # over other markers
_ORDER = ("profile", "composition", "renyi", "paper", "history", "prior start")


def privacy_profile(
    guarantee: Accounted,
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
    figure = canvas.new_figure(size)
    axes = _axes(figure)
    looks = canvas.styles()
    for name in sorted(curves, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER)):
        look = next(looks)
        axes.plot(curves[name], deltas, color=look.color, linestyle=look.linestyle, label=BOUNDS.get(name, name))
    if attack:
        some = deltas[:: max(1, points // 8)]
        achieved = [epsilon_from_below(guarantee, float(one)) for one in some]
        axes.plot(achieved, some, linestyle="none", label=_ATTACK, **_CROSS)
    _mark_cost(axes, guarantee.epsilon(delta), delta)
    _finish(figure, axes, float(deltas[0]))
    return figure


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
    epsilons, deltas = (_numbers(document["profile"][name]) for name in ("epsilon", "delta"))
    figure = canvas.new_figure(size)
    axes = _axes(figure)
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
    _finish(figure, axes, min(1e-9, delta / 10) if delta else 1e-9)
    return figure


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
    figure = canvas.new_figure(size)
    axes = _axes(figure)
    fine, seen = np.linspace(0.0, last, 300), np.linspace(0.0, found.epsilon, 3000)  # the last falls steeply at its end
    proven = [found.delta_at(float(epsilon)) for epsilon in seen]
    how = f"proven by {found.repetitions} searches on each side, confidence {found.confidence:.10g}"
    axes.plot(epsilons, claimed, color=canvas.BLUE, label="claimed: no policy in the band costs more")
    axes.plot(fine, [worst.attack_delta(float(one)) for one in fine], "--", color=canvas.ORANGE, label="worst case")
    axes.plot(seen, proven, "-.", color=canvas.GREEN, label=how)
    _mark(axes, found.epsilon, found.delta, f"proven at δ = {found.delta:g}", marker="o", color=canvas.GREEN)
    _finish(figure, axes, least)
    axes.set_xlim(0.0, last)
    return figure


def _numbers(values: Any) -> Any:
    return np.array([float(value) for value in values])


def _axes(figure: Figure) -> Axes:
    return canvas.add_axes(figure, xlabel="ε", ylabel="δ that goes with this ε")


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


def _finish(figure: Figure, axes: Axes, least: float) -> None:
    axes.set_yscale("log")
    axes.set_ylim(max(least / 2, 1e-12), 1.0)
    axes.set_xlim(left=0.0)
    canvas.legend(figure, 2 if figure.get_figwidth() > 6 else 1)
