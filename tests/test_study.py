"""The study: Framework 1 as it should run, what it refuses, and what it hands out."""

from __future__ import annotations

import inspect
import math
import re

import dp_accounting as dp
import numpy as np
import pytest
from study_world import EVENT, LAW, RELATION, SEED, SPACE, Nearest, make, score, train

import dphypo
from dphypo import _refusals
from dphypo._policy import SamplerError
from dphypo.accounting import account
from dphypo.band import Band, Greedy
from dphypo.entropy import SYSTEM, Seeded
from dphypo.mechanism import Outcome
from dphypo.release import Ending
from dphypo.runs import Geometric, Pmf
from dphypo.samplers import Uniform
from dphypo.savers import UnsupportedModelError
from dphypo.space import Space
from dphypo.testing import check_mechanism


def mechanism(function, **options):
    return dphypo.mechanism(**{"event": EVENT, "relation": RELATION} | options)(function)


# Framework 1


def test_the_guarantee_is_known_before_anything_runs(tmp_path):
    study = make(tmp_path / "study.db")
    assert study.guarantee.epsilon(1e-6) == account(EVENT, LAW, Band(0.5, 2.0), relation=RELATION).epsilon(1e-6)
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
    assert np.array_equal(history.features, SPACE.encode(history.params))
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
    study = make()
    study.run(progress=False)
    trials = study._search.record().trials
    assert len({trial.seed for trial in trials}) == len({trial.tie_key for trial in trials}) == len(trials)
    assert all(0 <= trial.seed < 2**63 for trial in trials)


def test_ties_are_broken_by_the_keys():
    study = make(mechanism=mechanism(lambda params, *, seed: (seed, 1.0)))
    release = study.run(progress=False)
    assert release.model == max(study._search.record().trials, key=lambda trial: trial.tie_key).seed


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
    from dphypo.journal import open_store

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
    assert re.search(r"study\.curator\(\).*stages\.curator\(stage\).*journal=None", repr(release))
    assert not re.search(r"\d", repr(release))
    again = dphypo.load_release(release.save(tmp_path / "out"))
    assert again.ending is Ending.ALL_FAILED


def test_t_may_be_zero(tmp_path):
    study = make(runs=Pmf({0: 0.999999, 1: 0.000001}))
    release = study.run(progress=False)
    assert release.ending is Ending.NO_RUN
    assert release.model is None
    assert dphypo.load_release(release.save(tmp_path / "out")).ending is Ending.NO_RUN


def test_leaving_the_process_counts_first():
    calls = []

    def leaves(params, *, seed):
        calls.append(seed)
        if len(calls) == 2:
            raise SystemExit(3)
        return 1, 1.0

    study = make(mechanism=mechanism(leaves))
    with pytest.raises(SystemExit):
        study.run(progress=False)
    study.run(progress=False)
    assert len(calls) == len(set(calls)) == study.curator().total()


def test_a_model_that_cannot_be_saved_stops_the_study_and_loses_nothing():
    class Strange:
        pass

    study = make(mechanism=mechanism(lambda params, *, seed: (Strange(), 1.0)))
    with pytest.raises(UnsupportedModelError, match="saver"):
        study.run(progress=False)
    (trial,) = study.curator().trials()
    assert not trial["done"]
    assert trial["attempts"] == 0


# The sampler cannot leave the band

GARBAGE = {
    "nan": lambda n: np.full(n, math.nan),
    "one nan": lambda n: np.append(np.ones(n - 1), math.nan),
    "infinite": lambda n: np.append(np.ones(n - 1), math.inf),
    "negative": lambda n: np.append(np.ones(n - 1), -1e-300),
    "too long": lambda n: np.ones(n + 1),
    "too short": lambda n: np.ones(n - 1),
    "empty": lambda n: np.ones(0),
    "a matrix": lambda n: np.ones((n, 1)),
    "a number": lambda n: 1.0,
    "zeros": np.zeros,
    "None": lambda n: None,
    "text": lambda n: ["a"] * n,
    "complex": lambda n: np.ones(n) * 1j,
    "objects": lambda n: [object()] * n,
    "an exception": lambda n: 1 / 0,
}
PROJECTED = {
    "huge": lambda n: np.append(np.ones(n - 1), 1e308),
    "all huge": lambda n: np.full(n, 1.7e308),
    "tiny": lambda n: np.full(n, 5e-324),
    "one candidate": lambda n: np.eye(n)[0],
    "integers": lambda n: list(range(n)),
    "booleans": lambda n: np.arange(n) % 2 == 0,
}


class Garbage:
    def __init__(self, make_weights):
        self.make_weights = make_weights

    def weights(self, candidates, history):
        return self.make_weights(len(candidates))


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_weights_are_a_clear_error_before_the_draw(kind):
    study = make(sampler=Garbage(GARBAGE[kind]))
    with pytest.raises(SamplerError, match="Garbage gave no usable weights") as caught:
        study.run(progress=False)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert isinstance(study.curator().sampler_error, Exception)
    trials = study.curator().trials()
    assert len(trials) == 1, "only the first run, from the prior, was drawn"
    assert trials[0]["done"]


@pytest.mark.parametrize("rule", [dphypo.L2(), dphypo.KL(), Greedy(), dphypo.Mixed(0.5)])
@pytest.mark.parametrize("kind", PROJECTED)
def test_any_other_weights_are_projected_into_the_band(kind, rule, monkeypatch):
    drawn = []
    original = Band.draw

    def spy(self, masses, entropy, prior=None):
        drawn.append(np.asarray(masses) / np.asarray(prior))
        return original(self, masses, entropy, prior)

    monkeypatch.setattr(Band, "draw", spy)
    make(sampler=Garbage(PROJECTED[kind]), rule=rule).run(progress=False)
    assert drawn
    assert all((ratios >= 0.5).all() and (ratios <= 2.0).all() for ratios in drawn)


@pytest.mark.parametrize("attribute", ["masses", "unit", "features"])
def test_a_sampler_cannot_change_the_candidates(attribute):
    class Meddler:
        def weights(self, candidates, history):
            getattr(candidates, attribute)[:] = 0.5
            return candidates.masses

    with pytest.raises(SamplerError):
        make(sampler=Meddler()).run(progress=False)


def test_a_study_goes_on_after_its_sampler_is_mended():
    from dphypo.journal import open_store

    store = open_store(None)
    with pytest.raises(SamplerError):
        make(store, sampler=Garbage(np.zeros)).run(progress=False)
    mended = make(store, sampler=Uniform())
    assert mended.run(progress=False).ending is Ending.MODEL
    assert mended.curator().trials()[0]["attempts"] == 1


# Ask and tell


def test_ask_and_tell_is_the_same_search():
    whole = make()
    expected = whole.run(progress=False)
    study = make()
    while (trial := study.ask()) is not None:
        study.tell(trial, train(trial.params, seed=trial.seed))
    release = study.release()
    assert (release.params, release.score) == (expected.params, expected.score)
    assert study.curator().trials() == whole.curator().trials()


def test_trials_may_be_told_in_any_order_and_the_release_waits_for_all():
    study = make()
    trials = []
    while (trial := study.ask()) is not None:
        trials.append(trial)
    assert study.ask() is None
    messages = set()
    for trial in reversed(trials):
        with pytest.raises(_refusals.Unfinished) as caught:
            study.release()
        messages.add(str(caught.value))
        study.tell(trial, Outcome(1, score(trial.params, trial.seed)))
    assert len(messages) == 1, "the refusal must not depend on how many runs remain"
    assert not re.search(r"\d", messages.pop())
    best = max(trials, key=lambda trial: score(trial.params, trial.seed))
    assert study.release().params == best.params


def test_a_trial_is_told_once():
    study = make()
    trial = study.ask()
    study.tell(trial, (1, 1.0))
    with pytest.raises(_refusals.OutcomeTwice, match="one outcome"):
        study.tell(trial, (1, 2.0))


class Secretive:
    def __float__(self):
        raise RuntimeError("secret record 4711")


@pytest.mark.parametrize(
    "wrong",
    [3, None, [1, 2.0], (1, 2.0, 3), (1, None), (1, "record 4711"), (1, [2.0]), Outcome(1, None), (1, Secretive())],
)
def test_a_malformed_outcome_is_refused_and_the_trial_can_be_told_rightly(wrong):
    study = make()
    trial = study.ask()
    with pytest.raises(TypeError, match=r"Nothing was recorded.*Outcome\.failed") as caught:
        study.tell(trial, wrong)
    assert "4711" not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert [row["done"] for row in study.curator().trials()] == [False]
    study.tell(trial, (1, 1.0))
    assert [row["score"] for row in study.curator().trials()] == [1.0]


@pytest.mark.parametrize("failed", [Outcome.failed("diverged"), (1, math.nan), (1, -math.inf), (1, 10**400)])
def test_a_failed_run_is_told_as_such(failed):
    study = make()
    study.tell(study.ask(), failed)
    (row,) = study.curator().trials()
    assert row["done"]
    assert row["failure"]


def test_a_score_of_numpy_is_a_number():
    study = make()
    study.tell(study.ask(), (1, np.float32(0.5)))
    assert study.curator().trials()[0]["score"] == 0.5


def test_a_trial_of_another_study_is_refused():
    trial = make(entropy=SYSTEM).ask()
    study = make()
    with pytest.raises(ValueError, match="not of this study"):
        study.tell(trial, (1, 1.0))


def test_run_takes_over_what_ask_gave_out():
    study = make()
    late = study.ask()
    study.run(progress=False)
    assert study.curator().trials() == _whole().curator().trials()
    with pytest.raises(_refusals.OutcomeTwice):
        study.tell(late, (1, 9.0))


def _whole():
    study = make()
    study.run(progress=False)
    return study


def test_a_trial_that_was_not_told_is_given_out_again_and_fails_at_the_third_loss():
    study = make()
    first = study.ask()
    for _ in range(2):
        study.close()
        again = study.ask()
        assert (again.number, again.params, again.seed) == (first.number, first.params, first.seed)
    study.close()
    assert study.ask().number == first.number + 1
    assert "died three times" in study.curator().trials()[0]["failure"]


# Refusals


def test_a_released_study_gives_the_same_release_and_no_other():
    study = make()
    release = study.run(progress=False)
    for again in (study.run(progress=False), study.released()):
        assert (again.params, again.score, again.model["seed"]) == (
            release.params,
            release.score,
            release.model["seed"],
        )
    with pytest.raises(_refusals.SecondRelease, match=r"one output.*study\.released\(\)"):
        study.release()
    with pytest.raises(_refusals.RunsAfterRelease, match=r"T was drawn.*again with study\.released\(\)"):
        study.ask()


def test_nothing_is_released_before_the_end():
    study = make()
    assert study.released() is None
    with pytest.raises(_refusals.Unfinished, match="stopping because a score is good, or because time is up"):
        study.release()


@pytest.mark.parametrize("option", sorted(_refusals.OPTIONS))
def test_options_of_other_optimisers_are_explained(option):
    with pytest.raises(_refusals.OPTIONS[option], match=option):
        make().run(**{option: 3})


def test_an_unknown_option_is_a_plain_error():
    with pytest.raises(TypeError, match="colour"):
        make().run(colour="red")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("space", {"space": Space({"lr": SPACE.parameters[0].dimension.prior, "depth": [1, 2, 4]})}),
        ("law of T", {"runs": Geometric(mean=5)}),
        ("band", {"band": Band(0.5, 4.0)}),
        ("event", {"mechanism": mechanism(train.train, event=dp.GaussianDpEvent(5.0))}),
        ("event", {"mechanism": mechanism(train.train, score_event=dp.LaplaceDpEvent(9.0))}),
        ("relation", {"mechanism": mechanism(train.train, relation=dp.NeighboringRelation.REPLACE_ONE)}),
        ("direction", {"maximize": False}),
        ("entropy", {"entropy": SYSTEM}),
    ],
)
def test_what_a_study_was_declared_by_cannot_change(tmp_path, name, change):
    make(tmp_path / "study.db").ask()
    changed = make(tmp_path / "study.db", **change)
    for act in (
        changed.ask,
        lambda: changed.run(progress=False),
        changed.release,
        changed.released,
        changed.curator().trials,
    ):
        with pytest.raises(_refusals.ChangedStudy, match=f"Different: {name}"):
            act()
    make(tmp_path / "study.db").run(progress=False)


def test_the_search_rule_may_change(tmp_path):
    make(tmp_path / "study.db").ask()
    make(tmp_path / "study.db", sampler=Uniform(), rule=dphypo.KL(), candidates=16).run(progress=False)


@pytest.mark.parametrize("name", sorted(_refusals.SECRETS))
def test_trials_are_behind_one_door(name):
    study = make()
    study.run(progress=False)
    with pytest.raises(_refusals.SecretValue, match=r"study\.curator\(\)"):
        getattr(study, name)
    assert not hasattr(study, name)


def test_the_door_says_that_there_is_no_guarantee():
    curator = make().curator()
    assert "no privacy guarantee" in repr(curator)
    assert "guarantee" in inspect.getdoc(type(curator))
    assert "guarantee" in inspect.getdoc(dphypo.Study.curator)


def test_shredding_is_for_released_studies_and_ends_them(tmp_path):
    study = make(tmp_path / "study.db")
    study.ask()
    with pytest.raises(_refusals.NotReleased, match="several T"):
        study.shred()
    release = study.run(progress=False)
    release.save(tmp_path / "out")
    study.shred()
    for act in (study.release, study.released, lambda: study.run(progress=False)):
        with pytest.raises(_refusals.Shredded):
            act()
    with pytest.raises(_refusals.RunsAfterRelease):
        study.ask()
    assert study.curator().total() is None
    assert study.curator().trials() == []
    assert dphypo.load_release(tmp_path / "out").params == release.params


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"mechanism": train.train}, "mechanism"),
        ({"sampler": object()}, "sampler"),
        ({"delta": 1.0}, "delta"),
        ({"candidates": 0}, "candidates"),
        ({"runs": 10}, "runs"),
        ({"band": (0.5, 2)}, "band"),
        ({"grid": {"lrr": 3}}, "lrr"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_happens(change, match):
    with pytest.raises((ValueError, TypeError), match=match):
        make(**change)


def test_repr_shows_public_values_only():
    study = make()
    before = repr(study)
    study.run(progress=False)
    assert repr(study) == before
    assert repr(LAW) in before


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
        (lambda params, *, seed: (seed, 1.0), {"event": dp.NonPrivateDpEvent()}, "no finite ε"),
        (lambda params, *, seed: (params["lr"], 1.0), {}, "two seeds gave the same model"),
        (lambda params, *, seed: (np.random.default_rng(None).normal(), 1.0), {}, "same λ and seed"),
        (_stateful(), {}, "run in between"),
        (lambda params, *, seed: (seed, math.nan), {}, "a run failed"),
    ],
)
def test_what_does_not_conform_is_told(function, options, match):
    with pytest.raises(AssertionError, match=match):
        check_mechanism(mechanism(function, **options), SPACE)
