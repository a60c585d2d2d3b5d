"""The noise of private scores in a plan, where it is to be found: as little as costs no more than training does.

Records that train and records that score are on different sides, and a plan costs the larger of the two sides. So the
noise of training is found with scores that cost nothing, and the noise of the scores after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import dp_accounting

from dphypo import _validate
from dphypo.accounting import Composition, Keep, solve_noise
from dphypo.mechanisms import Mechanism, capabilities

_SILENT = 1e6  # noise at which a score costs nothing


@dataclass(frozen=True)
class Scores:
    """The scores of a mechanism: ``calibrate`` says whether their noise is to be found."""

    mechanism: Mechanism
    calibrate: bool

    @classmethod
    def of(cls, mechanism: Mechanism) -> Scores:
        """Refuses to find the noise of scores that have no side of their own."""
        calibrate = capabilities.solves_for_scores(mechanism)
        replaces = mechanism.relation is dp_accounting.NeighboringRelation.REPLACE_ONE
        if calibrate and (replaces or mechanism.split is None):
            raise _validate.fail(
                "score_noise_multiplier",
                capabilities.CALIBRATE,
                "under REPLACE_ONE, or on records that may train too, scores have no side of their own: give a number, "
                "or score on records that split_by_hash or a rule of your own (split=dphypo.Split(...)) sets apart",
            )
        return cls(mechanism, calibrate)

    @property
    def silent(self) -> Mechanism:
        """The mechanism with scores so noisy that the training side decides the noise of training."""
        return capabilities.with_score_noise(self.mechanism, _SILENT) if self.calibrate else self.mechanism

    def noise(
        self,
        full: Mechanism,
        guarantee: Callable[[Mechanism], Composition],
        *,
        epsilon: float,
        delta: float,
        runs: int,
        keep: Keep | None,
    ) -> Mechanism:
        """The mechanism with the least noise of its scores at which the plan around ``full`` still costs ε."""
        found = solve_noise(
            lambda noise: guarantee(self.heard(full, noise)),
            epsilon=epsilon,
            delta=delta,
            side=None if full.split is None else full.split.scoring,
            start=4 * math.sqrt(runs),
            largest=_SILENT,
            keep=keep,
        )
        return self.heard(full, found.value)

    def heard(self, full: Mechanism, noise: float) -> Mechanism:
        """The mechanism with this noise on its scores."""
        return capabilities.with_score_noise(full, noise)
