"""The noise of searches, in one or more stages, that spend a given ε at δ = 1e-5 by the sharpest bound.

Costs are computed at some noise multipliers, interpolated in log ε and log σ, and once more where that leads. Nothing
is extrapolated: where no noise multiplier that was trained will do, the answer is None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from dphypo import account
from dphypo.accounting import Composition, Guarantee
from dphypo.band import Band
from dphypo.laws import Geometric, Law
from paper.data.points import Floats
from paper.experiments.budgets import DELTA
from paper.simulate.noise_between import noise_between
from paper.simulate.paths import UNIFORM
from paper.simulate.staged_task import StagedTask


@dataclass(frozen=True, eq=False)
class Costs:
    """What searches on a task cost. Remembers what it has computed: a training is accounted once for all laws.

    Args:
        task: the task.
        exact: whether ε is computed at the noise multiplier found, and that improved, until it is met to about 1e-3;
            else it is met to a few per cent.
    """

    task: StagedTask
    exact: bool = True
    _trainings: dict[tuple[int, float], Guarantee] = field(default_factory=dict, repr=False)
    _searches: dict[tuple[int, float, str], Guarantee] = field(default_factory=dict, repr=False)
    _epsilons: dict[tuple[int, float, str], float] = field(default_factory=dict, repr=False)

    def search(self, noise: float, runs: Law, steps: int, band: Band = UNIFORM) -> Guarantee:
        """The guarantee of one search with trainings of so many steps."""
        if (steps, noise) not in self._trainings:
            self._trainings[steps, noise] = account(self.task.event(noise, steps), Geometric(mean=2.0))
        key = (steps, noise, f"{runs!r} {band!r}")
        if key not in self._searches:
            self._searches[key] = replace(self._trainings[steps, noise], runs=runs, band=band)
        return self._searches[key]

    def cost(self, noise: float, runs: Law, steps: int, band: Band = UNIFORM) -> float:
        """ε of one search, by its profile, which is the sharpest of the bounds here."""
        key = (steps, noise, f"{runs!r} {band!r}")
        if key not in self._epsilons:
            self._epsilons[key] = self.search(noise, runs, steps, band).bounds(DELTA)["profile"]
        return self._epsilons[key]

    def noise(self, epsilon: float, runs: Law, steps: int, band: Band = UNIFORM) -> float | None:
        """The noise multiplier at which one search costs ``epsilon``."""
        return solved(lambda level: self.cost(level, runs, steps, band), self.task.levels(steps), epsilon, self.exact)

    def noise_if_trained(self, epsilon: float, runs: Law, steps: int) -> float | None:
        """As :meth:`noise`, but where the most noise that was trained costs more than ``epsilon``, that noise."""
        most = float(self.task.levels(steps)[-1])
        return most if self.cost(most, runs, steps) > epsilon else self.noise(epsilon, runs, steps)

    def last_noise(self, epsilon: float, earlier: Sequence[Guarantee], runs: Law) -> float | None:
        """The noise multiplier of full trainings at which a last stage and the earlier ones cost ``epsilon``."""

        def cost(level: float) -> float:
            return Composition.of(*earlier, self.search(level, runs, self.task.full)).epsilon(DELTA)

        return solved(cost, self.task.levels(self.task.full), epsilon, self.exact)


def solved(
    cost: Callable[[float], float], levels: Sequence[float] | Floats, epsilon: float, exact: bool
) -> float | None:
    """The noise multiplier at which a cost, which falls in it, comes to ``epsilon``; None if not among the levels.

    >>> solved(lambda level: 3 / level, [0.5, 1.0, 2.0, 4.0], 2.0, exact=True)
    1.5
    """
    known: dict[float, float] = {}

    def at(place: int) -> float:
        level = float(levels[place])
        if level not in known:
            known[level] = cost(level)
        return known[level]

    low, high = 0, len(levels) - 1
    if at(high) > epsilon:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if at(middle) > epsilon else (low, middle)
    if at(low) < epsilon:
        return None
    found = _between(known, epsilon)
    for _ in range(3 if exact else 0):
        if found in known:
            break
        known[found] = cost(found)
        near = abs(known[found] / epsilon - 1) < 0.005
        found = _between(known, epsilon)
        if near:  # what is left is about the square of that
            break
    return found


def _between(known: dict[float, float], epsilon: float) -> float:
    levels = sorted(known)
    return round(noise_between(levels, [known[level] for level in levels], epsilon), 6)
