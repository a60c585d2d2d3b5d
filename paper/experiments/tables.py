"""Tables 1 and 2 of the paper, with intervals, beside what it prints."""

from __future__ import annotations

from typing import Any

import numpy as np

from dphypo.laws import Geometric
from paper import parallel
from paper.experiments import paper_settings as e
from paper.simulate import worlds
from paper.simulate.uniform import expected

RUNS_1, RUNS_2, PAPER_RUNS = 4000, 2000, 200  # searches a cell; Table 2 has seven rows
SEED = 20261117  # fixed, like the rules and both comparisons, before any row with it was computed


def table1(runs: int = RUNS_1) -> dict[str, Any]:
    """Accuracy of what is released on MNIST, by γ."""
    calls = [(e.mnist_row, (sigma, method, runs, SEED)) for sigma, method in reversed(e.MNIST)]
    found = dict(zip((method.name for _, method in reversed(e.MNIST)), parallel.each(calls), strict=True))
    exact = [expected(worlds.mnist(0.64), Geometric(gamma=gamma)) for gamma in e.GAMMAS]
    return _table(found, exact, e.PRINTED_1, runs)


def table2(runs: int = RUNS_2) -> dict[str, Any]:
    """Loss of what is released in the federated task, by γ."""
    calls = [(e.federated_row, (method, runs, SEED)) for method in reversed(e.FEDERATED)]
    found = dict(zip((method.name for method in reversed(e.FEDERATED)), parallel.each(calls), strict=True))
    exact = [-expected(worlds.federated(), Geometric(gamma=gamma)) for gamma in e.GAMMAS]
    return _table(found, exact, e.PRINTED_2, runs)


def at_gamma(table: str, gamma: float, runs: int = PAPER_RUNS) -> dict[str, dict[str, float | None]]:
    """What a table has at one γ, by method, computed again from so many searches; beside it what the paper prints."""
    if table == "table1":
        printed: dict[str, Any] = e.PRINTED_1
        calls: list[Any] = [(e.mnist_row, (sigma, method, runs, SEED, (gamma,))) for sigma, method in e.MNIST]
        names = [method.name for _, method in e.MNIST]
    else:
        printed = e.PRINTED_2
        calls = [(e.federated_row, (method, runs, SEED, (gamma,))) for method in e.FEDERATED]
        names = [method.name for method in e.FEDERATED]
    found = dict(zip(reversed(names), parallel.each(list(reversed(calls))), strict=True))
    return {
        name: {
            **{key: values[0] for key, values in e.interval(found[name].ends).items()},
            "printed": printed[name][e.GAMMAS.index(gamma)] if name in printed else None,
        }
        for name in names
    }


def _table(found: dict[str, e.Row], exact: list[float], printed: dict[str, Any], runs: int) -> dict[str, Any]:
    """Rows by method, and each adaptive method less Uniform's exact value, which has no error of its own."""
    rows = dict(reversed(found.items()))  # the longest had come first
    moved = {name: row for name, row in rows.items() if name != "Uniform"}
    return {
        "gamma": list(e.GAMMAS),
        "runs": runs,
        "rows": {name: e.interval(row.ends) for name, row in rows.items()},
        "rows of the paper's number of runs": {name: e.interval(row.ends[:PAPER_RUNS]) for name, row in rows.items()},
        "Uniform, exact": np.round(exact, 6).tolist(),
        "less Uniform": {name: e.interval(row.ends - np.array(exact)) for name, row in moved.items()},
        "less Uniform, all runs counted": {
            name: {"mean": np.round(row.mean - exact, 6).tolist(), "half": np.round(row.half, 6).tolist()}
            for name, row in moved.items()
        },
        "printed": {name: list(values) for name, values in printed.items()},
    }
