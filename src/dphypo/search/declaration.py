"""What a study is declared by: fixed before the data are looked at, accounted once, kept in the journal, certified."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dphypo import _validate
from dphypo.accounting import Certificate, Guarantee, PolicyClass
from dphypo.band import Band, BandLike, Greedy, Rule
from dphypo.entropy import Entropy
from dphypo.errors import ChangedRule, ChangedStudy, LateHistoryOnly
from dphypo.journal import Record
from dphypo.laws import Law
from dphypo.mechanisms import Mechanism, capabilities, rehearse
from dphypo.samplers import Sampler
from dphypo.search.accounted import FIRST, accounted, certified, described
from dphypo.search.lost import Lost
from dphypo.search.policy import Policy, claimed, prior_runs, word
from dphypo.search.selection import history
from dphypo.search.subject import Subject
from dphypo.space import Space

SEEDED = "no guarantee: seeded"
HISTORY_ONLY = "history only"
DAY = "declared on"
"""In the journal: the day of the declaration, the only time that a certificate states."""


@dataclass(frozen=True, eq=False)
class Declaration:
    """All that is public about a study. :meth:`of` checks it and accounts for it; nothing accounts for it again.

    Args:
        mechanism: what one run is.
        runs: the law of T.
        policy: how λ is drawn: the space with its prior, the band, and the search rule that is held to it.
        guarantee: what the release reveals; it holds the events of a run and the neighbouring relation.
        delta: the δ of the certificate.
        maximize: whether larger scores are better.
        private: whether randomness comes from the operating system; there is no guarantee without.
        lost: what becomes of a run whose process died.
        subject: which data and which model the study is about.
        whole: the declaration of the plan of which this study is a part, if it is one.

    >>> import dp_accounting as dp
    >>> import dphypo
    >>> @dphypo.mechanism(event=dp.GaussianDpEvent(4.0), relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    ... def train(params, *, seed):
    ...     return {"width": params["width"]}, 0.5  # a stand-in for training on private records
    >>> declared = Declaration.of(dphypo.Space({"width": [8, 16]}), train, dphypo.Geometric(mean=10), delta=1e-6)
    >>> round(declared.guarantee.epsilon(1e-6), 1)
    1.6
    """

    mechanism: Mechanism
    runs: Law
    policy: Policy
    guarantee: Guarantee
    delta: float
    maximize: bool = True
    private: bool = True
    lost: Lost = Lost.FAILED
    subject: Subject = Subject()  # noqa: RUF009 - a frozen value
    whole: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.policy.adaptive and self.policy.first < self.guarantee.first_from_prior:
            raise _validate.fail(
                "policy", self.policy.first, f"the guarantee counts on {self.guarantee.first_from_prior} runs from π₀"
            )

    @classmethod
    def of(
        cls,
        space: Space,
        mechanism: Mechanism,
        runs: Law,
        band: BandLike = Band(1, 1),  # noqa: B008 - a frozen value
        sampler: Sampler | None = None,
        rule: Rule | str = Greedy(),  # noqa: B008
        *,
        delta: float,
        maximize: bool = True,
        candidates: int = 8192,
        grid: Mapping[str, int] | None = None,
        private: bool = True,
        lost: Lost | str | None = None,
        data_name: str | None = None,
        policy: PolicyClass | str | None = None,
        first_from_prior: int | None = None,
    ) -> Declaration:
        """Check the arguments, which are those of :class:`dphypo.Study`, and account for the study."""
        check_space(space)
        capabilities.check_is_mechanism(mechanism)
        band, delta = Band.of(band), _validate.delta(delta=delta)
        _validate.warn_of_delta(delta, capabilities.records_of(mechanism))
        first = prior_runs(first_from_prior, sampler, band)
        guarantee = accounted(mechanism, space, runs, band, claimed(policy, sampler, band, rule), first)
        drawing = Policy.of(space, band, sampler, rule, candidates, grid, first)
        maximize, subject = _validate.flag(maximize=maximize), Subject.of(data_name, [mechanism], space)
        return cls(mechanism, runs, drawing, guarantee, delta, maximize, private, Lost.read(lost, mechanism), subject)

    @property
    def space(self) -> Space:
        """The hyperparameters and their prior."""
        return self.policy.space

    @property
    def sign(self) -> float:
        """Scores times this: larger is better."""
        return 1.0 if self.maximize else -1.0

    @property
    def history_only(self) -> bool:
        """Whether the guarantee counts on a search rule that sees only the history."""
        return self.policy.adaptive and self.guarantee.policy is PolicyClass.HISTORY

    def to_dict(self) -> dict[str, Any]:
        """What may not change once T is drawn: all that the guarantee is computed from, and what "best" means.

        The sampler, the projection rule and the candidates are among them only if the guarantee counts on a rule that
        sees nothing but the history: one that was chosen later may have been chosen by somebody who saw the journal.
        """
        declared = {
            "space": self.space.to_dict(),
            **described(self.guarantee),
            "relation": self.guarantee.relation.name,
            "direction": "maximize" if self.maximize else "minimize",
            "entropy": "private" if self.private else "seeded",
            "lost runs": self.lost,
            **self.subject.to_dict(),
            **({HISTORY_ONLY: self.policy.describe()} if self.history_only else {}),
            **self.whole,
        }
        result: dict[str, Any] = json.loads(json.dumps(declared))  # as it will be read back
        return result

    @property
    def certificate(self) -> Certificate:
        """The guarantee as a document. It repeats public values; nothing of the search is in it."""
        public: dict[str, object] = {"space": self.space.to_dict(), "lost runs": self.lost.condition}
        if self.subject.data is not None:
            public["data_set"] = self.subject.data
        if self.history_only and (why := word(self.policy.sampler, self.policy.rule)) is not None:
            public["search rule"] = {**self.policy.describe(), "sees only the history by": why}
        if not self.private:
            public["warning"] = SEEDED
        return certified(self.guarantee, self.delta, public)

    def rehearse(self) -> None:
        """Refuse a mechanism whose dry run fails. A plan tries all its parts before the first one begins."""
        if not self.whole:
            rehearse(self.mechanism, self.space)

    def draw_total(self, entropy: Entropy) -> int:
        """T."""
        return self.runs.sample(entropy.child("T"))

    def possible(self, total: int) -> bool:
        """Whether the law gives T this value."""
        return bool(self.runs.pmf(total) > 0)

    def draw_params(self, record: Record, entropy: Entropy) -> dict[str, Any]:
        """λ of the next run, given the runs that have ended."""
        past = history(record, self.space, self.sign) if self.policy.adaptive else None
        return self.policy.draw(past, entropy)


_OLDER = {"lost runs": str(Lost.AGAIN)}
"""What a journal of dphypo 0.1 does not say, and what it meant."""


def check(found: dict[str, Any], declared: Mapping[str, Any]) -> None:
    """Refuse to go on with a search that was declared differently; the message names what differs."""
    older = {name: value for name, value in _OLDER.items() if name in declared}
    found = older | {name: value for name, value in found.items() if name != DAY}
    if "model" not in found:  # a journal that does not know its model belongs to whoever has it
        declared = {name: value for name, value in declared.items() if name != "model"}
    changed = [name for name in {**declared, **found} if found.get(name) != declared.get(name)]
    if changed == [HISTORY_ONLY] and HISTORY_ONLY in declared:
        raise ChangedRule if HISTORY_ONLY in found else LateHistoryOnly
    if changed and changed != [HISTORY_ONLY]:  # with any rule at all, it costs more: that may be declared later
        remedy = f" Give first_from_prior={found.get(FIRST, 1)}, as it was." if FIRST in changed else ""
        raise ChangedStudy(f"(Different: {', '.join(changed)}.{remedy})")


def check_space(space: object) -> None:
    """Refuse a value that is not a space, and say how to make one."""
    if not isinstance(space, Space):
        raise _validate.fail("space", space, 'give a dphypo.Space, such as dphypo.Space({"lr": loguniform(1e-4, 10)})')
