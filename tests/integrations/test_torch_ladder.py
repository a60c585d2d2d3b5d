"""A ladder of DP-SGD runs, scored on private records that a hash sets apart."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import dphypo
from dphypo import Ledger
from dphypo.search import Ladder
from dphypo.search.declaration import cost_of
from dphypo.search.ladder import plan_ladder
from dphypo.torch import DPSGD, PrivateAccuracy, split_by_hash

RECORDS = 1500


def blobs(seed: int, count: int = RECORDS) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (count,), generator=generator)
    inputs = 1.2 * (2.0 * labels[:, None] - 1) + torch.randn(count, 4, generator=generator)
    return inputs, labels


def linear() -> nn.Module:
    return nn.Linear(4, 2)


def training(**changes: object) -> DPSGD:
    given = {"model": linear, "data": blobs(1), "score": "accuracy", "epochs": 4, "batch_size": 200, "device": "cpu"}
    return DPSGD(**given | changes)


def test_a_ladder_stops_where_a_noisy_accuracy_exceeds_the_target_by_its_margin(tmp_path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.db", epsilon=16.0, delta=1e-5)
    options = {"epsilon": 8.0, "delta": 1e-5, "journal": None, "progress": False, "ledger": ledger}
    release = dphypo.tune(training(), until=Ladder(0.8, rungs=2), **options)
    assert release.reached
    made = len(release.surveys)
    stated = release.certificate.document["public"]["releases"]
    assert [one["until"] for one in stated] == [0.8] * 2
    starts = [one["reached from"] for one in stated]
    assert all(0.82 < start < 0.9 for start in starts)
    scores = [table.rows[0].score for table in release.surveys]
    assert [score >= start for score, start in zip(scores, starts, strict=False)] == [False] * (made - 1) + [True]
    assert release.score == scores[-1]
    inputs, labels = blobs(2, 20_000)
    with torch.no_grad():
        assert (release.model(inputs).argmax(1) == labels).float().mean() > 0.8
    assert (ledger.entries[0].settled is None) == (made == 2)
    assert dphypo.verify(release.certificate)
    assert {table.rows[0].params["drift"] for table in release.surveys} == {training().known().value}


def test_a_run_begins_on_the_way_from_an_untrained_model_to_an_earlier_one() -> None:
    mechanism = training(score=lambda model: 0.0).with_noise(1.0)
    earlier = linear()

    def begun(kept: float, model: nn.Module | None, seed: int) -> dict[str, torch.Tensor]:
        return mechanism.continued(kept, model)._run({}, seed).begin().model.state_dict()

    untrained = begun(0.0, None, 1)
    assert all(value.equal(begun(0.0, None, 2)[name]) for name, value in untrained.items()), "all rungs share it"
    for name, value in begun(0.25, earlier, 3).items():
        assert torch.allclose(value, 0.75 * untrained[name] + 0.25 * earlier.state_dict()[name], atol=1e-7)
    assert training(learning_rate=0.1).continued(0.5) is None, "a rate that is not in units of noise"


@pytest.mark.slow
@pytest.mark.parametrize("rungs", [2, 7])
def test_rungs_that_go_on_have_the_signal_and_the_noise_of_one_run_with_all_of_it(rungs: int) -> None:
    """In closed form, for a constant gradient: weights move by ηT a rung, and noise adds (ησC/B)²T to their variance.

    One run with 1/σ² = Σ 1/σ_i² and the same drift moves them as far, and leaves the same noise.
    """
    full = training()
    totals = [8.0 * 2 ** ((place - rungs) / 2) for place in range(1, rungs + 1)]
    planned = plan_ladder(full.default_space(), full, Ladder(0.8, epsilons=totals), epsilon=8.0, delta=1e-5).rungs
    moved = variance = weights = 0.0
    for rung in planned:
        kept = rung.kept or 0.0
        (rate, noise, size, steps), drift = _told(rung.after(linear()), rung.params), rung.params["drift"]
        moved = kept * moved + rate * steps
        variance = kept**2 * variance + (rate * noise / size) ** 2 * steps
        weights += noise**-2
        alone, _, _, _ = _told(rung.mechanism.with_noise(weights**-0.5), rung.params)
        assert moved == pytest.approx(alone * steps, rel=1e-3)
        assert variance == pytest.approx(drift**2, rel=1e-3)


def _told(mechanism: DPSGD, params: dict) -> tuple[float, float, int, int]:
    assert mechanism.batch_size is not None
    run = mechanism.cost.run(params)
    told, _, _ = mechanism._run(params, 0)._engine_run(run)
    return told.learning_rate, run.noise_multiplier, mechanism.batch_size, run.steps


def test_both_sides_cost_each_total_and_no_more() -> None:
    rungs = plan_ladder(training().default_space(), training(), Ladder(0.8, rungs=2), epsilon=4.0, delta=1e-5).rungs
    for number, rung in enumerate(rungs, 1):
        costs = cost_of(training().default_space(), rungs[:number]).costs(1e-5)
        assert set(costs) == {"training", "scoring"}
        assert all(rung.epsilon - 0.01 < cost <= rung.epsilon for cost in costs.values())


def test_a_score_whose_deviation_is_not_known_stops_no_ladder() -> None:
    with pytest.raises(ValueError, match=r"until = 0\.8 is not valid: the deviation of its scores is unknown"):
        dphypo.tune(training(score="loss"), until=0.8, epsilon=8.0, delta=1e-5, journal=None, progress=False)


def test_only_a_score_with_its_noise_stops_a_ladder() -> None:
    """The same model, scored again: what is compared with the target varies as the noise that is paid for."""
    mechanism = training()
    rung = plan_ladder(mechanism.default_space(), mechanism, Ladder(0.8, rungs=2), epsilon=4.0, delta=1e-5).rungs[0]
    score, model = rung.mechanism.ranking_score, linear()
    found = np.array([score(model, seed=seed) for seed in range(60)])
    records, right = rung.mechanism.score_records, found.mean()
    expected = rung.mechanism.score_noise_multiplier / records * np.hypot(right, 1 - right)
    assert 0.5 < found.std() / expected < 1.7  # false alarms: below 1e-6


@pytest.mark.parametrize("scoring", [slice(None), slice(1000, None)], ids=["the same", "not known to be others"])
def test_records_that_may_train_stop_no_ladder(scoring: slice) -> None:
    """A model that has learnt its records by heart scores 1 on them, and the margin is that of records it never saw."""
    inputs, labels = blobs(1)
    mechanism = training(score=PrivateAccuracy((inputs[scoring], labels[scoring]), 5.0))
    with pytest.raises(ValueError, match=r"until = 0\.8 is not valid: the records that score may train the model too"):
        dphypo.tune(mechanism, until=0.8, epsilon=8.0, delta=1e-5, journal=None, progress=False)


@pytest.mark.slow
def test_an_accuracy_does_not_depend_on_how_many_records_were_declared() -> None:
    model = linear()
    exact = float((model(blobs(1)[0]).argmax(1) == blobs(1)[1]).float().mean())
    for declared in (1000, RECORDS, 2000):
        score = PrivateAccuracy(blobs(1), 5.0, records=declared)
        found = [score(model, seed=seed) for seed in range(40)]
        assert np.mean(found) == pytest.approx(exact, abs=5 * 5.0 / RECORDS / np.sqrt(40))  # false alarms: 6e-7
        assert np.std(found) < 1.6 * 5.0 / RECORDS  # at most 5.0 / RECORDS: false alarms below 1e-6


def test_a_ladder_scores_on_a_share_that_its_user_sets_apart() -> None:
    """As docs/howto/choosing-epsilon.md says for many records: more of them score, and both sides cost each total."""
    train, held_out = split_by_hash(*blobs(1), share=0.4)
    mechanism = training(data=train, score=PrivateAccuracy(held_out, "calibrate"))
    options = {"epsilon": 8.0, "delta": 1e-5, "journal": None, "progress": False}
    release = dphypo.tune(mechanism, until=Ladder(0.8, rungs=2), **options)
    assert dphypo.verify(release.certificate)
    starts = [one["reached from"] for one in release.certificate.document["public"]["releases"]]
    fewer = plan_ladder(training().default_space(), training(), Ladder(0.8, rungs=2), epsilon=8.0, delta=1e-5).rungs
    assert all(wide < rung.reaching for wide, rung in zip(starts, fewer, strict=True)), "more records, less margin"
    assert release.certificate.epsilon <= 8.0
