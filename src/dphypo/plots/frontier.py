"""The frontier of ε, compute and score: what more of one buys of another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dphypo import _validate
from dphypo.plots import canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_LINES = 6
_FILLED = "filled: nothing that costs no more is better"


@dataclass(frozen=True)
class FrontierPoint:
    """One way to spend a budget: what it costs in privacy and in compute, and what it reaches.

    Args:
        label: the name of the search, such as "uniform, geometric".
        epsilon: ε of all that is released.
        compute: in full runs.
        score: expected, or measured.

    >>> FrontierPoint("survey", 8.0, 10, 0.97)
    FrontierPoint(label='survey', epsilon=8.0, compute=10.0, score=0.97)
    """

    label: str
    epsilon: float
    compute: float
    score: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _validate.non_negative(epsilon=self.epsilon))
        object.__setattr__(self, "compute", _validate.positive(compute=self.compute))
        object.__setattr__(self, "score", _validate.number(score=self.score))


def frontier_points(document: Any) -> list[FrontierPoint]:
    """The points in a JSON document: a list of rows, or what ``dphypo plan --landscape … --json`` prints.

    Designs of a plan that have no expected score are left out.

    >>> plan = {"epsilon": 8, "designs": [{"design": "no tuning", "compute": 1, "expected_score": 0.9}]}
    >>> frontier_points(plan)
    [FrontierPoint(label='no tuning', epsilon=8.0, compute=1.0, score=0.9)]
    """
    try:
        if isinstance(document, Mapping):
            rows = [row for row in document["designs"] if row["expected_score"] is not None]
            epsilon = document["epsilon"]
            return [FrontierPoint(row["design"], epsilon, row["compute"], row["expected_score"]) for row in rows]
        return [FrontierPoint(row["label"], row["epsilon"], row["compute"], row["score"]) for row in document]
    except (KeyError, TypeError) as error:
        raise ValueError(
            "the document is not a list of objects with label, epsilon, compute and score, nor what dphypo plan --json "
            f"prints ({type(error).__name__}: {error})"
        ) from None


def unbeaten(points: Iterable[FrontierPoint], *, maximize: bool = True) -> list[FrontierPoint]:
    """The points that no other beats: none has at most their ε and compute and a score that is better.

    Of points that are alike in all three, each stays.

    >>> cheap, dear, bad = FrontierPoint("a", 1, 5, 0.8), FrontierPoint("a", 1, 9, 0.9), FrontierPoint("b", 2, 9, 0.7)
    >>> unbeaten([cheap, dear, bad]) == [cheap, dear]
    True
    """
    kept = list(points)
    sign = 1.0 if maximize else -1.0

    def beats(one: FrontierPoint, other: FrontierPoint) -> bool:
        no_dearer = one.epsilon <= other.epsilon and one.compute <= other.compute
        cheaper = one.epsilon < other.epsilon or one.compute < other.compute
        better, as_good = sign * one.score > sign * other.score, one.score == other.score
        return no_dearer and (better or (as_good and cheaper))

    return [point for point in kept if not any(beats(other, point) for other in kept)]


def frontier(
    points: Sequence[FrontierPoint],
    *,
    maximize: bool = True,
    score: str = "score",
    size: tuple[float, float] = canvas.SIZE,
) -> Figure:
    """Score against compute, a colour for each ε; filled where nothing that costs no more is better.

    Args:
        points: the searches that are compared.
        maximize: whether larger scores are better.
        score: what the score is, for the axis: "accuracy".
        size: of the picture, in inches.

    >>> figure = frontier([FrontierPoint("survey", 8, 3, 0.96), FrontierPoint("survey", 8, 9, 0.97)], score="accuracy")
    >>> figure.axes[0].get_ylabel()
    'accuracy of what is released'
    """
    if not points:
        raise _validate.fail("points", points, "give one search or more")
    epsilons = sorted({point.epsilon for point in points})
    if len(epsilons) > _MOST_LINES:
        raise _validate.fail("points", f"{len(epsilons)} values of epsilon", f"give at most {_MOST_LINES} of them")
    best = set(map(id, unbeaten(points, maximize=maximize)))
    labels = list(dict.fromkeys(point.label for point in points))
    markers = dict(zip(labels, "os^Dv<>pPX*h" * (len(labels) // 12 + 1), strict=False))
    figure = canvas.new_figure(size)
    axes = canvas.add_axes(figure, xlabel="compute (full runs)", ylabel=f"{score} of what is released", title=_FILLED)
    for colour, epsilon in zip(_shades(len(epsilons)), epsilons, strict=True):
        mine = [point for point in points if point.epsilon == epsilon]
        for point in mine:
            face = colour if id(point) in best else canvas.PAPER
            axes.plot(point.compute, point.score, markers[point.label], color=colour, markerfacecolor=face)
        line = sorted(unbeaten(mine, maximize=maximize), key=lambda point: point.compute)
        path = [p.compute for p in line], [p.score for p in line]
        axes.plot(*path, color=colour, linewidth=1.8, zorder=1.5, label=f"best at ε = {epsilon:g}")
    axes.set_xscale("log")
    computes = sorted({point.compute for point in points})
    if len(computes) <= 8:
        axes.set_xticks(computes, [f"{compute:g}" for compute in computes])
        axes.set_xticks([], minor=True)
    for label in labels:
        axes.plot([], [], markers[label], color=canvas.INK, fillstyle="none", label=canvas.plain(label))
    canvas.legend(figure)
    return figure


def _shades(count: int) -> list[str]:
    """From pale to dark, larger ε darker; in a picture on white all have a contrast of 3 to 1."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    palette = colormaps["viridis"]
    return [to_hex(palette(0.62 - 0.62 * index / max(1, count - 1))) for index in range(count)]
