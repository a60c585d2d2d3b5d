"""A survey: k runs whose results are all published. A part of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dphypo import _validate, errors
from dphypo.accounting import Term
from dphypo.entropy import Entropy
from dphypo.journal import Journal, Record
from dphypo.mechanisms import Mechanism, capabilities
from dphypo.search import optimiser as _optimiser
from dphypo.search.lost import Lost
from dphypo.search.part import Released, Running, Setting
from dphypo.search.pick import Pick, PosteriorMean, history_of
from dphypo.search.published_runs import PublishedRules, PublishedRuns, described, listed, table_of
from dphypo.search.release import Ending, Release
from dphypo.search.table import Row, Surveyed, done
from dphypo.search.terms import Within, terms_of
from dphypo.space import Space

DURATIONS = ("secret", "public")


@dataclass(frozen=True)
class Survey:
    """k runs whose results are all published, paid for by composition: a part of :class:`dphypo.Stages`.

    **Guarantee.** Every run may be at any λ of the space, chosen from all that was published before, by any optimiser.
    The k events, each bounded by its supremum over the space, compose. Nothing is secret but the data, the seeds, why a
    run failed and how long runs take; so progress, counts, plots and dashboards are allowed.

    Args:
        mechanism: what one run is: usually a short one, ``mechanism.at(fraction=0.1, match=True)``.
        runs: how many. All are paid for, also those that fail.
        optimiser: what proposes λ: one of ``dphypo.samplers``, a sampler of Optuna, or a
            :class:`dphypo.search.Optimiser`; by default a Gaussian process.
        pick: which λ the survey recommends to the parts after it; by default where a posterior mean is best.
        prior: how that λ shapes the prior of the next part, such as :class:`dphypo.PriorAround`; by default the prior
            stays as it is.
        models: a folder in which the model of every run is kept, as ``run-001`` and so on. They are paid for.
        durations: "public" declares that how long runs take does not depend on the data. Runs that are made side by
            side then use results as they arrive; otherwise run j uses those of the runs up to j − workers.
        within: a public function of λ; where it is false, λ is neither run nor accounted for. The nearest λ that may be
            run takes the place of one that is proposed and may not.
        lag: how many runs may be under way at a time: λ of run j is proposed from the results of the runs up to
            j − lag. By default as many as there are workers, and one where runs are asked for and told.

    >>> import dp_accounting as dp
    >>> import dphypo
    >>> from scipy.stats import loguniform
    >>> @dphypo.mechanism(event=dp.GaussianDpEvent(40.0), relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    ... def train(params, *, seed):
    ...     return {"lr": params["lr"]}, -abs(params["lr"] - 0.1)  # a stand-in for a short training run
    >>> plan = dphypo.Stages(
    ...     dphypo.Space({"lr": loguniform(1e-3, 1)}), [Survey(train, 10)], delta=1e-6, journal=None)
    >>> round(plan.guarantee.epsilon(1e-6), 2)
    0.31
    >>> release = plan.run(progress=False)
    >>> len(release.survey.rows), 0.05 < release.params["lr"] < 0.2
    (10, True)
    """

    mechanism: Mechanism
    runs: int
    optimiser: Any = None
    pick: Pick | None = None
    prior: Any = None
    models: str | Path | None = None
    durations: str = "secret"
    within: Within | None = None
    lag: int | None = None

    def __post_init__(self) -> None:
        capabilities.check_is_mechanism(self.mechanism)
        _validate.integer(at_least=1, runs=self.runs)
        _optimiser.read(self.optimiser)
        if self.lag is not None:
            _validate.integer(at_least=1, lag=self.lag)
        if self.durations not in DURATIONS:
            raise _validate.fail("durations", self.durations, "give 'secret' or 'public'")
        for name in ("pick", "prior", "within"):
            given = getattr(self, name)
            if given is not None and not callable(given):
                raise _validate.fail(name, given, "give a function: see the docstring of dphypo.Survey")

    def __str__(self) -> str:
        return f"a survey of {self.runs} runs of {self.mechanism!r}"

    def declare(self, space: Space, *, last: bool) -> tuple[Term, ...]:
        """The runs and, where they look at private records of their own, their scores."""
        if last and self.prior is not None:
            raise ValueError("the last part has a prior=: it says what an earlier part hands on")
        check: Any = getattr(self.prior, "check", None)
        if check is not None:
            check(space)
        return terms_of(self.mechanism, space, self.runs, within=self.within)

    def describe(self, terms: tuple[Term, ...]) -> dict[str, Any]:
        """What determines the guarantee."""
        return described(terms)

    def hands_on(self, *, last: bool) -> dict[str, Any]:
        """What the survey publishes, and what becomes of it."""
        published: dict[str, Any] = {"part": "survey", "releases": ["params", "score", "status"]}
        if self.models is not None:
            published["releases"].append("model")
        if self.durations == "public":
            published["durations"] = "public"
        if isinstance(self.mechanism, capabilities.Transfer) and self.mechanism.transfer is not None:
            published["transfer"] = self.mechanism.transfer
        if self.prior is not None:
            published["next prior"] = _rule(self.prior)
        return published

    def conditions(self) -> list[str]:
        """What the guarantee assumes of the runs, besides their event."""
        return [Lost.read(None, self.mechanism).condition]

    def compute(self) -> str:
        """How many runs the survey takes."""
        return f"Compute: {self.runs} {'run' if self.runs == 1 else 'runs'}, all published."

    def read(self, journal: Journal) -> Surveyed | None:
        """The published table, if the survey is over."""
        record = journal.record
        if record.ending is None:
            return None
        if record.shredded:
            raise errors.Shredded
        return table_of(record)

    def listed(self, published: Surveyed) -> dict[str, Any]:
        """The hash of the table."""
        return listed(published)

    def next_prior(self, published: Surveyed, space: Space) -> Space | None:
        """What the rule makes of the recommended λ; the prior stays where there is no rule, or no score."""
        if self.prior is None or not done(published.rows):
            return None
        shaped: Space = self.prior(Released(self.recommended(published, space)), space)
        return shaped

    def recommended(self, published: Surveyed, space: Space) -> dict[str, Any]:
        """λ that the published table recommends."""
        pick = PosteriorMean() if self.pick is None else self.pick
        return pick(space, published.rows, maximize=published.maximize)

    def open(self, setting: Setting) -> Running:
        """The runs of this survey."""
        propose = partial(_propose, _optimiser.read(self.optimiser, self.runs), setting)
        rules = PublishedRules(
            setting, self.runs, propose, arriving=self.durations == "public", within=self.within, lag=self.lag
        )
        models = None if self.models is None else Path(self.models)
        release = partial(self._release, setting.prior)
        return PublishedRuns(self.mechanism, rules, setting, release, models=models, survey=True)

    def _release(self, space: Space, made: Release, record: Record) -> Release:
        """Of a plan that ends with a survey: no model, but the table and what it recommends."""
        table = table_of(record)
        params = self.recommended(table, space) if done(table.rows) else None
        ending = Ending.ALL_FAILED if params is None else Ending.SURVEYED
        return Release(params, None, None, made.certificate, ending, made.saver, (table,))


def _propose(
    optimiser: _optimiser.Optimiser,
    setting: Setting,
    rows: Sequence[Row],
    pending: Sequence[Mapping[str, Any]],
    entropy: Entropy,
) -> dict[str, Any]:
    history = history_of(setting.prior, rows, maximize=setting.maximize)
    return optimiser.propose(setting.prior, history, pending, entropy)


def _rule(rule: Any) -> Any:
    """A rule for the next prior, as JSON."""
    return rule.to_dict() if hasattr(rule, "to_dict") else getattr(rule, "__qualname__", type(rule).__qualname__)
