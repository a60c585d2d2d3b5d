"""What connects the stages of a search: what was released, the prior made from it, the declaration and certificate."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dphypo import _validate, errors
from dphypo.accounting import Certificate, Composition
from dphypo.accounting.events import to_dict as event_to_dict
from dphypo.entropy import Entropy
from dphypo.journal import Journal
from dphypo.journal import params as _params
from dphypo.release import Ending
from dphypo.space import Space
from dphypo.space.finite import Finite
from dphypo.space.parameter import Parameter
from dphypo.space.unit import interior
from dphypo.stages.prior_around import Released
from dphypo.stages.stage import Stage
from dphypo.study.declaration import SEEDED


@dataclass(frozen=True, eq=False)
class Chain:
    """The public side of a search in stages: a function of what was declared and of what was released."""

    space: Space
    stages: tuple[Stage, ...]
    guarantee: Composition

    @classmethod
    def of(cls, space: Space, stages: Sequence[Stage]) -> Chain:
        """Checked, and accounted over the whole of the original space, whatever the priors will be."""
        for number, stage in enumerate(stages, 1):
            stage.check(space, last=number == len(stages))
        return cls(space, tuple(stages), Composition(tuple(stage.account(space) for stage in stages)))

    def prior(self, released: Sequence[Released]) -> Space:
        """The prior of the next stage: what the rule of the latest stage with a result makes of the original."""
        prior: Any = self.space
        for stage, one in zip(self.stages, released, strict=False):
            if one.params is not None:
                prior = stage.next_prior(one, self.space)
        if not isinstance(prior, Space):
            raise _validate.fail("prior", prior, "the rule for the next prior must return a dphypo.Space")
        if outside := _outside(prior, self.space):
            raise errors.WiderPrior(f"({outside}.)")
        return prior

    def refuse_other_events(self, number: int, events: Sequence[Any]) -> None:
        """A rule may put the prior where it likes, inside the space over which the guarantee was computed."""
        known = {repr(event) for event in self.guarantee.parts[number].events}
        if other := [event for event in events if repr(event) not in known]:
            raise errors.WiderPrior(f"(The event {other[0]!r} is none of those declared.)")

    def declaration(self) -> dict[str, Any]:
        """The whole chain, as every stage's journal holds it: none of it may change once the first T is drawn."""
        stages = [
            {
                "law of T": part.runs.to_dict(),
                "band": [part.band.c, part.band.C],
                "event": [event_to_dict(event) for event in part.events],
                **hands_on,
            }
            for part, hands_on in zip(self.guarantee.parts, self._hands_on(), strict=True)
        ]
        result: dict[str, Any] = json.loads(json.dumps({"original space": self.space.to_dict(), "stages": stages}))
        return result

    def certify(self, delta: float, entropy: Entropy, released: Sequence[Released] | None) -> Certificate:
        """The guarantee of all stages together; after the last, with what the earlier ones have released."""
        public: dict[str, object] = {"space": self.space.to_dict(), "releases": list(self._hands_on())}
        if released is not None:
            public["released"] = [_listed(one) for one in released]
        if not entropy.private:
            public["warning"] = SEEDED
        return self.guarantee.certificate(delta, **public)

    def _hands_on(self) -> Iterator[dict[str, Any]]:
        return (stage.describe(last=number == len(self.stages)) for number, stage in enumerate(self.stages, 1))


def _outside(prior: Space, space: Space) -> str:
    """Why some draw from the prior is not a point of the space; empty if every draw is one.

    Ranges are intervals, so a continuous parameter is inside if its ends and its middle are.
    """
    if set(prior.names) != set(space.names):
        return f"Its parameters are {', '.join(prior.names)}, not {', '.join(space.names)}"
    by_name = {parameter.name: parameter for parameter in space.parameters}
    for own in prior.parameters:
        declared = by_name[own.name]
        if own.dimension is declared.dimension:
            continue
        if isinstance(own.dimension, Finite):
            values = list(own.dimension.choices)
        elif isinstance(declared.dimension, Finite):
            return f"It draws {own.name!r} from a range, not from the declared list"
        else:
            values = own.dimension.values(interior(np.array([0.0, 0.5, 1.0])))
        try:
            declared.dimension.unit(values)
        except ValueError as error:
            return str(error)
        if not _active_alike(own, prior, declared, space):
            return f"{own.name!r} is active under other conditions than declared"
    return ""


def _active_alike(own: Parameter, prior: Space, declared: Parameter, space: Space) -> bool:
    """Whether a parameter is active in a draw from the prior just when the space says so."""
    if declared.parent is None:
        return own.parent is None
    name = space.parameters[declared.parent].name
    parent = next(parameter.dimension for parameter in prior.parameters if parameter.name == name)
    if not isinstance(parent, Finite) or (own.parent is not None and prior.parameters[own.parent].name != name):
        return False
    switch = space.parameters[declared.parent].dimension
    assert isinstance(switch, Finite)
    wanted = {case for case, value in enumerate(parent.choices) if switch.position(value) in declared.cases}
    return wanted == (set(range(parent.size)) if own.parent is None else set(own.cases))


def read(journal: Journal, *, score: bool) -> Released | None:
    """What a stage has released, if it has: nothing else of its journal."""
    record = journal.record
    if record.ending is None:
        return None
    if record.shredded:
        raise errors.Shredded
    if record.best is None:
        return Released(None, None, Ending[record.ending])
    return Released(record.trials[record.best].params, record.results[record.best].score if score else None)


def _listed(one: Released) -> dict[str, Any]:
    params = None if one.params is None else json.loads(_params.dumps(one.params))
    return {"params": params, "score": one.score, "ending": str(one.ending)}
