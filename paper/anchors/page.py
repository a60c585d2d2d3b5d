"""ANCHORS.md: published accuracies with the tuning paid for, written from what was trained."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from paper.anchors import federated_drift, judge, one_dimension, plans
from paper.rates import judge_anchors
from paper.report.markdown import markdown

FOLDER = Path(__file__).parents[1] / "results" / "anchors"
PAGE = Path(__file__).parents[1] / "ANCHORS.md"
TEXT = PAGE.with_name("ANCHORS.in.md")
NAMES = {
    "mnist": "MNIST, scattering + linear",
    "fashion": "Fashion-MNIST, scattering + linear",
    "cifar10": "CIFAR-10, scattering + linear",
    "cifar10-cnn": "CIFAR-10, scattering + CNN",
    "mnist-again": "MNIST, scattering + linear, once more",
    "cifar10-wide": "CIFAR-10, WRN-16-4, ε = 1",
}
MISSING = "*Not trained yet.*"


def results(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """What was trained, by task."""
    paths = {name: folder / f"anchors-{name}.json" for name in NAMES}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}


def summary(found: dict[str, dict[str, Any]], planned: dict[str, Any]) -> str:
    """A row for each task: ours beside what was published, the best rival and what hindsight reaches."""
    rows = []
    for name, result in found.items():
        ways, declared = result["ways"], planned["tasks"][name]
        ours = next(way for way in declared["ways"] if way["name"] == "ours")
        rivals = {key: one for key, one in ways.items() if _is_rival(key)}
        best = max(rivals, key=lambda key: float(rivals[key]["mean"]), default="")
        top = ways.get("best in hindsight, not charged")
        rows.append([
            NAMES[name], f"{declared['task']['published']:.3f}", accuracy(ways["ours"]), f"{ways['ours']['worst']:.4f}",
            len(ways["ours"]["released"]), f"{100 * ours['price']:.2f} %", f"{ways['ours']['compute']:.2f}",
            f"{accuracy(rivals[best])} ({best})" if best else "", accuracy(top) if top else "",
        ])  # fmt: skip
    heads = ["task", "published, not charged", "ours, everything charged", "worst", "searches", "more noise for tuning",
             "compute", "best rival, charged", "best in hindsight, not charged"]  # fmt: skip
    return markdown(heads, rows) if rows else MISSING


def structures(folder: Path = FOLDER) -> str:
    """What the pilot found."""
    if not (path := folder / "pilot.json").exists():
        return MISSING
    found = json.loads(path.read_text())
    rows = [[f"**{name}**" if name == found["chosen"] else name, f"{one['best']:.4f}", f"{one['at']:.2g}"]
            for name, one in found["structures"].items()]  # fmt: skip
    return markdown(["structure", "held-out accuracy", "at the learning rate"], rows)


def recipes(folder: Path = FOLDER) -> str:
    """What the second pilot found."""
    if not (path := folder / "recipes.json").exists():
        return MISSING
    found = {name: one for name, one in json.loads(path.read_text()).items() if name != "provenance"}
    words = {name: name.split(" | ") for name in found}
    rows = [[words[name][0], "; ".join(words[name][1:]), f"{one['best']:.4f}", f"{one['at']:.2g}"]
            for name, one in found.items()]  # fmt: skip
    return markdown(["task", "what was tried", "held-out accuracy", "at the learning rate"], rows)


def earlier(plan: str, folder: Path = FOLDER) -> str:
    """What an earlier plan reached."""
    found = json.loads((folder / f"{plan}-plan.json").read_text())
    names = list(dict.fromkeys(way for one in found.values() for way in one))
    rows = [[way, *(f"{accuracy(one[way])}, {one[way]['worst']:.4f}" if way in one else "" for one in found.values())]
            for way in names]  # fmt: skip
    return markdown(["way to tune: mean, worst", *(NAMES[name] for name in found)], rows)


def picture(found: dict[str, dict[str, Any]], planned: dict[str, Any], folder: Path = FOLDER) -> str:
    """A panel for each task: the mean of each way with its interval, the worst search, and what was published."""
    if not found:
        return ""
    from matplotlib import pyplot as plt

    from paper.report.figures import COLOURS, save

    figure, axes = plt.subplots(2, 2, figsize=(12, 6), layout="constrained")
    for axis, (name, result) in zip(axes.flat, found.items(), strict=False):  # the first four tasks
        rows, published = list(result["ways"].items()), planned["tasks"][name]["task"]["published"]
        best = max(row["mean"] for _, row in rows)
        low = max(min(row["worst"] for _, row in rows), best - 0.04) - 0.002
        for place, (way, row) in enumerate(rows):
            colour = COLOURS["ours"] if way.startswith("ours") else "#555555"
            if row["mean"] < low:
                axis.text(low, place, f" ← {row['mean']:.3f}", color=colour, va="center")
                continue
            axis.errorbar(row["mean"], place, xerr=row["half"], fmt="o", color=colour, capsize=3)
            axis.plot(max(row["worst"], low), place, "|", color=colour, markersize=9)
        axis.axvline(published, color=COLOURS["GP"], linestyle="--", label="published, not charged")
        axis.set(title=NAMES[name], yticks=range(len(rows)), yticklabels=[way for way, _ in rows],
                 xlim=(low, max(best, published) + 0.004), ylim=(len(rows) - 0.5, -0.5))  # fmt: skip
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center")
    save(figure, folder, "anchors")
    return "![mean, its interval and the worst search (|) of every way to tune](results/anchors/anchors.png)"


def accuracy(row: dict[str, Any]) -> str:
    """Mean and half of its 95 % interval, where there are several searches."""
    return f"{row['mean']:.4f}" + (f" ± {row['half']:.4f}" if row["half"] is not None else "")


def _is_rival(name: str) -> bool:
    return not name.startswith(("ours", "best in hindsight"))


def every_way(found: dict[str, dict[str, Any]], planned: dict[str, Any]) -> str:
    """A table for each task."""
    parts = []
    for name, result in found.items():
        declared = {way["name"]: way for way in planned["tasks"][name]["ways"]}
        rows = [
            [
                key,
                f"{declared[key]['noise']:.3f}",
                f"{row['compute']:.2f}",
                accuracy(row),
                f"{row['worst']:.4f}",
                len(row["released"]),
            ]
            for key, row in result["ways"].items()
        ]
        heads = ["way to tune", "ν of the full run", "compute", "accuracy", "worst", "searches"]
        parts.append(f"### {NAMES[name]}\n\n{markdown(heads, rows)}")
        left = ", ".join(key for key in declared if key not in result["ways"])
        parts += [f"Planned and not trained: {left}."] if left else []
    left = ", ".join(NAMES[name] for name in planned["tasks"] if name not in found)
    parts += [f"Planned and not trained: {left}."] if left else []
    return "\n\n".join(parts) if parts else MISSING


def transfer(folder: Path = FOLDER) -> str:
    """What each transfer rule loses on each task."""
    rows: list[list[Any]] = []
    for path in sorted(folder.glob("curves-*.json")):
        found = judge.judged(json.loads(path.read_text()))
        task = path.stem.removeprefix("curves-")
        for (optimiser, fraction), rules in itertools.groupby(found, lambda one: (one["optimiser"], one["fraction"])):
            cells = {one["rule"]: f"{one['loss']:.4f} ± {one['half']:.4f} (× {one['drift']:g})" for one in rules}
            rows.append([task, optimiser, fraction, *(cells.get(rule, "") for rule in judge.RULES)])
    heads = ["task", "optimiser", "fraction", *judge.RULES]
    federated = federated_drift.rows()
    drift = markdown(list(federated[0]), [list(row.values()) for row in federated])
    return f"{markdown(heads, rows) if rows else MISSING}\n\nThe federated task (FedAdagrad):\n\n{drift}"


def one_dimension_less() -> str:
    """Surveys of the learning rate alone beside surveys of both."""
    if not one_dimension.FILE.exists():
        return MISSING
    rows = json.loads(one_dimension.FILE.read_text())
    return markdown(list(rows[0]), [list(row.values()) for row in rows])


def provenance(found: Iterable[dict[str, Any]]) -> str:
    """Where it was trained."""
    rows = [[one["task"], one["provenance"]["device"], one["provenance"]["torch"],
             round(sum(way["seconds"] for way in one["ways"].values())), one["provenance"]["seed"]]
            for one in found]  # fmt: skip
    return markdown(["task", "device", "PyTorch", "seconds", "seed"], rows) if rows else MISSING


def write() -> None:
    """Make the page."""
    planned, found = json.loads(plans.FILE.read_text()), results()
    sections = {
        "summary": summary(found, planned), "ways": every_way(found, planned), "transfer": transfer(),
        "one dimension": one_dimension_less(), "structures": structures(), "recipes": recipes(),
        "first": earlier("first"), "second": earlier("second"),
        "explain": (FOLDER / "explain.txt").read_text().strip(),
        "tune": judge_anchors.beside(), "picture": picture(found, planned), "provenance": provenance(found.values()),
    }  # fmt: skip
    text = TEXT.read_text(encoding="utf-8")
    for name, section in sections.items():
        text = text.replace("{{" + name + "}}", section)
    PAGE.write_text(text, encoding="utf-8")
