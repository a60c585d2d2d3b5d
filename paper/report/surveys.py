"""The sections on surveys of RESULTS.md, from the results alone."""

from __future__ import annotations

from typing import Any

from paper.report.markdown import markdown

WAYS = [
    "survey", "uniform, best law", "uniform, geometric T", "paper's GP, best law", "ours, (0.85, 1.25), best law",
    "stages, default design",
]  # fmt: skip


def surveys(result: dict[str, Any]) -> str:
    """Simulated surveys beside all other ways, then one thing changed at a time."""
    single = {(row["task"], row["epsilon"]): row for row in result["single"]}
    rows = []
    for row in result["rows"]:
        alone = single[row["task"], row["epsilon"]]
        cells = [_regret(row["ways"].get(way)) for way in WAYS]
        cells += [_regret(alone[way]) for way in ("untuned, middle of the space", "linear scaling (Panda et al.)")]
        rows.append([row["task"], f"{row['epsilon']:g}", f"{row['compute']:g}", *cells])
    rows.sort(key=lambda row: (row[0], float(row[1]), float(row[2])))
    header = ["task", "ε", "compute", *WAYS, "untuned", "linear scaling"]
    return "\n\n".join([markdown(header, rows), *(_changed(result, group) for group in _groups(result))])


def _groups(result: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(row["group"] for row in result["variants"]))


def _changed(result: dict[str, Any], group: str) -> str:
    found: dict[str, dict[str, str]] = {}
    for row in result["variants"]:
        if row["group"] == group:
            found.setdefault(row["plan"], {})[f"{row['task']}, ε = {row['epsilon']:g}"] = _regret(row)
    names = list(dict.fromkeys(name for cells in found.values() for name in cells))
    rows = [[plan, *(cells.get(name, "–") for name in names)] for plan, cells in found.items()]
    return f"One thing changed, {group}:\n\n" + markdown([group, *names], rows)


def _regret(found: dict[str, Any] | None) -> str:
    if found is None or found["regret"] is None:
        return "–"
    tail = f" ({found['worst twentieth']:.3f})" if "worst twentieth" in found else ""
    return f"{found['regret']:.4f}{tail}"


def trained(result: dict[str, Any]) -> str:
    """Every way that was really trained, the settings that were picked, and the held-out task."""
    rows = [
        [row["experiment"], row["way"], row["searches"], f"{row['noise multiplier']:g}", f"{row['compute']:.2f}",
         f"{row['mean']:.4f} ± {row['half']:.4f}", f"{row['worst']:.4f}"]
        for row in result["rows"]
    ]  # fmt: skip
    header = ["experiment", "way to tune", "searches", "σ (first setting)", "compute", "accuracy", "worst"]
    picks = [
        [
            row["experiment"],
            row["way"],
            f"{row['batch']} × {row['epochs']:g} epochs",
            row["picked"],
            f"{row['mean']:.4f}",
        ]
        for row in result["picks"]
    ]
    held = [
        [row["experiment"], row["measure"], f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f})"]
        for row in result["held out"]
    ]
    return (
        markdown(header, rows)
        + "\n\nOn tasks that nothing was chosen on, the regret of the default survey over that of the best uniform "
        "search at three times the compute (0.2 was aimed at):\n\n"
        + markdown(["experiment", "best cell trained", "ratio"], held)
        + "\n\nWhere batch size and steps were tuned, what the last run was made with:\n\n"
        + markdown(["experiment", "way to tune", "setting", "picked", "accuracy there"], picks)
    )


def transfer(result: dict[str, Any]) -> str:
    """The exponents of each optimiser."""
    rows = [
        [row["task"], row["optimiser"], row["noise"], f"{row['fraction']:g}", f"{row['full']:.3g}",
         f"{row['short']:.3g}", f"{row['exponent']:.2f}", f"{row['best accuracy, full']:.3f}",
         f"{row['best accuracy, short']:.3f}"]
        for row in result["rows"]
    ]  # fmt: skip
    header = [
        "task",
        "optimiser",
        "",
        "f",
        "best η, full",
        "best η, short",
        "exponent",
        "accuracy, full",
        "accuracy, short",
    ]
    return markdown(header, rows)


def digits(result: dict[str, Any]) -> str:
    """The demo, many times."""
    rows = [
        [row["optimiser"], f"{row['epsilon']:g}", f"{row['runs']} of {row['fraction']:.2g}", f"{row['compute']:g}",
         f"{100 * row['price']:.1f} %", f"{row['mean']:.3f} ± {row['half']:.3f}", f"{row['worst']:.3f}"]
        for row in result["rows"]
    ]  # fmt: skip
    return markdown(["optimiser", "ε", "survey", "compute", "more noise", "accuracy", "worst"], rows)
