"""The parts of a plan file: public numbers, from which the parts of a search are made for any mechanism."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dphypo import _validate
from dphypo.accounting.policy import PolicyClass
from dphypo.band import Band
from dphypo.laws import Law
from dphypo.laws import from_dict as law_from_dict
from dphypo.mechanisms import Mechanism, capabilities
from dphypo.search.last_run import LastRun
from dphypo.search.part import Part
from dphypo.search.prior_around import PriorAround
from dphypo.search.stage import Stage
from dphypo.search.survey import Survey

UNIFORM = Band(1, 1)


@dataclass(frozen=True, kw_only=True)
class PlannedRuns:
    """Runs that are all published: a survey, or the last run after one.

    Args:
        noise_multiplier: of a full run; a run of the fraction f has this over √f.
        runs: how many; None for the last run, whose model is the release.
        fraction: the part of a full run's steps that each makes. λ is the full run's: a mechanism maps it by its
            transfer rule.
        around: how the λ that a survey recommends shapes the prior of a study after it.

    >>> PlannedRuns(noise_multiplier=0.5, runs=20, fraction=0.1).to_dict()
    {'part': 'survey', 'runs': 20, 'fraction': 0.1, 'matched_to': 0.5}
    """

    noise_multiplier: float
    runs: int | None = None
    fraction: float = 1.0
    around: PriorAround | None = None

    def __post_init__(self) -> None:
        _validate.positive(noise_multiplier=self.noise_multiplier)
        _validate.within(0.0, 1.0, closed="right", fraction=self.fraction)
        if self.runs is not None:
            _validate.integer(at_least=1, runs=self.runs)
        elif self.fraction < 1 or self.around is not None:
            raise _validate.fail("fraction", self.fraction, "the last run is a full one, and nothing follows it")

    @property
    def compute(self) -> float:
        """In full runs."""
        return self.fraction * (self.runs or 1)

    def part(self, mechanism: Mechanism) -> Part:
        """The part, with runs of this mechanism."""
        run = capabilities.with_noise(mechanism, self.noise_multiplier)
        if self.fraction < 1:
            run = capabilities.shorten(run, self.fraction)
        return LastRun(run) if self.runs is None else Survey(run, self.runs, prior=self.around)

    def to_dict(self) -> dict[str, Any]:
        """The part as JSON."""
        if self.runs is None:
            return {"part": "last run", "noise_multiplier": self.noise_multiplier}
        stated = {"part": "survey", "runs": self.runs, "fraction": self.fraction}
        return {**stated, "matched_to": self.noise_multiplier, **_rule(self.around)}


@dataclass(frozen=True, kw_only=True)
class PlannedStudy:
    """A study: the best of T runs.

    Args:
        noise_multiplier: of its runs.
        runs: the law of T.
        fraction: the part of a full run's steps that each makes.
        band: how far the sampling density may move from the prior.
        policy: what the search rule may look at; it matters inside a band.
        around: how its release shapes the prior of the next part; None for the last.
    """

    noise_multiplier: float
    runs: Law
    fraction: float = 1.0
    band: Band = UNIFORM
    policy: PolicyClass = PolicyClass.HISTORY
    around: PriorAround | None = None

    def __post_init__(self) -> None:
        _validate.positive(noise_multiplier=self.noise_multiplier)
        _validate.within(0.0, 1.0, closed="right", fraction=self.fraction)

    @property
    def compute(self) -> float:
        """Expected, in full runs."""
        return self.fraction * self.runs.mean

    def part(self, mechanism: Mechanism) -> Part:
        """The part, with runs of this mechanism."""
        cheap = mechanism if self.fraction == 1 else capabilities.shorten(mechanism, self.fraction, match=False)
        run = capabilities.with_noise(cheap, self.noise_multiplier)
        return Stage(run, self.runs, self.band, prior=self.around, policy=self.policy)

    def to_dict(self) -> dict[str, Any]:
        """The part as JSON."""
        return {
            "part": "study",
            "law": self.runs.to_dict(),
            "fraction": self.fraction,
            "noise_multiplier": self.noise_multiplier,
            "band": {"c": self.band.c, "C": self.band.C},
            "policy": self.policy.value,
            **_rule(self.around),
        }


Planned = PlannedRuns | PlannedStudy


def from_dict(stated: Mapping[str, Any]) -> Planned:
    """The part that ``to_dict`` wrote; a ValueError that names what is missing or not part of one.

    >>> from_dict({"part": "last run", "noise_multiplier": 0.5}).compute
    1.0
    """
    kind = stated.get("part")
    if kind not in _FIELDS:
        raise ValueError(f"part = {str(kind)[:40]!r} is not valid: it is one of {', '.join(map(repr, _FIELDS))}")
    if unknown := sorted(set(stated) - {"part"} - _FIELDS[kind]):
        raise ValueError(f"{str(unknown[0])[:40]!r} does not belong to a part that is a {kind}: leave it out")
    try:
        if kind == "last run":
            return PlannedRuns(noise_multiplier=stated["noise_multiplier"])
        around = _read_rule(stated.get("next prior"))
        fraction = stated["fraction"]
        if kind == "survey":
            noise, runs = stated["matched_to"], stated["runs"]
            return PlannedRuns(noise_multiplier=noise, runs=runs, fraction=fraction, around=around)
        return PlannedStudy(
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


def _rule(around: PriorAround | None) -> dict[str, Any]:
    return {} if around is None else {"next prior": {"spread": around.spread, "floor": around.floor}}


def _read_rule(stated: Any) -> PriorAround | None:
    return None if stated is None else PriorAround(spread=stated["spread"], floor=stated["floor"])
