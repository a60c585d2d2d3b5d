"""Figures of searches in stages: the score against compute at three ε, one figure a task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from paper.report.figures import save

# Name of a search -> label, colour (Okabe and Ito's, which the colour-blind tell apart), line and marker.
LINES = {
    "stages, default design": ("stages, default design", "#D55E00", "-", "o"),
    "stages, design from the other tasks": ("stages, design from the other two tasks", "#CC79A7", "-", "D"),
    "uniform, best law": ("uniform, its best law of T", "#0072B2", "--", "s"),
    "ours, (0.85, 1.25), best law": ("our default sampler in (0.85, 1.25), best law", "#009E73", "-.", "^"),
    "paper's GP, best law": ("paper's GP in (0.75, 2), best law", "#E69F00", "-.", "v"),
    "uniform, geometric T": ("uniform, geometric T", "#000000", ":", "s"),
    "paper's GP, geometric T": ("paper's GP in (0.75, 2), geometric T", "#999999", ":", "v"),
}


def staged(result: dict[str, Any], folder: Path) -> None:
    """One figure a task; what cannot be had at a compute and ε is missing there."""
    for task in dict.fromkeys(row["task"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["task"] == task]
        computes = sorted({row["compute"] for row in rows})
        epsilons = [e for e in sorted({row["epsilon"] for row in rows}) if _complete(rows, e, computes)]
        figure, axes = plt.subplots(1, len(epsilons), figsize=(11, 4.6), layout="constrained", sharey=True)
        for axis, epsilon in zip(axes, epsilons, strict=True):
            here = [row for row in rows if row["epsilon"] == epsilon]
            _panel(axis, here)
            axis.set_title(f"{task}, ε = {epsilon:g}")
            axis.set(xlabel="expected compute, in full runs", xscale="log", xticks=computes)
            axis.set_xticks([], minor=True)
            axis.set_xticklabels([f"{compute:g}" for compute in computes])
            axis.grid(alpha=0.3)
        loss = rows[0]["task"] == "federated"
        axes[0].set_ylabel("test loss of what is released (lower is better)" if loss else "test accuracy released")
        if loss:
            axes[0].invert_yaxis()
        handles, labels = _legend(axes)
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=9, frameon=False)
        save(figure, folder, f"staged-{task.lower()}")


def _complete(rows: list[dict[str, Any]], epsilon: float, computes: list[float]) -> bool:
    return [row["compute"] for row in rows if row["epsilon"] == epsilon] == computes


def _panel(axis: Axes, rows: list[dict[str, Any]]) -> None:
    axis.plot(
        [row["compute"] for row in rows],
        [row["best cell"] for row in rows],
        color="#BBBBBB",
        linewidth=1,
        label="best cell at the least noise",
    )
    for name, (label, colour, style, marker) in LINES.items():
        found = [(row["compute"], row["searches"][name]) for row in rows if name in row["searches"]]
        place = [compute for compute, _ in found]
        mean, half = (np.array([one[key] for _, one in found]) for key in ("mean", "half"))
        wide = 2.2 if name == "stages, default design" else 1.3
        axis.errorbar(
            place, mean, half, color=colour, linestyle=style, marker=marker, markersize=4,
            linewidth=wide, capsize=2, label=label,
        )  # fmt: skip


def _legend(axes: Any) -> tuple[list[Any], list[str]]:
    """Every line of any panel once, in order."""
    found: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    order = [label for label, *_ in LINES.values()] + ["best cell at the least noise"]
    labels = [label for label in order if label in found]
    return [found[label] for label in labels], labels
