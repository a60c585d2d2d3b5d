"""What each way to tune costs, part by part, by the library's accountant: the same terms that ``dphypo.tune`` composes.

A part is declared in plain values, so that a plan can be frozen in a file and accounted for again at any time:

* runs of DP-SGD, published (``count``) or searched, a secret number of them with the best released (``law``);
* Gaussian counts and sums: private scores, and the statistics that normalise features.

Each part reads the records of the training side, of the scoring side, or of both. Records are on one side each by a
hash, so under add/remove a plan costs the larger of the two sides (docs/theory/surveys.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from dp_accounting import DpEvent, GaussianDpEvent, PoissonSampledDpEvent

from dphypo.accounting import Composition, Split, Term, account, solve_noise
from dphypo.accounting.composition import EVERYONE, account_published
from dphypo.laws import from_dict
from dphypo.mechanisms import SampledGaussian

EPSILON, DELTA = 3.0, 1e-5
APART = Split("records that score, by a hash of each record").sides
SIDES = {"training": APART.training, "scoring": APART.scoring, "both": EVERYONE}


@dataclass(frozen=True)
class Part:
    """One part of a plan.

    Args:
        noise: noise multiplier of a run's steps, or of a Gaussian count.
        side: "training", "scoring" or "both".
        count: how many are published.
        rate, steps, subset: of runs of DP-SGD; zero steps: a Gaussian.
        law: of the secret number of runs, as its dictionary, where the best alone is released.
    """

    noise: float
    side: str
    count: int = 1
    rate: float = 0.0
    steps: int = 0
    subset: float = 1.0
    law: dict[str, Any] | None = None

    def term(self) -> Term:
        """As the accountant composes it."""
        if self.steps:
            event: DpEvent = SampledGaussian(rate=self.rate, steps=self.steps, noise_multiplier=self.noise).event
            if self.subset < 1:  # drawn once, before the first step
                event = PoissonSampledDpEvent(self.subset, event)
        else:
            event = GaussianDpEvent(self.noise)
        releases = account_published(event, self.count) if self.law is None else account(event, from_dict(self.law))
        return Term(releases, SIDES[self.side])

    def to_dict(self) -> dict[str, Any]:
        """Without what says nothing."""
        return {name: value for name, value in asdict(self).items() if value not in (None, 0)}


def guarantee(parts: list[Part]) -> Composition:
    """Of all that a plan releases."""
    return Composition(tuple(part.term() for part in parts))


def solve(
    parts: Callable[[float], list[Part]], start: float = 1.0, epsilon: float = EPSILON, delta: float = DELTA
) -> float:
    """The smallest noise at which these parts cost ε together."""
    return solve_noise(lambda noise: guarantee(parts(noise)), epsilon=epsilon, delta=delta, start=start).value


def cost(parts: list[Part], delta: float = DELTA) -> float:
    """ε of these parts together."""
    return float(guarantee(parts).epsilon(delta))
