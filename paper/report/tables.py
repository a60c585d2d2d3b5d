"""Tables 1 and 2, Figure 1, budgets and equal budgets as text."""

from __future__ import annotations

from typing import Any

import numpy as np

from paper.report.markdown import markdown


def _by_gamma(result: dict[str, Any], digits: int) -> str:
    header = ["γ", *(f"{gamma:g}" for gamma in result["gamma"])]
    rows: list[list[object]] = []
    for name, values in result["printed"].items():
        rows.append([f"*paper: {name}*", *values])
    few = {f"{name}, 200 searches": row for name, row in result["rows of the paper's number of runs"].items()}
    for name, row in {**few, **result["rows"]}.items():
        rows.append(
            [name, *(f"{m:.{digits}f} ± {h:.{digits}f}" for m, h in zip(row["mean"], row["half"], strict=True))]
        )
    rows.append(["Uniform, exact", *(f"{value:.{digits}f}" for value in result["Uniform, exact"])])
    for key, words in _COMPARISONS.items():
        for name, row in result[key].items():
            pairs = zip(row["mean"], row["half"], strict=True)
            rows.append([f"{name} − Uniform{words}", *(f"{m:+.{digits}f} ± {h:.{digits}f}" for m, h in pairs)])
    return markdown(header, rows)


_COMPARISONS = {"less Uniform": "", "less Uniform, all runs counted": ", all runs counted"}


def table1(result: dict[str, Any]) -> str:
    """Table 1, and what follows from it."""
    gap = np.array(result["Uniform, exact"]) - np.array(result["printed"]["Uniform"])
    agree = "within" if np.abs(gap).max() <= 0.01 else "NOT within"
    return (
        f"Means of {result['runs']} searches with 95 % intervals, and of the first 200, the paper's number; σ = 0.64 "
        "for Uniform, 0.71 for the adaptive arms; score noise 0.1; band (0.75, 2).\n\n"
        + _by_gamma(result, 4)
        + f"\n\nUniform's row is {agree} 0.01 of the printed one at every γ "
        + f"(largest difference {np.abs(gap).max():.4f}). "
        + _signs(result)
    )


def _signs(result: dict[str, Any], better: float = 1.0) -> str:
    texts = []
    for key, words in _COMPARISONS.items():
        parts = []
        for name, row in result[key].items():
            mean, half = better * np.array(row["mean"]), np.array(row["half"])
            counts = [int(which.sum()) for which in (mean > half, mean < -half, np.abs(mean) <= half)]
            parts.append(f"{name}: {counts[0]}, {counts[1]} and {counts[2]}")
        texts.append(f"Better, worse and undecided values of γ{words}: " + "; ".join(parts) + ".")
    return "Against Uniform's exact value, by 95 % intervals. " + " ".join(texts)


def table2(result: dict[str, Any]) -> str:
    """Table 2, and what follows from it."""
    return (
        f"Means of {result['runs']} searches with 95 % intervals, and of the first 200, the paper's number. Its "
        "task is proprietary: its losses (in italics) are of another task, and only directions compare.\n\n"
        + _by_gamma(result, 4)
        + "\n\n"
        + _signs(result, -1.0)
    )


def figure1(result: dict[str, Any]) -> str:
    """Figure 1 and some of its points."""
    rows = []
    panels = {**result["panels"], "CIFAR-10, real coarse grid": result["CIFAR-10, real coarse grid"]}
    for task, panel in panels.items():
        sign = -1 if panel["score"] == "loss" else 1
        uniform = panel["rows"]["Uniform"]
        for name, row in panel["rows"].items():
            if name == "Uniform":
                continue
            for n in sorted({int(np.abs(np.array(panel["T"]) - wanted).argmin()) for wanted in (3, 10, 30, 100, 300)}):
                gain = sign * (row["mean"][n] - uniform["mean"][n])
                half = float(np.hypot(row["half"][n], uniform["half"][n]))
                verdict = "better" if gain > half else "worse" if gain < -half else "undecided"
                rows.append([task, name, panel["T"][n], f"{row['mean'][n]:.4f}", f"{uniform['mean'][n]:.4f}", verdict])
    return "![Figure 1](results/figure1.png)\n\n" + markdown(
        ["task", "search", "T", "its score", "Uniform's", "against Uniform (95 %)"], rows
    )


_TASKS = ("MNIST", "CIFAR-10", "federated")
_BOUNDS = {"paper's theorem": "the paper's theorem", "sharpest": "the sharpest bound"}


def budgets(result: dict[str, Any]) -> str:
    """What the arms cost."""
    rows = []
    for task in _TASKS:
        for name, values in result[task].items():
            for bound in _BOUNDS:
                rows.append([task, name, bound, *(f"{value[bound]:.2f}" for value in values)])
    stated = ", ".join(f"{value:g} for {task}" for task, value in result["stated by the paper"].items())
    table = markdown(["task", "arm", "bound", *(f"γ = {gamma:g}" for gamma in result["gamma"])], rows)
    apart = []
    for task, arm, bound in [(t, a, b) for t in _TASKS for a in result[t] if a != "Uniform" for b in _BOUNDS]:
        gap = [a[bound] - b[bound] for a, b in zip(result[task][arm], result[task]["Uniform"], strict=True)]
        apart.append(
            f"{task}{'' if arm == 'GP' else ', ' + arm}, by {_BOUNDS[bound]}, {min(gap):+.2f} to {max(gap):+.2f}"
        )
    text = f"δ = {result['delta']:g}. The paper states ε = {stated}, for every γ.\n\n{table}\n\n"
    return text + "What the adaptive arm costs more than the uniform one, over all γ: " + "; ".join(apart) + "."


def equal(result: dict[str, Any]) -> str:
    """The comparisons at equal ε, and how they end."""
    rows, better = [], {"GP": [0, 0, 0], "ours": [0, 0, 0], "more": [0, 0]}
    for row in result["rows"]:
        more, sign = row["uniform, more runs"], -1 if row["score"] == "loss" else 1
        for name in ("GP", "ours"):
            gain = sign * (row[name]["mean"] - row["Uniform"])
            better[name][1 if abs(gain) <= row[name]["half"] else 0 if gain > 0 else 2] += 1
        leader = max((row["GP"], row["ours"]), key=lambda found: sign * found["mean"])
        better["more"][0 if sign * (more["mean"] - leader["mean"]) > leader["half"] else 1] += 1
        rows.append(
            [row["task"], row["arm"] if row["arm"] != "GP" else "(0.75, 2)", row["bound"], row["gamma"],
             f"{row['epsilon']:.2f}", f"{row['epsilon of the paper' + chr(39) + 's adaptive arm']:.2f}",
             row["adaptive noise"], f"{row['Uniform']:.4f}",
             *(f"{row[n]['mean']:.4f} ± {row[n]['half']:.4f}" for n in ("GP", "ours")),
             f"{more['mean']:.4f} ({more['mean runs']:.0f})"]
        )  # fmt: skip
    table = markdown(
        ["task", "band", "bound", "γ", "ε, both arms", "ε of the paper's adaptive arm", "σ, adaptive", "Uniform", "GP",
         "ours", "uniform at the adaptive σ (mean runs)"], rows,
    )  # fmt: skip
    words = [
        f"{name} is better than Uniform in {counts[0]}, worse in {counts[2]} and undecided in {counts[1]}"
        for name, counts in list(better.items())[:2]
    ]
    text = (
        f"Of {len(rows)} comparisons, by 95 % intervals, {'; '.join(words)}. Uniform search with more runs is better "
    )
    return f"{text}than the better of both adaptive ones in {better['more'][0]}.\n\n{table}"
