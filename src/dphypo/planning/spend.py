"""The noise with which a way of tuning costs a total (ε, δ): solved with the parts that will be run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dphypo.accounting import Composition, Guarantee, solve_noise
from dphypo.mechanisms import DpSgd, Mechanism, OwnTraining
from dphypo.planning.ways import Way, stages, untuned
from dphypo.search import Stage
from dphypo.search.declaration import Cost
from dphypo.search.plan_file import Planned, PlannedStudy
from dphypo.space import Space

_CLOSE = 5e-4  # how far below ε published runs may stay: they are quick to account for, and cost little
_NEAR = 1e-3  # of ε: how far below it a way with a study may stay


@dataclass(frozen=True)
class Spent:
    """A way, with the noise of its full runs at which all that it releases costs the total and no more."""

    way: Way
    noise_multiplier: float
    parts: tuple[Planned, ...]
    guarantee: Composition


def account_for(parts: Sequence[Planned], mechanism: Mechanism, space: Space) -> Composition:
    """What the parts cost together if their runs are those of a mechanism: as the search that runs them declares it."""
    return Cost.of(space, [part.part(mechanism) for part in parts]).guarantee


def spend(
    way: Way, mechanism: Mechanism, space: Space, *, epsilon: float, delta: float, start: float | None = None
) -> Spent:
    """The least noise with which a way costs ε at δ, to within a thousandth of ε and never more.

    ``start`` is a guess at the noise.
    """
    if way.design is not None:
        way = _with_first_stage(way, mechanism, space, epsilon=epsilon, delta=delta)

    def at(noise: float) -> Composition:
        return account_for(way.parts(noise), mechanism, space)

    close = _CLOSE if way.kind in ("none", "survey", "composition") else _NEAR * epsilon
    found = solve_noise(at, epsilon=epsilon, delta=delta, start=start, close=close)
    return Spent(way, found.value, way.parts(found.value), found.guarantee)


def _with_first_stage(way: Way, mechanism: Mechanism, space: Space, *, epsilon: float, delta: float) -> Way:
    """The stages whose first one costs its share of ε by itself."""
    design = way.design
    assert design is not None
    (first, _) = way.parts(1.0)
    assert isinstance(first, PlannedStudy)

    def at(noise: float) -> Guarantee:
        stage = replace(first, noise_multiplier=noise).part(mechanism)
        assert isinstance(stage, Stage)
        return stage.account(space)

    found = solve_noise(at, epsilon=design.split * epsilon, delta=delta, close=_NEAR * epsilon)
    return stages(design, way.compute, found.value)


@dataclass(frozen=True)
class Batch:
    """One full run with another batch size, at the same (ε, δ).

    ``compute`` and ``gradient_noise``, that of a step's mean gradient, are relative to the batch size asked about.
    """

    batch_size: int
    steps: int
    compute: float
    noise_multiplier: float
    gradient_noise: float


def batches(run: DpSgd, records: int, *, epsilon: float, delta: float, compute: float, alone: float) -> Iterator[Batch]:
    """What larger batches buy: with as many examples processed, and with as many steps where there is compute for it.

    ``alone`` is the noise multiplier of ``run`` without tuning.
    """
    size = round(run.rate * records)
    for factor in (4, 8):
        if factor * size > records:
            return
        for steps, cost in ((math.ceil(run.steps / factor), 1.0), (run.steps, float(factor))):
            if cost > compute or steps < 1:
                continue
            larger = DpSgd(rate=factor * size / records, steps=steps, noise_multiplier=1.0)
            guess = alone * math.sqrt(factor)
            found = spend(untuned(), OwnTraining(untrained, larger), SPACE, epsilon=epsilon, delta=delta, start=guess)
            noise = found.noise_multiplier
            yield Batch(factor * size, steps, cost, noise, noise / factor / alone)


def untrained(params: object, *, seed: int, run: object) -> object:
    """A plan is not run: its mechanism only states what a run costs."""
    raise NotImplementedError("this mechanism states what a run costs: there is nothing to train")


SPACE = Space({"any": [0.0, 1.0]})
"""What a run of DP-SGD costs does not depend on what is tuned."""
