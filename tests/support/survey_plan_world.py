"""A survey and a last run that tests kill and resume: seeded, so that two ways to the end can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from support.survey_world import SPACE, Descent

from dphypo.entropy import Seeded
from dphypo.journal.store import Store
from dphypo.mechanisms import Outcome
from dphypo.search import LastRun, Stages, Survey
from dphypo.search.proposer import SamplerProposer

RUNS = 4
train = Descent(noise_multiplier=3.0, steps=20)


def make(journal: str | Path | Store | None = None, mechanism: Any = train, name: str = "study") -> Stages:
    short = mechanism.at(fraction=0.25, match=True)
    parts = [Survey(short, RUNS, SamplerProposer(start=2, candidates=64)), LastRun(mechanism)]
    return Stages(SPACE, parts, delta=1e-6, journal=journal, name=name, entropy=Seeded(11))


def facts(search: Stages) -> Any:
    """All that was published, and what the curator sees but the attempts."""
    release = search.run(progress=False)
    hidden = ("attempts",)
    trials = [
        [{key: value for key, value in row.items() if key not in hidden} for row in search.curator(number).trials()]
        for number in (1, 2)
    ]
    return release.params, release.model, release.survey.rows, release.certificate.to_dict(), trials


class Together(Descent):
    """The same training, several runs at once; ``sizes`` are those of the groups that were made in this process."""

    same_alone = True
    sizes: ClassVar[list[int]] = []

    def many(self, params: Sequence[Mapping[str, Any]], *, seeds: Sequence[int]) -> list[Outcome]:
        self.sizes.append(len(params))
        return [attempted(self, one, seed) for one, seed in zip(params, seeds, strict=True)]


def attempted(mechanism: Descent, params: Mapping[str, Any], seed: int) -> Outcome:
    try:
        return mechanism(params, seed=seed)
    except RuntimeError:
        return Outcome.failed("the run failed")


together = Together(noise_multiplier=3.0, steps=20)
