"""The frontier as text: where adaptivity wins and where it does not."""

from __future__ import annotations

from typing import Any

from paper.report.markdown import markdown


def frontier(result: dict[str, Any]) -> str:
    """Figures, who wins where, and every score, task by task."""
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
