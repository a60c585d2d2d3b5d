"""What the real searches released, in a few numbers: ``python -m paper study`` on a GPU, and chains of version 0.2."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from dphypo.laws import from_dict as law_from_dict
from paper.data.points import Floats
from paper.report.markdown import markdown
from paper.simulate.staged_plan import TwoStages, around
from paper.simulate.staged_task import TASKS
from paper.simulate.winners import winners, winners_of_stages
from paper.simulate.worlds import FOLDER, trained

_GEOMETRIC = "uniform, geometric T"


def measured() -> dict[str, Any]:
    """Both comparisons: means, and differences to the best uniform arm paired by repetition, with 95 % intervals."""
    found = {name: json.loads((FOLDER / f"{name}.json").read_text()) for name in ("study", "staged-study")}
    result = {name: _summary(one) for name, one in found.items()}
    result["staged-study"]["by the landscape"] = _by_the_landscape(found["staged-study"]["arms"])
    return result


def _by_the_landscape(arms: dict[str, Any]) -> dict[str, float]:
    """What the simulation expects of two arms, judged on the same pictures: the mean of the cell that is released."""
    task, design = TASKS["MNIST"], TwoStages()
    judged = trained(("mnist-second-half",), task.full)
    (cheap, full), (alone,) = arms["stages"]["stages"], arms["uniform, Poisson T"]["stages"]
    means = [task.world(stage["noise multiplier"], stage["steps"]).mean for stage in (cheap, full)]
    laws = [law_from_dict(stage["runs"]) for stage in (cheap, full)]
    staged = winners_of_stages(means, laws, [around(task, design.spread, design.floor)], task.noise)
    flat = np.full((1, len(means[0])), 1 / len(means[0]))
    uniform = winners(flat, task.world(alone["noise multiplier"]).mean, task.noise, law_from_dict(alone["runs"]))[0]
    return {
        name: round(float(released @ judged.mean(round(stage["noise multiplier"], 4))), 5)
        for name, released, stage in (("stages", staged, full), ("uniform, Poisson T", uniform, alone))
    }


def _summary(found: dict[str, Any]) -> dict[str, Any]:
    if any(row["unfinished"] for row in found["arms"].values()):
        raise ValueError("some searches are unfinished: leaving them out would leave out long ones")
    accuracies = {name: np.array(row["accuracy of the releases"]) for name, row in found["arms"].items()}
    uniform = max((name for name in accuracies if name.startswith("uniform")), key=lambda name: accuracies[name].mean())
    best = found.get("best cell", {}).get("mean")
    rows = {
        name: {
            "noise multipliers": [stage["noise multiplier"] for stage in found["arms"][name]["stages"]],
            "epsilon": found["arms"][name]["epsilon"],
            "compute": found["arms"][name]["mean compute in full runs"],
            **_interval(values),
            "median": round(float(np.median(values)), 5),
            "least": round(float(values.min()), 5),
            "against uniform": _interval(values - accuracies[uniform]),
            **({} if best is None else {"regret": round(best - float(values.mean()), 5)}),
        }
        for name, values in accuracies.items()
    }
    ratios = (
        {} if best is None else {f"regret of stages to {n}": _ratio(best, accuracies, n) for n in (uniform, _GEOMETRIC)}
    )
    kept = ("epsilon", "delta", "score noise", "repetitions", "note", "best cell", "seconds")
    return {**{key: found[key] for key in kept if key in found}, "best uniform arm": uniform, **ratios, "arms": rows}


def _ratio(best: float, accuracies: dict[str, Floats], uniform: str) -> dict[str, Any]:
    """The regret of stages over that of a uniform arm, and its 95 % interval by bootstrap over the repetitions."""
    pair = np.stack([accuracies["stages"], accuracies[uniform]])
    rows = np.random.default_rng(0).integers(0, pair.shape[1], (10_000, pair.shape[1]))
    regrets = best - pair[:, rows].mean(axis=2)
    low, high = np.quantile(regrets[0] / regrets[1], [0.025, 0.975])
    whole = best - pair.mean(axis=1)
    return {"ratio": round(float(whole[0] / whole[1]), 3), "interval": [round(float(low), 3), round(float(high), 3)]}


def _interval(values: Floats) -> dict[str, float]:
    half = 1.96 * values.std(ddof=1) / len(values) ** 0.5
    return {"mean": round(float(values.mean()), 5), "half": round(float(half), 5)}


def shown(result: dict[str, Any]) -> str:
    """Both comparisons as tables."""
    return "\n\n".join(_table(found) for found in result.values())


def _table(found: dict[str, Any]) -> str:
    rows = [
        [
            name,
            " then ".join(f"{noise:.3f}" for noise in row["noise multipliers"]),
            f"{row['compute']:.1f}",
            _pair(row, ".4f"),
            f"{row['median']:.4f}",
            f"{row['least']:.4f}",
            "" if name == found["best uniform arm"] else _pair(row["against uniform"], "+.4f"),
            *([f"{row['regret']:.4f}"] if "regret" in row else []),
        ]
        for name, row in found["arms"].items()
    ]
    head = ["search", "σ", "compute", "accuracy", "median", "least", f"less {found['best uniform arm']}"]
    title = f"ε = {found['epsilon']:g}, {found['repetitions']} searches an arm:\n\n"
    if "best cell" not in found:
        return title + markdown(head, rows)
    best = found["best cell"]
    uniform, geometric = (
        f"{ratio['ratio']:.2f} ({ratio['interval'][0]:.2f} to {ratio['interval'][1]:.2f})"
        for ratio in (found[f"regret of stages to {name}"] for name in (found["best uniform arm"], _GEOMETRIC))
    )
    return (
        title
        + markdown([*head, "regret"], rows)
        + f"\n\nRegret is what {best['models']} models at the best cell of the landscape reach on the same pictures, "
        f"{_pair(best, '.4f')} at σ = {best['noise multiplier']:.3f}, less the mean. That of stages is {uniform} of "
        f"that of uniform search with its best law, and {geometric} of that with the geometric law (95 % by bootstrap)."
        " The simulation, judged on the same pictures, expects "
        + " and ".join(f"{mean:.4f} of {name}" for name, mean in found["by the landscape"].items())
        + "."
    )


def _pair(interval: dict[str, float], form: str) -> str:
    return f"{interval['mean']:{form}} ± {interval['half']:.4f}"
