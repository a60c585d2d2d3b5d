"""Figures from the results: PNG to look at, SVG to print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
mpl.rcParams["svg.hashsalt"] = "dphypo"  # the same figure is the same file

from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

COLOURS = {"Uniform": "tab:blue", "GP": "tab:orange", "ours": "tab:green"}


def _colour(name: str) -> str:
    return COLOURS[name.split(",")[0]]


def figure1(results: dict[str, Any], folder: Path) -> None:
    """Figure 1: the score of what a search of T runs releases."""
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    for axis, (title, panel) in zip(axes, results["panels"].items(), strict=True):
        for name, row in panel["rows"].items():
            lengths, mean, half = (np.array(v) for v in (panel["T"], row["mean"], row["half"]))
            style = {"C = 1.33": "--", "C = 1.25": ":"}.get(name.split(", ")[-1], "-")
            axis.plot(lengths, mean, style, color=_colour(name), label=name)
            axis.fill_between(lengths, mean - half, mean + half, color=_colour(name), alpha=0.2, linewidth=0)
        axis.set(title=title, xlabel="T", xscale="log", ylabel=panel["score"])
        axis.set_xlim(2, None)
        shown = [m for row in panel["rows"].values() for t, m in zip(panel["T"], row["mean"], strict=True) if t >= 2]
        axis.set_ylim(min(shown) - 0.01, max(shown) + 0.01)
        axis.legend(fontsize=7)
    _save(figure, folder, "figure1")


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
        for axis, mean in zip(axes[1], (10, 20, 100), strict=True):
            _lines(axis, searches, [row for row in here if row["mean runs"] == mean], "epsilon")
            axis.set(title=f"{task}, mean of {mean} runs", xlabel="ε (δ = 1e-5)")
        axes[0, 0].legend(fontsize=7)
        for axis in axes[:, 0]:
            axis.set_ylabel(f"{kind} of what is released")
        _save(figure, folder, f"frontier-{task.lower()}")


def _lines(axis: Axes, searches: list[str], rows: list[dict[str, Any]], along: str) -> None:
    for number, name in enumerate(searches):  # a search has one colour in every panel, also where others are missing
        mine = sorted((row for row in rows if row["search"] == name), key=lambda row: float(row[along]))
        place, mean, half = (np.array([row[key] for row in mine]) for key in (along, "mean", "half"))
        style = "--" if name.startswith("uniform") else "-"
        axis.errorbar(place, mean, half, fmt=style + "o", markersize=3, color=f"C{number}", label=name, capsize=2)


def landscapes(panels: dict[str, tuple[Any, tuple[str, str]]], folder: Path) -> None:
    """The landscapes, first axis down, second across."""
    figure, axes = plt.subplots(1, len(panels), figsize=(3.4 * len(panels), 3.2), layout="constrained")
    for axis, (title, (values, labels)) in zip(axes, panels.items(), strict=True):
        image = axis.imshow(values, aspect="auto", origin="lower")
        axis.set(title=title, ylabel=labels[0], xlabel=labels[1], xticks=[], yticks=[])
        figure.colorbar(image, ax=axis, shrink=0.8)
    _save(figure, folder, "landscapes")


def _save(figure: Figure, folder: Path, name: str) -> None:
    figure.savefig(folder / f"{name}.png", dpi=110)
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)
