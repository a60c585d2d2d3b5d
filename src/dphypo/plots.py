"""Pictures: the privacy profile of a certificate, and the scores of a survey while it runs.

Every function returns a ``matplotlib.figure.Figure`` and shows nothing; :func:`save` writes one to a PNG, SVG or PDF
file. ``release.survey.to_optuna()`` gives a study for ``optuna.visualization``, which has every other picture of a
survey. Nothing here touches pyplot, a window or the user's settings. Needs the extra ``plots``: ``pip install
'dphypo[plots]'``.
"""

from __future__ import annotations

import io
import math
import os
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dphypo import _files, _validate
from dphypo.accounting import Certificate
from dphypo.accounting.profiles import round_up
from dphypo.search.release import SurveyTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dphypo.audit import OneRunAudit

COLOURS = {  # by their names in a page, which has another shade of each for the dark
    "ink": "#1f2328", "quiet": "#59636e", "grid": "#d9dee3", "paper": "#ffffff", "alarm": "#b3261e",
    # Okabe and Ito's palette, darkened until a line has a contrast of 3 to 1 on white.
    "blue": "#0072b2", "orange": "#d55e00", "purple": "#a64d7f",
}  # fmt: skip
INK, QUIET, GRID, PAPER, ALARM, BLUE, ORANGE, PURPLE = COLOURS.values()
SIZE = (6.4, 4.0)
FORMATS = ("png", "svg", "pdf")
BOUNDS = {  # in the order of a legend
    "profile": "profile (Theorem 4)",
    "composition": "composition",
    "renyi": "Rényi (Theorem 3)",
    "paper": "DP-HyPO, Theorems 1 and 2",
    "history": "history only (Theorem H)",
    "prior start": "first runs from the prior (4′)",
}
_LOCK = Lock()


def certificate_profile(
    certificate: Certificate, *, attack: float | None = None, size: tuple[float, float] = SIZE
) -> Figure:
    """δ against ε as a certificate states it, with the ε of every bound, of one run alone and of an attack at its δ.

    Each point (ε, δ) of the curve is a guarantee: with one record more or less, no event is more likely than e^ε times
    what it was, plus δ.

    Args:
        certificate: the certificate.
        attack: an ε that an explicit attack achieves at the certificate's δ, if one is known.
        size: of the picture, in inches.

    >>> import dphypo
    >>> from dphypo.accounting import PureDp
    >>> certificate = dphypo.account(PureDp(1.0), dphypo.Geometric(mean=10)).certificate(1e-5)
    >>> figure = certificate_profile(certificate)
    >>> [line.get_text() for line in figure.legends[0].get_texts()]
    ['what the release costs, at most', ..., 'one run alone would have claimed', 'ε = 2.5... at δ = 1e-05']
    """
    document, delta = certificate.document, certificate.delta
    epsilons, deltas = (np.array([float(x) for x in document["profile"][name]]) for name in ("epsilon", "delta"))
    axes = _new_axes(size, "ε", "δ that goes with this ε")
    kept = deltas > 1e-12
    axes.plot(epsilons[kept], deltas[kept], color=BLUE, label="what the release costs, at most")
    others = {name: float(epsilon) for name, epsilon in document["bounds"].items() if name != document["bound"]}
    for (name, epsilon), marker in zip(others.items(), "D^vp<>", strict=False):
        words = f"the same by {BOUNDS.get(name, name)}"
        _mark(axes, epsilon, delta, words, marker=marker, color=PURPLE, fillstyle="none")
    alone = min((float(value) for value in document["one_run"].values()), default=math.inf)
    _mark(axes, alone, delta, "one run alone would have claimed", marker="s", color=ORANGE)
    if attack:
        look: dict[str, Any] = {"color": ALARM, "marker": "x", "markersize": 6, "zorder": 4}  # over other markers
        _mark(axes, attack, delta, "explicit attack (lower bound)", **look)
    if math.isfinite(certificate.epsilon):
        edge = " (at the lower edge)" if delta == 0 else ""
        words = f"ε = {round_up(certificate.epsilon, 5):.5f} at δ = {delta:g}{edge}"
        _mark(axes, certificate.epsilon, delta, words, marker="o", color=INK, markersize=7)
    axes.set_yscale("log")
    axes.set_ylim(max((min(1e-9, delta / 10) if delta else 1e-9) / 2, 1e-12), 1.0)
    axes.set_xlim(0.0, None)
    return _with_legend(axes, 2 if size[0] > 6 else 1)


def survey_history(table: SurveyTable, *, size: tuple[float, float] = SIZE) -> Figure:
    """The score of every run of a survey in order, the best so far, and which runs failed.

    Args:
        table: ``release.survey``.
        size: of the picture, in inches.

    >>> from dphypo.search.release import Row
    >>> survey_history(SurveyTable((Row({"lr": 0.1}, 0.9), Row({"lr": 9.0}, None)))).axes[0].get_xlabel()
    'run'
    """
    better = "larger is better" if table.maximize else "smaller is better"
    axes = _new_axes(size, "run", f"score ({better})")
    scores = np.array([row.score for row in table.rows], dtype=np.float64)  # nan where a run failed
    runs, done = np.arange(1, len(scores) + 1), np.isfinite(scores)
    axes.plot(runs[done], scores[done], "o", color=BLUE, markersize=5, label="score of a run")
    if done.any():
        best = (np.fmax if table.maximize else np.fmin).accumulate(scores)  # nan until a run has a score
        axes.step(runs, best, where="post", color=ORANGE, linewidth=1.5, label="best so far")
    if not done.all():
        foot, places = axes.get_xaxis_transform(), np.full(int((~done).sum()), 0.03)
        axes.plot(runs[~done], places, "x", color=ALARM, label=f"failed ({len(places)})", transform=foot)
    axes.set_xlim(0.5, max(len(scores), 1) + 0.5)
    axes.locator_params("x", integer=True)
    return _with_legend(axes, 3)


def audit_bound(found: OneRunAudit) -> Figure:
    """The bounds on ε that an audit of one run proves, against the number of its canaries, and the claim.

    Args:
        found: what :func:`dphypo.audit.one_run` returned.
    """
    from dphypo.audit import epsilon_of

    axes = _new_axes(SIZE, "canaries", f"ε at δ = {found.delta:g}")
    counts = sorted({int(count) for count in np.geomspace(min(50, found.canaries), found.canaries, 8)})
    parts = [found.first(count) for count in counts]
    axes.plot(counts, [part.epsilon for part in parts], "o-", color=BLUE, label="proven of any mechanism")
    if_gaussian = [epsilon_of(part.mu, part.delta) for part in parts]
    axes.plot(counts, if_gaussian, "s--", color=PURPLE, fillstyle="none", label="proven, if it is Gaussian DP")
    if found.apart is not None:
        apart = [epsilon_of(part.mu_apart, part.delta) for part in parts]
        axes.plot(counts, apart, "^:", color=INK, label="the same, with canaries as repetitions")
    if found.claimed is not None:
        axes.axhline(found.claimed, color=ORANGE, label=f"claimed: ε = {round_up(found.claimed, 3):.3f}")
    axes.set_xscale("log")
    axes.set_ylim(0.0, None)
    return _with_legend(axes)


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure as PNG, SVG or PDF, by the end of the name; whole or not at all. An existing file is replaced."""
    target = Path(path)
    kind = target.suffix.lower().lstrip(".")
    if kind not in FORMATS:
        raise _validate.fail("path", str(path), f"the name must end with one of {', '.join('.' + f for f in FORMATS)}")
    _files.refuse_inside_a_release(target)
    return _files.write(target, _drawn(figure, kind))


def require_matplotlib() -> None:
    """Say what to install where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ImportError("pictures need matplotlib: pip install 'dphypo[plots]'") from None


def _new_axes(size: tuple[float, float], xlabel: str, ylabel: str) -> Axes:
    """Axes that fill a new figure: two spines, a faint grid, labels in the ink of the page."""
    require_matplotlib()
    from matplotlib.figure import Figure

    axes = Figure(figsize=size, layout="constrained", facecolor=PAPER).add_subplot()
    axes.set_facecolor(PAPER)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(QUIET)
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", color=QUIET, labelcolor=INK, labelsize=9)
    axes.set_xlabel(xlabel, color=INK, fontsize=10)
    axes.set_ylabel(ylabel, color=INK, fontsize=10)
    return axes


def _mark(axes: Axes, epsilon: float, delta: float, label: str, **look: Any) -> None:
    """A marker at (ε, δ). A logarithmic axis has no δ = 0: the marker is drawn on the lower edge."""
    if not math.isfinite(epsilon):
        return
    if delta == 0:
        look |= {"transform": axes.get_xaxis_transform(), "clip_on": False}
    axes.plot([epsilon], [delta], linestyle="none", label=label, **({"zorder": 3} | look))


def _with_legend(axes: Axes, columns: int = 2) -> Figure:
    """The figure of these axes with their legend below, this many entries side by side."""
    figure = cast("Figure", axes.figure)
    handles, _ = axes.get_legend_handles_labels()
    place: Any = "outside lower center"
    figure.legend(handles=handles, loc=place, ncols=columns, frameon=False, fontsize=9, labelcolor=INK)
    return figure


def to_svg(figure: Figure) -> str:
    """A figure as SVG, its letters as text: the same figure is the same text."""
    return _drawn(figure, "svg").decode("utf-8")


def _drawn(figure: Figure, kind: str) -> bytes:
    import matplotlib as mpl

    drawn = io.BytesIO()
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    # Letters as text, and names that do not change from one drawing to the next: settings of matplotlib.
    with _LOCK, mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "dphypo"}):
        figure.savefig(drawn, format=kind, dpi=160, metadata=metadata)
    return drawn.getvalue()
