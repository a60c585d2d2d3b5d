"""The sections on stages of RESULTS.md, from the results alone."""

from __future__ import annotations

from math import exp
from typing import Any

from paper.report.markdown import markdown

STAGES, PLAIN, GEOMETRIC = "stages, default design", "uniform, best law", "uniform, geometric T"
OTHERS = "stages, design from the other tasks"
ORDER = [
    GEOMETRIC, PLAIN, "paper's GP, geometric T", "paper's GP, best law", "ours, (0.85, 1.25), best law", STAGES, OTHERS,
    "stages, design in hindsight",
]  # fmt: skip


def staged(result: dict[str, Any]) -> str:
    """All of it: the row looked at closely, figures, every ε and compute, and what it depends on."""
    tasks = list(result["score noise"])
    figures = [f"![stages, {task}](results/staged-{task.lower()}.png)" for task in tasks]
    parts = [_closely(result), *figures, _everything(result), *_explained(result), _depends(result)]
    return "\n\n".join(parts)


def _closely(result: dict[str, Any]) -> str:
    """Regrets at the compute of 10 full runs and ε = 4.25."""
    table = []
    for row in result["rows"]:
        if row["epsilon"] != 4.25:
            continue
        for name, found in row["searches"].items():
            regret, ratios = found["regret"], []
            for other in (PLAIN, GEOMETRIC):
                ratios.append(f"{regret / row['searches'][other]['regret']:.2f}" if name.startswith("stages") else "")
            difference = found["less uniform"]
            noises = " then ".join(f"{noise:.3g}" for noise in found["noise multipliers"])
            table.append(
                [row["task"], name + _mark(found), found["law"] or "shape 8", noises, _score(found), f"{regret:.4f}",
                 f"{difference['mean']:+.4f} ± {difference['half']:.4f}", *ratios]
            )  # fmt: skip
    header = [
        "task",
        "search",
        "T",
        "σ",
        "score",
        "regret",
        "less uniform, best law",
        "regret to its",
        "to geometric's",
    ]
    return "ε = 4.25, the compute of 10 full runs:\n\n" + markdown(header, table) + "\n\n" + _verdict(result)


def _verdict(result: dict[str, Any]) -> str:
    texts = []
    for row in result["rows"]:
        if row["epsilon"] == 4.25:
            regrets = {name: found["regret"] for name, found in row["searches"].items()}
            to_best, to_geometric = (regrets[STAGES] / regrets[other] for other in (PLAIN, GEOMETRIC))
            texts.append(f"{row['task']} {to_best:.2f} and {to_geometric:.2f}")
    return (
        "Regret of stages with the default design, relative to that of uniform search with its best law and with the "
        f"geometric law (on MNIST, 0.55 and 0.3 were aimed at): {'; '.join(texts)}."
    )


def _score(found: dict[str, Any]) -> str:
    exact = f" ({found['exact']:.4f})" if "exact" in found else ""
    return f"{found['mean']:.4f} ± {found['half']:.4f}{exact}"


def _mark(found: dict[str, Any]) -> str:
    """Of a design whose first stage would need more noise than was trained."""
    return f" †{found['split']:.2f}" if "split" in found and found["split"] > 1.02 * found["design"][2] else ""


def _explained(result: dict[str, Any]) -> list[str]:
    """What the mark of a design means, if any has it."""
    if not any(_mark(found) for row in result["rows"] for found in row["searches"].values()):
        return []
    text = "†x marks a first stage that would need more noise than was trained: it has the most that was trained and "
    return [text + "costs x of ε by itself, and all stages together cost ε all the same."]


def _everything(result: dict[str, Any]) -> str:
    table = []
    for row in result["rows"]:
        found = row["searches"]
        cells = [f"{found[name]['mean']:.4f}{_mark(found[name])}" if name in found else "–" for name in ORDER]
        known = STAGES in found and PLAIN in found
        ratio = f"{found[STAGES]['regret'] / found[PLAIN]['regret']:.2f}" if known else "–"
        table.append([row["task"], f"{row['epsilon']:g}", f"{row['compute']:g}", *cells, ratio])
    text = (
        "Against uniform search with its best law, by 95 % intervals of paired differences, of the rows below: with "
        f"the default design {_counts(result, STAGES)}; with the design that the other two tasks would have chosen "
        f"{_counts(result, OTHERS)}."
    )
    return text + "\n\n" + markdown(["task", "ε", "compute", *ORDER, "regret, default design to uniform's"], table)


def _counts(result: dict[str, Any], name: str) -> str:
    """How often a search is better, worse and neither, task by task."""
    texts = []
    for task in result["score noise"]:
        verdicts = []
        for row in result["rows"]:
            if row["task"] == task and name in row["searches"] and PLAIN in row["searches"]:
                difference = row["searches"][name]["less uniform"]
                gain = (-1 if task == "federated" else 1) * difference["mean"]
                verdicts.append(0 if abs(gain) <= difference["half"] else 1 if gain > 0 else -1)
        better, worse = verdicts.count(1), verdicts.count(-1)
        texts.append(f"{task}: {better} better, {worse} worse, {len(verdicts) - better - worse} undecided")
    return "(" + "; ".join(texts) + ")"


def _depends(result: dict[str, Any]) -> str:
    rows = [
        [row["changed"], *(("–",) * 3 if row["noise multipliers"] is None else
         (f"{row['regret']:.4f}", f"{row['to uniform, best law']:.2f}", f"{row['to uniform, geometric T']:.2f}"))]
        for row in result["sensitivity"]
    ]  # fmt: skip
    halves = [
        f"{task} {found['to uniform, best law']:.2f} and {found['to uniform, geometric T']:.2f}"
        for task, found in result["halves"].items()
        if found["splits"]
    ]
    header = ["changed", "regret", "to uniform, best law", "to uniform, geometric T"]
    return (
        "What it depends on, on MNIST at ε = 4.25 and compute 10: the default design with one thing changed, noise "
        "calibrated again, by quadrature. Three stages have 0.15 and 0.35 (the last 0.25 and 0.25) of the compute and "
        "0.05 and 0.1 of ε in the first two.\n\n" + markdown(header, rows) + "\n\nThe best cell of a landscape is "
        "partly luck, and stages go for it. With one half of the trained repetitions searched and the other half "
        "judging (regret by the best cell of the half that judges, which is too high for all alike), the two ratios "
        f"of the default design are: {'; '.join(halves)}."
    )


def design(result: dict[str, Any]) -> str:
    """The best designs, the default's place, and what the other tasks would have chosen."""
    values = result["log ratio"]
    tasks = list(next(iter(values.values())))
    order = list(values)
    default = " ".join(f"{value:g}" for value in result["default"])
    shown = [*order[:5], *([default] if default not in order[:5] else [])]
    rows = [
        [*name.split(), *(f"{exp(values[name][task]):.3f}" for task in tasks), f"{_all(values[name]):.3f}"]
        for name in shown
    ]
    others = [
        [f"all but {task}", *(f"{value:g}" for value in result["best without"][task])] for task in tasks
    ]  # fmt: skip
    counted = "; ".join(f"{c['task']} ε = {c['epsilon']:g}, {c['compute']:g}" for c in result["cells that count"])
    return (
        f"{result['designs']} designs, by quadrature, at (task, ε, compute): {counted}. Given is the regret relative "
        f"to uniform search with its best law, geometric mean. The default, {_words(result)}, is number "
        f"{order.index(default) + 1} of {len(order)} that could be had everywhere, "
        f"{100 * (_all(values[default]) / _all(values[order[0]]) - 1):.0f} % above the best.\n\n"
        + markdown([*result["fields"], *tasks, "all"], rows)
        + "\n\nWhat two tasks would have chosen for the third:\n\n"
        + markdown(["chosen on", *result["fields"]], others)
    )


def _words(result: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in zip(result["fields"], result["default"], strict=True))


def _all(values: dict[str, float]) -> float:
    return exp(sum(values.values()) / len(values))
