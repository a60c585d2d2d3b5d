"""The study: Framework 1 as it should run, and what counts as an outcome."""

from __future__ import annotations

import math
import re

import dp_accounting as dp
import numpy as np
import pytest
from support.study_world import EVENT, LAW, RELATION, SEED, SPACE, Nearest, make, mechanism, score, train

import dphypo
from dphypo.accounting import account
from dphypo.band import Band
from dphypo.entropy import SYSTEM, Seeded
from dphypo.errors import UnsupportedModelError
from dphypo.journal.journal import Journal
from dphypo.journal.store import open_store
from dphypo.laws import Pmf
from dphypo.search.release import Ending
from dphypo.space import Space
from dphypo.testing import check_mechanism

# Framework 1


def test_the_guarantee_is_known_before_anything_runs(tmp_path):
    study = make(tmp_path / "study.db")
    accounted = account(EVENT, LAW, Band(0.5, 2.0), relation=RELATION, first_from_prior=1)
    assert study.guarantee.epsilon(1e-6) == accounted.epsilon(1e-6)
    assert not list(tmp_path.iterdir())


def test_the_shared_search_has_several_runs():
    study = make()
    study.run(progress=False)
    assert study.curator().total() >= 6


def test_the_best_run_is_released():
    study = make()
    release = study.run(progress=False)
    trials = study.curator().trials()
    assert len(trials) == study.curator().total()
    best = max(trials, key=lambda trial: trial["score"])
    assert (release.params, release.score) == (best["params"], best["score"])
    assert release.score == score(best["params"], best["seed"])
    assert release.model["seed"] == best["seed"]
    assert release.ending is Ending.MODEL


def test_the_smallest_score_is_released_when_minimising():
    study = make(maximize=False)
    release = study.run(progress=False)
    assert release.score == min(trial["score"] for trial in study.curator().trials())


def test_uniform_search_is_algorithm_1():
    """Every λ is a draw from the prior, whatever the sampler and the history are, and T one from its law."""

    class Never:
        def weights(self, candidates, history):
            raise AssertionError("asked for weights")

    study = make(band=Band(1, 1), sampler=Never())
    study.run(progress=False)
    entropy = Seeded(SEED)
    expected = [SPACE.sample(entropy.child(f"trial {n}").child("draw")) for n in range(LAW.sample(entropy.child("T")))]
    assert [trial["params"] for trial in study.curator().trials()] == expected


def test_the_first_run_is_drawn_from_the_prior_and_the_others_by_the_rule():
    seen = []

    class Recorder:
        def weights(self, *arguments):
            seen.append(arguments)
            return Nearest().weights(*arguments)

    study = make(sampler=Recorder())
    study.run(progress=False)
    trials = study.curator().trials()
    assert [len(history) for _, history in seen] == list(range(1, len(trials)))
    assert all(len(candidates) == 64 for candidates, _ in seen)
    first, second = seen[0][0], seen[1][0]
    assert not np.array_equal(first.unit, second.unit), "candidates must be fresh for every run"
    history = seen[-1][1]
    assert list(history.params) == [trial["params"] for trial in trials[:-1]]
    assert history.scores.tolist() == [trial["score"] for trial in trials[:-1]]
    assert np.array_equal(history.unit, SPACE.to_unit(history.params))
    assert np.array_equal(history.features, SPACE.features(SPACE.to_unit(history.params)))
    assert set(vars(history)) == {"features", "unit", "scores", "failed", "params"}


def test_history_is_oriented_so_that_larger_is_better_and_marks_failures():
    seen = []

    class Recorder:
        def weights(self, candidates, history):
            seen.append(history)
            return candidates.masses

    calls = []

    def fails_first(params, *, seed):
        calls.append(1)
        if len(calls) == 1:
            raise ValueError
        return 1, 5.0 + len(calls)

    make(mechanism=mechanism(fails_first), maximize=False, sampler=Recorder()).run(progress=False)
    assert seen[-1].failed.tolist()[:3] == [True, False, False]
    assert math.isnan(seen[-1].scores[0])
    assert seen[-1].scores[1:3].tolist() == [-7.0, -8.0]


def test_the_seed_and_tie_key_are_fresh_for_every_run():
    store = open_store(None)
    make(store).run(progress=False)
    trials = Journal(store, "study", shared=True).record.trials
    assert len({trial.seed for trial in trials}) == len({trial.tie_key for trial in trials}) == len(trials)
    assert all(0 <= trial.seed < 2**63 for trial in trials)


def test_ties_are_broken_by_the_keys():
    store = open_store(None)
    release = make(store, mechanism(lambda params, *, seed: (seed, 1.0))).run(progress=False)
    trials = Journal(store, "study", shared=True).record.trials
    assert release.model == max(trials, key=lambda trial: trial.tie_key).seed


def test_a_small_finite_space_is_searched_over_its_grid():
    seen = []

    class Recorder:
        def weights(self, candidates, history):
            seen.append(candidates)
            return candidates.masses

    space = Space({"depth": [1, 2, 3], "wide": (["yes", "no"], [0.25, 0.75])})
    quick = mechanism(lambda params, *, seed: (1, float(params["depth"])))
    make(space=space, mechanism=quick, sampler=Recorder()).run(progress=False)
    assert all(candidates is seen[0] for candidates in seen)
    assert sorted(seen[0].masses) == pytest.approx([1 / 12] * 3 + [1 / 4] * 3)


def test_a_continuous_space_may_be_cut_into_a_grid():
    study = make(grid={"lr": 16})
    study.run(progress=False)
    rates = [trial["params"]["lr"] for trial in study.curator().trials()]
    assert len(set(rates)) == len(rates), "within a cell, λ is drawn from the prior"


def test_system_entropy_gives_a_private_certificate_and_a_seed_does_not():
    private = make(entropy=SYSTEM).run(progress=False)
    seeded = make().run(progress=False)
    assert "no guarantee: seeded" not in private.certificate.statement()
    assert "no guarantee: seeded" in seeded.certificate.statement()
    assert "no guarantee: seeded" in str(seeded.certificate.to_dict())


def test_two_studies_share_a_database_by_name(tmp_path):
    store = open_store(tmp_path / "study.db")
    one, two = (make(store, name=name, entropy=SYSTEM) for name in ("one", "two"))
    assert one.run(progress=False).params != two.run(progress=False).params
    store.close()


# Failures are outcomes


@pytest.mark.parametrize(
    "ending", [ValueError("no"), MemoryError(), math.nan, math.inf, -math.inf, None, "text", RecursionError()]
)
def test_a_failed_run_counts_is_lowest_and_is_never_run_again(ending):
    calls = []

    def sometimes(params, *, seed):
        calls.append(seed)
        if len(calls) % 2:
            if isinstance(ending, Exception):
                raise ending
            return 1, ending
        return seed, -1e9

    study = make(mechanism=mechanism(sometimes))
    release = study.run(progress=False)
    assert release.score == -1e9
    assert len(calls) == len(set(calls)) == study.curator().total()
    trials = study.curator().trials()
    assert [trial["score"] is None for trial in trials] == [n % 2 == 0 for n in range(len(trials))]
    assert all(bool(trial["failure"]) == (trial["score"] is None) for trial in trials)


def test_if_every_run_fails_the_release_says_so(tmp_path):
    def fails(params, *, seed):
        raise ValueError("secret record 17")

    release = make(mechanism=mechanism(fails)).run(progress=False)
    assert release.ending is Ending.ALL_FAILED
    assert (release.params, release.model, release.score) == (None, None, None)
    assert "every run failed" in repr(release)
    assert re.search(r"release\.curator\(\)\.trials\(\).*open_journal\(journal\)\.curator\(\)", repr(release))
    assert "dphypo.testing.check_mechanism(mechanism, space)" in repr(release)
    assert not re.search(r"\d", repr(release))
    again = dphypo.load_release(release.save(tmp_path / "out"))
    assert again.ending is Ending.ALL_FAILED


def test_t_may_be_zero(tmp_path):
    study = make(runs=Pmf({0: 0.999999, 1: 0.000001}))
    release = study.run(progress=False)
    assert release.ending is Ending.NO_RUN
    assert release.model is None
    assert dphypo.load_release(release.save(tmp_path / "out")).ending is Ending.NO_RUN


def test_a_run_that_exits_counts_as_failed():
    calls = []

    def leaves(params, *, seed):
        calls.append(seed)
        if len(calls) == 2:
            raise SystemExit(3)
        return 1, 1.0

    study = make(mechanism=mechanism(leaves))
    study.run(progress=False)
    assert len(calls) == len(set(calls)) == study.curator().total()
    assert [row["failure"] is None for row in study.curator().trials()].index(False) == 1


def test_a_model_that_cannot_be_saved_stops_the_study_and_loses_nothing():
    class Strange:
        pass

    study = make(mechanism=mechanism(lambda params, *, seed: (Strange(), 1.0)))
    with pytest.raises(UnsupportedModelError, match="saver"):
        study.run(progress=False)
    (trial,) = study.curator().trials()
    assert not trial["done"]
    assert trial["attempts"] == 0


# Conformance


def test_the_shared_mechanism_conforms():
    check_mechanism(train, SPACE, workers=True)


def _stateful():
    calls = []

    def train(params, *, seed):
        calls.append(1)
        return np.random.default_rng(seed + len(calls)).normal(), 0.0

    return train


@pytest.mark.parametrize(
    ("function", "options", "match"),
    [
        (lambda params, *, seed: (seed, 1.0), {"event": dp.NonPrivateDpEvent()}, "ε is infinite"),
        (lambda params, *, seed: (params["lr"], 1.0), {}, "two seeds gave the same model"),
        (lambda params, *, seed: (np.random.default_rng(None).normal(), 1.0), {}, "same λ and seed"),
        (_stateful(), {}, "after another run"),
        (lambda params, *, seed: (seed, math.nan), {}, "a run failed"),
    ],
)
def test_what_does_not_conform_is_told(function, options, match):
    with pytest.raises(AssertionError, match=match):
        check_mechanism(mechanism(function, **options), SPACE)
