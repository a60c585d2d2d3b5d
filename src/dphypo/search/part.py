"""What a study, a survey and a last run have in common: a part of a plan.

A part is declared in public, runs in secret on a journal, and publishes a value. The next part is given what was
published, and nothing else. ``dphypo.Stages`` chains parts; :class:`dphypo.Stage` is the part that is a study.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from dphypo.accounting import Certificate, Term
from dphypo.entropy import Entropy
from dphypo.executors import Crew
from dphypo.journal import Journal, Trial
from dphypo.mechanisms import Mechanism
from dphypo.search.curator import Curator
from dphypo.search.release import Ending, Release
from dphypo.space import Space


@dataclass(frozen=True)
class Released:
    """What an intermediate stage has published: all that a rule for the next prior is given.

    Args:
        params: the hyperparameters of the stage's best run; None if the stage has none (no run, or all failed).
        score: its score, if the stage was declared to release it; else None.
        ending: whether there is a best run, and why not.
    """

    params: Mapping[str, Any] | None
    score: float | None = None
    ending: Ending = Ending.MODEL

    def __post_init__(self) -> None:
        if self.params is not None:
            object.__setattr__(self, "params", MappingProxyType(dict(self.params)))


@dataclass(frozen=True)
class Setting:
    """What a part is given when it begins. All but the journal and the entropy is public.

    Args:
        journal: where the part commits what it draws and what comes back.
        entropy: where its randomness comes from.
        terms: what :meth:`Part.declare` returned: the guarantee of this part.
        certificate: what the part writes into its journal when it publishes: the certificate of the whole plan.
        whole: the declaration of the whole plan, as JSON; the journal of every part holds it.
        prior: the space, with the prior that the parts before have made of it.
        published: what the parts before have published, in order.
        maximize: whether larger scores are better.
        last: whether the part's model is the release of the plan.
    """

    journal: Journal
    entropy: Entropy = field(repr=False)
    terms: tuple[Term, ...]
    certificate: Certificate
    whole: Mapping[str, Any]
    prior: Space
    published: tuple[Any, ...]
    maximize: bool
    last: bool


class Running(Protocol):
    """A part under way: its secret side. Every method commits to the journal before it returns."""

    @property
    def mechanism(self) -> Mechanism:
        """What makes the runs: that of the part, or one that starts from what was published."""
        ...

    @property
    def complete(self) -> bool:
        """Whether every run has its outcome, so that the part can publish."""
        ...

    @property
    def finished(self) -> bool:
        """Whether the part has published."""
        ...

    def run(self, crew: Crew, *, progress: bool) -> None:
        """Make the runs that are left, and publish. An interrupt leaves a part that goes on where it was."""
        ...

    def ask(self) -> Trial | None:
        """The next run to make; None when there is none to give out."""
        ...

    def tell(self, trial: Trial, outcome: Any) -> None:
        """How a run ended; refused if the run does not belong to this part or already has an outcome."""
        ...

    def publish(self) -> None:
        """Commit that the part has published: once, and only when it is ``complete``."""
        ...

    def release(self) -> Release:
        """The release of a plan whose last part this is, once it has published."""
        ...

    def curator(self) -> Curator:
        """The runs, for the curator alone."""
        ...

    def close(self) -> None:
        """Let other processes use the journal."""
        ...


@runtime_checkable
class Part(Protocol):
    """One part of a plan, as the user writes it: frozen, and public."""

    @property
    def mechanism(self) -> Mechanism:
        """What one run is."""
        ...

    def declare(self, space: Space, *, last: bool) -> tuple[Term, ...]:
        """Refuse what does not fit the space, then account for the part over all of it. Called once.

        A term is a ``Guarantee`` (the best of T runs is published) or ``Published`` runs, and the sides it reads.
        """
        ...

    def describe(self, terms: tuple[Term, ...]) -> dict[str, Any]:
        """What determines the guarantee, as JSON: it may not change once the plan has begun."""
        ...

    def hands_on(self, *, last: bool) -> dict[str, Any]:
        """What the part publishes and what becomes of it, as JSON, for the declaration and the certificate."""
        ...

    def compute(self) -> str:
        """What the part costs in compute, in a sentence that depends on public values alone."""
        ...

    def read(self, journal: Journal) -> Any | None:
        """What the part has published, read from its journal; None if it has not. Nothing else is looked at."""
        ...

    def listed(self, published: Any) -> dict[str, Any]:
        """What was published, as JSON, for the certificate of the whole plan."""
        ...

    def next_prior(self, published: Any, space: Space) -> Space | None:
        """The prior of the next part, from what was published; None to leave the prior as it is."""
        ...

    def open(self, setting: Setting) -> Running:
        """The secret side of this part."""
        ...


Parts = Sequence[Part]
