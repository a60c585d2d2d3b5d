"""RATES.md from what was trained, and the digits of the README: rates-page, rates-digits."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from torch import nn

from dphypo.entropy import Seeded
from dphypo.search import Stages
from dphypo.search.rates import LITTLE_NOISE
from dphypo.search.tune import plan_tuning
from dphypo.torch import DPSGD, PublicAccuracy
from paper.anchors import accuracy as table_of_rows
from paper.rates import fit, judge_anchors, judge_centred, judge_large, judge_shapes, shapes
from paper.rates.anchors import NAMES
from paper.rates.anchors import OUT as OUT_ANCHORS
from paper.rates.judge import BEFORE, FACTORS, KEYS, SGD, below, cells, interval, repeated, rows, worst
from paper.rates.landscapes import DELTA, FILE, sigma

PAGE, TEMPLATE = Path(__file__).parents[1] / "RATES.md", Path(__file__).with_name("RATES.in.md")
DIGITS = FILE.with_name("digits.json")
WAYS = ("before", "norms", "tune", "known rate", "Adam", "HyFreeDP", "Panda", "hindsight")


def digits(repetitions: int = 20) -> dict[str, Any]:
    """The ten lines of the README many times over: the old way to search, and the new default."""
    pixels, labels = load_digits(return_X_y=True)
    private, public = (pixels[:1500] / 16, labels[:1500]), (pixels[1500:] / 16, labels[1500:])

    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    score = PublicAccuracy(public)
    made = DPSGD(model=network, data=private, score="accuracy", epochs=20, device="cpu")
    found: dict[str, Any] = {}
    for name, space, search in (("before", BEFORE, "always"), ("tune", made.default_space(), "auto")):
        with warnings.catch_warnings(action="ignore"):
            tuning = plan_tuning(space, made, epsilon=4.0, delta=DELTA, search=search)
            each = [
                Stages.of(tuning.declare(space, DELTA, private=False), journal=None, entropy=Seeded(seed))
                for seed in range(repetitions)
            ]
            scores = [float(score(one.run(progress=False).model)) for one in each]
        found[name] = {"mean": round(float(np.mean(scores)), 4), "worst": round(min(scores), 4), "of": repetitions}
    noise = sigma(1500, 4.0)[0]
    alone = DPSGD(model=network, data=private, score=score, epochs=20, noise_multiplier=noise, device="cpu")
    known = alone.known(float(np.sqrt(((private[0] - private[0].mean(0)) ** 2).sum(1).mean())))
    assert known is not None
    rates = {factor: {**SGD, "drift": factor * known.value} for factor in FACTORS}
    means = {
        factor: float(np.mean([one.score for one in alone.many([params] * repetitions, seeds=range(repetitions))]))
        for factor, params in rates.items()
    }
    best = max(means, key=lambda factor: means[factor])
    found["hindsight"] = {"mean": round(means[best], 4), "factor": best, "known": round(means[1.0], 4)}
    DIGITS.write_text(json.dumps(found) + "\n")
    return found


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    made = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in made)


def rules() -> str:
    """The rules that were compared, each judged on tasks that were left out of its fit."""
    found = json.loads(fit.OUT.read_text())["rules"]
    lines = [[name, f"{one['mean']:.4f}", f"{one['worst']:.3f}", f"{one['spread']:.2f}"] for name, one in found.items()]
    return table(["rule", "mean regret", "worst", "spread of ln c"], lines)


def judged() -> str:
    """One row a cell."""
    found = sorted(rows(), key=lambda row: (row["task"], row["network"], row["records"], row["epsilon"]))
    lines = [
        [row["task"], row["network"], f"{row['records']}", f"{row['epsilon']:g}"]
        + [f"{row[way]:.3f}" if way in row else "-" for way in WAYS]
        for row in found
    ]
    return table(["task", "network", "records", "ε", *WAYS], lines)


_SIZES = (
    ("1 000 to 1 300", 0, 2000), ("3 000 to 7 000", 2000, 9000), ("10 000 to 26 000", 9000, 30_000),
    ("36 000 to 100 000", 30_000, math.inf), ("10 000 and more", 9000, math.inf),
)  # fmt: skip


def summary() -> str:
    """Mean regret against hindsight by the number of records, for every way."""
    found = list(rows())
    lines = []
    for name, least, most in _SIZES:
        some = [row for row in found if least <= row["records"] < most]
        if some:
            lost = [[row["hindsight"] - row[way] for row in some if way in row] for way in WAYS[:-1]]
            means = [f"{np.mean(one):.4f}" if one else "-" for one in lost]
            worst = [f"{max(lost[WAYS.index(way)], default=math.nan):.3f}" for way in ("norms", "tune")]
            lines.append([name, f"{len(some)}", *means, *worst])
    return table(["records", "cells", *WAYS[:-1], "norms, worst", "tune, worst"], lines)


def large_facts() -> str:
    """How two earlier versions compare with the known rate on large cells, in sentences."""
    known = {tuple(row[key] for key in KEYS): row["known rate"] for row in rows()}
    ways = judge_large.found()
    means = {name: {way: judge_large.mean(each[way]) for way in each} for name, each in ways.items()}
    known |= {name: each["known rate"] for name, each in means.items() if "known rate" in each}
    both = [each["second: tune"] - known[name] for name, each in means.items() if "second: tune" in each]
    more = [each["tune"] - each["second: tune"] for each in means.values() if {"tune", "second: tune"} <= each.keys()]
    lines = [
        f"The search of the first was {np.mean(more):+.4f} more accurate than none on average, over {len(more)} cells, "
        f"at a compute of 1.2.",
        f"The second was {np.mean(both):+.4f} more accurate than the known rate on average over {len(both)} cells, "
        f"{min(both):+.4f} in the worst and {max(both):+.4f} in the best, with three seeds.",
    ]
    for name, each in ways.items():
        for how in ("twenty", "all tests"):
            if f"never, {how}" in each:
                seeds = each[f"never, {how}"], each[f"known rate, {how}"]
                found = {"tune": judge_large.mean(seeds[0]), "known rate": judge_large.mean(seeds[1])}
                row = {**dict(zip(KEYS, name, strict=True)), **found, "half": {"tune": interval(*seeds)}}
                lines.append(f"With twenty seeds, {_where(row)}: {_against(row)}.")
    return "\n".join(f"- {line}" for line in lines)


def shapes_tried() -> str:
    """The least gain of a task and the mean over tasks, of every shape and factor."""
    lines = []
    for name, by_factor in shapes.gains().items():
        each = [f"{min(found):+.4f}; {np.mean(found):+.4f}" for found in by_factor.values()]
        lines.append([name, *each])
    return table(["shape", *(f"drift × {factor:g}" for factor in shapes.TRIED)], lines)


def judged_shapes() -> str:
    """One row a cell that was judged with twenty seeds."""
    lines = [
        [row["task"], f"{row['records']}", f"{row['epsilon']:g}", f"{row['natural']:g}", f"{row['tests']}"]
        + [f"{row[way]:.4f}" for way in judge_shapes.BOTH[::-1]]
        + [f"{row['tune'] - row['known rate']:+.4f} ± {row['half']:.4f}"]
        for row in judge_shapes.rows()
    ]
    return table(["task", "records", "ε", "ρ", "tests", *judge_shapes.BOTH[::-1], "difference"], lines)


def shape_facts() -> str:
    """How the third version compares with the known rate and with the second, in sentences."""
    found = judge_shapes.rows()
    quiet = [row for row in found if row["natural"] >= LITTLE_NOISE]
    lines = []
    for words, some in (
        ("where ρ is 20 or more", quiet),
        ("of these, on tables that nothing had seen", [row for row in quiet if row["new"]]),
        ("where ρ is below 20, and the rate is constant", [row for row in found if row not in quiet]),
    ):
        if not some:
            continue
        gains = [row["tune"] - row["known rate"] for row in some]
        below = [row for row in some if row["tune"] < row["known rate"] - row["half"]]
        named = "; ".join(_exactly(row) for row in below)
        lines.append(
            f"{len(some)} cells {words}: *tune* is {np.mean(gains):+.4f} more accurate than the known rate on average, "
            f"{min(gains):+.4f} in the worst; below it by more than the interval in {len(below)}"
            + (f" ({named})." if named else ".")
        )
    for way, words in (
        ("scale told", "The new shape, the scale told"),
        ("to zero", "A rate that decreases to zero, as in the second version, the scale told"),
    ):
        some = [row for row in quiet if way in row]
        gains = [row[way] - row["known rate"] for row in some]
        lines.append(f"{words}: {np.mean(gains):+.4f} on average in {len(some)} cells, {min(gains):+.4f} in the worst.")
    return "\n".join(f"- {line}" for line in lines)


def judged_centred(file: Path = judge_centred.OUT) -> str:
    """One row a cell that was judged with a scale about the mean."""
    lines = [
        [row["task"], row["network"], f"{row['records']}", f"{row['epsilon']:g}"]
        + [f"{row[way]:.4f}" for way in ("known rate", "norms", "tune")]
        + [f"{row['tune'] - row[way]:+.4f} ± {row['half'][way]:.4f}" for way in ("known rate", "norms")]
        for row in judge_centred.rows(file)
    ]
    heads = [
        "task",
        "network",
        "records",
        "ε",
        "known rate",
        "norms",
        "about the mean",
        "to the known rate",
        "to norms",
    ]
    return table(heads, lines)


def centred_facts(file: Path = judge_centred.OUT) -> str:
    """How the scale about the mean compares with the known rate and with norms alone, in sentences."""
    found, lines = judge_centred.rows(file), []
    for way, words in (("known rate", "the known rate"), ("norms", "*norms*")):
        gains = [row["tune"] - row[way] for row in found]
        under = [row for row in found if row["tune"] < row[way] - row["half"][way]]
        named = "; ".join(_centred(row, way) for row in under)
        lines.append(
            f"{len(found)} cells: *about the mean* is {np.mean(gains):+.4f} more accurate than {words} on average, "
            f"{min(gains):+.4f} in the worst and {max(gains):+.4f} in the best; below by more than the interval in "
            f"{len(under)}" + (f" ({named})." if named else ".")
        )
    alone = "; ".join(
        f"{_where(row)}: {row['norms']:.4f} against {row['known rate']:.4f}"
        for row in found
        if judge_centred.below(row, "norms")
    )
    lines.append(f"*norms* is below the known rate by more than the interval in {alone or 'none'}.")
    return "\n".join(f"- {line}" for line in [*lines, *_repeated(file)])


def centred_summary() -> str:
    """All cells of the three judgements by the number of records: how far each scale is from the known rate."""
    little = judge_centred.rows(judge_centred.LITTLE)
    again = [tuple(row[key] for key in KEYS) for row in little]
    some = [row for file in (judge_centred.OUT, judge_centred.FRESH) for row in judge_centred.rows(file)]
    every = [row for row in some if tuple(row[key] for key in KEYS) not in again] + little
    lines = []
    for name, least, most in _SIZES:
        inside = [row for row in every if least <= row["records"] < most]
        line = [name, f"{len(inside)}"]
        for way in ("norms", "tune"):
            gains = [row[way] - row["known rate"] for row in inside]
            below = sum(judge_centred.below(row, way) for row in inside)
            line += [f"{np.mean(gains):+.4f}", f"{min(gains):+.4f}", f"{below}"]
        lines.append(line)
    heads = [f"{name}{what}" for name in ("norms", "about the mean") for what in ("", ", worst", ", below")]
    return table(["records", "cells", *heads], lines)


def _repeated(file: Path) -> list[str]:
    """What cells had with twenty other seeds."""
    if file == judge_centred.FRESH:
        return [
            f"Repeated with twenty other seeds, {_where(row)}: {row[way]:.4f} ({name}) against {row['known rate']:.4f} "
            f"± {row['half']:.4f} (known rate)."
            for way, name in (("tune", "about the mean"), ("norms", "norms"))
            for row in judge_centred.twice(way)
        ]
    lines = []
    for row in judge_centred.rows(judge_centred.AGAIN) if file == judge_centred.OUT else ():
        both = " and ".join(f"{row[way]:.4f} ± {row['half'][way]:.4f} ({way})" for way in ("norms", "known rate"))
        lines.append(f"Repeated with twenty other seeds, {_where(row)}: {row['tune']:.4f} against {both}.")
    return lines


def _centred(row: dict[str, Any], way: str) -> str:
    return f"{_where(row)}: {row['tune']:.4f} against {row[way]:.4f} ± {row['half'][way]:.4f}"


def _exactly(row: dict[str, Any]) -> str:
    return f"{_where(row)}: {row['tune']:.4f} against {row['known rate']:.4f} ± {row['half']:.4f}"


def pretrained() -> str:
    """What ``tune`` reaches with pretrained networks: rows of accuracy.json."""
    ways: dict[tuple[str, str], dict[str, Any]] = {}
    for row in json.loads(table_of_rows.FILE.read_text())["rows"]:
        if ("MiniLM" in row["task"] or "EfficientNet" in row["task"]) and row["way"] != "dphypo.tune":
            ways.setdefault((row["task"], f"{row['epsilon']:g}"), {})[row["way"]] = row
    heads = list(next(iter(ways.values())))
    lines = [
        [*name, *(f"{one[way]['score']:.3f} ± {one[way]['half']:.3f}" for way in heads)] for name, one in ways.items()
    ]
    return table(["task", "ε", *heads], lines)


def others() -> str:
    """Plain clipping and Adam on tasks that they were not fitted to."""
    lines: list[list[str]] = []
    lost: dict[str, list[float]] = {name: [] for name in judge_large.OTHERS}
    for name, ways in judge_large.found().items():
        if all(f"{one}: hindsight" in ways for one in judge_large.OTHERS):
            line = [f"{name[0]}", f"{name[1]}", f"{name[2]}", f"{name[3]:g}"]
            for one in judge_large.OTHERS:
                means = [judge_large.mean(ways[f"{one}: {way}"]) for way in ("default", "known rate", "hindsight")]
                lost[one].append(means[2] - means[1])
                line += [f"{value:.3f}" for value in means]
            lines.append(line)
    heads = [f"{one}, {way}" for one in ("clipped", "Adam") for way in ("default", "known rate", "hindsight")]
    said = [f"{np.mean(each):.4f} on average and {max(each):.3f} at most" for each in lost.values()]
    made = table(["task", "network", "records", "ε", *heads], lines)
    return f"{made}\n\nThe known rate loses {said[0]} to hindsight with gradients clipped, {said[1]} with Adam."


def little_noise() -> str:
    """What is lost at the known drift on tables that constants were not fitted to, by ρ."""
    found = json.loads(fit.OUT.read_text())["large tables"]
    lines = [[name, f"{one['cells']}", *(f"{one[way]:.4f}" for way in fit.FULL)] for name, one in found.items()]
    heads = ["constant rate", "mean of the last eighth", "mean of the last half", "decreasing rate"]
    return table(["ρ", "cells", *heads], lines)


def anchors() -> str:
    """The linear anchors: `tune` as it is, the known rate, and the survey of ANCHORS.md."""
    made, lines = {(row["task"], row["momentum"]): row for row in judge_anchors.rows()}, []
    for name, one in json.loads(OUT_ANCHORS.read_text()).items():
        known = [f"{one[how]['accuracy']:.4f} (η = {one[how]['rate']:g})" for how in ("told", "bought")]
        best = f"{one['hindsight']:.4f} (η = {one['best rate']:.2g})"
        trained = [made.get((name, momentum)) for momentum in judge_anchors.MOMENTA]
        shown = ["-" if row is None else judge_anchors.shown(row) for row in trained]
        survey = f"{one['ours']:.4f} ± {one['half']:.4f}"
        lines.append([NAMES[name], *shown, *known, survey, best, f"{one['run']:.4f}"])
    ways = ["tune, momentum", "tune", "told", "by norms", "survey, ANCHORS.md", "hindsight"]
    return table(["task", *ways, "deviation of a run"], lines)


def _where(row: dict[str, Any]) -> str:
    return f"{row['task']}, {row['network']}, {row['records']} records, ε = {row['epsilon']:g}"


def _against(row: dict[str, Any], way: str = "tune") -> str:
    return f"{row[way]:.3f} against {row['known rate']:.3f} ± {row['half'][way]:.3f}"


def facts() -> str:
    """What the plan asks, in sentences."""
    found, most = [row for row in rows() if "tune" in row], worst()
    beaten = sum(row["tune"] >= row["before"] for row in found)
    gain = float(np.mean([row["tune"] - row["norms"] for row in found]))
    searched = sum(max(row["runs"].values()) > 0 for row in found)
    lines = [
        f"{len(found)} of the {len(cells())} planned cells were made.",
        f"`tune` is at least as accurate as before in {beaten} of them, and searched in {searched}. It is {gain:+.4f} "
        f"more accurate than with norms on average.",
        f"Its worst cell is {_where(most)}: {most['tune']:.3f}, where the best rate in hindsight has "
        f"{most['hindsight']:.3f}. Before, it had {most['before']:.3f}.",
    ]
    for way, words in (("tune", "`tune`"), ("norms", "*norms*")):
        named = "; ".join(f"{_where(row)}: {_against(row, way)}" for row in below(way))
        lines.append(
            f"With three seeds, {words} is below the known rate by more than the interval in {len(below(way))} cells"
            + (f" ({named})." if named else ".")
            + (f" By chance alone, {0.061 * len(found):.0f} would be." if way == "tune" else "")
        )
        if again := "; ".join(f"{_where(row)}: {_against(row, way)}" for row in repeated(way)):
            lines.append(f"Repeated with twenty other seeds, {words} against the known rate: {again}.")
    return "\n".join(f"- {line}" for line in lines)


def write() -> None:
    """Fill in the template."""
    text = TEMPLATE.read_text(encoding="utf-8")
    prior = json.loads(fit.OUT.read_text())
    twenty = json.loads(DIGITS.read_text())
    made = {"rules": rules, "judged": judged, "summary": summary, "facts": facts, "anchors": anchors}
    made |= {
        "large facts": large_facts,
        "others": others,
        "little noise": little_noise,
        "shapes": shapes_tried,
        "judged shapes": judged_shapes,
        "shape facts": shape_facts,
        "judged centred": judged_centred,
        "centred facts": centred_facts,
        "judged fresh": partial(judged_centred, judge_centred.FRESH),
        "judged little": partial(judged_centred, judge_centred.LITTLE),
        "little facts": partial(centred_facts, judge_centred.LITTLE),
        "centred summary": centred_summary,
        "fresh facts": partial(centred_facts, judge_centred.FRESH),
        "pretrained": pretrained,
    }
    for name, function in made.items():
        text = text.replace(f"<!-- {name} -->", function())
    found = {"cells": prior["cells"]}
    found |= {f"{way} cells": one["cells"] for way, one in prior["left out"].items()}
    found |= {f"{way} left out": f"{one['mean']:.4f}" for way, one in prior["left out"].items()}
    found |= {name: one for name, one in prior["constants"].items() if isinstance(one, float)}
    for version, one in prior["survey"].items():
        found |= {f"{version} survey {key}": f"{value:.4f}" for key, value in one.items()}
    found |= {f"cap {'none' if cap == 'inf' else cap}": f"{one['quiet']:.4f}" for cap, one in prior["caps"].items()}
    found["linear spread"] = prior["constants"]["SPREAD"]["normalise"]
    found |= {f"{way} {key}": one[key] for way, one in twenty.items() for key in one}
    for name, value in found.items():
        text = text.replace(f"<!-- {name} -->", f"{value}")
    PAGE.write_text(text, encoding="utf-8")
