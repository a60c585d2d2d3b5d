"""The constants of ``dphypo.search.rates`` from the landscapes: ``python -m paper rates-fit``."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import loguniform

from dphypo.search.proposer import Parabola
from dphypo.search.rates import BEYOND, DRIFT, LITTLE_NOISE, MEASURED, MOVEMENT, RUNS_OF_KNOWN, TRANSFER, drift_of
from dphypo.search.release import Row
from dphypo.space import Space
from dphypo.torch import DPSGD
from paper.rates.landscapes import FACTS, FILE, FITTED
from paper.rates.large import GRID
from paper.rates.large import OUT as LARGE
from paper.rates.tasks import Task, network

OUT = FILE.with_name("prior.json")
FULL = ("now", "last eighth", "last half", "decreasing")
USED = "movement of layers, linear and hidden"
CAPS = (math.inf, 40, 28, 20, 14, 10)
SMOOTH, TARGETS = 0.4, [float(f"{one:.3g}") for one in np.geomspace(0.3, 8, 25)]
Floats = npt.NDArray[np.float64]
Cell = dict[str, Any]


def smoothed(cell: Cell) -> tuple[Floats, Floats]:
    """Logarithms of rates, finely spaced, and the accuracy there: a local mean over neighbours and seeds."""
    grid, found = np.log(cell["grid"]), np.mean(cell["accuracies"], axis=1)
    fine = np.linspace(grid[0], grid[-1], 241)
    weights = np.exp(-0.5 * ((fine[:, None] - grid) / SMOOTH) ** 2)
    return fine, weights @ found / weights.sum(1)


def regret(cell: Cell, rate: float) -> float:
    """What a rate loses to the best one on the smoothed landscape."""
    fine, found = smoothed(cell)
    return float(found.max() - np.interp(np.log(rate), fine, found))


def best(cell: Cell) -> float:
    """The logarithm of the best rate: the mean over rates, weighted by how near they come to the best accuracy."""
    fine, found = smoothed(cell)
    odds = np.exp((found - found.max()) / 0.01)
    return float((odds * fine).sum() / odds.sum())


@functools.cache
def known_facts() -> dict[str, dict[str, Any]]:
    return dict(json.loads(FACTS.read_text()))


@functools.cache
def rehearsed(name: str, net: str) -> dict[float, float]:
    """For each target of the movement, the drift that a rehearsal of the untrained network gives."""
    found = known_facts()[name]
    inputs, labels = np.zeros((64, *found["shape"]), np.float32), np.arange(64) % found["classes"]
    like = Task(inputs, labels, inputs, labels)  # a rehearsal looks at shapes alone
    made = DPSGD(
        model=lambda: network(net, like), data=(inputs, labels), score=lambda model: 0.0,
        noise_multiplier=1.0, batch_size=8, device="cpu",
    )  # fmt: skip
    move = functools.cache(functools.partial(made.movement, {}, found["scale"]))
    return {target: drift_of(move, target) for target in TARGETS}


def rules() -> dict[str, tuple[Sequence[float], Callable[[Cell], Any], Callable[[Cell, float], float]]]:
    """Each rule by its name: what its constant may be, which cells share one, and its rate at a constant."""

    def hidden(cell: Cell) -> bool:
        return bool(cell["network"] != "linear")

    def by_layers(cell: Cell, target: float) -> float:
        return rehearsed(cell["task"], cell["network"])[target]

    return {
        "one drift for all": (TARGETS, lambda cell: 0, lambda cell, value: value / 4),
        "over the scale of the inputs, one constant": (TARGETS, lambda cell: 0, lambda cell, k: k / cell["scale"]),
        "over the scale of the inputs, linear and hidden": (TARGETS, hidden, lambda cell, k: k / cell["scale"]),
        "movement of layers, one constant": (TARGETS, lambda cell: 0, by_layers),
        "movement of layers, linear and hidden": (TARGETS, hidden, by_layers),
    }


def constant(cells: Sequence[Cell], values: Sequence[float], rate: Callable[[Cell, float], float]) -> float:
    """The constant with the least mean regret, each task with equal weight."""
    tasks = sorted({cell["task"] for cell in cells})

    def loss(value: float) -> float:
        each = [[regret(one, rate(one, value)) for one in cells if one["task"] == name] for name in tasks]
        return float(np.mean([np.mean(some) for some in each]))

    return min(values, key=loss)


def left_out(cells: Sequence[Cell], rule: tuple[Any, Any, Any]) -> dict[str, Any]:
    """The regret of a rule on each task, with constants from the others, and how far off it is."""
    values, group, rate = rule
    losses, distances = [], []
    for name in FITTED:
        for cell in (one for one in cells if one["task"] == name):
            others = [one for one in cells if one["task"] != name and group(one) == group(cell)]
            if not others:
                continue
            chosen = rate(cell, _kept(others, values, rate))
            losses.append(regret(cell, chosen))
            distances.append(np.log(chosen) - best(cell))
    spread = float(np.sqrt(np.mean(np.square(distances))))
    return {"mean": float(np.mean(losses)), "worst": max(losses), "spread": spread}


_MEMO: dict[Any, float] = {}


def _kept(cells: Sequence[Cell], values: Sequence[float], rate: Any) -> float:
    key = (tuple(id(one) for one in cells), id(rate))
    if key not in _MEMO:
        _MEMO[key] = constant(cells, values, rate)
    return _MEMO[key]


def laws(cells: Sequence[Cell]) -> dict[str, tuple[float, float]]:
    """Curvature, slope and run noise by the signal of a run, a·(S/1000)^−b each, by least squares of logarithms."""
    found: dict[str, list[tuple[float, float]]] = {"CURVATURE": [], "SLOPE": [], "RUN_NOISE": []}
    for cell in cells:
        signal = cell["batch"] * cell["steps"] ** 0.5 / cell["noise"]
        fine, accuracy = smoothed(cell)
        at = best(cell)
        ends = np.interp([at - 1, at, at + 1], fine, accuracy)
        found["CURVATURE"].append((signal, max(float(ends[1] - (ends[0] + ends[2]) / 2), 1e-4)))
        near = np.abs(np.log(cell["grid"]) - at) < 0.8
        runs = np.asarray(cell["accuracies"])[near]
        found["RUN_NOISE"].append((signal, max(float(np.sqrt(runs.var(axis=1, ddof=1).mean())), 1e-3)))
        for other in cells:
            same = all(cell[key] == other[key] for key in ("task", "network", "records"))
            if same and other["noise"] < cell["noise"]:
                gain = (smoothed(other)[1].max() - accuracy.max()) / np.log(cell["noise"] / other["noise"])
                middle = signal * (cell["noise"] / other["noise"]) ** 0.5
                found["SLOPE"].append((middle, max(float(gain), 1e-3)))
    made = {}
    for name, points in found.items():
        x, y = np.log(np.array(points)).T
        power = min(float(np.polyfit(x, y, 1)[0]), 0.0)
        made[name] = float(np.exp(np.mean(y - power * (x - np.log(1000))))), -power
    return made


def caps(every: Sequence[Cell]) -> dict[str, dict[str, float]]:
    """The mean regret at the known rate of linear models by a cap on ρ = B/(σ√T), with little noise and otherwise."""
    found: dict[str, dict[str, float]] = {}
    for cap in CAPS:
        lost: dict[str, list[float]] = {"quiet": [], "normalise": []}
        for cell in every:
            if cell["network"] == "linear" and cell["way"] in lost:
                natural = cell["batch"] / (cell["noise"] * cell["steps"] ** 0.5)
                rate = MOVEMENT["normalise"][0] / cell["scale"] * min(1.0, cap / natural)
                lost[cell["way"]].append(regret(cell, rate))
        found[f"{cap:g}"] = {way: float(np.mean(each)) for way, each in lost.items() if each}
    return found


def large() -> list[Cell]:
    """The cells of large tables (:mod:`paper.rates.large`), each in the way of the second version of the plan."""
    found = []
    for line in LARGE.read_text().splitlines():
        cell = json.loads(line)
        cell["natural"] = cell["batch"] / (cell["noise"] * cell["steps"] ** 0.5)
        cell["signal"] = cell["natural"] * cell["steps"]
        ways = {way: np.transpose(each).tolist() for way, each in cell["ways"].items()}
        way = "decreasing" if cell["natural"] >= LITTLE_NOISE else "now"
        best_of = max(smoothed({"grid": GRID, "accuracies": ways[one]})[1].max() for one in FULL)
        found.append({**cell, "ways": ways, "grid": GRID, "accuracies": ways[way], "best": float(best_of)})
    return found


def distances() -> dict[str, list[float]]:
    """With signals not fitted to: how far the best drift of full runs is from the known one, and from short runs'.

    With them, what is lost at the known drift.
    """
    found: dict[str, list[float]] = {"known": [], "short": [], "lost": []}
    for cell in (one for one in large() if one["signal"] > MEASURED[1]):
        drift = MOVEMENT["normalise"][0] / cell["scale"]
        found["known"].append(math.log(drift) - best(cell))
        found["lost"].append(regret(cell, drift))
        short = "short, decreasing" if cell["natural"] >= LITTLE_NOISE else "short"
        found["short"].append(best({**cell, "accuracies": cell["ways"][short]}) - best(cell))
    return found


def beyond() -> tuple[float, float]:
    """What is lost at a distance of 1 from the best drift, and the spread of the prior, with signals not fitted to.

    The first is the mean loss at the known drift over its mean squared distance. The spread is 1.48 times the median
    distance: two of the tables are far off, and the others are not.
    """
    found = distances()
    curvature = float(np.mean(found["lost"]) / np.mean(np.square(found["known"])))
    return curvature, 1.4826 * float(np.median(np.abs(found["known"])))


def transfer() -> float:
    """The deviation of the logarithm of the best drift of full runs about that of short ones."""
    return float(np.sqrt(np.mean(np.square(distances()["short"]))))


FIRST = (1.1, 0.0)
"""The spread and the transfer that were frozen first: by the root mean square, and without a transfer."""


def survey(draws: int = 40) -> dict[str, dict[str, float]]:
    """What a simulated survey about the known drift gains on one run there, on average and in the worst cell.

    The scale is off by a normal error of 0.2 in its logarithm, a score by one of 0.006.
    """
    return {"first": surveyed(*FIRST, draws), "now": surveyed(BEYOND[1], TRANSFER, draws)}


def surveyed(spread: float, transfer: float, draws: int) -> dict[str, float]:
    """The same with one spread of the prior, and one transfer."""
    random, space, gains = np.random.default_rng(0), Space({DRIFT: loguniform(1e-4, 1e4)}), []
    evenly = (np.arange(RUNS_OF_KNOWN) + 0.5) / RUNS_OF_KNOWN * 2 - 1
    for cell in (one for one in large() if one["signal"] > MEASURED[1]):
        quiet, places = cell["natural"] >= LITTLE_NOISE, np.log(GRID)
        curves = {way: np.mean(each, axis=1) for way, each in cell["ways"].items()}
        full, short = ("decreasing", "short, decreasing") if quiet else ("now", "short")
        gained = 0.0
        for _ in range(draws):
            middle = math.log(MOVEMENT["normalise"][0] / cell["scale"]) + random.normal(0, 0.2)
            tried = middle + math.sqrt(3) * spread * evenly
            scores = np.interp(tried, places, curves[short]) + random.normal(0, 0.006, len(tried))
            rows = [Row({DRIFT: math.exp(at)}, float(score)) for at, score in zip(tried, scores, strict=True)]
            picked = math.log(Parabola(DRIFT, spread, transfer)(space, rows, maximize=True)[DRIFT])
            gained += float(np.diff(np.interp([middle, picked], places, curves[full]))[0]) / draws
        gains.append(gained)
    return {"mean": float(np.mean(gains)), "worst": min(gains)}


NATURAL = (0, 4, 8, 12, 20, math.inf)


def by_natural_rate() -> dict[str, dict[str, Any]]:
    """The mean loss at the known drift to the best of all ways, by ρ, with a constant rate and a decreasing one."""
    found: dict[str, dict[str, Any]] = {}
    for low, high in itertools.pairwise(NATURAL):
        some = [cell for cell in large() if low <= cell["natural"] < high]
        ways: dict[str, Any] = {"cells": len(some)}
        for way in FULL:
            lost = []
            for cell in some:
                fine, accuracy = smoothed({**cell, "accuracies": cell["ways"][way]})
                drift = MOVEMENT["normalise"][0] / cell["scale"]
                lost.append(cell["best"] - float(np.interp(math.log(drift), fine, accuracy)))
            ways[way] = float(np.mean(lost))
        found[f"{low} to {high:g}" if high < math.inf else f"{low} and more"] = ways
    return found


def about_the_mean() -> tuple[float, float]:
    """The scale about the mean over the typical norm: the geometric mean over fitted tasks, and how far others are off.

    The latter is a root mean square over all tasks whose inputs are described in the results, fitted or not: it is of
    inputs alone, and only decides whether unit vectors are bought.
    """
    usual = float(np.mean([math.log(one["scale"] / one["norm"]) for one in known_facts().values()]))
    logs = {name: math.log(one["scale"] / one["norm"]) for name, one in known_facts().items()}
    for file in ("large", "judged-fresh", "judged-little"):
        for one in map(json.loads, FILE.with_name(f"{file}.jsonl").read_text().splitlines()):
            if "norm" in one:
                logs.setdefault(one["task"], math.log(one["scale"] / one["norm"]))
    return math.exp(usual), float(np.sqrt(np.mean([(one - usual) ** 2 for one in logs.values()])))


def centred() -> float:
    """The spread of the logarithm of the scale about the mean over what norms and unit vectors say, without noise."""
    logs = [math.log(one["scale"] / (one["norm"] * math.sqrt(1 - one["taken"]))) for one in known_facts().values()]
    return float(np.std(logs, ddof=1))


def fitted() -> dict[str, Any]:
    """All rules, judged by leaving tasks out, and under "constants" those of the library, to two digits."""
    every = [json.loads(line) for line in FILE.read_text().splitlines()]
    cells = [one for one in every if one["way"] == "normalise"]
    found: dict[str, Any] = {"cells": len(cells)}
    judged = {name: left_out(cells, rule) for name, rule in rules().items()}
    values, group, rate = rules()[USED]
    for cell in every:
        if cell["way"] == "adam":  # whose drift is η·√T
            cell["grid"] = [one * cell["steps"] ** 0.5 for one in cell["grid"]]
    made: dict[str, Any] = {"MOVEMENT": {}, "SPREAD": {}}
    ways = {}
    for way in ("normalise", "clip", "adam"):
        some = [one for one in every if one["way"] == way]
        kinds = [[one for one in some if group(one) == kind] for kind in (False, True)]
        made["MOVEMENT"][way] = [constant(each, values, rate) for each in kinds]
        ways[way] = {"cells": len(some), **left_out(some, (values, group, rate))}
        made["SPREAD"][way] = ways[way]["spread"]
    made["BEYOND"], made["TRANSFER"] = beyond(), transfer()
    made["ABOUT_THE_MEAN"], made["SPREAD_ABOUT"] = about_the_mean()
    made["SPREAD_CENTRED"] = centred()
    made |= laws(cells)
    found |= {"rules": _digits(judged, 3), "left out": _digits(ways, 3), "caps": _digits(caps(every), 3)}
    found |= {"large tables": _digits(by_natural_rate(), 3), "survey": _digits(survey(), 2)}
    return {**found, "constants": _digits(made, 2)}


def _digits(found: Any, digits: int) -> Any:
    if isinstance(found, dict):
        return {name: _digits(one, digits) for name, one in found.items()}
    if isinstance(found, list | tuple):
        return [_digits(one, digits) for one in found]
    return float(f"{found:.{digits}g}") if isinstance(found, float) else found


def write() -> Mapping[str, Any]:
    """Fit and judge all rules by leaving tasks out; write the constants."""
    found = fitted()
    OUT.write_text(json.dumps(found, indent=1) + "\n")
    return found
