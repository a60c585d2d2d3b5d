"""The last run where the optimum of surveys of several lengths goes: the length is an input of the surrogate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dphypo import _validate
from dphypo.entropy import Seeded
from dphypo.samplers import GaussianProcess, History, Units
from dphypo.space import Space
from dphypo.survey.pick import PosteriorMean, history_of, perturbed
from dphypo.survey.scales import on_scales
from dphypo.table import Row, done


@dataclass(frozen=True)
class Extrapolated:
    """λ with the best posterior mean at full length, under a Gaussian process on λ and log length of all surveys.

    A rule for :class:`dphypo.LastRun` after surveys of several lengths, for a mechanism whose best λ moves with the
    length in a way that no transfer rule knows. Where one knows it, a single length is better: docs/surveys.md.

    Args:
        fractions: the length of the runs of each survey, in full runs, in the order of the surveys.
        sampler: the Gaussian process.
        candidates: how many candidates are drawn from the prior.
        seed: of those draws. It is public: the same tables give the same λ to anybody.

    >>> from scipy.stats import uniform
    >>> def table(fraction):  # the optimum goes from 0.3 to 0.7 as runs get longer
    ...     best = 0.7 + 0.2 * math.log10(fraction)
    ...     return [Row({"x": x}, -((x - best) ** 2)) for x in np.linspace(0.05, 0.95, 10)]
    >>> chosen = Extrapolated((0.01, 0.1)).across(
    ...     Space({"x": uniform()}), [table(0.01), table(0.1)], maximize=True)
    >>> 0.55 < chosen["x"] < 0.85
    True
    """

    fractions: tuple[float, ...]
    sampler: GaussianProcess = field(default_factory=lambda: GaussianProcess(units=Units.STANDARD))
    candidates: int = 4096
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "fractions", tuple(self.fractions))
        if len(set(self.fractions)) < 2:
            raise _validate.fail("fractions", self.fractions, "give two lengths or more, such as (0.05, 0.15)")
        for fraction in self.fractions:
            _validate.within(0.0, 1.0, closed="right", fractions=fraction)
        _validate.integer(at_least=1, candidates=self.candidates)

    def __call__(self, space: Space, rows: Sequence[Row], *, maximize: bool) -> dict[str, Any]:
        """λ from the table of one survey: where the posterior mean is best."""
        return PosteriorMean(self.sampler, self.candidates, self.seed)(space, rows, maximize=maximize)

    def across(self, space: Space, tables: Sequence[Sequence[Row]], *, maximize: bool) -> dict[str, Any]:
        """λ from the tables of all surveys."""
        if len(tables) != len(self.fractions):
            raise _validate.fail("fractions", self.fractions, f"give a length for each of {len(tables)} surveys")
        rows = [row for table in tables for row in table]
        if not done(rows):
            raise _validate.fail("tables", len(tables), "no published run has a score: use the fallback")
        lengths = np.repeat([_place(one) for one in self.fractions], [len(table) for table in tables])
        space = on_scales(space)
        plain, entropy = history_of(space, rows, maximize=maximize), Seeded(self.seed)
        history = History(
            np.column_stack([plain.features, lengths]), plain.unit, plain.scores, plain.failed, plain.params
        )

        def best(unit: np.ndarray[Any, Any]) -> int:
            features = np.column_stack([space.features(unit), np.full(len(unit), _place(1.0))])
            return int(np.argmax(self.sampler.posterior(_Features(features), history)[0]))  # type: ignore[arg-type]

        unit = np.vstack([space.candidates(self.candidates, entropy.child("pick")).unit, plain.unit])
        for spread in (0.05, 0.02):
            unit = np.vstack([unit, perturbed(unit[best(unit)], spread, entropy)])
        return space.from_unit(unit[best(unit)][None])[0]

    def to_dict(self) -> dict[str, Any]:
        """The rule, as the certificate states it."""
        return {"rule": "extrapolated to the full length", "fractions": list(self.fractions)}


@dataclass(frozen=True)
class _Features:
    """Points as the Gaussian process sees them."""

    features: np.ndarray[Any, Any]


def _place(fraction: float) -> float:
    """A length as a feature: the full run is at 1, a hundredth of it at 0."""
    return 1 + 0.5 * math.log10(fraction)
