"""Figures from the results: PNG to look at, SVG to print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from paper.data.points import Floats, Grid

mpl.use("Agg")
mpl.rcParams["svg.hashsalt"] = "dphypo"  # the same figure is the same file

from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

COLOURS = {"Uniform": "#0072B2", "GP": "#E69F00", "ours": "#009E73"}  # Okabe and Ito's; in all figures alike
# Of the frontier: name of a search -> colour, line and marker. Both of ours are green.
LINES = {
    "uniform, geometric T": ("#000000", ":", "s"),
    "uniform, shape 8": (COLOURS["Uniform"], "--", "s"),
    "paper's GP, (0.75, 2), geometric T": (COLOURS["GP"], "-", "v"),
    "ours, (0.75, 2), shape 8": ("#8FD175", "-", "^"),
    "ours, (0.85, 1.25), shape 8": (COLOURS["ours"], "-", "o"),
}


def _colour(name: str) -> str:
    return COLOURS[name.split(",")[0]]


def figure1(results: dict[str, Any], folder: Path) -> None:
    """Figure 1: the score of what a search of T runs releases; below, how much better it is than Uniform's."""
    figure, axes = plt.subplots(2, 3, figsize=(13, 7), layout="constrained", sharex="col")
    for (axis, below), (title, panel) in zip(axes.T, results["panels"].items(), strict=True):
        uniform, sign = panel["rows"]["Uniform"], -1 if panel["score"] == "loss" else 1
        for name, row in panel["rows"].items():
            lengths, mean, half = (np.array(v) for v in (panel["T"], row["mean"], row["half"]))
            gain, width = sign * (mean - np.array(uniform["mean"])), np.hypot(half, np.array(uniform["half"]))
            style = {"C = 1.33": "--", "C = 1.25": ":"}.get(name.split(", ")[-1], "-")
            plots = [(axis, mean, half)] if name == "Uniform" else [(axis, mean, half), (below, gain, width)]
            for where, middle, around in plots:
                where.plot(lengths, middle, style, color=_colour(name), label=name)
                if style == "-":  # of bands alike, one interval a rule: six on top of each other hide the lines
                    low, high = middle - around, middle + around
                    where.fill_between(lengths, low, high, color=_colour(name), alpha=0.15, linewidth=0)
        shown = [m for row in panel["rows"].values() for t, m in zip(panel["T"], row["mean"], strict=True) if t >= 2]
        axis.set(title=title, xscale="log", xlim=(2, None), ylim=(min(shown) - 0.01, max(shown) + 0.01))
        axis.set_ylabel(panel["score"])
        axis.legend(fontsize=7)
        below.axhline(0, color=COLOURS["Uniform"])
        below.set(xlabel="T", ylim=(-0.05, 0.05) if sign == -1 else (-0.02, 0.02))
        below.set_ylabel(f"{'less' if sign == -1 else 'more'} {panel['score']} than Uniform")
        _plain(axis, (2, 5, 10, 20, 50, 100, *((200,) if panel["T"][-1] > 200 else ())))
    save(figure, folder, "figure1")


def _plain(axis: Axes, places: Sequence[int]) -> None:
    """Ticks in plain numbers on a logarithmic axis."""
    axis.set_xticks(places, [str(place) for place in places])
    axis.set_xticks([], minor=True)


def frontier(results: dict[str, Any], folder: Path) -> None:
    """The score against compute at three ε, and against ε at three computes, for each task."""
    rows = [row for row in results["rows"] if row["noise multiplier"] is not None]
    searches = list(dict.fromkeys(row["search"] for row in results["rows"]))
    for task, kind in results["scores"].items():
        figure, axes = plt.subplots(2, 3, figsize=(13, 7), layout="constrained", sharey=True)
        here = [row for row in rows if row["task"] == task]
        for axis, epsilon in zip(axes[0], (4.0, 6.0, 8.0), strict=True):
            _lines(axis, searches, [row for row in here if row["epsilon"] == epsilon], "mean runs")
            axis.set(title=f"{task}, ε = {epsilon:g}", xscale="log", xlabel="mean number of runs")
            _plain(axis, sorted({row["mean runs"] for row in rows}))
        for axis, mean in zip(axes[1], (10, 20, 100), strict=True):
            _lines(axis, searches, [row for row in here if row["mean runs"] == mean], "epsilon")
            axis.set(title=f"{task}, mean of {mean} runs", xlabel="ε (δ = 1e-5)")
        axes[0, 0].legend(fontsize=7)
        for axis in axes[:, 0]:
            axis.set_ylabel(f"{kind} of what is released")
        save(figure, folder, f"frontier-{task.lower()}")


def _lines(axis: Axes, searches: list[str], rows: list[dict[str, Any]], along: str) -> None:
    for name in searches:
        mine = sorted((row for row in rows if row["search"] == name), key=lambda row: float(row[along]))
        place, mean, half = (np.array([row[key] for row in mine]) for key in (along, "mean", "half"))
        colour, style, marker = LINES[name]
        axis.errorbar(place, mean, half, fmt=style + marker, markersize=4, color=colour, label=name, capsize=2)


def regions(gains: dict[str, dict[tuple[float, int], tuple[float, float]]], folder: Path) -> None:
    """Where adaptivity wins: the best adaptive search less the best uniform one, by ε and compute, for each task."""
    figure, axes = plt.subplots(1, len(gains), figsize=(4.4 * len(gains), 3.6), layout="constrained")
    for axis, (task, found) in zip(axes, gains.items(), strict=True):
        across, up = (sorted({pair[n] for pair in found}) for n in (0, 1))
        values = np.full((len(up), len(across)), np.nan)
        for (epsilon, mean), (gain, half) in found.items():
            row, column = up.index(mean), across.index(epsilon)
            values[row, column] = 0.0 if abs(gain) <= half else np.sign(gain)
            value = f"{gain:+.3f}" if abs(gain) >= 0.0005 else "0.000"
            text = value if abs(gain) > half else f"({value})"
            axis.text(column, row, text, ha="center", va="center", fontsize=7)
        axis.imshow(values, origin="lower", aspect="auto", cmap="PiYG", vmin=-1.6, vmax=1.6)
        axis.set_xticks(range(len(across)), [f"{epsilon:g}" for epsilon in across])
        axis.set_yticks(range(len(up)), [str(mean) for mean in up])
        axis.set(title=task, xlabel="ε (δ = 1e-5)", ylabel="mean number of runs")
    figure.suptitle(
        "What the best adaptive search gains over the best uniform one (accuracy; federated: loss): "
        "green better, pink worse, in brackets undecided",
        fontsize=10,
    )
    save(figure, folder, "regions")


@dataclass(frozen=True)
class Panel:
    """A landscape on a grid, first axis upwards."""

    values: Any
    grid: Grid
    names: tuple[str, str] = ("learning rate", "clipping norm")
    loss: bool = False


def landscapes(panels: dict[str, Panel], folder: Path) -> None:
    """The landscapes, bright where they are good."""
    figure, axes = plt.subplots(1, len(panels), figsize=(3.8 * len(panels), 3.3), layout="constrained")
    for axis, (title, panel) in zip(axes, panels.items(), strict=True):
        shape = len(panel.grid.first), len(panel.grid.second)
        colours = "viridis_r" if panel.loss else "viridis"
        image = axis.imshow(np.reshape(panel.values, shape), aspect="auto", origin="lower", cmap=colours)
        axis.set(title=title, ylabel=panel.names[0], xlabel=panel.names[1])
        axis.set_yticks(*_few(panel.grid.first))
        axis.set_xticks(*_few(panel.grid.second))
        bar = figure.colorbar(image, ax=axis, shrink=0.8)
        bar.ax.set_title("loss" if panel.loss else "accuracy", fontsize=7, loc="left")  # beside it stands the next axis
    save(figure, folder, "landscapes")


def _few(values: Floats) -> tuple[list[int], list[str]]:
    """Four of the values, with their places."""
    places = np.linspace(0, len(values) - 1, 4).round().astype(int).tolist()
    return places, [f"{float(f'{values[place]:.2g}'):g}" for place in places]


def save(figure: Figure, folder: Path, name: str) -> None:
    """As PNG and SVG, without a date: the same figure is the same file."""
    figure.savefig(folder / f"{name}.png", dpi=110)
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)
