"""A plan as a file: written by ``dphypo plan --write``, run by ``tune`` and ``Stages``, accounted for by anybody."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dphypo import _files, _validate
from dphypo.accounting import Composition, plan_document
from dphypo.accounting.verification import guarantee_of
from dphypo.mechanisms import Mechanism
from dphypo.search.declaration import Declaration
from dphypo.search.planned import Planned, from_dict
from dphypo.space import Space


@dataclass(frozen=True)
class PlanFile:
    """What is to be run, and what it will cost: public values, fixed before anybody looks at the data.

    ``document`` is JSON. It states the guarantee in the form in which certificates do, so that ``dphypo account`` and
    ``dphypo verify`` read it; and the parts, from which :func:`dphypo.tune` makes a search for a mechanism. A search
    that would cost anything but what the plan states is refused.

    Guarantee: none by itself. It says what :func:`dphypo.tune` will certify.
    """

    document: Mapping[str, Any] = field(repr=False)

    def __post_init__(self) -> None:
        plan_document.check(_validate.mapping(document=self.document))
        object.__setattr__(self, "document", dict(self.document))
        _ = self.parts

    @classmethod
    def of(
        cls,
        name: str,
        parts: Sequence[Planned],
        guarantee: Composition,
        *,
        delta: float,
        settings: Mapping[str, Any] | None = None,
    ) -> PlanFile:
        """The plan with these parts, whose guarantee was accounted for."""
        listed = [part.to_dict() for part in parts]
        return cls(plan_document.write(guarantee, delta, name=name, parts=listed, settings=settings or {}))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PlanFile:
        """Read a plan from a file."""
        return cls(plan_document.read(_validate.path(path=path)))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the plan to a file, whole or not at all. An earlier plan is replaced.

        Raises:
            FileExistsError: there is a file that is no plan.
        """
        target = Path(path)
        if target.exists() and not plan_document.is_plan(target):
            raise FileExistsError(f"{str(target)!r} exists and is not a plan: give a new name")
        return _files.write_json(target, self.document)

    @property
    def name(self) -> str:
        """What the plan is called."""
        return str(self.document["name"])

    @property
    def epsilon(self) -> float:
        """ε of all that the plan releases, at ``delta``, as the file states it."""
        return float(self.document["epsilon"])

    @property
    def delta(self) -> float:
        """The δ at which ε is stated."""
        return float(self.document["delta"])

    @property
    def parts(self) -> tuple[Planned, ...]:
        """The parts, in order."""
        return tuple(from_dict(part) for part in self.document["parts"])

    def guarantee(self) -> Composition:
        """What the file states, accounted afresh."""
        return guarantee_of(self.document)

    def declare(
        self,
        space: Space,
        mechanism: Mechanism,
        *,
        maximize: bool = True,
        private: bool = True,
        data_name: str | None = None,
    ) -> Declaration:
        """The plan for a mechanism: its parts, accounted for over the space, and held to what the file states.

        Raises:
            ValueError: if what the mechanism would cost is not what the file states, event for event.
        """
        made = [part.part(mechanism) for part in self.parts]
        declared = Declaration.of(
            space, made, delta=self.delta, maximize=maximize, private=private, data_name=data_name
        )
        costs = plan_document.write(declared.guarantee, self.delta, name=self.name, parts=[{}], settings={})
        ours = {name: value for name, value in self.document.items() if name not in _OF_THE_FILE}
        differs = sorted(name for name in costs if name not in _OF_THE_FILE and costs[name] != ours.get(name))
        if differs or set(ours) - set(costs) or costs["epsilon"] > self.epsilon + _ROUNDED:
            raise _validate.fail(
                "plan",
                self.name,
                f"with this mechanism it costs epsilon = {costs['epsilon']:g} at delta = {self.delta:g} and not the "
                f"{self.epsilon:g} that it states ({', '.join(differs) or 'its form'} differ). Make a plan for the "
                "records, batch size and steps of the mechanism",
            )
        return declared


_OF_THE_FILE = {"format", "name", "epsilon", "delta", "parts", "settings"}
_ROUNDED = 2e-5  # ε is written with five decimals; machines round differently


def read_plan(plan: PlanFile | str | os.PathLike[str]) -> PlanFile:
    """A plan, or the file that holds one."""
    given: object = plan
    if isinstance(given, PlanFile):
        return given
    if isinstance(given, (str, os.PathLike)):
        return PlanFile.load(given)
    raise _validate.fail("plan", plan, "give a dphypo.search.PlanFile, or the path of a file that holds one")
