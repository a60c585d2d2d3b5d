"""DP-SGD inside a study: calibrated noise, the envelope over what is tuned, reproducible releases."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from scipy.stats import loguniform
from torch import nn

import dphypo
from dphypo.accounting import verify
from dphypo.accounting.certificate import assumptions
from dphypo.accounting.events import ideal
from dphypo.entropy import Seeded
from dphypo.errors import UnreachableError
from dphypo.mechanisms import over_space
from dphypo.testing import check_mechanism
from dphypo.torch import DPSGD, PrivateAccuracy, PublicAccuracy, split_by_hash
from dphypo.torch.engine import slack as slack_of_run
from dphypo.torch.saver import Safetensors

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 2, 300)
INPUTS = (RNG.normal(size=(300, 4)) + 2 * LABELS[:, None]).astype(np.float32)
RUNS = dphypo.NegativeBinomial(shape=8, mean=4)
DELTA = 1e-5
TUNED = dphypo.Space(
    {"learning_rate": loguniform(0.1, 10), "momentum": [0.0, 0.9], "batch_size": [15, 60], "epochs": [1, 4]}
)


def linear() -> nn.Module:
    return nn.Linear(4, 2)


def dpsgd(**changes: Any) -> DPSGD:
    arguments: dict[str, Any] = {
        "model": linear,
        "data": (INPUTS, LABELS),
        "score": PublicAccuracy((INPUTS, LABELS)),
        "noise_multiplier": "calibrate",
        "epochs": 2,
        "batch_size": 30,
        "device": "cpu",
    }
    return DPSGD(**{**arguments, **changes})


def test_seeds_are_longer_than_anyone_can_try():
    seeds = []

    class Recorded(DPSGD):
        def make(self, params, seeds_of_runs):
            seeds.extend(seeds_of_runs)
            return super().make(params, seeds_of_runs)

    recorded = Recorded(model=linear, data=(INPUTS, LABELS), score=PublicAccuracy((INPUTS, LABELS)), epochs=2,
                        batch_size=30, device="cpu", noise_multiplier=2.0)  # fmt: skip
    dphypo.Study(TUNED, recorded, RUNS, delta=DELTA, journal=None).run(progress=False)
    assert seeds  # none below 2^200 by chance: 2^-56 a run
    assert all(2**200 < seed < 2**256 for seed in seeds)


@pytest.fixture(scope="module")
def calibrated() -> DPSGD:
    return dpsgd().calibrated(TUNED, RUNS, epsilon=4.0, delta=DELTA)


@pytest.mark.slow
def test_every_setting_gets_noise_and_the_search_costs_the_total(calibrated: DPSGD) -> None:
    mechanism, table = calibrated, calibrated.noise_multiplier
    assert isinstance(table, dict)
    assert set(table) == set(itertools.product([15, 60], [1, 4]))
    guarantee = dphypo.Study(TUNED, mechanism, RUNS, delta=DELTA, journal=None).guarantee
    assert 3.99 < guarantee.epsilon(DELTA) <= 4.0
    (term,) = guarantee.terms
    assert len(term.releases.events) == 4
    for params in ({"batch_size": batch, "epochs": epochs} for batch, epochs in table):
        event = mechanism.event(params)
        assert event in term.releases.events
        # No setting is far from the envelope: each alone costs nearly as much.
        assert 3.5 < dphypo.account(event, RUNS).epsilon(DELTA) <= guarantee.epsilon(DELTA)


def test_the_certificate_of_a_study_charges_the_rounding_of_all_its_runs() -> None:
    space = dphypo.Space({"learning_rate": [0.1, 1.0]})
    exact = dphypo.Study(space, dpsgd(noise_multiplier=2.0), RUNS, delta=DELTA, journal=None).guarantee
    certificate = exact.certificate(DELTA)
    slack = slack_of_run(steps=20, rate=0.1)
    assert certificate.document["slack"] == pytest.approx(RUNS.mean * slack, rel=1e-9)
    assert slack > 0
    assert not verify(certificate).problems
    assert not verify(dphypo.Certificate({**certificate.document, "slack": 0.5 * RUNS.mean * slack}))
    assert "is included in delta" in certificate.statement()
    real = "noise drawn in floating point is treated as real-valued"
    assert real not in assumptions(certificate.document)


@pytest.mark.slow
def test_one_common_profile_bounds_every_setting(calibrated: DPSGD) -> None:
    """At every ε, by dp_accounting itself: no setting is above the profile that the study is charged for."""
    events = over_space.events(calibrated, TUNED)
    common = dphypo.account(events, dphypo.Pmf({1: 1.0}))
    for event in events:
        accountant = PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=1e-3)
        accountant.compose(ideal(event))
        for epsilon in (0.0, 0.5, 1.0, 2.0, 3.0, 5.0):
            assert accountant.get_delta(epsilon) <= common.delta(epsilon) * (1 + 1e-9) + 1e-12


@pytest.mark.slow
def test_a_fixed_setting_gets_one_multiplier_and_the_band_is_paid_for(caplog: pytest.LogCaptureFixture) -> None:
    space = dphypo.Space({"learning_rate": loguniform(0.1, 10)})
    with caplog.at_level(logging.WARNING):
        uniform = dpsgd().calibrated(space, RUNS, epsilon=4.0, delta=DELTA).noise_multiplier
    assert not caplog.records  # nothing for people to worry about
    banded = dpsgd().calibrated(space, RUNS, dphypo.Band(0.75, 2), epsilon=4.0, delta=DELTA).noise_multiplier
    assert isinstance(uniform, dict)
    assert isinstance(banded, dict)
    assert set(uniform) == {(30, 2)}
    assert banded[30, 2] > uniform[30, 2]


@pytest.mark.slow
def test_a_rule_that_sees_only_the_history_asks_for_less_noise_and_costs_no_more_than_the_total() -> None:
    space, band = dphypo.Space({"learning_rate": loguniform(0.1, 10)}), dphypo.Band(0.75, 2)
    anything = dpsgd().calibrated(space, RUNS, band, epsilon=4.0, delta=DELTA)
    history = dpsgd().calibrated(space, RUNS, band, epsilon=4.0, delta=DELTA, policy="history", first_from_prior=1)
    assert isinstance(anything.noise_multiplier, dict)
    assert isinstance(history.noise_multiplier, dict)
    assert history.noise_multiplier[30, 2] < anything.noise_multiplier[30, 2]
    study = dphypo.Study(space, history, RUNS, band, delta=DELTA, journal=None, first_from_prior=1)
    assert 3.98 < study.guarantee.epsilon(DELTA) <= 4.0


def test_a_private_score_is_part_of_the_total() -> None:
    """On the training records it composes; apart from them it is free while training costs more."""
    space = dphypo.Space({"learning_rate": loguniform(0.1, 10)})

    def noise(train: Any, rank: Any, **score: Any) -> float:
        mechanism = dpsgd(data=train, score=PrivateAccuracy(rank, **score)).calibrated(
            space, RUNS, epsilon=4.0, delta=DELTA
        )
        assert dphypo.Study(space, mechanism, RUNS, delta=DELTA, journal=None).guarantee.epsilon(DELTA) <= 4.0
        table = mechanism.noise_multiplier
        assert isinstance(table, dict)
        return table[30, 2]

    train, rank = split_by_hash(INPUTS, LABELS)
    apart, same = (noise(train, records, noise_multiplier=5.0) for records in (rank, train))
    assert apart < same
    with pytest.raises(UnreachableError):
        noise(train, rank, noise_multiplier=0.5)


def test_the_release_is_the_same_for_the_same_entropy_and_loads_again(tmp_path: Any) -> None:
    mechanism = dpsgd(noise_multiplier=2.0)
    first, again, other = (
        dphypo.Study(TUNED, mechanism, RUNS, delta=DELTA, journal=None, entropy=Seeded(seed)).run(progress=False)
        for seed in (3, 3, 4)
    )
    assert first.params == again.params != other.params
    assert torch.equal(first.model.weight, again.model.weight)
    first.save(tmp_path / "release")
    loaded = dphypo.load_release(tmp_path / "release", mechanism.saver)
    assert torch.equal(loaded.model.weight, first.model.weight)
    state = dphypo.load_release(tmp_path / "release", Safetensors()).model
    assert torch.equal(state["weight"], first.model.weight)
    assert not dphypo.verify(tmp_path / "release" / "certificate.json").problems


def test_an_unknown_hyperparameter_is_refused_when_the_study_is_made() -> None:
    with pytest.raises(ValueError, match="'depth' is used neither"):
        dphypo.Study(dphypo.Space({"depth": [1]}), dpsgd(noise_multiplier=1.0), RUNS, delta=DELTA, journal=None)


def test_it_conforms() -> None:
    check_mechanism(dpsgd(noise_multiplier=2.0), TUNED, points=2, entropy=Seeded(1))


@pytest.mark.slow
def test_several_workers(tmp_path: Any) -> None:
    mechanism = dpsgd(noise_multiplier=2.0)
    study = dphypo.Study(TUNED, mechanism, RUNS, delta=DELTA, journal=tmp_path / "study.db")
    release = study.run(workers=2, progress=False)
    assert set(release.params or {}) == set(TUNED.names)
