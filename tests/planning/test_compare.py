"""``dphypo.plan``: every design costs the total by our own accountant, and what it says of a design is so."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from support.solver_tries import watch
from typer.testing import CliRunner

import dphypo
from dphypo import planning
from dphypo.cli import app
from dphypo.errors import UnreachableError
from dphypo.mechanisms import OwnTraining, SampledGaussian
from dphypo.planning import SPACE, designs, plan, spend, survey, untrained, untuned
from dphypo.search.declaration import cost_of
from dphypo.search.tune import plan_tuning

TASK = {"records": 20_000, "batch_size": 500, "steps": 320}
DELTA = 1e-5
KINDS = {"none", "survey", "uniform", "stages", "composition"}


@pytest.fixture(scope="module")
def found():
    """Without bands, which take the longest: the slow test has them."""
    return plan(epsilon=2.0, delta=DELTA, compute=5, bands=(), **TASK)


@pytest.mark.parametrize(("epsilon", "epochs"), [(0.5, 20), (4.0, 10)])
def test_few_values_of_the_noise_are_tried(monkeypatch, epsilon, epochs):
    tried: list[list[float]] = []

    def counted(*given, **options):
        tried.append([])
        return spend(*given, **options)

    monkeypatch.setattr(planning, "spend", counted)
    given = {"records": 20_000, "batch_size": 200, "epochs": epochs, "compute": 3}
    with watch(lambda cost: tried[-1].append(cost) if tried else None):
        found = plan(epsilon=epsilon, delta=DELTA, bands=(), **given)
    counts = [len(costs) for costs in tried[: len(found.rows) + len(found.left_out)]]  # then larger batches
    assert max(counts) <= 8
    assert np.mean(counts) <= 4.5


@pytest.mark.slow
def test_designs_of_every_kind_cost_the_total_and_no_more(found):
    assert len(found.rows) >= 10
    assert {row.design.kind for row in found.rows} == KINDS
    for row in found.rows:
        assert 2.0 * (1 - 5e-3) <= row.guarantee.epsilon(DELTA) <= 2.0, row.name
        assert row.design.compute <= 5 * (1 + 1e-9)


@pytest.mark.slow
def test_the_code_of_every_design_declares_what_was_compared(found):
    made = OwnTraining(untrained, SampledGaussian.of(noise_multiplier=1.0, **TASK), scores="public")
    for row in found.rows:
        code = replace(found, best=row).code
        if "dphypo.tune" in code:
            continue  # which solves for the noise itself
        names = {"dphypo": dphypo, "space": SPACE, "mechanism": made}
        exec(
            code.replace("release = ", "search = ").replace(
                f"delta={DELTA:g}).run()", f"delta={DELTA:g}, journal=None)"
            ),
            names,
        )
        assert names["search"].guarantee.epsilon(DELTA) == pytest.approx(row.guarantee.epsilon(DELTA), abs=1e-6), code


@pytest.mark.slow
def test_the_noise_of_a_survey_is_that_which_tune_solves_for(found):
    run = SampledGaussian.of(noise_multiplier=1.0, **TASK)
    tuning = plan_tuning(
        SPACE,
        OwnTraining(untrained, run, scores="public"),
        epsilon=2.0,
        delta=DELTA,
        survey=dphypo.SurveyPlan(runs=20, fraction=0.1),
    )
    row = next(row for row in found.rows if row.name == "survey, 20 runs of 0.1")
    assert row.noise_multiplier == pytest.approx(tuning.full.run.noise_multiplier, rel=1e-3)
    assert row.price == pytest.approx(tuning.price, abs=1e-3)


@pytest.mark.slow
def test_without_tuning_there_is_one_run_with_the_least_noise(found):
    first = found.rows[0]
    assert first.name == "no tuning"
    assert first.price == 0
    assert all(row.price > 0 for row in found.rows[1:])


@pytest.mark.slow
def test_what_tune_would_do_is_recommended_where_nothing_is_known_of_scores():
    result = plan(epsilon=2.0, delta=DELTA, compute=1.8, **TASK)
    assert result.best.name == "no tuning"
    assert result.code == "release = dphypo.tune(mechanism, epsilon=2.0, delta=1e-05, search='never')"
    assert result.code in str(result)
    known = [row for row in result.rows if row.regret is not None]
    assert [row.design.kind for row in known] == ["none", *["survey"] * (len(known) - 1)]
    assert known[0].regret < min(row.regret for row in known) + 0.002
    assert "Recommended: no tuning (*): its rate follows from public values" in str(result)


@pytest.mark.slow
def test_a_survey_of_ones_own_training_is_recommended_by_its_price():
    mechanism = OwnTraining(untrained, SampledGaussian(rate=0.02, steps=300, noise_multiplier=1.0), scores="public")
    result = plan(mechanism, epsilon=2.0, delta=DELTA, compute=1.8)
    assert "dphypo.tune(space, mechanism, epsilon=2.0, delta=1e-05" in result.code
    least = min((row for row in result.rows if row.design.kind not in ("none", "survey")), key=lambda row: row.price)
    assert f"of another kind ({least.name}) adds {100 * least.price:.2g} %" in result.why
    assert f"Recommended: {result.best.name} (*): it is the survey that dphypo.tune plans" in str(result)


def test_chances_count_runs_as_drawn_from_the_prior():
    by_name = {one.name: one for one in designs(5, 320)}
    assert by_name["survey, 20 runs of 0.1"].chances(0.05) == pytest.approx((1 - 0.95**20,) * 2)
    geometric = by_name["uniform, geometric T"].chances(0.1)[0]
    assert geometric == pytest.approx(0.1 / (0.1 + 0.2 - 0.1 * 0.2))  # 1 - f(1 - x) with γ = 1/5, in closed form
    low, high = by_name["band (0.5, 4), shape 8"].chances(0.1)
    assert low < by_name["uniform, shape 8"].chances(0.1)[0] < high < 1


def test_quantiles_count_all_runs():
    assert survey(20, 0.1).quantiles() == (21, 21, 21)
    assert untuned().quantiles() == (1, 1, 1)
    stages = next(one for one in designs(5, 320) if one.kind == "stages")
    assert stages.survey is not None
    assert stages.study is not None
    draws = stages.survey[0] + np.random.default_rng(0).choice(400, 100_000, p=stages.study.pmf(np.arange(400)))
    assert stages.quantiles() == pytest.approx(np.quantile(draws, (0.05, 0.5, 0.95)), abs=1)


@pytest.mark.slow
def test_larger_batches_are_accounted_as_runs_of_their_own(found):
    assert [one.batch_size for one in found.batches][:2] == [2000, 2000]
    for one in found.batches:
        run = SampledGaussian(rate=one.batch_size / 20_000, steps=one.steps, noise_multiplier=one.noise_multiplier)
        full = OwnTraining(untrained, run, scores="public")
        alone = cost_of(SPACE, untuned().parts(full))
        assert 1.99 <= alone.epsilon(DELTA) <= 2.0


@pytest.mark.slow
def test_a_mechanism_of_ones_own_is_planned_for():
    mechanism = OwnTraining(untrained, SampledGaussian(rate=0.02, steps=300, noise_multiplier=1.0), scores="public")
    result = plan(mechanism, epsilon=2.0, delta=DELTA, compute=1.8)
    assert not result.batches
    assert result.best.name.startswith("survey")
    with pytest.raises(ValueError, match="records = 5 is not valid: the mechanism already sets it"):
        plan(mechanism, epsilon=2.0, delta=DELTA, records=5)


def test_a_space_is_read_as_tune_reads_it():
    mechanism = OwnTraining(untrained, SampledGaussian(rate=0.02, steps=300, noise_multiplier=1.0), scores="public")
    small = {"epsilon": 2.0, "delta": DELTA, "compute": 1, "bands": ()}
    assert plan(mechanism, space={"lr": [0.1, 0.2]}, **small).best.name == "no tuning"
    with pytest.raises(ValueError, match=r"space = 0\.1 is not valid: give a dphypo\.Space"):
        plan(mechanism, space=0.1, **small)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"compute": 0.5}, "compute = 0.5 is not valid: one full run takes 1: give 1 to 1000"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"records": None}, "give the number of records"),
        ({"steps": None}, "give either epochs or steps"),
    ],
)
def test_bad_numbers_are_named(wrong, words):
    with pytest.raises(ValueError, match=words):
        plan(**({"epsilon": 2.0, "delta": DELTA, **TASK} | wrong))


def test_a_total_that_no_noise_pays_for_is_refused():
    mechanism = OwnTraining(untrained, SampledGaussian(rate=1.0, steps=10, noise_multiplier=1.0), scores="public")
    with pytest.raises(UnreachableError):
        spend(untuned(), mechanism, SPACE, epsilon=1e-6, delta=1e-12)


@pytest.mark.slow
def test_the_command_of_the_readme_compares_ten_designs():
    options = [
        "--epsilon",
        "8",
        "--delta",
        "1e-5",
        "--records",
        "60000",
        "--batch-size",
        "256",
        "--epochs",
        "10",
        "--compute",
        "10",
    ]
    result = CliRunner().invoke(app, ["plan", *options, "--json"])
    assert result.exit_code == 0, result.stdout
    rows = json.loads(result.stdout)["designs"]
    assert len(rows) >= 10
    assert {row["kind"] for row in rows} == KINDS | {"band"}
    assert all(row["epsilon"] <= 8 for row in rows)
