"""What determines the guarantee of a search: its parts, which are fixed before the data are looked at.

A part is declared in public, runs in secret on a journal, and publishes a value. The next part receives what was
published, and nothing else. :class:`dphypo.Stage` is the part that is a study, :class:`dphypo.Survey` publishes all its
runs, :class:`dphypo.LastRun` executes one.

Before the first run ``tune`` buys a noisy count of the records that fit the declaration (:class:`FitCount`). Records
that do not fit are left out, and nothing may depend on how many there are, so a wrong shape would silently waste the
whole ε. A search may act on a count that it has paid for: it is refused if the count plus five standard deviations is
below half of the declared number. If five deviations exceed that half, no count is bought.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar

import dp_accounting
import numpy as np
from scipy.optimize import brentq

from dphypo import _validate, noise
from dphypo._validate import Floats, printable
from dphypo.accounting import Certificate, Composition, RoundedDp, Term
from dphypo.accounting.certificate import to_json
from dphypo.accounting.composition import EVERYONE, account_published
from dphypo.accounting.profiles import gaussian_delta, round_epsilon, show_delta, show_epsilon
from dphypo.entropy import Entropy
from dphypo.errors import ChangedStudy, UnfitRecordsError
from dphypo.executors.executor import GroupSizes, Lost
from dphypo.journal.journal import Record, Trial
from dphypo.mechanisms import Mechanism, Outcome
from dphypo.mechanisms.mechanism import records_of, rehearse
from dphypo.samplers import History
from dphypo.search import refusals
from dphypo.search.release import OnRun, Release
from dphypo.space import Space
from dphypo.space.space import Spread, read_spread

SEEDED = "no guarantee: seeded"
_MOST_CHANGES = 6  # values that differ, in one message
RULE, FIRST = "search rule", "first_from_prior"
"""Keys of a part: its search rule, if the guarantee relies on one that sees only the history, and the rule's n₀."""


@dataclass(frozen=True)
class PartSetting:
    """What a part receives when it begins: the prior that earlier parts determine, and what they have published."""

    declared: Space  # has every λ that was published; a prior may be narrower
    prior: Space
    published: tuple[Any, ...] = ()


class Past:
    """The runs of a part as points in the unit cube of a space; scores times ``sign`` are better the larger they are.

    Each run is converted once.
    """

    def __init__(self, space: Space, sign: float) -> None:
        self._space, self._sign = space, sign
        self._unit: Floats = np.empty((0, len(space.parameters)))

    def history(self, record: Record, usable: int | None) -> History:
        """The first ``usable`` runs, which have ended; with None, all that have ended."""
        fresh = self._space.to_unit([trial.params for trial in record.trials[len(self._unit) :]])
        self._unit = np.vstack([self._unit, fresh])
        rows = sorted(record.results) if usable is None else list(range(usable))
        scores = self._sign * np.array([record.results[number].score for number in rows], dtype=np.float64)
        unit, params = self._unit[rows], tuple(dict(record.trials[number].params) for number in rows)
        return History(self._space.features(unit), unit, scores, np.isnan(scores), params)

    def pending(self, record: Record, usable: int | None) -> list[dict[str, Any]]:
        """The λ of the runs that were drawn and whose results may not be used."""
        used = record.results if usable is None else range(usable)
        return [dict(trial.params) for trial in record.trials if trial.number not in used]


Display = AbstractContextManager[Callable[[Trial, Outcome], object]]
"""Shows runs as they end; its value is called with every run that has ended."""


class Runs(ABC):
    """What decides the runs of a part: how many there are, λ of each, and what λ may depend on.

    The defaults are those of secret runs, each drawn from the results of all that have ended.
    """

    space: Space  # in which whatever draws λ sees it
    lag: int | None  # how many of the latest runs λ does not depend on; None: as many as are under way

    @property
    def single(self) -> bool:
        """Whether this is one published run, which keeps checkpoints."""
        return False

    @property
    def in_order(self) -> bool:
        """Whether the guarantee assumes that results are used in the order of the runs, not of their ends."""
        return False

    @abstractmethod
    def draw_total(self, entropy: Entropy) -> int:
        """How many runs there are."""

    @abstractmethod
    def possible(self, total: int) -> bool:
        """Whether there may be this many runs: a journal that says otherwise was tampered with."""

    @abstractmethod
    def groups(self, workers: int) -> GroupSizes | None:
        """How many runs to give at a time to a mechanism that executes many at once; None for one by one."""

    @abstractmethod
    def usable(self, number: int, lag: int, groups: GroupSizes | None) -> int | None:
        """How many of the first runs λ of this one depends on; None for all that have ended."""

    @abstractmethod
    def draw(self, past: Past, record: Record, usable: int | None, entropy: Entropy) -> dict[str, Any]:
        """λ of the next run."""

    def display(self, record: Callable[[], Record], *, show: bool, on_run: OnRun | None) -> Display:
        """Shows nothing: how many secret runs have ended is secret."""
        return contextlib.nullcontext(lambda trial, outcome: None)


class Part:
    """One part of a declaration, as the user writes it: a frozen dataclass, and public."""

    mechanism: Mechanism  # what one run is
    models: bool = False  # whether the models of all runs are published
    table: ClassVar[bool] = False  # whether the results of all runs are published
    secret: ClassVar[bool] = False  # whether only the best run is published: not the others, their number and time
    counts: FitCount | None = None  # noisy counts of the records that fit, which are taken before the first run
    may_stop: ClassVar[bool] = False  # whether what it publishes may end the search: see ``stops``
    kept: float | None = None  # the share it keeps of the model that the part before it published: see ``after``

    @property
    def executed(self) -> Mechanism:
        """The mechanism that is run and accounted for: a last run may leave out its score."""
        return self.mechanism

    @property
    def lost_runs(self) -> Lost:
        """How a run whose process died is treated."""
        return Lost.read(None, self.mechanism)

    def terms(self, space: Space, *, last: bool, alone: bool = False) -> tuple[Term, ...]:
        """Refuse what does not fit the space, then account for the part, without its counts, at every λ of it.

        ``last`` means that no part follows, ``alone`` that none comes before either.
        """
        raise NotImplementedError

    def publishes(self) -> dict[str, Any]:
        """What the part publishes and how it is used, as JSON, for the journal and the certificate."""
        raise NotImplementedError

    def stated(self) -> dict[str, Any]:
        """What it publishes, with its counts."""
        return {**self.publishes(), **({} if self.counts is None else {"counts": self.counts.to_dict()})}

    def search_rule(self) -> dict[str, Any] | None:
        """The search rule on which the guarantee relies, as JSON; None if it relies on none."""
        return None

    def compute(self) -> str:
        """What the part costs in compute, in a sentence that depends on public values alone."""
        raise NotImplementedError

    def begin(self, setting: PartSetting) -> Runs:
        """Return what decides the runs."""
        raise NotImplementedError

    def read(self, record: Record) -> Any:
        """What a finished part has published to the parts after it. Nothing else of its record is used."""
        return None

    def state(self, published: Any) -> dict[str, Any]:
        """What was published, as JSON, for the certificate."""
        raise NotImplementedError

    def next_prior(self, published: Any, space: Space) -> Space | None:
        """The prior of the next part, from what was published; None to leave the prior as it is."""
        return None

    def after(self, model: Any) -> Mechanism:
        """The mechanism to run when starting from the model of the part before, which is None if there is none."""
        return self.executed

    def stops(self, published: Any) -> bool:
        """Whether the search ends after publishing this, without running the parts after it."""
        return False

    def release(self, best: Release, record: Record, setting: PartSetting) -> Release:
        """The release of a search that ends with this part, from the best of its runs."""
        return best


@dataclass(frozen=True)
class PriorAround:
    """The next prior: a mixture of the original one, with weight ``floor``, and a kernel around the recommended λ.

    Args:
        spread: the kernel's standard deviation in the coordinates in which the prior is uniform; for categories, the
            share that goes to the other ones. One number for all parameters, or a dict by name (a parameter that is not
            in it keeps its prior). A parameter that is inactive at the recommended point keeps its prior.
        floor: the share of the original prior that remains, in case the survey was misled.

    >>> from scipy.stats import loguniform
    >>> space = Space({"lr": loguniform(1e-4, 1.0), "batch": [64, 128, 256]})
    >>> PriorAround()({"lr": 0.05, "batch": 128}, space).to_dict()["around"]
    {'params': {'lr': 0.05, 'batch': 128}, 'spread': {'lr': 0.05, 'batch': 0.05}, 'floor': 0.1}
    """

    spread: Spread = 0.05
    floor: float = 0.1

    def __post_init__(self) -> None:
        _validate.within(0.0, 1.0, closed="right", floor=self.floor)

    def __call__(self, params: Mapping[str, Any], space: Space) -> Space:
        return space.around(params, spread=self.spread, floor=self.floor)

    def check(self, space: Space) -> None:
        """Refuse a spread that does not fit the space, before anything runs."""
        read_spread(space.parameters, self.spread)

    def to_dict(self) -> dict[str, Any]:
        spread = dict(self.spread) if isinstance(self.spread, Mapping) else self.spread
        return {"rule": "PriorAround", "spread": spread, "floor": self.floor}


def terms_of(space: Space, parts: Sequence[Part]) -> tuple[tuple[Term, ...], ...]:
    """What each part costs, with its counts, over the whole space."""
    terms = []
    for number, part in enumerate(parts, 1):
        if part.counts is not None and number > 1:  # a refusal states that nothing else was spent
            raise ValueError(f"part {number} has counts=: they are taken before the first run, so give them to part 1")
        counts = () if part.counts is None else part.counts.terms(part.mechanism)
        terms.append((*counts, *part.terms(space, last=number == len(parts), alone=len(parts) == 1)))
    return tuple(terms)


def cost_of(space: Space, parts: Sequence[Part]) -> Composition:
    """What all parts cost together."""
    return Composition(tuple(chain.from_iterable(terms_of(space, parts))))


@dataclass(frozen=True, eq=False)
class Declaration:
    """All that is public about a search before it runs. :meth:`of` checks it and accounts for it; nothing else does.

    A study is a declaration with one part, a :class:`dphypo.Stage`. Many searches may share a declaration.
    """

    space: Space  # with the original prior
    parts: tuple[Part, ...]  # the release of the last one is the release of the search
    terms: tuple[tuple[Term, ...], ...]  # what each part costs
    guarantee: Composition  # of all that is published together
    delta: float
    maximize: bool = True
    private: bool = True  # whether randomness comes from the operating system; else there is no guarantee
    data: str | None = None  # the name that the user gives to the data set: public
    model: str | None = None  # the SHA-256 of a text that describes the models, where mechanisms have one
    ledger: tuple[float, float] | None = None  # the total (ε, δ) of the ledger to which the search is charged

    @classmethod
    def of(
        cls,
        space: Space,
        parts: Sequence[Part],
        *,
        delta: float,
        maximize: bool = True,
        private: bool = True,
        data_name: str | None = None,
        epsilon: float | None = None,
    ) -> Declaration:
        """Check the parts and account for them over the whole space, whatever priors they will have.

        Args:
            space, parts, delta, maximize, private, data_name: what is declared.
            epsilon: the total that was asked for. Parts that cost more are refused here, before the first run.
        """
        check_space(space)
        delta, maximize = _validate.delta(delta=delta), _validate.flag(maximize=maximize)
        mechanisms = [part.mechanism for part in parts]
        if len(units := list(dict.fromkeys(one.unit for one in mechanisms))) > 1:
            raise _validate.fail("parts", " and ".join(units), "all parts must protect one unit: give person= to all")
        _validate.warn_of_delta(delta, records_of(*mechanisms))
        terms = terms_of(space, parts)  # equal parts are accounted for once: solving for their noise has done it
        guarantee = Composition(tuple(chain.from_iterable(terms)))
        to_json(guarantee)  # which refuses what no certificate could state
        if epsilon is not None:
            guarantee.check_total(_validate.positive(epsilon=epsilon), delta)
        texts = [text for one in mechanisms if (text := one.architecture(space)) is not None]
        if data_name is not None:
            _validate.line(most=_validate.LONGEST_NAME, data_name=data_name)
        model = hashlib.sha256("\n".join(texts).encode()).hexdigest() if texts else None
        return cls(space, tuple(parts), terms, guarantee, delta, maximize, private, data_name, model)

    @property
    def alone(self) -> bool:
        """Whether this is a study by itself."""
        return len(self.parts) == 1 and self.parts[0].secret

    @property
    def sign(self) -> float:
        """Scores times this are better if larger."""
        return 1.0 if self.maximize else -1.0

    @property
    def timed(self) -> bool:
        """Whether a log may show when runs are executed. The time of a study is secret: it reveals T."""
        return not any(part.secret for part in self.parts)

    def rehearse(self) -> None:
        """Rehearse the mechanisms of all parts, before the first run is drawn."""
        for part in self.parts:
            rehearse(part.executed, self.space)

    def prior(self, published: Sequence[Any]) -> Space:
        """The prior of the next part: the original one, changed by the latest part that has a result."""
        prior = self.space
        for part, value in zip(self.parts, published, strict=False):
            prior = part.next_prior(value, self.space) or prior
        return prior

    def to_dict(self, number: int = 0, prior: Space | None = None) -> dict[str, Any]:
        """What the journal of a part holds; parts count from 0. It may not change once the first part has begun."""
        declared: dict[str, Any] = {
            "space": self.space.to_dict(),
            "prior": (self.space if prior is None else prior).to_dict(),
            "stage": number + 1,
            "parts": self._parts,
            "direction": "maximize" if self.maximize else "minimize",
            "entropy": "private" if self.private else "seeded",
            **({} if self.data is None else {"data": self.data}),
            **({} if self.model is None else {"model": self.model}),
            **self._unit,
        }
        return dict(json.loads(json.dumps(declared)))  # as it will be read back

    def total(self) -> str:
        """What the whole search costs, in words."""
        return f"ε = {show_epsilon(self.guarantee.epsilon(self.delta), 4)} at δ = {show_delta(self.delta)}"

    @cached_property
    def certificate(self) -> Certificate:
        """The guarantee as a document, as it is known before anything runs."""
        lost = dict.fromkeys(part.lost_runs.condition for part in self.parts)
        public: dict[str, object] = {"space": self.space.to_dict(), "lost runs": "; ".join(lost)}
        rules, published = [part.search_rule() for part in self.parts], [part.stated() for part in self.parts]
        if self.alone:
            public |= {} if rules[0] is None else {RULE: rules[0]}
            public["score on"] = published[0]["score on"]
        else:
            public["releases"] = published
            public |= {"search rules": rules} if any(rules) else {}
        if (records := records_of(*(part.mechanism for part in self.parts))) is not None:
            public["records"] = records
        if self.ledger is not None:
            public["ledger"] = dict(zip(("epsilon", "delta"), self.ledger, strict=True))
        return self.guarantee.certificate(self.delta, **public, **self.stated)

    @property
    def stated(self) -> dict[str, Any]:
        """What every certificate of this search states: the name of the data, the unit, whether it was seeded."""
        named = {**self._unit, **({} if self.data is None else {"data_set": self.data})}
        return named if self.private else {**named, "warning": SEEDED, "entropy": "seeded"}

    @property
    def unit(self) -> str:
        """Who is protected."""
        return self.parts[0].mechanism.unit

    @property
    def _unit(self) -> dict[str, Any]:
        """The unit if it is not a record, and how many rows of a person are used at a time, if that is known."""
        caps = [cap for part in self.parts if (cap := part.mechanism.rows_per_person) is not None]
        stated = {} if self.unit == "record" else {"unit": self.unit}
        return {**stated, "rows per person": max(caps)} if stated and caps else stated

    def certify(self, published: Sequence[Any]) -> Certificate:
        """The certificate, with what the parts have published."""
        document = self.certificate.to_dict()
        states = [part.state(value) for part, value in zip(self.parts, published, strict=False)]
        return Certificate({**document, "public": {**document["public"], "released": states}})

    @cached_property
    def _parts(self) -> list[dict[str, Any]]:
        """The parts: their terms as certificates state them, what they publish, and how lost runs are treated.

        The search rule is included only if the guarantee relies on one that sees nothing but the history: a rule chosen
        later may have been chosen by somebody who saw the journal.
        """
        found = []
        for part, terms in zip(self.parts, self.terms, strict=True):
            stated = {**to_json(Composition(terms)), **part.stated(), "lost runs": part.lost_runs}
            for term in stated["terms"]:
                if "policy" in term:  # which repeats the rule, in words
                    term["policy"] = {FIRST: term["policy"][FIRST]}
            rule = part.search_rule()
            found.append(stated if rule is None else {**stated, RULE: rule})
        return found


def refuse_changed(
    found: Mapping[str, Any], declared: Mapping[str, Any], total: str | None, now: Callable[[], str], where: str
) -> None:
    """Refuse to resume a search that was declared differently; the message names the journal and what differs.

    It also states the totals if they differ: a different ε changes the noise and so every event.
    """
    if changed := [name for name in {**declared, **found} if found.get(name) != declared.get(name)]:
        costs = "" if total in (None, now()) else f" It was begun with {total}, and would cost {now()} now."
        values = [one for name in changed for one in _changes(name, found.get(name), declared.get(name))]
        more = f"; and {len(values) - _MOST_CHANGES} more" if len(values) > _MOST_CHANGES else ""
        shown = f" In {where}, {'; '.join(values[:_MOST_CHANGES])}{more}."
        raise ChangedStudy(f"{refusals.CHANGED_STUDY} (Different: {', '.join(changed)}.{shown}{costs})")


def _changes(name: str, was: Any, now: Any) -> Iterator[str]:
    """Each value of a declaration that differs, by its path; all of them are public."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in {**was, **now}:
            yield from _changes(f"{name}.{key}", was.get(key), now.get(key))
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for number, (one, other) in enumerate(zip(was, now, strict=True)):
            yield from _changes(f"{name}[{number}]", one, other)
    elif was != now:
        before, after = ("not there" if one is None else printable(one, 60) for one in (was, now))
        yield f"{printable(name, 80)} was {before} and is {after} now"


def read_space(space: Space | Mapping[str, Any] | None, mechanism: Mechanism) -> Space:
    """The argument ``space``: a space, the dict that makes one, or None for that of the mechanism."""
    found = mechanism.default_space() if space is None else Space(space) if isinstance(space, Mapping) else space
    if found is None:
        remedy = 'the mechanism has no default: give one, such as Space({"lr": loguniform(1e-3, 10)})'
        raise _validate.fail("space", None, remedy)
    check_space(found)
    return found


def check_space(space: object) -> None:
    """Refuse a value that is not a space, and say how to make one."""
    if not isinstance(space, Space):
        raise _validate.fail(
            "space", space, 'give a dphypo.Space, such as dphypo.Space({"learning_rate": loguniform(1e-4, 10)})'
        )


SLIVER = 0.002
"""The share of the squared total, in units of a Gaussian mechanism, that a count costs: about 0.1 % more noise."""
LEAST_NOISE = 4.0
"""The smallest standard deviation: a more precise count would not be more useful, whatever the total."""
DEVIATIONS = 5
TRAIN, SCORE = "train", "score"


@dataclass(frozen=True)
class FitCount:
    """A noisy count of the records that fit, for each use of records that it can check.

    Args:
        noise_multiplier: the standard deviation of each count.
        declared: the declared number of records, by their use.
        unit: what a record is, such as a person with all their rows.
    """

    noise_multiplier: float
    declared: Mapping[str, int]
    unit: str = "record"

    @classmethod
    def of(cls, mechanism: Mechanism, *, epsilon: float, delta: float) -> FitCount | None:
        """The counts for a total; None if the mechanism cannot count, or has too few records. No record is read."""
        if type(mechanism).fitting_records is Mechanism.fitting_records:
            return None
        sigma = max(LEAST_NOISE, float(f"{1 / (total_in_gaussians(epsilon, delta) * math.sqrt(SLIVER)):.3g}"))
        given = {TRAIN: mechanism.records, SCORE: mechanism.score_records}
        declared = {use: int(size) for use, size in given.items() if isinstance(size, int)}
        large = {use: size for use, size in declared.items() if DEVIATIONS * sigma <= size / 2}
        return cls(sigma, large, mechanism.unit) if large else None

    def terms(self, mechanism: Mechanism) -> tuple[Term, ...]:
        """What the counts cost: one record changes the count of its side by at most 1."""
        sides, sigma = mechanism.split, self.noise_multiplier
        event = RoundedDp(dp_accounting.GaussianDpEvent(sigma), noise.slack(1, sigma))
        count = account_published([event], 1, relation=mechanism.relation)
        of_use = {TRAIN: EVERYONE, SCORE: EVERYONE} if sides is None else {TRAIN: sides.training, SCORE: sides.scoring}
        return tuple(Term(count, of_use[use], counts=True) for use in self.declared)

    def to_dict(self) -> dict[str, Any]:
        return {"noise_multiplier": self.noise_multiplier, "declared": dict(self.declared)}

    def draw(self, mechanism: Mechanism, space: Space, entropy: Entropy) -> dict[str, int]:
        """The noisy counts. They are published: commit them before using them."""
        fitting = mechanism.fitting_records(space)
        words = noise.Words(entropy.child("records that fit").bytes(32))
        found = {}
        for use in self.declared:
            # The first of several scores on the same records; the declared number for a score that counts no records.
            known = [fit for name, (fit, _) in fitting.items() if name.startswith(use)]
            found[use] = noise.noisy_count([*known, self.declared[use]][0], self.noise_multiplier, words.stream(use))
        return found

    def check(self, counts: Mapping[str, int], mechanism: Mechanism, delta: float, stated: Mapping[str, Any]) -> None:
        """Refuse to continue if clearly fewer than half of the declared records of a side fit.

        ``stated`` is what every certificate of the search states.
        """
        if not (few := self._clearly_below(counts, 1 / 2)):
            return
        spent = Composition(self.terms(mechanism))
        public: dict[str, Any] = {"releases": [{"part": "count", "releases": ["counts"], **self.to_dict()}], **stated}
        cost = f"ε = {show_epsilon(round_epsilon(spent.epsilon(delta)))} at δ = {show_delta(delta)} (error.certificate)"
        raise UnfitRecordsError(
            f"{self.said(counts, few)} The search was refused before its first run: only the count was released, "
            f"{cost}. Correct the example, the shapes, the types or the labels that are declared, or how records are "
            "read (mechanism.fitting_records() counts exactly, for the curator alone); then start a new search with "
            "another journal, which pays again",
            spent.certificate(delta, **public),
        )

    def said(self, counts: Mapping[str, int], uses: Sequence[str] | None = None) -> str:
        """The noisy counts in a sentence that may be published."""
        sigma = self.noise_multiplier
        some = [
            f"about {max(counts[use], 0)} to {use} ({self.declared[use]} declared)" for use in uses or self.declared
        ]
        who = f"{self.unit.capitalize()}s"
        line = f"{who} that fit the declaration, by a noisy count (σ = {sigma:g}): {', '.join(some)}."
        if uses is None and self._clearly_below(counts, 9 / 10):
            line += (
                " That is clearly fewer than declared; the others are left out. If you did not expect this, interrupt "
                "the search and check the declared shapes, types and labels: for example, a model needs an output for "
                "every class."
            )
        return line

    def _clearly_below(self, counts: Mapping[str, int], share: float) -> list[str]:
        """The uses for which clearly fewer than this share of the declared records fit."""
        room = DEVIATIONS * self.noise_multiplier
        return [use for use, size in self.declared.items() if counts[use] + room < share * size]


def total_in_gaussians(epsilon: float, delta: float) -> float:
    """The μ of the Gaussian mechanism that costs ε at δ: the size of a total as one number."""

    def excess(mu: float) -> float:
        return float(gaussian_delta(epsilon, mu)) - delta

    return float(brentq(excess, 1e-6, 1e6, xtol=1e-12)) if excess(1e6) > 0 else 1e6
