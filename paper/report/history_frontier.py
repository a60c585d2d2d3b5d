"""The frontier of rules that see only the history, as text."""

from __future__ import annotations

from typing import Any

from paper.report.markdown import markdown

Row = dict[str, Any]


def history_frontier(result: dict[str, Any]) -> str:
    """The best law for each band at every ε and compute, who wins, and what a lag costs."""
    rows = [row for row in result["rows"] if row["noise multiplier"] is not None]
    bands = sorted({tuple(row["band"]) for row in rows}, key=lambda band: band[1])
    table, won, lost = [], 0, 0
    for task, epsilon, mean in dict.fromkeys((row["task"], row["epsilon"], row["mean runs"]) for row in result["rows"]):
        sign = -1 if result["scores"][task] == "loss" else 1
        cell = [row for row in rows if (row["task"], row["epsilon"], row["mean runs"]) == (task, epsilon, mean)]
        found = [_best([row for row in cell if tuple(row["band"]) == band], sign) for band in bands]
        uniform, moved = found[0], _best([row for row in found[1:] if row], sign)
        text = "–"
        if uniform and moved:
            gain, half = sign * (moved["mean"] - uniform["mean"]), moved["half"]
            won, lost = won + (gain > half), lost + (gain < -half)
            text = f"{gain:+.4f} ± {half:.4f}"
        table.append([f"{task} ({result['scores'][task]})", f"{epsilon:g}", mean, *map(_shown, found), text])
    names = ["uniform", *(f"({c:g}, {C:g})" for c, C in bands[1:])]
    head = ["task", "ε", "mean runs", *names, "best band gains over uniform"]
    verdict = f"Of {len(table)} pairs of ε and compute, the best band wins {won}, uniform search {lost}, and "
    return "\n\n".join([verdict + f"{len(table) - won - lost} are undecided.", markdown(head, table), _lags(result)])


def _best(rows: list[Row], sign: int) -> Row | None:
    return max(rows, key=lambda row: sign * row["mean"], default=None)


def _shown(row: Row | None) -> str:
    return "–" if row is None else f"{row['mean']:.4f} ({row['law']}, σ = {row['noise multiplier']:.2f})"


def _lags(result: dict[str, Any]) -> str:
    rows = [[row["task"], row["lag"], f"{row['mean']:.4f} ± {row['half']:.4f}"] for row in result["lags"]]
    return markdown(["task", "lag", "score"], rows)
