"""The plan of ``survey_plan_world``, with a survey that publishes its models."""

from __future__ import annotations

from typing import Any

from support.survey_plan_world import RUNS, train
from support.survey_world import SPACE

from dphypo.entropy import Seeded
from dphypo.search import LastRun, Stages, Survey
from dphypo.search.proposer import SamplerProposer


def make(journal: str | None = None, mechanism: Any = train, name: str = "study") -> Stages:
    proposer = SamplerProposer(start=2, candidates=64)
    survey = Survey(mechanism.at(fraction=0.25, match=True), RUNS, proposer, models=True)
    parts = [survey, LastRun(mechanism)]
    return Stages(SPACE, parts, delta=1e-6, journal=journal, name=name, entropy=Seeded(11))


once = train.at(seeded=False)  # a run whose process died counts as failed
