"""How λ of the next run is drawn: the update of π, its projection into the band, and the draw, of Framework 1."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.accounting import PolicyClass
from dphypo.band import Band, Rule
from dphypo.band import rule as named_rule
from dphypo.entropy import Entropy
from dphypo.errors import SamplerError
from dphypo.samplers import History, Sampler, basis, default_sampler, description
from dphypo.space import MOST_CANDIDATES, Candidates, Grid, Space


def claimed(
    policy: PolicyClass | str | None, sampler: Sampler | None, band: Band, projection: Rule | str
) -> PolicyClass:
    """The class of policies that a study is accounted for: by its search rule, unless the user says which.

    Raises:
        ValueError: the study is declared history-only, and its rule is not.
    """
    rule = default_sampler(band) if sampler is None else sampler
    qualifies = isinstance(rule, Sampler) and word(rule, projection) is not None
    if policy is None:
        return PolicyClass.HISTORY if qualifies else PolicyClass.ANYTHING
    found = _validate.choice(PolicyClass, policy=policy)
    if found is PolicyClass.HISTORY and not qualifies:
        raise _validate.fail(
            "policy",
            policy,
            f"the search rule {type(rule).__name__}, or its projection, may look at more than the history; leave "
            "policy out, or declare history_only = True in the class that defines weights (of a projection: ratios), "
            "if what they give depends on the candidates, the history and independent randomness alone",
        )
    return found


def prior_runs(given: int | None, sampler: Sampler | None, band: Band) -> int:
    """n₀: how many of the first runs a study draws from the prior, whatever its rule says, and is accounted for.

    At least the first, which has no history. Rules of ours that leave more runs to the prior say so (``start``).
    Without a band every run is drawn from the prior, no bound depends on n₀, and 0 is stated.
    """
    count = None if given is None else _validate.integer(at_least=1, first_from_prior=given)
    if band.C == 1:
        return 0
    rule = default_sampler(band) if sampler is None else sampler
    ours = type(rule).__module__.startswith("dphypo.samplers.")
    return count if count is not None else int(getattr(rule, "start", 1)) if ours else 1


def word(sampler: Sampler, projection: Rule | str) -> str | None:
    """By whose word a search rule and its projection count as history-only; None if one of them does not."""
    return basis(sampler, _rule(projection))  # a name may be one that the user has registered


@dataclass(frozen=True)
class Policy:
    """A search rule held to the band: how λ of the next run is drawn. :meth:`of` makes one.

    With ``grid``, that set of cells with its masses is the prior, for the whole search. Without, ``candidates`` fresh
    points are drawn for every run, each from the prior given everything before (one set, or one Sobol sequence, used
    for several runs would break the band). The rule is not asked before it sees ``first`` results: the runs until then
    are drawn from the prior itself.
    """

    space: Space
    band: Band
    sampler: Sampler
    rule: Rule
    candidates: int
    cells: Mapping[str, int] | None
    grid: Grid | None
    first: int = 1

    @classmethod
    def of(
        cls,
        space: Space,
        band: Band,
        sampler: Sampler | None,
        rule: Rule | str,
        candidates: int,
        cells: Mapping[str, int] | None,
        first: int = 1,
    ) -> Policy:
        """Check the arguments. A small finite space is searched over all its cells; ``cells`` cuts a larger one."""
        follows: object = sampler
        if follows is not None and not isinstance(follows, Sampler):
            if hasattr(follows, "sample_relative"):
                name = type(follows).__name__
                remedy = f"it is a sampler of Optuna: give dphypo.samplers.OptunaSampler({name}(...))"
                raise _validate.fail("sampler", sampler, remedy)
            remedy = (
                "give one of dphypo.samplers, such as GaussianProcess() or OptunaSampler(TPESampler()), or an object "
                "with weights(candidates, history); dphypo.testing.check_sampler tests one"
            )
            raise _validate.fail("sampler", sampler, remedy)
        rule = _rule(rule)
        candidates = _validate.integer(at_least=1, candidates=candidates)
        if candidates > MOST_CANDIDATES:
            raise _validate.fail("candidates", candidates, f"give at most {MOST_CANDIDATES}")
        cells = _cells(cells)
        sizes = [parameter.dimension.size for parameter in space.parameters]
        small = all(size is not None for size in sizes) and math.prod(size or 0 for size in sizes) <= candidates
        grid = space.grid(**cells) if cells is not None else space.grid() if small else None
        rule_of = default_sampler(band) if sampler is None else sampler
        return cls(space, band, rule_of, rule, candidates, cells, grid, max(first, 1))

    def on(self, prior: Space) -> Policy:
        """The same policy on another prior."""
        return Policy.of(prior, self.band, self.sampler, self.rule, self.candidates, self.cells, self.first)

    @property
    def adaptive(self) -> bool:
        """Whether the history matters: with c = C = 1 the prior is the only density in the band."""
        return self.band.C > 1

    def describe(self) -> dict[str, Any]:
        """The search rule with its settings, as JSON: a history-only study may not change it on the way."""
        return {
            **description(self.sampler),
            "projection": repr(self.rule),
            "candidates": self.candidates if self.grid is None else None,
        }

    def draw(self, history: History | None, entropy: Entropy) -> dict[str, Any]:
        """λ of the next run: from the prior itself as long as the rule sees fewer than ``first`` results.

        A run never sees more results than runs came before it, so that the first n₀ = ``first`` runs are from the
        prior, with any lag. Without a band every run is.
        """
        from_prior = history is None or len(history) < self.first or not self.adaptive
        if self.grid is not None:
            index = self._index(self.grid, None if from_prior else history, entropy)
            return self.grid.draw_within(index, entropy.child("within"))
        if from_prior:
            return self.space.sample(entropy.child("draw"))
        candidates = self.space.candidates(self.candidates, entropy.child("candidates"))
        return candidates.params(self._index(candidates, history, entropy))

    def _index(self, candidates: Candidates | Grid, history: History | None, entropy: Entropy) -> int:
        masses = candidates.masses if history is None else self._projected(candidates, history)
        return self.band.draw(masses, entropy.child("draw"), candidates.masses)

    def _projected(self, candidates: Candidates | Grid, history: History) -> npt.NDArray[np.float64]:
        prior = candidates.masses
        failure: Exception
        try:
            weights = np.asarray(self.sampler.weights(candidates, history), dtype=np.float64)
            if weights.shape != prior.shape:
                raise ValueError(f"weights have shape {weights.shape}: there are {len(prior)} candidates")
            # The weights are masses: on cells of unequal mass, a rule that ranks them must rank densities.
            return self.band.project(weights, prior, self.rule, base=None if self.grid is None else prior)
        except Exception as error:
            failure = error
        # Raised here, outside the handler: the rule's own error may quote the history and is not to be printed.
        raise SamplerError(self.sampler, failure)


def _rule(given: Rule | str) -> Rule:
    rule: Any = named_rule(given) if isinstance(given, str) else given
    if not callable(getattr(rule, "ratios", None)):
        raise _validate.fail("rule", given, "give a projection, such as dphypo.band.Greedy(), or its name")
    return cast(Rule, rule)


def _cells(given: Mapping[str, int] | None) -> Mapping[str, int] | None:
    if given is None:
        return None
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise _validate.fail("grid", given, 'give the number of cells by name, such as {"lr": 32}')
    return {name: _validate.integer(at_least=1, **{f"grid[{name!r}]": count}) for name, count in given.items()}
