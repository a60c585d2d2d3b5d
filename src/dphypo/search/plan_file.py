"""A plan as a file: written by ``dphypo plan --write``, run by ``tune`` and ``Stages``, accounted for by anybody."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dphypo import _files, _validate
from dphypo.accounting import Composition, documents
from dphypo.accounting.documents import check_plan, write_plan
from dphypo.accounting.guarantee import UNIFORM, PolicyClass
from dphypo.accounting.verification import guarantee_of
from dphypo.band import Band
from dphypo.laws import Law, Pmf
from dphypo.laws import from_dict as law_from_dict
from dphypo.mechanisms import Mechanism, capabilities
from dphypo.search.declaration import Declaration
from dphypo.search.part import Part, PriorAround
from dphypo.search.stage import Stage
from dphypo.search.survey import LastRun, Survey
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
        check_plan(_validate.mapping(document=self.document))
        object.__setattr__(self, "document", dict(self.document))
        _ = self.parts

    @classmethod
    def of(
        cls,
        name: str,
        parts: Sequence[PlannedPart],
        guarantee: Composition,
        *,
        delta: float,
        settings: Mapping[str, Any] | None = None,
    ) -> PlanFile:
        """The plan with these parts, whose guarantee was accounted for."""
        listed = [part.to_dict() for part in parts]
        return cls(write_plan(guarantee, delta, name=name, parts=listed, settings=settings or {}))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PlanFile:
        return cls(documents.read(_validate.path(path=path), "plan file"))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the plan to a file, whole or not at all. An earlier plan is replaced.

        Raises:
            FileExistsError: there is a file that is no plan.
        """
        target = Path(path)
        if target.exists() and not (target.is_file() and b'"dphypo plan ' in target.read_bytes()[:200]):
            raise FileExistsError(f"{str(target)!r} exists and is not a plan: give a new name")
        return _files.write_json(target, self.document)

    @property
    def name(self) -> str:
        return str(self.document["name"])

    @property
    def epsilon(self) -> float:
        """ε of all that the plan releases, at ``delta``, as the file states it."""
        return float(self.document["epsilon"])

    @property
    def delta(self) -> float:
        return float(self.document["delta"])

    @property
    def parts(self) -> tuple[PlannedPart, ...]:
        return tuple(PlannedPart.from_dict(part) for part in self.document["parts"])

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
            ValueError: if what the mechanism would cost is not what the file states, event for event. What its rounding
                adds to δ is its own, and in the certificate.
        """
        check_scores_are_known(mechanism)
        made = [part.part(mechanism) for part in self.parts]
        declared = Declaration.of(
            space, made, delta=self.delta, maximize=maximize, private=private, data_name=data_name
        )
        costs = write_plan(declared.guarantee, self.delta, name=self.name, parts=[{}], settings={})
        ours = {name: value for name, value in self.document.items() if name not in _OF_THE_FILE}
        differs = sorted(n for n in costs if n not in _OF_THE_FILE and _ideal(costs[n]) != _ideal(ours.get(n)))
        if differs or set(ours) - set(costs) or costs["epsilon"] > self.epsilon + _ROUNDED:
            found = f"with this mechanism it costs epsilon = {costs['epsilon']:g} and not the stated {self.epsilon:g}"
            remedy = "Make a plan for the records, batch size and steps of the mechanism"
            raise _validate.fail("plan", self.name, f"{found} ({', '.join(differs) or 'its form'} differ). {remedy}")
        return declared


_OF_THE_FILE = {"format", "name", "epsilon", "delta", "parts", "settings"}
_ROUNDED = 2e-5  # ε is written with five decimals; machines round differently


def _ideal(stated: Any) -> Any:
    """What is stated, without the slack of events."""
    if isinstance(stated, dict):
        whole = stated.get("type") != "RoundedDp"
        return {name: _ideal(value) for name, value in stated.items()} if whole else _ideal(stated["event"])
    return [_ideal(value) for value in stated] if isinstance(stated, list) else stated


def check_scores_are_known(mechanism: Mechanism) -> None:
    """Refuse scores whose noise is still to be found, where a plan says what is paid for."""
    if capabilities.solves_for_scores(mechanism):
        remedy = "a plan pays for no private scores, and these have no noise yet. Leave the plan out, and tune finds "
        remedy += "it; or score by public records, such as PublicAccuracy(records)"
        raise _validate.fail("mechanism", mechanism, remedy)


def read_plan(plan: PlanFile | str | os.PathLike[str]) -> PlanFile:
    """A plan, or the file that holds one."""
    given: object = plan
    if isinstance(given, PlanFile):
        return given
    if isinstance(given, (str, os.PathLike)):
        return PlanFile.load(given)
    raise _validate.fail("plan", plan, "give a dphypo.search.PlanFile, or the path of a file that holds one")


@dataclass(frozen=True, kw_only=True)
class PlannedPart:
    """A part without its mechanism: a study, a survey, or the last run after one.

    Args:
        noise_multiplier: of a full run. A published run of the fraction f has this over √f, one of a study has this.
        runs: the law of T of a study; of a survey how many; None for the last run, whose model is the release.
        fraction: the part of a full run's steps that each makes. λ is the full run's: a mechanism maps it by its
            transfer rule.
        band, policy: of a study.
        around: how what is released shapes the prior of the next part; the last part has none.
    """

    noise_multiplier: float
    runs: Law | int | None = None
    fraction: float = 1.0
    band: Band = UNIFORM
    policy: PolicyClass = PolicyClass.HISTORY
    around: PriorAround | None = None

    def __post_init__(self) -> None:
        _validate.positive(noise_multiplier=self.noise_multiplier)
        _validate.within(0.0, 1.0, closed="right", fraction=self.fraction)
        if self.runs is None and (self.fraction < 1 or self.around is not None):
            raise _validate.fail("fraction", self.fraction, "the last run is a full one, and nothing follows it")
        if self.runs is not None and not isinstance(self.runs, Law):
            _validate.integer(at_least=1, runs=self.runs)

    @property
    def published(self) -> bool:
        """Whether all its runs are: a survey or the last run."""
        return not isinstance(self.runs, Law)

    @property
    def law(self) -> Law:
        """The law of the number of runs; that of a number that is public has one value."""
        return self.runs if isinstance(self.runs, Law) else Pmf({self.runs or 1: 1.0})

    @property
    def compute(self) -> float:
        """The expected compute, in full runs."""
        return self.fraction * (self.runs.mean if isinstance(self.runs, Law) else self.runs or 1)

    def part(self, mechanism: Mechanism) -> Part:
        """The part as a search runs it."""
        if isinstance(self.runs, Law):
            cheap = mechanism if self.fraction == 1 else capabilities.shorten(mechanism, self.fraction, match=False)
            run = capabilities.with_noise(cheap, self.noise_multiplier)
            return Stage(run, self.runs, self.band, prior=self.around, policy=self.policy)
        run = capabilities.with_noise(mechanism, self.noise_multiplier)
        if self.fraction < 1:
            run = capabilities.shorten(run, self.fraction)
        return LastRun(run) if self.runs is None else Survey(run, self.runs, prior=self.around)

    def to_dict(self) -> dict[str, Any]:
        if self.runs is None:
            return {"part": "last run", "noise_multiplier": self.noise_multiplier}
        rule = self.around
        hands_on = {} if rule is None else {"next prior": {"spread": rule.spread, "floor": rule.floor}}
        if not isinstance(self.runs, Law):
            stated = {"part": "survey", "runs": self.runs, "fraction": self.fraction}
            return {**stated, "matched_to": self.noise_multiplier, **hands_on}
        return {
            "part": "study",
            "law": self.runs.to_dict(),
            "fraction": self.fraction,
            "noise_multiplier": self.noise_multiplier,
            "band": {"c": self.band.c, "C": self.band.C},
            "policy": self.policy.value,
            **hands_on,
        }

    @classmethod
    def from_dict(cls, stated: Mapping[str, Any]) -> PlannedPart:
        """The part that :meth:`to_dict` wrote; a ValueError that names what is missing or not part of one."""
        kind = stated.get("part")
        if not isinstance(kind, str) or kind not in _FIELDS:
            raise ValueError(f"part = {str(kind)[:40]!r} is not valid: it is one of {', '.join(map(repr, _FIELDS))}")
        if unknown := sorted(set(stated) - {"part"} - _FIELDS[kind]):
            raise ValueError(f"{str(unknown[0])[:40]!r} does not belong to a part that is a {kind}: leave it out")
        try:
            if kind == "last run":
                return cls(noise_multiplier=stated["noise_multiplier"])
            rule, fraction = stated.get("next prior"), stated["fraction"]
            around = None if rule is None else PriorAround(spread=rule["spread"], floor=rule["floor"])
            if kind == "survey":
                runs = _validate.integer(at_least=1, runs=stated["runs"])
                return cls(noise_multiplier=stated["matched_to"], runs=runs, fraction=fraction, around=around)
            return cls(
                noise_multiplier=stated["noise_multiplier"],
                runs=law_from_dict(stated["law"]),
                fraction=fraction,
                band=Band(stated["band"]["c"], stated["band"]["C"]),
                policy=_validate.choice(PolicyClass, policy=stated["policy"]),
                around=around,
            )
        except KeyError as missing:
            raise ValueError(f"a part that is a {kind} also needs {missing}") from None
        except TypeError as error:
            raise ValueError(f"a part that is a {kind} cannot be read: {error}") from None


_FIELDS = {
    "survey": {"runs", "fraction", "matched_to", "next prior"},
    "study": {"law", "fraction", "noise_multiplier", "band", "policy", "next prior"},
    "last run": {"noise_multiplier"},
}
