"""Searches in stages: the simulation against quadrature, the noise against the library's, and what is committed."""

from __future__ import annotations

from math import exp
from typing import Any

import numpy as np
import pytest

from dphypo.accounting import Composition
from dphypo.laws import Geometric, Law, NegativeBinomial, Poisson
from paper import results
from paper.experiments.budgets import DELTA
from paper.experiments.sensitivity import _half
from paper.simulate.staged_costs import Costs, solved
from paper.simulate.staged_plan import Plan, TwoStages, of_design
from paper.simulate.staged_searches import quantiles, released
from paper.simulate.staged_task import TASKS

ONE, TWO = (2344,), (235, 2344)
SHAPE_8 = NegativeBinomial(8.0, mean=20.0)


@pytest.mark.parametrize(
    "plan",
    [
        Plan(ONE, (0.7,), (Geometric(mean=5),)),
        Plan(ONE, (0.7,), (Poisson(6.0),)),
        Plan(TWO, (1.6, 0.7), (SHAPE_8, NegativeBinomial(8.0, mean=5.0)), spread=0.05, floor=0.05),
        Plan((24, 235, 2344), (2.0, 1.6, 0.7), (SHAPE_8, SHAPE_8, Geometric(mean=3)), spread=0.1, floor=0.2),
    ],
    ids=["geometric", "Poisson", "two stages", "three stages"],
)
def test_simulated_searches_agree_with_quadrature(plan: Plan) -> None:
    scores = released(plan, TASKS["MNIST"], 12_000, seed=1)
    error = scores.std() / len(scores) ** 0.5
    assert abs(scores.mean() - plan.expected(TASKS["MNIST"])) < 5 * error  # a one-in-a-million alarm


def test_searches_compared_have_common_random_numbers() -> None:
    task = TASKS["CIFAR-10"]
    laws: tuple[Law, ...] = (Geometric(mean=8), Poisson(8.0))
    one, other = (released(Plan((task.full,), (0.7,), (law,)), task, 2000, seed=2) for law in laws)
    assert np.corrcoef(one, other)[0, 1] > 0.3
    np.testing.assert_array_equal(quantiles(100)[:40], quantiles(40))


@pytest.mark.slow
def test_the_noise_is_that_of_the_library_and_spends_what_it_should() -> None:
    costs, design = Costs(TASKS["MNIST"]), TwoStages()
    plan = of_design(costs, design, 10.0, 4.0)
    assert plan is not None
    searches = [costs.search(*stage) for stage in zip(plan.noises, plan.laws, plan.steps, strict=True)]
    assert Composition.of(*searches).epsilon(DELTA) == pytest.approx(4.0, abs=5e-3)
    assert searches[0].bounds(DELTA)["profile"] == pytest.approx(design.share * 4.0, rel=0.01)


def test_nothing_is_said_of_noise_that_was_not_trained() -> None:
    levels = np.array([1.0, 2.0, 4.0])
    assert solved(lambda level: 1 / level, levels, 0.1, exact=True) is None
    assert solved(lambda level: 1 / level, levels, 3.0, exact=True) is None
    task = TASKS["federated"]
    costs, (_, most) = Costs(task), task.range(10)
    assert costs.noise(0.01, SHAPE_8, 10) is None
    assert costs.noise_if_trained(0.01, SHAPE_8, 10) == pytest.approx(most)


def test_the_halves_share_no_training() -> None:
    trained = TASKS["MNIST"].trained(2344)
    one, other = _half(trained, np.random.default_rng(0))
    for level, scores in trained.scores.items():
        rows = [side.scores[level] for side in (one, other) if level in side.scores]
        assert sorted(map(tuple, np.concatenate(rows))) == sorted(map(tuple, scores))


def test_the_default_design_is_supported_by_what_is_committed() -> None:
    """Within ten per cent of the best of the grid over all tasks, and good in each of them."""
    found = results.load("design")
    assert found["default"] == [float(getattr(TwoStages(), name)) for name in found["fields"]]
    values: dict[str, dict[str, float]] = found["log ratio"]
    mean = {name: sum(each.values()) / len(each) for name, each in values.items()}
    default = " ".join(f"{value:g}" for value in found["default"])
    assert mean[default] - min(mean.values()) < 0.1
    assert all(exp(value) < 0.5 for value in values[default].values())


def _regrets(task: str) -> dict[str, float]:
    (row,) = [r for r in results.load("staged")["rows"] if r["task"] == task and r["epsilon"] == 4.25]
    return {name: found["regret"] for name, found in row["searches"].items()}


def test_stages_halve_the_regret_of_the_best_uniform_search() -> None:
    regrets = _regrets("MNIST")
    stages = regrets["stages, default design"]
    assert stages <= 0.55 * regrets["uniform, best law"]
    assert stages <= 0.3 * regrets["uniform, geometric T"]
    for task in ("CIFAR-10", "federated"):
        regrets = _regrets(task)
        assert regrets["stages, default design"] <= 0.55 * regrets["uniform, best law"]


def test_committed_simulations_agree_with_committed_quadratures() -> None:
    rows: list[dict[str, Any]] = results.load("staged")["rows"]
    found = [one for row in rows for one in row["searches"].values() if "exact" in one]
    off = [abs(one["mean"] - one["exact"]) / (one["half"] / 1.96 + 1e-5) for one in found]
    assert len(off) > 100
    assert max(off) < 5.5  # one in a hundred thousand for all of them together
