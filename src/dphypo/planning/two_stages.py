"""A search in two stages, as a few public numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dp_accounting import DpEvent

from dphypo import _validate
from dphypo.accounting import account
from dphypo.errors import UnreachableError
from dphypo.laws import NegativeBinomial
from dphypo.mechanisms import Declared, Mechanism, capabilities, over_space
from dphypo.search import PriorAround, Stage, calibrate_stages
from dphypo.space import Space
from dphypo.space.around import Spread


@dataclass(frozen=True)
class TwoStages:
    """A search in two stages: many cheap runs, then full runs around what they found. All of it is public.

    The defaults are for someone who knows nothing of the task. Choosing a design by what it finds on the private data
    costs privacy: it is a search of its own, and nothing here accounts for it.

    Args:
        fraction: the steps of a run of the first stage, as a fraction of a full run's.
        compute_share: the share of the expected compute that the first stage gets.
        share: the share of ε that the first stage may cost by itself. Costs do not add up, they compose: the last stage
            keeps more than the rest.
        spread, floor: of the :class:`dphypo.PriorAround` between the stages. Its own floor is 0.1, for any stage before
            it; here that one makes many runs, and 0.05 did better on the three public tasks of the defaults.
        shape: of the negative binomial law of T in both stages.

    >>> from dphypo import Space
    >>> from dphypo.mechanisms import SampledGaussian, OwnTraining
    >>> def train(params, *, seed, run):
    ...     return {"lr": params["lr"]}, 0.5  # a stand-in for run.steps steps of DP-SGD
    >>> full = OwnTraining(train, SampledGaussian(rate=0.1, steps=10, noise_multiplier=1.0))
    >>> space = Space({"lr": [0.1, 1.0]})
    >>> first, last = TwoStages().stages(space, full, compute=10, epsilon=2.0, delta=1e-5)
    >>> first.runs, last.runs
    (NegativeBinomial(shape=8, mean=50), NegativeBinomial(shape=8, mean=5))
    >>> first.mechanism.run.steps, last.mechanism.run.steps
    (1, 10)
    """

    fraction: float = 0.1
    compute_share: float = 0.5
    share: float = 0.1
    spread: Spread = 0.05
    floor: float = 0.05
    shape: float = 8.0

    def __post_init__(self) -> None:
        _validate.within(0.0, 1.0, closed="right", fraction=self.fraction)
        _validate.within(0.0, 1.0, compute_share=self.compute_share)
        _validate.within(0.0, 1.0, share=self.share)
        for spread in self.spread.values() if isinstance(self.spread, Mapping) else (self.spread,):
            _validate.within(0.0, 1.0, closed="right", spread=spread)
        PriorAround(floor=self.floor)
        NegativeBinomial(self.shape, mean=2.0)

    def runs(self, compute: float) -> tuple[NegativeBinomial, NegativeBinomial]:
        """The laws of T of both stages, whose expected compute is that of ``compute`` full runs."""
        compute = _validate.positive(compute=compute)
        first, last = self.compute_share * compute / self.fraction, (1.0 - self.compute_share) * compute
        if first <= 1:
            made = f"it makes {first:.3g} runs of length {self.fraction:g} in the first stage"
            raise _validate.fail("compute", compute, f"{made}: give more, a larger compute_share or a smaller fraction")
        if last <= 1:
            made = f"the first stage leaves {last:.3g} full runs"
            raise _validate.fail("compute", compute, f"{made}: give more, or a smaller compute_share")
        return NegativeBinomial(self.shape, mean=first), NegativeBinomial(self.shape, mean=last)

    def stages(
        self,
        space: Space,
        mechanism: Mechanism,
        *,
        compute: float,
        epsilon: float,
        delta: float,
        cheap: Mechanism | None = None,
    ) -> list[Stage]:
        """The two stages for :class:`dphypo.Stages`, with the noise at which both together cost ε at δ, and no more.

        Args:
            space: the hyperparameters, as they will be given to :class:`dphypo.Stages`.
            mechanism: a full run; it has a method ``at`` that takes ``noise_multiplier=`` or ``fraction=``, each by
                itself, and returns a copy with that noise, or with this fraction of its steps, as
                :class:`dphypo.integrations.torch.DPSGD` does.
            compute: the expected compute of the whole search, in full runs.
            epsilon, delta: what the whole search may cost.
            cheap: a run of the first stage, if not ``mechanism.at(fraction=...)``. A score that looks at private
                records needs it: that one costs as much in a cheap run as in a full one, so it must be noisier too.
        """
        laws = self.runs(compute)
        around = PriorAround(spread=self.spread, floor=self.floor)
        around.check(space)
        if cheap is None:
            cheap = capabilities.shorten(mechanism, self.fraction, match=False)
            if self.fraction < 1 and isinstance(mechanism.event, DpEvent) and cheap.event == mechanism.event:
                # It would spend far more compute than the design says.
                remedy = f"at(fraction={self.fraction:g}) has the same event as a full run: it ignores the fraction or "
                remedy += "has too few steps to be cut. Mend it; or, if a cheaper run costs the same, give it as cheap="
                raise _validate.fail("mechanism", mechanism, remedy)
        first = Stage(cheap, laws[0], prior=around)
        allowed, score = self.share * _validate.positive(epsilon=epsilon), 0.0
        if cheap.score_event is not None:  # ε of the stage if training cost nothing
            scoring = Declared(cheap, cheap.score_event, cheap.relation, monotone=cheap.monotone)
            score = account(over_space.events(scoring, space), laws[0], relation=cheap.relation).epsilon(delta)
        if score >= allowed:
            raise UnreachableError(
                f"the first stage may cost share · epsilon = {allowed:.4g}, and its score alone costs {score:.4g}: the "
                "score looks at private records, with the same noise in many cheap runs. Give the cheap run yourself, "
                f"with a noisier score, such as cheap=mechanism.at(fraction={self.fraction:g}, score=...); or a larger "
                "share, or fewer runs"
            )
        return calibrate_stages(
            space, [first, Stage(mechanism, laws[1])], epsilon=epsilon, delta=delta, share=self.share
        )
