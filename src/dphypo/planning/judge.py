"""What searches reach on a landscape, at one compute and ε."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dphypo import _validate
from dphypo.errors import NoDesignError
from dphypo.laws import Geometric, Law, NegativeBinomial, Poisson
from dphypo.planning.choice import NOISE, UNPAID, Row
from dphypo.planning.costs import LEAST, MOST, Costs
from dphypo.planning.design import Design
from dphypo.planning.expected import Floats, winners
from dphypo.planning.landscape import BEYOND, Landscape

_UNLIKELY = 1e-4  # winners of the first stage left out, in total probability
_AS_IT_IS = ", or take dphypo.Design() as it is"


@dataclass(frozen=True)
class _Missed:
    """Designs whose runs, in one stage, need noise at which the proxy has no scores."""

    stage: str
    fraction: float
    noise_multiplier: float
    designs: int


@dataclass(frozen=True, eq=False)
class Judge:
    """What searches reach on a landscape, at one compute and ε; and what it could not tell, and why."""

    landscape: Landscape
    costs: Costs
    compute: float
    epsilon: float
    unjudged: list[tuple[Design, str]] = field(default_factory=list, init=False)
    _missed: list[_Missed] = field(default_factory=list, init=False)

    def check(self) -> None:
        """Refuse, before any long work, an ε that no uniform search has with the noise of the proxy's full runs."""
        name, (low, high) = self.landscape.name, self._levels(1.0)
        least, most = self._cost(high * BEYOND), self._cost(low / BEYOND)
        cost = f"{name}: its full runs have noise multipliers of {low:g} to {high:g}, with which uniform searches cost"
        if min(least) > self.epsilon:
            reason = f"epsilon = {self.epsilon:g} is too small for the proxy {cost} {min(least):.3g} or more"
            remedy = "give a larger epsilon, less compute, or a proxy whose full runs have more noise"
            raise NoDesignError(reason, remedy, _AS_IT_IS)
        if max(most) < self.epsilon:
            reason = f"epsilon = {self.epsilon:g} is too large for the proxy {cost} {max(most):.3g} or less"
            remedy = "give a smaller epsilon, more compute, or a proxy whose full runs have less noise"
            raise NoDesignError(reason, remedy, _AS_IT_IS)

    def uniform(self) -> list[Row]:
        """Uniform search with three laws of T, those that the compute allows, best first."""
        self.check()
        rows, needed = [], []
        for law in self._laws:
            needed.append(sigma := self.costs.alone(1.0, law, self.epsilon))
            if (means := self._mean(1.0, sigma)) is not None:
                found = winners(self._flat, means, self.landscape.score_noise, law)[0]
                rows.append(Row(None, (law,), (sigma,), float(found @ means)))
        if not rows:
            low, high = self._levels(1.0)
            need = f"uniform searches need noise multipliers of {min(needed):.3g} to {max(needed):.3g}"
            reason = f"{need}, and full runs of the proxy {self.landscape.name} have {low:g} to {high:g}"
            raise NoDesignError(reason, "give another epsilon or proxy", _AS_IT_IS)
        return _best_first(rows)

    def staged(self, designs: Sequence[Design]) -> list[Row]:
        """Designs in two stages, best first; those that differ in the prior alone are calibrated once."""
        alike: dict[Design, list[Design]] = {}
        for design in designs:
            if not isinstance(design.spread, (int, float)):
                raise _validate.fail("spread", design.spread, "a proxy has other parameters: give one number for all")
            alike.setdefault(replace(design, spread=0.5, floor=0.5), []).append(design)
        rows = [row for group in alike.values() for row in self._alike(group)]
        if not rows:
            raise self._nothing_staged(len(designs))
        return _best_first(rows)

    def _alike(self, group: Sequence[Design]) -> Iterator[Row]:
        fraction, (first, last) = group[0].fraction, group[0].runs(self.compute)
        cheap = self.costs.alone(fraction, first, group[0].split * self.epsilon)
        if (seen := self._mean(fraction, cheap)) is None:
            return self._miss("cheap", fraction, cheap, group)
        full = self.costs.last(self.costs.search(fraction, cheap, first), last, self.epsilon)
        if (means := self._mean(1.0, full)) is None:
            return self._miss("full", 1.0, full, group)
        released = winners(self._flat, seen, self.landscape.score_noise, first)[0]
        likely = _likely(released)
        weights = released[likely] / released[likely].sum()
        for design in group:
            priors = self.landscape.priors(design.spread, design.floor)[likely]  # type: ignore[arg-type]
            found = weights @ winners(priors, means, self.landscape.score_noise, last)
            yield Row(design, (first, last), (cheap, full), float(found @ means))

    def _miss(self, stage: str, fraction: float, noise_multiplier: float, group: Sequence[Design]) -> None:
        paid = noise_multiplier < np.inf
        self.unjudged.extend((design, NOISE if paid else UNPAID) for design in group)
        if paid:
            self._missed.append(_Missed(stage, fraction, max(noise_multiplier, LEAST), len(group)))

    def _nothing_staged(self, count: int) -> NoDesignError:
        """Which runs, cheap or full, need noise at which the proxy has no scores, and on which side."""
        parts, too_much, too_little = [], False, False
        for stage, fraction in sorted({(one.stage, one.fraction) for one in self._missed}):
            here = [one for one in self._missed if (one.stage, one.fraction) == (stage, fraction)]
            needed = [one.noise_multiplier for one in here]
            low, high = self._levels(fraction)
            runs = "full runs" if stage == "full" else f"cheap runs (length {fraction:g})"
            parts.append(
                f"the {runs} of {sum(one.designs for one in here)} need noise multipliers of {min(needed):.3g} to "
                f"{max(needed):.3g}, and it has such runs at {low:g} to {high:g}"
            )
            too_much, too_little = too_much or max(needed) > high, too_little or min(needed) < low
        unpaid = sum(why == UNPAID for _, why in self.unjudged)
        if unpaid:
            parts.append(f"{unpaid} are {UNPAID}")
        reason = f"none of {count} designs can be judged on the proxy {self.landscape.name}: {'; '.join(parts)}"
        which = "another" if too_much and too_little else "a smaller" if too_little else "a larger"
        dear = ", or cheap= with a noisier score" if unpaid else ""
        return NoDesignError(reason, f"give {which} epsilon, or another proxy", dear + _AS_IT_IS)

    def _mean(self, fraction: float, noise_multiplier: float) -> Floats | None:
        return self.landscape.mean(fraction, noise_multiplier) if 0 < noise_multiplier < np.inf else None

    def _levels(self, fraction: float) -> tuple[float, float]:
        levels = list(self.landscape.scores[fraction])
        return levels[0], levels[-1]

    def _cost(self, noise_multiplier: float) -> list[float]:
        sigma = min(max(noise_multiplier, LEAST), MOST)
        return [self.costs.search(1.0, sigma, law).profile_epsilon(self.costs.delta) for law in self._laws]

    @property
    def _laws(self) -> list[Law]:
        laws: list[Law] = [Poisson(self.compute)]
        if self.compute > 1:
            laws += [NegativeBinomial(8.0, mean=self.compute), Geometric(mean=self.compute)]
        return laws

    @property
    def _flat(self) -> Floats:
        return np.full((1, len(self.landscape)), 1.0 / len(self.landscape))


def _best_first(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: -row.expected)


def _likely(probabilities: Floats) -> np.ndarray:
    """The cells that are left when the least likely ones, of small total probability, are not."""
    order = np.argsort(probabilities)
    return np.asarray(order[np.cumsum(probabilities[order]) > _UNLIKELY])
