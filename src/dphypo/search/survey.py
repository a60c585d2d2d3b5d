"""A survey: k runs whose results are all published. And what decides published runs, those of a last run too.

The runs, their number and their scores are public. Seeds are not, nor why a run failed, nor how long runs take: λ of a
run may depend on results, and not on when they came. With w runs at a time, λ of run j is proposed from the results of
runs 0 to j − w, whichever ended first.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from dphypo import _validate
from dphypo.accounting import Guarantee, Term
from dphypo.accounting.events import event_to_dict
from dphypo.accounting.published import account_published
from dphypo.accounting.sides import EVERYONE
from dphypo.entropy import Entropy
from dphypo.journal.records import Record, Trial
from dphypo.mechanisms import Mechanism, Outcome, capabilities, over_space
from dphypo.samplers import History
from dphypo.search import optimiser as _optimiser
from dphypo.search import progress
from dphypo.search.lost import Lost
from dphypo.search.optimiser import Pick, PosteriorMean, nearest, point_of
from dphypo.search.part import Decider, GroupSizes, Released, Setting, Within
from dphypo.search.prior_around import PriorAround, PriorRule, describe
from dphypo.search.release import Ending, Release
from dphypo.search.selection import Past
from dphypo.search.table import OnRun, Row, Surveyed, at_edge, done
from dphypo.space import Space

DURATIONS = ("secret", "public")
_LARGEST_GROUP = 64


@dataclass(frozen=True)
class Survey:
    """k runs whose results are all published, paid for by composition: a part of :class:`dphypo.Stages`.

    **Guarantee.** Every run may be at any λ of the space, chosen from all that was published before, by any optimiser.
    The k events, each bounded by its supremum over the space, compose. Nothing is secret but the data, the seeds, why a
    run failed and how long runs take; so progress, counts, plots and dashboards are allowed.

    Args:
        mechanism: what one run is: usually a short one, ``mechanism.at(fraction=0.1, match=True)``.
        runs: how many. All are paid for, also those that fail. If the first five all fail, no other is made.
        optimiser: what proposes λ: one of ``dphypo.samplers``, a sampler of Optuna, or a
            :class:`dphypo.search.optimiser.Optimiser`; by default a Gaussian process.
        pick: which λ the survey recommends to the parts after it; by default where a posterior mean is best.
        prior: how that λ shapes the prior of the next part, such as :class:`dphypo.PriorAround`; by default the prior
            stays as it is.
        models: a folder in which the model of every run is kept, as ``run-001`` and so on. They are paid for. The
            folder belongs to this search: one that holds anything else is refused.
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
    >>> search = dphypo.Stages(
    ...     dphypo.Space({"lr": loguniform(1e-3, 1)}), [Survey(train, 10)], delta=1e-6, journal=None)
    >>> round(search.guarantee.epsilon(1e-6), 2)
    0.31
    >>> release = search.run(progress=False)
    >>> len(release.survey.rows), 0.05 < release.params["lr"] < 0.2
    (10, True)
    """

    mechanism: Mechanism
    runs: int
    optimiser: Any = None
    pick: Pick | None = None
    prior: PriorRule | None = None
    models: str | Path | None = None
    durations: str = "secret"
    within: Within | None = None
    lag: int | None = None

    table: ClassVar[bool] = True

    def __post_init__(self) -> None:
        capabilities.check_is_mechanism(self.mechanism)
        _validate.integer(at_least=1, runs=self.runs)
        _optimiser.read(self.optimiser)
        if self.lag is not None:
            _validate.integer(at_least=1, lag=self.lag)
        if self.durations not in DURATIONS:
            raise _validate.fail("durations", self.durations, "give 'secret' or 'public'")
        for name, given in (("pick", self.pick), ("prior", self.prior), ("within", self.within)):
            if given is not None and not callable(given):
                raise _validate.fail(name, given, "give a function: see the docstring of dphypo.Survey")

    def __str__(self) -> str:
        return f"a survey of {self.runs} runs of {self.mechanism!r}"

    @property
    def lost_runs(self) -> Lost:
        """What becomes of a run whose process died."""
        return Lost.read(None, self.mechanism)

    def terms(self, space: Space, *, last: bool, alone: bool = False) -> tuple[Term, ...]:
        """The runs and, where they look at private records of their own, their scores."""
        if last and self.prior is not None:
            raise ValueError("the last part has a prior=: it says what an earlier part hands on")
        if isinstance(self.prior, PriorAround):
            self.prior.check(space)
        return terms_of_runs(self.mechanism, space, self.runs, within=self.within)

    def describe(self, terms: tuple[Term, ...]) -> dict[str, Any]:
        """What determines the guarantee."""
        return describe_runs(terms)

    def search_rule(self) -> None:
        """The guarantee holds for any optimiser."""

    def hands_on(self, *, last: bool) -> dict[str, Any]:
        """What the survey publishes, and what becomes of it."""
        stated: dict[str, Any] = {"part": "survey", "releases": ["params", "score", "status"]}
        if isinstance(self.mechanism, capabilities.SeveralMetrics):
            stated["releases"] += self.mechanism.metrics
        if self.models is not None:
            stated["releases"].append("model")
        if self.durations == "public":
            stated["durations"] = "public"
        if isinstance(self.mechanism, capabilities.Transfer) and self.mechanism.transfer is not None:
            stated["transfer"] = self.mechanism.transfer
        if self.prior is not None:
            stated["next prior"] = describe(self.prior)
        return stated

    def compute(self) -> str:
        """How many runs the survey takes."""
        return f"Compute: {self.runs} {'run' if self.runs == 1 else 'runs'}, all published."

    def read(self, record: Record) -> Surveyed:
        """The published table."""
        return table_of(record)

    def state(self, published: Surveyed) -> dict[str, Any]:
        """The hash of the table."""
        return published.fingerprint()

    def next_prior(self, published: Surveyed, space: Space) -> Space | None:
        """What is made of the recommended λ; the prior stays where nothing is to be made, or no run has a score."""
        if self.prior is None or not done(published.rows):
            return None
        return self.prior(Released(self.recommended(published, space)), space)

    def recommended(self, published: Surveyed, space: Space) -> dict[str, Any]:
        """λ that the published table recommends."""
        pick = PosteriorMean() if self.pick is None else self.pick
        return pick(space, published.rows, maximize=published.maximize)

    def begin(self, setting: Setting) -> Decider:
        """As many runs as were declared, λ by the optimiser."""
        optimiser = _optimiser.read(self.optimiser, self.runs)
        space = _optimiser.space_for(optimiser, setting.prior)
        propose, lag = partial(optimiser.propose, space), None if self.lag is None else self.lag - 1
        return DeclaredRuns(self.runs, space, setting.prior, propose, lag, self.durations == "public", self.within)

    def release(self, best: Release, record: Record, setting: Setting) -> Release:
        """Of a search that ends with a survey: no model, but the table and what it recommends."""
        table = table_of(record)
        params = self.recommended(table, setting.prior) if done(table.rows) else None
        ending = Ending.ALL_FAILED if params is None else Ending.SURVEYED
        return Release(params, None, None, best.certificate, ending, best.saver, (table,))


Propose = Callable[[History, Sequence[Mapping[str, Any]], Entropy], dict[str, Any]]
"""λ of the next run, from published results and the λ of runs that are under way."""


@dataclass(frozen=True)
class DeclaredRuns:
    """What decides published runs."""

    runs: int
    space: Space  # where the optimiser sees them
    prior: Space  # what is proposed must lie in it
    propose: Propose
    lag: int | None = None
    arriving: bool = False  # whether results are used as they arrive
    within: Within | None = None
    table: bool = True  # whether rows are shown as runs end

    in_order: ClassVar[bool] = False
    published: ClassVar[bool] = True

    def draw_total(self, entropy: Entropy) -> int:
        """How many runs there are: declared, not drawn."""
        return self.runs

    def possible(self, total: int) -> bool:
        return total == self.runs

    def groups(self, workers: int) -> GroupSizes | None:
        """Half of the runs at once, then a fifth at a time (``benchmarks/groups.py`` measures what that costs)."""
        if self.runs < 2 or self.lag is not None:
            return None
        return GroupSizes(min(self.runs // 2, _LARGEST_GROUP), min(max(self.runs // 5, 1), _LARGEST_GROUP))

    def usable(self, number: int, lag: int, groups: GroupSizes | None) -> int | None:
        if self.arriving:
            return None
        return max(number - lag, 0) if groups is None else groups.start(number)

    def draw(self, past: Past, record: Record, usable: int | None, entropy: Entropy) -> dict[str, Any]:
        """What is proposed, or the nearest λ that may be run."""
        proposed = self.propose(past.history(record, usable), past.pending(record, usable), entropy)
        point = point_of(self.prior, proposed)
        return point if self.within is None else nearest(self.prior, point, self.within, entropy)

    @contextlib.contextmanager
    def watch(
        self, record: Callable[[], Record], *, show: bool, ticking: bool, on_run: OnRun | None
    ) -> Iterator[Callable[[Trial, Outcome], object]]:
        """A line for every run, and a remark if the best lies at the edge of the space."""
        told, show = on_run if self.table else None, show and self.table
        with progress.rows(record, self.runs, told, show=show, public=self.arriving) as one_more:
            yield one_more
        if show and (remark := at_edge(table_of(record()), self.prior.to_dict())):
            print(remark, file=sys.stderr)


def terms_of_runs(
    mechanism: Mechanism, space: Space, count: int, *, scored: bool = True, within: Within | None = None
) -> tuple[Term, ...]:
    """``count`` published runs of a mechanism, each at any λ of the space for which ``within`` is true.

    A mechanism that states no split may train on any record. A score that is not published (``scored``) costs nothing.
    """
    trains, scores = over_space.by_side(mechanism, space, within, scored=scored)
    if not trains:
        raise _validate.fail("within", within, "it excludes every point of the space")
    sides = mechanism.split
    side = EVERYONE if sides is None else sides.training
    terms = [Term(account_published(trains, count, relation=mechanism.relation), side)]
    if scores and sides is not None:
        terms.append(Term(account_published(scores, count, relation=mechanism.relation), sides.scoring, scores=True))
    return tuple(terms)


def describe_runs(terms: tuple[Term, ...]) -> dict[str, Any]:
    """What determines the guarantee of published runs, as JSON."""
    stated: list[dict[str, Any]] = []
    for term in terms:
        assert not isinstance(term.releases, Guarantee)
        stated.append(
            {
                "published": term.releases.count,
                "reads": term.side.to_json(),
                "event": [event_to_dict(event) for event in term.releases.events],
                "relation": term.releases.relation.name,
            }
        )
    return {"terms": stated}


def table_of(record: Record) -> Surveyed:
    """What has been published so far."""
    assert record.declaration is not None
    ended = [trial for trial in record.trials if trial.number in record.results]
    results = ((trial.params, record.results[trial.number]) for trial in ended)
    rows = (Row(params, result.score, result.metrics) for params, result in results)
    return Surveyed(tuple(rows), maximize=record.declaration["direction"] == "maximize")
