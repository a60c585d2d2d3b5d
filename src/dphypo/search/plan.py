"""The public side of a search in stages: its parts, what they cost together, and the prior of each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dphypo import _validate
from dphypo.accounting import Certificate, Composition, Guarantee, Term
from dphypo.mechanisms import capabilities
from dphypo.search.accounted import certified, composed
from dphypo.search.declaration import SEEDED, check_space
from dphypo.search.part import Part
from dphypo.search.subject import Subject
from dphypo.search.within import refuse_wider
from dphypo.space import Space


@dataclass(frozen=True, eq=False)
class Plan:
    """What a search in stages is declared by. :meth:`of` checks it and accounts for it; nothing does so again.

    Args:
        space: the hyperparameters and their original prior.
        parts: the parts, in order; the release of the last one is the release of the plan.
        terms: what each part costs.
        guarantee: what all that is published reveals together.
        delta: the δ of the certificate.
        maximize: whether larger scores are better.
        private: whether randomness comes from the operating system; there is no guarantee without.
        subject: which data and which models the plan is about.
    """

    space: Space
    parts: tuple[Part, ...]
    terms: tuple[tuple[Term, ...], ...]
    guarantee: Guarantee | Composition
    delta: float
    maximize: bool = True
    private: bool = True
    subject: Subject = Subject()  # noqa: RUF009 - a frozen value

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
    ) -> Plan:
        """Check the parts and account for them over the whole of the space, whatever the priors will be."""
        check_space(space)
        delta, maximize = _validate.delta(delta=delta), _validate.flag(maximize=maximize)
        _validate.warn_of_delta(delta, capabilities.records_of(*(part.mechanism for part in parts)))
        subject = Subject.of(data_name, [part.mechanism for part in parts], space)
        last = len(parts)
        terms = tuple(part.declare(space, last=number == last) for number, part in enumerate(parts, 1))
        together = composed(tuple(term for one in terms for term in one))
        return cls(space, tuple(parts), terms, together, delta, maximize, private, subject)

    def prior(self, published: Sequence[Any]) -> Space:
        """The prior of the next part: what the rule of the latest part with a result makes of the original."""
        prior = self.space
        for part, value in zip(self.parts, published, strict=False):
            made: Any = part.next_prior(value, self.space)
            if made is None:
                continue
            if not isinstance(made, Space):
                raise _validate.fail("prior", made, "the rule for the next prior must return a dphypo.Space")
            prior = made
        if prior is not self.space:
            refuse_wider(prior, self.space)
        return prior

    def to_dict(self) -> dict[str, Any]:
        """The whole plan, as the journal of every part holds it: none of it may change once the first part begins."""
        described = [
            {**part.describe(terms), **hands_on}
            for part, terms, hands_on in zip(self.parts, self.terms, self._hands_on, strict=True)
        ]
        whole = {"original space": self.space.to_dict(), "stages": described}
        result: dict[str, Any] = json.loads(json.dumps({**whole, **self.subject.to_dict()}))
        return result

    @property
    def certificate(self) -> Certificate:
        """The guarantee as a document, as it is known before anything runs."""
        return self.certify(None)

    def certify(self, published: Sequence[Any] | None) -> Certificate:
        """The guarantee of all parts together, with what the parts before the last have published."""
        public: dict[str, object] = {"space": self.space.to_dict(), "releases": self._hands_on}
        if published is not None:
            public["released"] = [part.listed(value) for part, value in zip(self.parts, published, strict=False)]
        if self.subject.data is not None:
            public["data_set"] = self.subject.data
        if lost := list(dict.fromkeys(text for part in self.parts for text in _conditions(part))):
            public["lost runs"] = "; ".join(lost)
        rules: list[Any] = [getattr(part, "search_rule", lambda: None)() for part in self.parts]
        if any(rules):
            public["search rules"] = rules
        if not self.private:
            public["warning"] = SEEDED
        return certified(self.guarantee, self.delta, public)

    @cached_property
    def _hands_on(self) -> list[dict[str, Any]]:
        return [part.hands_on(last=number == len(self.parts)) for number, part in enumerate(self.parts, 1)]


def _conditions(part: Part) -> list[str]:
    """What the guarantee assumes of the runs of a part, besides their event; a part may say so."""
    conditions: Any = getattr(part, "conditions", None)
    return [] if conditions is None else list(conditions())
