"""The constants of ``dphypo.search.rates`` from the landscapes: ``python -m paper rates-fit``."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dphypo.integrations.torch import DPSGD
from dphypo.search.rates import drift_of
from paper.rates.landscapes import FILE, FITTED
from paper.rates.tasks import network, task

OUT = FILE.with_name("prior.json")
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
def rehearsed(name: str, net: str, folder: Path) -> dict[float, float]:
    """For each target of the movement, the drift that a rehearsal of the untrained network gives."""
    data = task(name, folder)
    made = DPSGD(
        model=lambda: network(net, data), data=(data.inputs[:64], data.labels[:64]), score=lambda model: 0.0,
        noise_multiplier=1.0, batch_size=8, device="cpu",
    )  # fmt: skip
    return {target: drift_of(functools.partial(made.movement, {}, data.scale), target) for target in TARGETS}


def rules(folder: Path) -> dict[str, tuple[Sequence[float], Callable[[Cell], Any], Callable[[Cell, float], float]]]:
    """Each rule by its name: what its constant may be, which cells share one, and its rate at a constant."""

    def hidden(cell: Cell) -> bool:
        return bool(cell["network"] != "linear")

    def by_layers(cell: Cell, target: float) -> float:
        return rehearsed(cell["task"], cell["network"], folder)[target]

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
    return {"mean": round(float(np.mean(losses)), 4), "worst": round(max(losses), 4), "spread": round(spread, 3)}


_MEMO: dict[Any, float] = {}


def _kept(cells: Sequence[Cell], values: Sequence[float], rate: Any) -> float:
    key = (tuple(id(one) for one in cells), id(rate))
    if key not in _MEMO:
        _MEMO[key] = constant(cells, values, rate)
    return _MEMO[key]


def laws(cells: Sequence[Cell]) -> dict[str, tuple[float, float]]:
    """Curvature, slope and run noise by the signal of a run, a·(S/1000)^−b each, by least squares of logarithms."""
    found: dict[str, list[tuple[float, float]]] = {"curvature": [], "slope": [], "run noise": []}
    for cell in cells:
        signal = cell["batch"] * cell["steps"] ** 0.5 / cell["noise"]
        fine, accuracy = smoothed(cell)
        at = best(cell)
        ends = np.interp([at - 1, at, at + 1], fine, accuracy)
        found["curvature"].append((signal, max(float(ends[1] - (ends[0] + ends[2]) / 2), 1e-4)))
        near = np.abs(np.log(cell["grid"]) - at) < 0.8
        runs = np.asarray(cell["accuracies"])[near]
        found["run noise"].append((signal, max(float(np.sqrt(runs.var(axis=1, ddof=1).mean())), 1e-3)))
        for other in cells:
            same = all(cell[key] == other[key] for key in ("task", "network", "records"))
            if same and other["noise"] < cell["noise"]:
                gain = (smoothed(other)[1].max() - accuracy.max()) / np.log(cell["noise"] / other["noise"])
                middle = signal * (cell["noise"] / other["noise"]) ** 0.5
                found["slope"].append((middle, max(float(gain), 1e-3)))
    made = {}
    for name, points in found.items():
        x, y = np.log(np.array(points)).T
        power = min(float(np.polyfit(x, y, 1)[0]), 0.0)
        made[name] = round(float(np.exp(np.mean(y - power * (x - np.log(1000))))), 4), round(-power, 2)
    return made


def write(folder: Path) -> Mapping[str, Any]:
    """Fit and judge all rules by leaving tasks out; write the constants."""
    every = [json.loads(line) for line in FILE.read_text().splitlines()]
    cells = [one for one in every if one["way"] == "normalise"]
    found: dict[str, Any] = {"cells": len(cells)}
    found["rules"] = {name: left_out(cells, rule) for name, rule in rules(folder).items()}
    values, group, rate = rules(folder)["movement of layers, linear and hidden"]
    for cell in every:
        if cell["way"] == "adam":  # whose drift is η·√T
            cell["grid"] = [one * cell["steps"] ** 0.5 for one in cell["grid"]]
    for way in ("normalise", "clip", "adam"):
        some = [one for one in every if one["way"] == way]
        for kind in (False, True):
            chosen = [one for one in some if group(one) == kind]
            found[f"{way}, {'hidden' if kind else 'linear'}"] = constant(chosen, values, rate)
        found[f"{way}, left out"] = {"cells": len(some), **left_out(some, (values, group, rate))}
    found["laws"] = laws(cells)
    OUT.write_text(json.dumps(found, indent=1) + "\n")
    return found
