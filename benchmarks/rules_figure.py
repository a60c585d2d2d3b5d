"""The figure of ``benchmarks/rules.py``: one panel a landscape, one line a search, with 95 % intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.rules import Comparison

COLOURS = {"paper": "#8c564b", "GaussianProcess": "#1f77b4"}
COLUMNS = 4


def draw(comparisons: Sequence[Comparison], path: Path) -> None:
    """Write the figure."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = list(comparisons[0].uniform_regret)
    labels = [f"{search}  {comparison.band}" for comparison in comparisons for search in comparison.cuts]
    rows = -(-len(names) // COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(15, 3.6 * rows), sharey=True, layout="constrained")
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    for axis, name in zip(axes.flat, names, strict=False):
        place = 0
        for comparison in comparisons:
            for search, cuts in comparison.cuts.items():
                cut = cuts[name]
                colour = COLOURS[search.split()[0]]
                axis.errorbar(100 * cut.value, -place, xerr=100 * cut.margin, fmt="o", ms=4, capsize=2, color=colour)
                place += 1
            axis.axhline(0.5 - place, color="0.8", lw=0.8)
        axis.axvline(0, color="0.4", lw=0.8)
        axis.set_title(name, fontsize=10)
        axis.tick_params(labelsize=8)
    for axis in axes[:, 0]:
        axis.set_yticks([-place for place in range(len(labels))], labels)
    figure.supxlabel(
        f"regret of the release below that of uniform search at the same T and band, % "
        f"({comparisons[0].repetitions} paired repetitions, 95 % intervals)"
    )
    figure.savefig(path, dpi=80)
    plt.close(figure)
