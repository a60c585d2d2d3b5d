"""How λ of the next run of a study is drawn: the update of π, its projection into the band, and the draw.

This is "Update π⁽ʲ⁺¹⁾ such that c ≤ π⁽ʲ⁺¹⁾(λ) / π⁽⁰⁾(λ) ≤ C" and "draw λ ∼ π⁽ʲ⁾" of Framework 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.accounting.guarantee import PolicyClass
from dphypo.band import Band
from dphypo.band.band import BandLike
from dphypo.band.problem import Rule
from dphypo.band.problem import rule as named_rule
from dphypo.entropy import Entropy
from dphypo.errors import SamplerError
from dphypo.samplers import History, Sampler, default_sampler
from dphypo.samplers.history_only import basis, description
from dphypo.space import Candidates, Grid, Space
from dphypo.space.space import MOST_CANDIDATES


@dataclass(frozen=True)
class Policy:
    """A search rule held to the band, and what the guarantee counts on about it.

    ``cells`` is the ``grid`` of a study; ``first`` is n₀, how many of the first runs are drawn from the prior.
    """

    band: Band
    sampler: Sampler
    rule: Rule
    candidates: int
    cells: Mapping[str, int] | None
    policy: PolicyClass
    first: int

    @classmethod
    def of(
        cls,
        band: BandLike,
        sampler: Sampler | None,
        rule: Rule | str,
        candidates: int,
        cells: Mapping[str, int] | None,
        policy: PolicyClass | str | None,
        first_from_prior: int | None,
    ) -> Policy:
        """Check the arguments of a study, and fill in what was left out. Rules of ours say how they ``start``."""
        held = Band.of(band)
        _check_sampler(sampler)
        follows = default_sampler(held) if sampler is None else sampler
        projection: object = named_rule(rule) if isinstance(rule, str) else rule
        if not isinstance(projection, Rule):
            raise _validate.fail("rule", rule, "give a projection, such as dphypo.band.Greedy(), or its name")
        candidates = _validate.integer(at_least=1, candidates=candidates)
        if candidates > MOST_CANDIDATES:
            raise _validate.fail("candidates", candidates, f"give at most {MOST_CANDIDATES}")
        if first_from_prior is not None:
            first = _validate.integer(at_least=1, first_from_prior=first_from_prior)
        else:
            ours = type(follows).__module__.startswith("dphypo.samplers.")
            first = int(getattr(follows, "start", 1)) if ours else 1
        return cls(held, follows, projection, candidates, _cells(cells), _claim(policy, follows, projection), first)

    @property
    def adaptive(self) -> bool:
        """Whether the history matters: with c = C = 1 the prior is the only density in the band."""
        return self.band.C > 1

    @property
    def history_only(self) -> bool:
        """Whether the guarantee counts on a search rule that sees only the history."""
        return self.adaptive and self.policy is PolicyClass.HISTORY

    @property
    def counted(self) -> int:
        """n₀ as the guarantee counts it. Without a band every run is drawn from the prior, and no bound needs n₀."""
        return self.first if self.adaptive else 0

    def describe(self) -> dict[str, Any]:
        """The search rule with its settings, as JSON: a history-only study may not change it on the way."""
        cells = None if self.cells is None else dict(self.cells)
        settings = {"projection": repr(self.rule), "candidates": self.candidates, "grid": cells}
        return {**description(self.sampler), **settings}

    def certified(self) -> dict[str, Any] | None:
        """The search rule as a certificate states it, with whose word it is that it sees only the history."""
        if not self.history_only:
            return None
        return {**self.describe(), "sees only the history by": basis(self.sampler, self.rule)}

    def on(self, prior: Space) -> Draw:
        """The policy on a prior. A small finite space is searched over all its cells; ``cells`` cuts a larger one."""
        sizes = [parameter.dimension.size for parameter in prior.parameters]
        small = all(size is not None for size in sizes) and math.prod(size or 0 for size in sizes) <= self.candidates
        grid = prior.grid(**self.cells) if self.cells is not None else prior.grid() if small else None
        return Draw(self, prior, grid)


@dataclass(frozen=True)
class Draw:
    """λ of the next run.

    With ``grid``, that set of cells with its masses is the prior, for the whole search. Without, fresh candidates are
    drawn for every run, each from the prior given everything before: one set, or one Sobol sequence, used for several
    runs would break the band.
    """

    policy: Policy
    space: Space
    grid: Grid | None

    def __call__(self, history: History | None, entropy: Entropy) -> dict[str, Any]:
        """λ: from the prior itself as long as the search rule sees fewer than ``first`` results.

        A run never sees more results than runs came before it, so that the first n₀ = ``first`` runs are from the
        prior, with any lag. Without a band every run is.
        """
        from_prior = history is None or len(history) < self.policy.first or not self.policy.adaptive
        if self.grid is not None:
            index = self._index(self.grid, None if from_prior else history, entropy)
            return self.grid.draw_within(index, entropy.child("within"))
        if from_prior:
            return self.space.sample(entropy.child("draw"))
        candidates = self.space.candidates(self.policy.candidates, entropy.child("candidates"))
        return candidates.params(self._index(candidates, history, entropy))

    def _index(self, candidates: Candidates | Grid, history: History | None, entropy: Entropy) -> int:
        masses = candidates.masses if history is None else self._projected(candidates, history)
        return self.policy.band.draw(masses, entropy.child("draw"), candidates.masses)

    def _projected(self, candidates: Candidates | Grid, history: History) -> npt.NDArray[np.float64]:
        policy, prior = self.policy, candidates.masses
        failure: Exception
        try:
            weights = np.asarray(policy.sampler.weights(candidates, history), dtype=np.float64)
            if weights.shape != prior.shape:
                raise ValueError(f"weights have shape {weights.shape}: there are {len(prior)} candidates")
            # The weights are masses: on cells of unequal mass, a rule that ranks them must rank densities.
            return policy.band.project(weights, prior, policy.rule, base=None if self.grid is None else prior)
        except Exception as error:
            failure = error
        # Raised here, outside the handler: the rule's own error may quote the history and is not to be printed.
        raise SamplerError(policy.sampler, failure)


def _check_sampler(sampler: object) -> None:
    if sampler is None or isinstance(sampler, Sampler):
        return
    remedy = (
        "give one of dphypo.samplers, such as GaussianProcess() or OptunaSampler(TPESampler()), or an object "
        "with weights(candidates, history); dphypo.testing.check_sampler tests one"
    )
    if hasattr(sampler, "sample_relative"):
        remedy = f"it is a sampler of Optuna: give dphypo.samplers.OptunaSampler({type(sampler).__name__}(...))"
    raise _validate.fail("sampler", sampler, remedy)


def _claim(policy: PolicyClass | str | None, sampler: Sampler, projection: Rule) -> PolicyClass:
    """What the guarantee lets the search rule look at: by the rule itself, unless the user says it."""
    qualifies = basis(sampler, projection) is not None
    if policy is None:
        return PolicyClass.HISTORY if qualifies else PolicyClass.ANYTHING
    found = _validate.choice(PolicyClass, policy=policy)
    if found is PolicyClass.HISTORY and not qualifies:
        raise _validate.fail(
            "policy",
            policy,
            f"the search rule {type(sampler).__name__}, or its projection, may look at more than the history; leave "
            "policy out, or declare history_only = True in the class that defines weights (of a projection: ratios), "
            "if what they give depends on the candidates, the history and independent randomness alone",
        )
    return found


def _cells(given: Mapping[str, int] | None) -> Mapping[str, int] | None:
    if given is None:
        return None
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise _validate.fail("grid", given, 'give the number of cells by name, such as {"lr": 32}')
    return {name: _validate.integer(at_least=1, **{f"grid[{name!r}]": count}) for name, count in given.items()}
