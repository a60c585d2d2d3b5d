"""The exact δ of ladders with few outcomes, whatever stops them: stopping costs nothing if it uses published scores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest

from dphypo.accounting import PureDp
from dphypo.mechanisms import Declared
from dphypo.search import Ladder
from dphypo.search.ladder import Climb, Rung, plan_ladder
from dphypo.search.release import Row, SurveyTable
from dphypo.space import Space

RELATION = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
SPACE = Space({"lr": [0.1]})
TARGET = 0.5
pytestmark = pytest.mark.filterwarnings("ignore:delta")  # large ones, so that outcomes are few
Rule = Callable[[tuple[int, ...]], bool]


class Response(Declared):
    """Randomised response: which of two data sets it is, as the score, with ε = 1/noise."""

    def at(self, noise_multiplier: float) -> Response:
        return response(noise_multiplier)


def response(noise: float) -> Response:
    def train(params: Any, *, seed: int) -> Any:
        raise AssertionError("its law is known")

    return Response(train, event=PureDp(1 / noise), relation=RELATION)


@cache
def ladder(epsilon: float, delta: float, rungs: int) -> Climb:
    return plan_ladder(SPACE, response(1.0), Ladder(TARGET, rungs=rungs), epsilon=epsilon, delta=delta)


def law(rung: Rung, data: int) -> tuple[float, float]:
    """How likely a rung publishes the score 0 or 1 on a data set: an adversarial score that knows which it is."""
    truth = 1 / (1 + math.exp(-rung.mechanism.event.epsilon))
    return (truth, 1 - truth) if data == 0 else (1 - truth, truth)


def transcripts(climb: Climb, stops: Rule, asks: Rule = lambda _: True) -> Iterator[tuple[float, float, int]]:
    """Every transcript: its probability on both data sets, and after how many rungs it stopped.

    A rung may depend on all that was published, as one does that begins from the model before it: where ``asks`` is
    false it answers the opposite.
    """

    def ends(published: tuple[int, ...], at: tuple[float, float]) -> Iterator[tuple[float, float, int]]:
        if len(published) == len(climb.rungs) or (published and stops(published)):
            yield (*at, len(published))
            return
        laws = [law(climb.rungs[len(published)], data)[:: 1 if asks(published) else -1] for data in (0, 1)]
        for score in (0, 1):
            yield from ends((*published, score), (at[0] * laws[0][score], at[1] * laws[1][score]))

    yield from ends((), (1.0, 1.0))


def by_the_target(climb: Climb) -> Rule:
    """The rule that is run: each rung decides by its published table."""

    def stops(published: tuple[int, ...]) -> bool:
        table = SurveyTable((Row({"lr": 0.1}, float(published[-1])),))
        return climb.rungs[len(published) - 1].stops(table)

    return stops


def at_random(seed: int) -> Rule:
    """An adversary whose decision depends on everything that was published."""
    drawn: dict[tuple[int, ...], bool] = {}
    random = np.random.default_rng([7, seed])
    return lambda published: drawn.setdefault(published, bool(random.random() < 0.4))


def deltas(found: np.ndarray, epsilon: float) -> tuple[float, float]:
    p, q, _ = found.T
    return tuple(float(np.maximum(a - math.exp(epsilon) * b, 0.0).sum()) for a, b in ((p, q), (q, p)))  # type: ignore[return-value]


SETTINGS = list(itertools.product((0.5, 1.0, 3.0), (0.3, 0.05, 1e-3), (1, 2, 4)))


@pytest.mark.parametrize(("epsilon", "delta", "rungs"), SETTINGS)
def test_whatever_stops_a_ladder_it_costs_no_more_than_all_its_rungs(epsilon: float, delta: float, rungs: int) -> None:
    climb = ladder(epsilon, delta, rungs)
    largest = 0.0
    for number, stops in enumerate((lambda _: False, by_the_target(climb), *map(at_random, range(30)))):
        found = np.array(list(transcripts(climb, stops, at_random(100 + number))))
        assert found[:, :2].sum(axis=0) == pytest.approx(1.0)
        largest = max(largest, *deltas(found, epsilon))
        assert max(deltas(found, epsilon)) <= delta
        # Ex post: rungs 1 to j together cost ε_j at δ/k.
        spent = np.exp([climb.rungs[int(made) - 1].ex_post for made in found[:, 2]])
        for p, q in ((found[:, 0], found[:, 1]), (found[:, 1], found[:, 0])):
            assert float(np.maximum(p - spent * q, 0.0).sum()) <= delta
    assert largest > 0.2 * delta or rungs == 1


def test_rungs_up_to_each_cost_what_is_stated_exactly() -> None:
    for (epsilon, delta, rungs), made in itertools.product(SETTINGS, (1, 2, 4)):
        climb = ladder(epsilon, delta, rungs)
        first = Climb(climb.rungs[:made], None)
        found = np.array(list(transcripts(first, lambda _: False)))
        assert max(deltas(found, climb.rungs[min(made, rungs) - 1].epsilon)) <= delta
        assert max(deltas(found, climb.rungs[min(made, rungs) - 1].ex_post or 0.0)) <= delta / rungs


@pytest.mark.parametrize(("epsilon", "delta", "rungs"), [one for one in SETTINGS if one[2] > 1])
def test_a_threshold_compared_without_noise_is_caught(epsilon: float, delta: float, rungs: int) -> None:
    """The broken ladder that stops by the score before its noise: when it stopped says which data set it is."""
    climb = ladder(epsilon, delta, rungs)
    found = []
    for data in (0, 1):
        made = rungs if data == 0 else 1
        for published in itertools.product((0, 1), repeat=made):
            laws = [law(climb.rungs[place], data)[score] for place, score in enumerate(published)]
            found.append((math.prod(laws) * (data == 0), math.prod(laws) * (data == 1), made))
    assert max(deltas(np.array(found), epsilon)) > delta


@pytest.mark.parametrize(("epsilon", "delta", "rungs"), [one for one in SETTINGS if one[2] == 4])
def test_rungs_that_do_not_compose_are_caught(epsilon: float, delta: float, rungs: int) -> None:
    """The broken ladder whose every rung costs its own total, as five releases in a loop do."""
    alone = tuple(ladder(total, delta, 1).rungs[0] for total in Ladder(TARGET, rungs=rungs).totals(epsilon))
    found = np.array(list(transcripts(Climb(alone, None), lambda _: False)))
    assert max(deltas(found, epsilon)) > delta
