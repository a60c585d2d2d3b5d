"""RESULTS.md: the paper's numbers beside ours, written from the results alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from paper import figures, points, worlds
from paper.results import FOLDER, load

PAGE = Path(__file__).parent / "RESULTS.md"


def markdown(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table.

    >>> print(markdown(["a", "b"], [[1, 2]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [header, ["---"] * len(header), *rows]
    texts = ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines]
    texts[1] = "|" + "---|" * len(header)
    return "\n".join(texts)


def shown(name: str) -> str:
    """One result as text."""
    return SECTIONS[name](load(name))


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


def _table1(result: dict[str, Any]) -> str:
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


def _table2(result: dict[str, Any]) -> str:
    return (
        f"Means of {result['runs']} searches with 95 % intervals, and of the first 200, the paper's number. Its "
        "task is proprietary: its losses (in italics) are of another task, and only directions compare.\n\n"
        + _by_gamma(result, 4)
        + "\n\n"
        + _signs(result, -1.0)
    )


def _figure1(result: dict[str, Any]) -> str:
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


def _budgets(result: dict[str, Any]) -> str:
    rows = []
    for task in ("MNIST", "CIFAR-10", "federated"):
        for name, values in result[task].items():
            for bound in ("paper's theorem", "sharpest"):
                rows.append([task, name, bound, *(f"{value[bound]:.2f}" for value in values)])
    stated = ", ".join(f"{value:g} for {task}" for task, value in result["stated by the paper"].items())
    table = markdown(["task", "arm", "bound", *(f"γ = {gamma:g}" for gamma in result["gamma"])], rows)
    apart = []
    for task in ("MNIST", "CIFAR-10"):
        for bound in ("paper's theorem", "sharpest"):
            gap = [a[bound] - b[bound] for a, b in zip(result[task]["GP"], result[task]["Uniform"], strict=True)]
            by = "the paper's theorem" if bound != "sharpest" else "the sharpest bound"
            apart.append(f"{task}, by {by}, {min(gap):+.2f} to {max(gap):+.2f}")
    text = f"δ = {result['delta']:g}. The paper states ε = {stated}, for every γ.\n\n{table}\n\n"
    return text + "What the adaptive arm costs more than the uniform one, over all γ: " + "; ".join(apart) + "."


def _equal(result: dict[str, Any]) -> str:
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


def _frontier(result: dict[str, Any]) -> str:
    texts = ["![regions](results/regions.png)"]
    for task, kind in result["scores"].items():
        here = [row for row in result["rows"] if row["task"] == task]
        sign = -1 if kind == "loss" else 1
        names = list(dict.fromkeys(row["search"] for row in here))
        table = []
        for epsilon, mean in _pairs(here):
            cell = {r["search"]: r for r in here if r["epsilon"] == epsilon and r["mean runs"] == mean}
            known = {name: row for name, row in cell.items() if row["noise multiplier"] is not None}
            best = max(known, key=lambda name: sign * known[name]["mean"]) if known else "–"
            values = [f"{known[name]['mean']:.3f}" if name in known else "–" for name in names]
            table.append([f"{epsilon:g}", mean, *values, best])
        texts.append(f"![frontier](results/frontier-{task.lower()}.png)")
        texts.append(f"**{task}** ({kind}). " + _wins(here, sign))
        texts.append(markdown(["ε", "mean runs", *names, "best"], table))
    return "\n\n".join(texts)


def _pairs(rows: list[dict[str, Any]]) -> list[tuple[float, int]]:
    return sorted({(row["epsilon"], row["mean runs"]) for row in rows})


def gains(rows: list[dict[str, Any]], sign: int) -> dict[tuple[float, int], tuple[float, float]]:
    """By ε and compute: the best adaptive search less the best uniform one, and half the 95 % interval of the former.

    Uniform searches are exact.
    """
    result = {}
    for epsilon, mean in _pairs(rows):
        cell = [r for r in rows if r["epsilon"] == epsilon and r["mean runs"] == mean and r["noise multiplier"]]
        plain = [r for r in cell if r["search"].startswith("uniform")]
        moved = [r for r in cell if not r["search"].startswith("uniform")]
        if plain and moved:
            best = max(moved, key=lambda r: sign * r["mean"])
            result[epsilon, mean] = (sign * best["mean"] - max(sign * r["mean"] for r in plain), best["half"])
    return result


def _wins(rows: list[dict[str, Any]], sign: int) -> str:
    found = gains(rows, sign)
    won = {pair: gain for pair, (gain, half) in found.items() if gain > half}
    lost = sum(gain < -half for gain, half in found.values())
    text = f"Of {len(found)} pairs of ε and compute, the best adaptive search wins {len(won)}, the best uniform one "
    text += f"{lost}, and {len(found) - len(won) - lost} are undecided by 95 % intervals (of so many comparisons one "
    text += "or two come out by chance)."
    where = [f"ε = {epsilon:g} with {mean} runs, by {gain:.3f}" for (epsilon, mean), gain in won.items()]
    return text + (f" Adaptivity wins at {'; '.join(where)}." if where else "")


def _rows_of(result: dict[str, Any]) -> str:
    names = list(next(iter(result.values())))
    return markdown(["", *names], [[key, *values.values()] for key, values in result.items()])


def _validation(result: dict[str, Any]) -> str:
    rows = [[name, length, *values.values()] for name in ("GP", "ours") for length, values in result[name].items()]
    return markdown(["search", "T", "library", "simulator", "difference in standard errors"], rows)


def _speed(result: dict[str, Any]) -> str:
    return markdown(["", "value"], result.items())


def _trainer(result: dict[str, Any]) -> str:
    points_table = markdown(list(result["checked points"][0]), [row.values() for row in result["checked points"]])
    return (
        points_table
        + f"\n\n{result['samples per second']:,.0f} samples a second (640 models at once), Opacus one model at a "
        f"time on the same GPU ({result['device']}) {result['samples per second, Opacus']:,.0f}: a ratio of "
        f"{result['ratio to Opacus']} (target 100)."
    )


SECTIONS = {
    "table1": _table1, "table2": _table2, "figure1": _figure1, "budgets": _budgets, "equal": _equal,
    "frontier": _frontier, "fits": _rows_of, "validation": _validation, "speed": _speed, "trainer": _trainer,
}  # fmt: skip

_TEXT = Path(__file__).parent / "RESULTS.in.md"


def write() -> None:
    """The figures, and the page: the text of RESULTS.in.md with each {{result}} filled in."""
    figures.figure1(load("figure1"), FOLDER)
    frontier = load("frontier")
    figures.frontier(frontier, FOLDER)
    figures.regions(
        {
            task: gains([row for row in frontier["rows"] if row["task"] == task], -1 if kind == "loss" else 1)
            for task, kind in frontier["scores"].items()
        },
        FOLDER,
    )
    figures.landscapes(_panels(), FOLDER)
    page = _TEXT.read_text()
    for name in SECTIONS:
        page = page.replace("{{" + name + "}}", shown(name))
    PAGE.write_text(page)


def _panels() -> dict[str, figures.Panel]:
    coarse = worlds.trained(("cifar-coarse",), 1954).mean(0.65)
    losses = worlds.federated_losses().mean(axis=0)
    return {
        "MNIST, σ = 0.71": figures.Panel(worlds.mnist(0.71).mean, points.MNIST),
        "CIFAR-10, fitted, σ = 0.65": figures.Panel(worlds.cifar(0.65).mean, points.CIFAR),
        "CIFAR-10, trained, σ = 0.65": figures.Panel(coarse, points.CIFAR_COARSE),
        "federated, trained (loss)": figures.Panel(losses, points.FEDERATED, ("server rate", "client rate"), loss=True),
    }
