"""What a mechanism offers without saying anything, and what it is told if it lacks something."""

from __future__ import annotations

from typing import Any

import dp_accounting as dp
import pytest

import dphypo
from dphypo.mechanisms import Declared, OwnTraining, SampledGaussian
from dphypo.mechanisms.mechanism import Mechanism, check_is_mechanism, records_of

RELATION = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
SPACE = dphypo.Space({"lr": [0.1, 1.0]})
EVENT = dp.GaussianDpEvent(1.0)


def train(params: Any, *, seed: int) -> tuple[int, float]:
    return 1, 0.5


class Noisy(Declared):
    def at(self, noise_multiplier: float) -> Noisy:
        return Noisy(self.train, dp.GaussianDpEvent(noise_multiplier), self.relation)


PLAIN = Declared(train, EVENT, RELATION)
NOISY = Noisy(train, EVENT, RELATION)
OWN = OwnTraining(
    lambda params, *, seed, run: (0, 0.5), SampledGaussian(rate=0.1, steps=40, noise_multiplier=1.0), scores="public"
)


def test_noise_and_length_are_set_where_they_can_be() -> None:
    assert NOISY.with_noise(3.0).event == dp.GaussianDpEvent(3.0)
    short = OWN.shorten(0.25)
    assert isinstance(short, OwnTraining)
    assert (short.run.steps, short.run.noise_multiplier) == (10, 2.0)
    cheap = OWN.shorten(0.25, match=False)
    assert isinstance(cheap, OwnTraining)
    assert cheap.run.noise_multiplier == 1.0
    assert OWN.can("noise_multiplier", "fraction", "match")
    assert not NOISY.can("fraction")
    assert not PLAIN.can("noise_multiplier")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PLAIN.with_noise(2.0), r"no at\(noise_multiplier=.*class Training\(dphypo.mechanisms.Declared\)"),
        (lambda: PLAIN.shorten(0.1), r"no at\(fraction=.*SurveyPlan\(short=.*let at\(\) take fraction="),
        (lambda: NOISY.shorten(0.1), r"no at\(fraction=.*give the short run yourself.*SurveyPlan\(short=\.\.\.\)\.$"),
        (lambda: NOISY.with_score_noise(2.0), r"no at\(score_noise_multiplier=.*on its score\.$"),
        (lambda: dphypo.tune(SPACE, PLAIN, epsilon=2.0, delta=1e-5, journal=None), r"no at\(noise_multiplier="),
        (lambda: dphypo.tune(SPACE, NOISY, epsilon=2.0, delta=1e-5, journal=None), r"no at\(fraction="),
        (lambda: dphypo.plan(PLAIN, epsilon=2.0, delta=1e-5), r"no at\(noise_multiplier="),
    ],
)
def test_what_is_missing_is_said_in_one_way(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){message}"):
        call()


@pytest.mark.parametrize("wrong", [train, None, 3, Declared])
def test_what_is_no_mechanism_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"@dphypo.mechanism\(event="):
        check_is_mechanism(wrong)
    with pytest.raises(ValueError, match=r"@dphypo.mechanism\(event="):
        dphypo.Study(SPACE, wrong, dphypo.Geometric(mean=3), delta=1e-5, journal=None)


def test_half_a_mechanism_is_told_what_it_lacks() -> None:
    class Half:
        event = EVENT
        relation = RELATION

    class Unstated(Mechanism):
        event = EVENT

        def __call__(self, params: Any, *, seed: int) -> tuple[int, float]:
            return train(params, seed=seed)

    class Whole(Unstated):
        relation = RELATION

    with pytest.raises(ValueError, match=r"derive its class from dphypo.mechanisms.Mechanism.*check_mechanism"):
        check_is_mechanism(Half())
    with pytest.raises(ValueError, match=r"it does not state its relation.*check_mechanism"):
        check_is_mechanism(Unstated())
    check_is_mechanism(Whole())
    study = dphypo.Study(SPACE, Whole(), dphypo.Geometric(mean=3), delta=1e-5, journal=None)
    assert study.run(progress=False).model == 1


def test_a_wrapper_does_not_lose_the_event_of_a_score() -> None:
    class Forward:
        def __getattr__(self, name: str) -> Any:
            return getattr(PLAIN, name)

    with pytest.raises(TypeError, match=r"Wrapped has or inherits __getattr__.*score_event"):

        class Wrapped(Forward, Mechanism):
            pass


def test_only_a_number_of_records_counts() -> None:
    class Data(Declared):
        records: Any = ("their", "data")

    class Counted(Declared):
        records: Any = 500

    data, counted = (kind(train, EVENT, RELATION) for kind in (Data, Counted))
    assert records_of(PLAIN, data) is None
    assert records_of(PLAIN, data, counted) == 500


def test_what_a_mechanism_says_of_itself_is_read() -> None:
    assert not PLAIN.seeded
    assert Declared(train, EVENT, RELATION, seeded=True).seeded
    assert PLAIN.kinds(SPACE) == ()
    assert not PLAIN.solves_for_scores
    assert PLAIN.without_score() is PLAIN
    assert not PLAIN.makes_many


@pytest.mark.parametrize("name", ["batch_size", "epochs", "steps", "noise_multiplier", "sampling_rate"])
def test_costs_in_the_space_that_the_event_cannot_depend_on_are_refused(name: str) -> None:
    space = dphypo.Space({"lr": [0.1, 1.0], name: [1, 2]})
    law = dphypo.Geometric(mean=3)
    searches = [
        lambda run: dphypo.Study(space, run, law, delta=1e-5, journal=None),
        lambda run: dphypo.Stages(space, [dphypo.Survey(run, 2), dphypo.Stage(run, law)], delta=1e-5, journal=None),
        lambda run: dphypo.Stages(space, [dphypo.Survey(run, 3), dphypo.LastRun(run)], delta=1e-5, journal=None),
        lambda run: dphypo.tune(space, run, epsilon=2.0, delta=1e-5, journal=None),
        lambda run: dphypo.plan(run, epsilon=2.0, delta=1e-5, space=space),
        lambda run: dphypo.testing.check_mechanism(run, space),
    ]
    for search in searches:
        with pytest.raises(ValueError, match=f"space = '{name}' is not valid: what a run costs depends on it"):
            search(OWN)
    with pytest.raises(ValueError, match=r"event=lambda params"):
        searches[0](PLAIN)


def test_an_event_that_may_depend_on_the_costs_is_taken_at_its_word() -> None:
    space = dphypo.Space({"steps": [10, 20]})
    reads = Declared(train, lambda p: dp.SelfComposedDpEvent(EVENT, p["steps"]), RELATION)
    bounds = Declared(train, [dp.SelfComposedDpEvent(EVENT, 20)], RELATION)
    costs = [
        dphypo.Study(space, run, dphypo.Geometric(mean=3), delta=1e-5, journal=None).guarantee.epsilon(1e-5)
        for run in (reads, bounds)
    ]
    assert costs[0] == pytest.approx(costs[1], rel=1e-6)
