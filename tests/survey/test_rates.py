"""Rates that public values give: the law, the prior, the scale that is bought, and whether a search is made."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import dp_accounting
import dp_accounting.pld
import numpy as np
import pytest
import torch
from scipy.stats import loguniform
from torch import nn

import dphypo
from dphypo import noise
from dphypo.accounting import verify
from dphypo.entropy import Seeded
from dphypo.mechanisms import SampledGaussian
from dphypo.mechanisms.sampled_gaussian import CAP, rate_of_drift
from dphypo.noise.vectors import noise_of_vectors
from dphypo.search import rates
from dphypo.search.proposer import Parabola
from dphypo.search.rates import (
    ABOUT_THE_MEAN,
    DRIFT,
    REACH,
    InputScale,
    Known,
    Prospect,
    ScaleNoise,
    ScaleOfInputs,
    norm_terms,
    taken_by_mean,
    unit_vectors,
)
from dphypo.search.release import Row
from dphypo.search.survey import LastRun, SurveyPlan
from dphypo.search.tune import plan_tuning
from dphypo.space import Space
from dphypo.torch import DPSGD, hyperparameters

COUNT = 600
ROWS = np.random.default_rng(0).normal(size=(COUNT, 6)).astype(np.float32)
LABELS = (ROWS[:, 0] > 0).astype(np.int64)
TOTAL: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-5}


def dpsgd(rows: Any = ROWS, **given: Any) -> DPSGD:
    labels = given.pop("labels", LABELS[: len(rows)])
    fields: dict[str, Any] = {"score": "accuracy", "epochs": 5, "device": "cpu", "records": COUNT, **given}
    fields.setdefault("model", lambda: nn.Linear(6, 2))
    return DPSGD(data=(rows, labels), **fields)


def told(mechanism: DPSGD, params: dict[str, Any]) -> float:
    return mechanism._run(params)._engine_run(mechanism.cost.run(params))[0].learning_rate


# The law.


@pytest.mark.parametrize(("momentum", "schedule"), [(0.0, None), (0.9, None), (0.0, lambda done: 1 - done)])
def test_noise_alone_takes_every_weight_as_far_as_the_drift_says(momentum: float, schedule: Any) -> None:
    run = SampledGaussian(rate=0.1, steps=2000, noise_multiplier=1.7)
    rate = rate_of_drift(0.4, run, batch_size=32, max_grad_norm=0.5, momentum=momentum, schedule=schedule)
    random, weights, velocity = np.random.default_rng(0), np.zeros(4000), np.zeros(4000)
    for step in range(run.steps):
        velocity = momentum * velocity + random.normal(size=4000) * 1.7 * 0.5 / 32
        weights -= rate * (1.0 if schedule is None else schedule(step / run.steps)) * velocity
    # The root of 4000 squares: 8 deviations of 1.2 % each, and the first steps of momentum, half a per cent.
    assert weights.std() == pytest.approx(0.4, rel=0.1)


def test_noise_alone_takes_the_weights_of_adam_as_far_as_the_drift_says() -> None:
    run = SampledGaussian(rate=0.1, steps=400, noise_multiplier=1.7)
    rate = rate_of_drift(0.4, run, batch_size=32, adam=True)
    random = np.random.default_rng(0)
    gradients = (random.normal(size=1000) * 0.05 for _ in range(run.steps))
    ends = hyperparameters.walk({"optimizer": "adam", "learning_rate": rate}, gradients, run.steps)
    assert ends.std() == pytest.approx(0.4, rel=0.2)  # 8 deviations of 2.2 %, and the first steps


def test_the_rate_of_a_run_follows_from_its_noise_and_a_short_run_has_the_same() -> None:
    made = dpsgd(noise_multiplier=2.0, batch_size=60, score=lambda model: 0.0)
    run = made.cost.run({})
    assert told(made, {"drift": 0.3}) == pytest.approx(0.3 * 60 / (2.0 * math.sqrt(run.steps)))
    assert told(made.at(fraction=0.5, match=True), {"drift": 0.3}) == pytest.approx(
        told(made, {"drift": 0.3}), rel=0.02
    )
    larger = made.cost.run({"batch_size": 120}).steps
    assert told(made, {"drift": 0.3, "batch_size": 120}) == pytest.approx(0.3 * 120 / (2.0 * math.sqrt(larger)))
    assert told(made, {"learning_rate": 0.7}) == 0.7
    assert told(made.at(learning_rate=0.6), {}) == 0.6
    assert told(made.at(learning_rate=0.6), {"drift": 0.3}) == told(made, {"drift": 0.3})
    deep = made.at(model=lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)))
    assert told(deep, {"drift": 50.0}) == CAP
    with pytest.raises(ValueError, match=r"drift = 0\.1 is not valid: it is the learning rate in units of noise"):
        made.at(learning_rate=0.1, drift=0.1)
    assert told(made.at(optimizer="adam"), {"drift": 0.3}) == pytest.approx(0.3 / math.sqrt(run.steps))
    with pytest.raises(ValueError, match="it is for SGD and Adam, not for adagrad"):
        told(made.at(optimizer="adagrad"), {"drift": 0.3})


def test_a_linear_model_with_little_noise_ends_with_small_steps() -> None:
    def schedule(made: DPSGD, **params: Any) -> Any:
        run = made.cost.run({})
        return made._run({DRIFT: 0.3, "clipping": "normalise", **params})._engine_run(run)[0].schedule

    made = dpsgd(noise_multiplier=0.5, batch_size=200, score=lambda model: 0.0)
    run = made.cost.run({})
    assert rate_of_drift(1.0, run, batch_size=200) > rates.LITTLE_NOISE
    assert schedule(made)(0.0) == 1.0
    assert schedule(made)(0.75) == pytest.approx(rates.END + 0.25 * (1 - rates.END))
    begins = made._run({DRIFT: 0.3, "clipping": "normalise"})._engine_run(run)[0]
    further = rate_of_drift(rates.FURTHER * 0.3, run, batch_size=200, schedule=begins.schedule)
    assert begins.learning_rate == pytest.approx(further)
    assert schedule(made.at(fraction=0.5, match=True)) == schedule(made)  # a short run is as quiet as its full one
    constant = made.at(schedule="constant")
    assert schedule(constant)(0.75) == 1.0
    deep = made.at(model=lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)))
    louder = made.at(noise_multiplier=5.0)
    for other, params in ((deep, {}), (louder, {}), (made, {"clipping": "clip"}), (made, {"optimizer": "adam"})):
        assert schedule(other, **params) is None
    assert made._run({"learning_rate": 0.3, "clipping": "normalise"})._engine_run(run)[0].schedule is None


def test_larger_inputs_have_a_smaller_drift_and_a_network_that_normalises_needs_no_scale() -> None:
    made = dpsgd()
    assert made.known(10.0).value == pytest.approx(made.known(1.0).value / 10, rel=0.05)
    assert made.wants_scale
    assert not dpsgd(input_scale=3.0).wants_scale
    assert not dpsgd(model=lambda: nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 2))).wants_scale
    assert dpsgd(optimizer="adam").wants_scale
    assert not dpsgd(optimizer="adagrad").wants_scale
    given = {"loss": nn.functional.mse_loss, "labels": ROWS[:, :1], "score": lambda model: 0.0}
    assert dpsgd(model=lambda: nn.Linear(6, 1), **given).known(1.0) is None  # measured for classification alone


# The scale that is bought.


def test_what_a_record_adds_is_a_function_of_that_record_alone() -> None:
    rows = np.concatenate([ROWS[:50], [[np.inf] * 6, [np.nan] * 6, [1e30] * 6, [0.0] * 6]]).astype(np.float32)
    alone = [norm_terms(row[None])[0] for row in rows]
    np.testing.assert_array_equal(norm_terms(rows), alone)
    np.testing.assert_array_equal(norm_terms(rows[::-1]), alone[::-1])
    assert norm_terms(np.full((1, 4), 1.5)) == [0.0]
    assert norm_terms(np.zeros((0, 4))) == []  # a table with its only record left out


@pytest.mark.parametrize("extra", [1e30, 1e-30, 0.0, np.inf, np.nan, 5.0])
def test_one_record_moves_a_bought_scale_by_at_most_its_bound(extra: float) -> None:
    row, label = np.full((1, 6), extra, np.float32), np.zeros(1, np.int64)
    both = [dpsgd(), dpsgd(np.concatenate([ROWS, row]), labels=np.concatenate([LABELS, label]))]
    scales = [ScaleOfInputs(one.on_all_records(), ScaleNoise(COUNT, 3.0))({}, seed=1).score for one in both]
    moved = (scales[1] - scales[0]) * COUNT  # the noise is the same
    expected = np.clip(norm_terms(row)[0], -REACH, REACH)
    assert moved == pytest.approx(0.0 if np.isnan(expected) else expected, abs=5e-3)  # the grid
    assert abs(moved) <= REACH * (1 + 1e-9)


def test_a_bought_scale_has_the_noise_that_its_event_states() -> None:
    scale = ScaleOfInputs(dpsgd().on_all_records(), ScaleNoise(COUNT, 7.0))
    assert scale.event.event.noise_multiplier == 7.0
    assert scale.event.slack == noise.slack_of_sum(7.0)
    drawn = np.array([scale({}, seed=seed).score for seed in range(400)]) * COUNT
    spread = drawn.std(ddof=1) / (7.0 * REACH)
    assert abs(spread - 1) < 0.25  # 7 standard errors: false alarm below 1e-11
    huge = ScaleOfInputs(dpsgd(np.full((COUNT, 6), 1e30, np.float32)).on_all_records(), ScaleNoise(COUNT, 7.0))
    assert abs(huge({}, seed=0).score - math.log(ABOUT_THE_MEAN) - REACH) < 8 * 7.0 * REACH / COUNT


def test_the_unit_vector_of_a_record_is_a_function_of_that_record_alone() -> None:
    rows = np.concatenate([ROWS[:50], [[np.inf] * 6, [np.nan] * 6, [1e30] * 6, [0.0] * 6]]).astype(np.float32)
    found = unit_vectors(rows)
    np.testing.assert_array_equal(found, [unit_vectors(row[None])[0] for row in rows])
    np.testing.assert_array_equal(unit_vectors(rows[::-1]), found[::-1])
    assert np.isnan(found).any(axis=1).tolist() == np.isnan(norm_terms(rows)).tolist()
    assert np.abs(np.linalg.norm(found[:50], axis=1) - 1).max() < 1e-15


def test_both_sums_of_a_bought_scale_are_paid_for() -> None:
    """One record moves both: the squares of the inverse multipliers add up, as in a composition."""
    made = dpsgd().on_all_records()
    both = ScaleOfInputs(made, ScaleNoise(COUNT, 7.0, 6))
    bought, stated = both.scale_noise, Fraction(both.event.event.noise_multiplier)
    parts = 1 / Fraction(bought.norms) ** 2 + 1 / Fraction(bought.along) ** 2
    assert parts <= 1 / stated**2 <= parts * (1 + Fraction(1, 10**9))
    assert both.event.slack >= noise.slack_of_sum(7.0) + noise.slack_of_vector_sum(6, bought.along)
    together = dp_accounting.ComposedDpEvent([dp_accounting.GaussianDpEvent(one) for one in (7.0, bought.along)])
    spent = [
        dp_accounting.pld.PLDAccountant().compose(event).get_epsilon(1e-6) for event in (both.event.event, together)
    ]
    assert spent[0] == pytest.approx(spent[1], rel=1e-3)


def test_one_record_adds_one_vector_and_changes_no_other() -> None:
    more = np.concatenate([ROWS, np.full((1, 6), 1e6, np.float32)])
    made = [dpsgd(rows, labels=np.zeros(len(rows), np.int64)).on_all_records() for rows in (ROWS, more)]
    vectors = [np.concatenate(list(one.input_vectors())) for one in made]
    np.testing.assert_array_equal(vectors[1][:-1], vectors[0])
    assert np.linalg.norm(vectors[1], axis=1).max() <= 1 + 1e-12


def test_no_record_decides_whether_a_scale_is_bought() -> None:
    """Of no records, and of records that all count 0, the noise is released."""
    bought = ScaleNoise(COUNT, 7.0, 6)
    strange = np.array([[np.nan] * 6, [np.inf] * 6, [0.0] * 6, [1e38] * 6, [1e-45] * 6], np.float32)
    for rows in (ROWS[:0], strange[:1], strange):
        keys = list(range(len(rows)))
        for more in ({}, {"person": keys, "rows_per_person": 1, "persons": COUNT, "records": None}):
            made = dpsgd(rows, score=lambda model: 0.0, **more)
            found = ScaleOfInputs(made, bought)({}, seed=1).score
            assert found is not None
            assert math.isfinite(found)
    assert unit_vectors(ROWS[:0]).shape == (0, 6)


def test_a_data_set_that_is_read_record_by_record_adds_the_same() -> None:
    class Rows(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return COUNT

        def __getitem__(self, index: int) -> Any:
            return torch.from_numpy(ROWS[index]), int(LABELS[index])

    given: dict[str, Any] = {"example": (torch.zeros(6), 0), "score": lambda model: 0.0, "device": "cpu"}
    made = DPSGD(model=lambda: nn.Linear(6, 2), data=Rows(), records=COUNT, **given)
    read = np.concatenate(list(made.input_vectors()))
    np.testing.assert_array_equal(read, unit_vectors(ROWS))


def test_the_noise_of_the_mean_vector_is_not_taken_for_a_mean() -> None:
    """The mean of 60 estimates has a standard deviation of 0.010; without the correction they are 0.16 too large."""
    random = np.random.default_rng(0)
    rows = (random.normal(size=(COUNT, 64)) / 8 + np.eye(64)[0]).astype(np.float32)
    expected = float((unit_vectors(rows).mean(0) ** 2).sum())
    sigma, found = 30.0, []
    for seed in range(60):
        words = noise.Words.of_seed(seed)
        total = noise.noisy_vector_sum([unit_vectors(rows)], 64, sigma, words)
        found.append(taken_by_mean(total, noise_of_vectors(64, sigma), COUNT))
    assert expected == pytest.approx(0.5, abs=0.05)
    assert abs(np.mean(found) - expected) < 0.055  # 5.5 deviations: false alarm below 1e-6


@pytest.mark.parametrize("offset", [0.0, 1.0, 3.0])
def test_a_bought_scale_is_that_about_the_mean(offset: float) -> None:
    rows = (np.random.default_rng(0).normal(size=(5000, 6)) + offset).astype(np.float32)
    labels = (rows[:, 0] > offset).astype(np.int64)
    made = dpsgd(rows, labels=labels, records=5000).on_all_records()
    bought = ScaleOfInputs.of(made, **TOTAL)
    assert bought is not None
    assert bought.scale_noise.size == 6
    centred = math.sqrt(float(((rows - rows.mean(0)) ** 2).sum(1).mean()))
    found = 3 * math.exp(bought({}, seed=1).score)
    assert abs(math.log(found / centred)) < 0.2  # norms vary here; by norms alone the last one is off by 0.8


def test_a_mean_is_bought_only_where_it_is_expected_to_tell_more_than_its_noise_loses() -> None:
    assert rates.noise_of_scale(10_000, 0.5, 784).size == 784
    assert rates.noise_of_scale(1000, 0.13, 784).size == 784
    assert rates.noise_of_scale(1000, 0.25, 100_000).size is None
    assert rates.noise_of_scale(10_000, 0.5, 2**21).size is None  # there is no grid for it
    assert rates.noise_of_scale(1000, 0.25, 100_000) == rates.noise_of_scale(1000, 0.25)
    for records, total in ((1000, 0.5), (100_000, 0.7)):
        centred, alone = (rates.noise_of_scale(records, total, size) for size in (100, None))
        assert centred.deviation < alone.deviation
        assert 1 / (centred.both * total) ** 2 < 0.03


def test_a_bought_scale_is_a_term_of_the_declaration() -> None:
    made = dpsgd()
    tuning = plan_tuning(made.default_space(), made, **TOTAL, search="never")
    first, last = tuning.parts
    assert isinstance(first, InputScale)
    assert isinstance(last, LastRun)
    assert sum(term.counts for term in tuning.guarantee.terms) == 2  # with the count of records that fit
    assert 0 < tuning.price < 0.03
    assert 3.99 < tuning.declare(made.default_space(), 1e-5).certificate.epsilon <= 4.0


# Whether to search.


def test_what_is_decided_does_not_depend_on_the_records() -> None:
    other = np.random.default_rng(1).normal(size=(COUNT, 6)).astype(np.float32) * 1000
    plans = [plan_tuning(made.default_space(), made, **TOTAL, search="auto") for made in (dpsgd(), dpsgd(other))]
    assert plans[0].summary == plans[1].summary
    documents = [plan.declare(dpsgd().default_space(), 1e-5).certificate.to_dict() for plan in plans]
    assert documents[0]["terms"] == documents[1]["terms"]
    assert documents[0]["public"]["releases"] == documents[1]["public"]["releases"]


def test_without_a_search_one_run_has_all_records_and_the_certificate_says_so(tmp_path: Any) -> None:
    release = dphypo.tune(dpsgd(), **TOTAL, journal=tmp_path / "tune.db", progress=False)
    assert release.surveys == ()
    assert set(release.params) == {DRIFT, "clipping", "average"}
    statement = release.certificate.statement()
    assert "No search: the rate follows from public values and the scale of the inputs." in statement
    assert "1 run was executed; its model is public." in statement
    assert release.certificate.document["public"]["released"][0]["input_scale"] > 0
    release.save(tmp_path / "release")
    assert verify(tmp_path / "release")
    again = dphypo.tune(dpsgd(), **TOTAL, journal=tmp_path / "tune.db", progress=False)
    assert again.params == release.params
    with torch.no_grad():
        right = (release.model(torch.from_numpy(ROWS)).argmax(1).numpy() == LABELS).mean()
    assert right > 0.85


def test_a_larger_scale_moves_the_drift_and_nothing_else() -> None:
    drifts = []
    for factor in (1.0, 30.0):
        made = dpsgd(ROWS * np.float32(factor))
        release = dphypo.tune(made, **TOTAL, journal=None, progress=False, entropy=Seeded(3))
        drifts.append(release.params[DRIFT])
    assert drifts[0] / drifts[1] == pytest.approx(30, rel=0.1)


@pytest.mark.slow
def test_a_search_can_be_asked_for_and_refused() -> None:
    made = dpsgd(input_scale=2.4)
    space = made.default_space()
    always = plan_tuning(space, made, **TOTAL, search="always")
    assert (always.survey.runs, always.survey.fraction) == (4, 1.0)  # full runs have fewer than 30 steps
    assert [type(part).__name__ for part in always.parts] == ["Survey", "LastRun"]
    scored = plan_tuning(space, made, **TOTAL, survey=SurveyPlan(runs=0, score=True))
    assert scored.parts[0].mechanism.split is not None
    assert plan_tuning(space, made, **TOTAL, survey=3, search="auto").survey.runs == 3
    wide = Space({"learning_rate": loguniform(0.1, 30), "clipping": ["normalise"]})
    assert plan_tuning(wide, made, **TOTAL, search="auto").survey.runs == 8  # nothing is known of it
    with pytest.raises(ValueError, match="search = 'often' is not valid"):
        plan_tuning(space, made, **TOTAL, search="often")


def test_a_search_is_expected_to_pay_where_little_is_known_and_it_costs_little() -> None:
    sure = Prospect(signal=500, spread=0.3, total=0.5, fraction=0.2, score_records=200, share=0.2)
    assert sure.searched() > sure.regret
    unsure = Prospect(signal=2000, spread=2.0, total=1.0, fraction=0.05, score_records=4000, share=0.1)
    assert unsure.searched() < unsure.regret


def test_a_pick_stays_where_scores_are_noise_and_follows_them_where_they_are_not() -> None:
    space, places = Space({"drift": loguniform(0.01, 10)}), 0.2 * np.exp(np.linspace(-0.6, 0.6, 5))
    random = np.random.default_rng(0)
    lucky = [
        Parabola("drift", 0.4)(
            space, [Row({"drift": float(c)}, float(random.normal(0.5, 0.1))) for c in places], maximize=True
        )["drift"]
        for _ in range(50)
    ]
    assert np.log(np.array(lucky) / 0.2).std() < 0.2
    clear = [Row({"drift": float(c)}, 0.9 - 0.2 * float(np.log(c / 0.35)) ** 2) for c in places]
    assert Parabola("drift", 0.4)(space, clear, maximize=True)["drift"] == pytest.approx(0.35, rel=0.1)
    narrow = Space({"drift": loguniform(0.1, 0.3)})  # 0.1 to 0.3: a pick beyond would end a search that was paid for
    assert Parabola("drift", 0.4)(narrow, clear, maximize=True)["drift"] == pytest.approx(0.3)
    turned = [Row(row.params, -row.score) for row in clear if row.score is not None]
    assert Parabola("drift", 0.4)(space, turned, maximize=False)["drift"] == pytest.approx(0.35, rel=0.1)


def test_a_pick_goes_part_of_the_way_that_short_runs_say() -> None:
    space, places = Space({"drift": loguniform(0.001, 100)}), 0.2 * np.exp(np.linspace(-1, 1, 4))
    clear = [Row({"drift": float(c)}, 0.9 - 0.2 * float(np.log(c / 0.4)) ** 2) for c in places]
    moved = [
        np.log(Parabola("drift", 0.5, transfer)(space, clear, maximize=True)["drift"] / 0.2) for transfer in (0, 0.5)
    ]
    assert moved[1] / moved[0] == pytest.approx(0.5, abs=0.05)


def test_beyond_what_was_measured_the_prior_is_wider_and_no_search_takes_much() -> None:
    assert rates.spread_at(0.35, 5000.0) == 0.35
    assert rates.spread_at(0.35, 5001.0) == rates.BEYOND[1]
    assert rates.spread_at(0.9, 5001.0) == 0.9
    near = Known(DRIFT, 1.0, 0.35)
    space, far = Space({DRIFT: near.prior}), near.at(1e5)
    wide = rates.widened(space, near, far)
    assert wide.parameters[0].dimension.prior.support() == far.prior.support()
    own = Space({DRIFT: loguniform(0.5, 2)})
    assert rates.widened(own, near, far) is own
    quiet = Prospect(signal=20_000, spread=0.6, total=1.0, fraction=0.05, score_records=10_000)
    assert quiet.regret == pytest.approx(rates.BEYOND[0] * 0.36)
    exact = Prospect(signal=20_000, spread=0.6, total=1.0, fraction=0.05)
    assert exact.searched(1000) > rates.BEYOND[0] / (1 / 0.36 + 1 / rates.TRANSFER**2)  # however many runs


@pytest.mark.slow
def test_where_a_search_is_expected_to_pay_it_takes_at_most_a_fifth_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = np.tile(ROWS, (40, 1)), np.tile(LABELS, 40)
    given: dict[str, Any] = {"labels": labels, "records": len(rows), "batch_size": 256}
    monkeypatch.setattr(rates, "BEYOND", (0.05, 1.1))
    long, few = dpsgd(rows, epochs=8, **given), dpsgd(rows, epochs=5, **given)
    found = plan_tuning(long.default_space(), long, **TOTAL, search="auto")
    assert (found.survey.runs, found.survey.fraction) == (4, 0.05)
    scale = found.parts[0]
    assert isinstance(scale, InputScale)
    assert scale.spread == 1.1
    assert plan_tuning(few.default_space(), few, **TOTAL, search="auto").survey.runs == 0  # a compute of 1.3
    assert plan_tuning(few.default_space(), few, **TOTAL, search="auto", compute=2).survey.runs == 4


# Other libraries.


def test_jax_has_the_same_units_and_prior() -> None:
    jax = pytest.importorskip("jax")
    from dphypo.jax import dpsgd as jax_dpsgd

    def init(key: Any) -> Any:
        return {"weights": jax.random.normal(key, (6, 2)) / 3}

    given: dict[str, Any] = {"init": init, "predict": lambda params, x: x @ params["weights"], "records": COUNT}
    made = jax_dpsgd.DPSGD(data=(ROWS, LABELS), score="accuracy", epochs=5, **given)
    assert made.wants_scale
    assert made.known(2.0).value == pytest.approx(dpsgd().known(2.0).value, rel=0.25)  # made-up inputs differ
    full = made.at(noise_multiplier=2.0, score=lambda params: 0.0)
    run = full.cost.run({})
    rate = jax_dpsgd.begin(full, {"drift": 0.3}, 1).run.learning_rate
    assert rate == pytest.approx(0.3 * full.batch_size / (2.0 * math.sqrt(run.steps)))
    quiet = jax_dpsgd.begin(made.at(noise_multiplier=0.3, score=lambda params: 0.0, batch_size=200), {}, 1).run
    assert quiet.schedule is None  # gradients are clipped
    quiet = jax_dpsgd.begin(
        made.at(noise_multiplier=0.3, score=lambda params: 0.0, batch_size=200), {"clipping": "normalise"}, 1
    ).run
    assert quiet.schedule(0.75) == pytest.approx(rates.END + 0.25 * (1 - rates.END))
    np.testing.assert_array_equal(made.on_all_records().input_terms(), norm_terms(ROWS))
    release = dphypo.tune(made, **TOTAL, journal=None, progress=False, entropy=Seeded(1))
    assert release.surveys == ()
    assert np.mean(np.argmax(ROWS @ release.model["weights"], 1) == LABELS) > 0.85


def test_a_private_search_of_a_table_needs_no_space() -> None:
    import pandas as pd

    from dphypo.sklearn import DPSGDClassifier, PrivateSearch, Schema

    frame = pd.DataFrame(ROWS, columns=list("abcdef"))
    schema = Schema(dict.fromkeys("abcdef", (-4, 4)))
    estimator = DPSGDClassifier(hidden=(), classes=(0, 1), epochs=5, batch_size=64)
    search = PrivateSearch(schema.pipeline(estimator), epsilon=4.0, random_state=1).fit(frame, LABELS)
    assert set(search.best_params_) == {"estimator__drift"}
    assert search.release_.surveys == ()
    assert "No search: the rate follows from public values." in search.certificate_.statement()
    assert search.score(frame, LABELS) > 0.85
    direct = DPSGDClassifier(hidden=(), classes=(0, 1), bounds=(-4, 4), noise_multiplier=2.0, random_state=1)
    assert direct.fit(ROWS, LABELS).score(ROWS, LABELS) > 0.85


@pytest.mark.parametrize(("factor", "words"), [(100.0, "large"), (1.0, None), (0.001, "small")])
def test_inputs_of_an_unusual_size_are_remarked_on_at_the_end(
    factor: float, words: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    dphypo.tune(dpsgd(ROWS * np.float32(factor)), **TOTAL, journal=None, entropy=Seeded(1), search="never")
    *_, last = capsys.readouterr().err.splitlines()
    if words is None:
        assert "The inputs are" not in last
    else:
        assert last.startswith(f"The inputs are {words}: ")
        assert "Multiply them by a public constant" in last


def test_a_declared_scale_buys_nothing_and_the_count_comes_before_the_run() -> None:
    release = dphypo.tune(dpsgd(input_scale=2.4), **TOTAL, journal=None, progress=False, entropy=Seeded(1))
    (part,) = release.certificate.document["public"]["releases"]
    assert (part["part"], part["search"]) == ("last run", "none")
    assert part["counts"]["declared"] == {"train": COUNT}
    assert "No search: the rate follows from public values." in release.certificate.statement()


def test_records_of_several_fields_have_no_scale_to_buy() -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.out = nn.Embedding(20, 4), nn.Linear(4, 2)

        def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> Any:
            return self.out((self.table(tokens) * mask[..., None]).mean(1))

    data = {"tokens": torch.randint(20, (200, 5)), "mask": torch.ones(200, 5), "labels": torch.randint(2, (200,))}
    made = DPSGD(model=Network, data=data, score="accuracy", device="cpu")
    assert not made.wants_scale
    assert 1e-3 < made.known().value < 100


@pytest.mark.parametrize("size", [None, 6])
@pytest.mark.parametrize("records", [1000, 20_000, 1_000_000])
def test_a_scale_is_bought_with_the_noise_that_loses_least(records, size):
    total = 0.5

    def lost(sigma: float) -> float:  # by its error, and by the noise that its price adds
        tried = ScaleNoise(records, sigma, size)
        off, share = tried.deviation, 1 / (tried.both * total) ** 2
        return rates.CURVATURE[0] * off**2 + rates.SLOPE[0] * share / 2

    chosen = rates.noise_of_scale(records, total, size).norms
    assert lost(chosen) <= 1.0001 * min(lost(chosen * factor) for factor in (0.9, 0.97, 1.03, 1.1))
