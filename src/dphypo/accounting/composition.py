"""Several searches on the same data, each free to look at what the earlier ones released: their joint guarantee.

Each search has a dominating pair, whatever it was told beforehand (its prior may depend on earlier releases), so the
whole is dominated by the product of the pairs: the adaptive composition of privacy loss distributions, direction by
direction (Zhu, Dong and Wang 2022). dp_accounting convolves them; every pair is rounded up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import dp_accounting
import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.accounting import dp_library
from dphypo.accounting.guarantee import Guarantee
from dphypo.accounting.profiles import Discrete, Floats, epsilon_for

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    from dphypo.accounting.certificate import Certificate


@dataclass(frozen=True, eq=False)
class Composition:
    """The guarantee of releasing the result of each of several searches. Made by :meth:`Guarantee.compose`."""

    parts: tuple[Guarantee, ...]

    def __post_init__(self) -> None:
        relations = {part.relation for part in self.parts}
        if len(relations) != 1:
            names = ", ".join(sorted(relation.name for relation in relations))
            raise ValueError(
                f"searches under different neighbouring relations ({names}) do not compose: state all alike"
            )
        if len({part.grid for part in self.parts}) != 1:
            raise ValueError("searches accounted on different grids do not compose: give account() one grid for all")

    def epsilon(self, delta: float) -> float:
        """ε of all releases together at this δ."""
        delta = _validate.delta(delta=delta)
        return max(epsilon_for(profile, delta) for profile in self._profiles)

    def delta(self, epsilon: float) -> float:
        """δ of all releases together at this ε ≥ 0."""
        epsilon = _validate.non_negative(epsilon=epsilon)
        return max(float(profile.delta(epsilon)) for profile in self._profiles)

    def bound(self, delta: float) -> str:
        """The name of the bound: there is one."""
        return "composition"

    def bounds(self, delta: float) -> dict[str, float]:
        """ε at δ by every bound that applies."""
        return {"composition": self.epsilon(delta)}

    def one_run(self, delta: float) -> dict[str, float]:
        """ε of one run of the last search alone: what is usually reported."""
        return self.parts[-1].one_run(delta)

    @property
    def relation(self) -> dp_accounting.NeighboringRelation:
        """Which data sets are neighbours."""
        return self.parts[0].relation

    def rdp(self, alpha: npt.ArrayLike) -> Floats:
        """ε(α) of all searches together: Rényi divergences of adaptive compositions add up."""
        return np.asarray(np.sum([part.rdp(alpha) for part in self.parts], axis=0))

    def profile(self, points: int = 200) -> tuple[Floats, Floats]:
        """A curve for plotting: ε from 0 to where δ has fallen to 1e-11 or falls no further, and δ at each."""
        last = max(min(epsilon_for(profile, 1e-11), profile.top) for profile in self._profiles)
        epsilons = np.linspace(0.0, last, points)
        return epsilons, np.max([profile.delta(epsilons) for profile in self._profiles], axis=0)

    def compose(self, *others: Guarantee) -> Composition:
        """This and further searches."""
        return Composition((*self.parts, *others))

    @cached_property
    def pld(self) -> PrivacyLossDistribution:
        """A dp_accounting privacy loss distribution that dominates all releases together."""
        return dp_library.composed(part.to_pld() for part in self.parts)

    def certificate(self, delta: float, **public: object) -> Certificate:
        """A document of public values from which anyone can recompute ε at δ."""
        from dphypo.accounting.certificate import issue

        return issue(self, delta, public)

    @cached_property
    def _profiles(self) -> tuple[Discrete, ...]:
        return tuple(dict.fromkeys(dp_library.directions(self.pld, len(self.parts))))
