"""Searches in stages on a task: from a design, with its noise calibrated, to what they release in expectation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from dphypo.laws import Law, NegativeBinomial
from dphypo.space.space import normal
from paper.data.points import Floats
from paper.simulate.staged_costs import Costs
from paper.simulate.staged_task import StagedTask
from paper.simulate.winners import winners_of_stages
from paper.simulate.worlds import World


@dataclass(frozen=True)
class TwoStages:
    """A study of short trainings, then a study of full ones around its winner, as a few public numbers.

    The library has no such chain any more: a survey before the study does better, for less noise. These numbers stay,
    so that what was measured with them can be computed again.
    """

    fraction: float = 0.1  # the steps of a short training, as a fraction of a full one's
    compute_share: float = 0.5  # of the expected compute, for the first stage
    share: float = 0.1  # of ε, which the first stage may cost by itself
    spread: float = 0.05
    floor: float = 0.05
    shape: float = 8.0  # of the negative binomial law of T in both stages


@dataclass(frozen=True)
class Cheap:
    """A stage of cheaper trainings: the fraction of a full one, and its shares of compute and of ε."""

    fraction: float
    compute_share: float
    share: float


@dataclass(frozen=True)
class Plan:
    """The stages of a search, the last one of full trainings: steps, noise multipliers, laws of T.

    After each stage but the last the prior goes around its winner.
    """

    steps: tuple[int, ...]
    noises: tuple[float, ...]
    laws: tuple[Law, ...]
    spread: float = 0.1
    floor: float = 0.1
    alone: tuple[float, ...] = ()  # ε that each stage but the last costs by itself

    def worlds(self, task: StagedTask) -> list[World]:
        """The landscape of each stage."""
        return [task.world(noise, steps) for noise, steps in zip(self.noises, self.steps, strict=True)]

    def expected(self, task: StagedTask) -> float:
        """The expected actual score of what is released, by quadrature."""
        means = [world.mean for world in self.worlds(task)]
        priors = [around(task, self.spread, self.floor)] * (len(means) - 1)
        return float(winners_of_stages(means, self.laws, priors, task.noise) @ means[-1])


def single(costs: Costs, law: Law, epsilon: float) -> Plan | None:
    """One stage of full trainings."""
    noise = costs.noise(epsilon, law, costs.task.full)
    return None if noise is None else Plan((costs.task.full,), (noise,), (law,))


def of_design(costs: Costs, design: TwoStages, compute: float, epsilon: float, strict: bool = True) -> Plan | None:
    """Two stages; cheap trainings count by their steps.

    Where its first stage needs more noise than was trained there is none; if not ``strict``, the first stage then has
    the most noise that was trained, and costs more of ε than the design says. All stages cost ε together all the same.
    """
    first = Cheap(design.fraction, design.compute_share, design.share)
    return staged(costs, [first], compute, epsilon, design.spread, design.floor, design.shape, strict)


def staged(
    costs: Costs,
    cheap: Sequence[Cheap],
    compute: float,
    epsilon: float,
    spread: float,
    floor: float,
    shape: float,
    strict: bool = True,
) -> Plan | None:
    """Stages of the expected compute of so many full trainings that cost ``epsilon`` together; None: not trained."""
    task = costs.task
    steps = [task.steps(stage.fraction) for stage in cheap]
    laws = [
        NegativeBinomial(shape, mean=stage.compute_share * compute * task.full / n)
        for stage, n in zip(cheap, steps, strict=True)
    ]
    find = costs.noise if strict else costs.noise_if_trained
    found = [find(stage.share * epsilon, law, n) for stage, law, n in zip(cheap, laws, steps, strict=True)]
    noises = [noise for noise in found if noise is not None]
    if len(noises) < len(cheap):
        return None
    first = list(zip(noises, laws, steps, strict=True))
    last = NegativeBinomial(shape, mean=(1 - sum(stage.compute_share for stage in cheap)) * compute)
    noise = costs.last_noise(epsilon, [costs.search(*stage) for stage in first], last)
    if noise is None:
        return None
    alone = tuple(costs.cost(*stage) for stage in first)
    return Plan((*steps, task.full), (*noises, noise), (*laws, last), spread, floor, alone)


def around(task: StagedTask, spread: float, floor: float) -> Floats:
    """(cells, cells): row i is the prior of ``PriorAround`` if cell i is released."""
    return priors_around((len(task.grid.first), len(task.grid.second)), spread, floor)


@cache
def priors_around(shape: tuple[int, int], spread: float, floor: float) -> Floats:
    near: Floats = np.ones((1, 1))
    for cells in shape:  # the kernels at the cells' middles
        ends = np.arange(cells + 1) / cells
        near = np.kron(near, np.diff(normal((ends[1:, None] + ends[:-1, None]) / 2, spread).cdf(ends)))
    return np.asarray(floor / len(near) + (1.0 - floor) * near)
