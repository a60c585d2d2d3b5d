"""The plan of ``survey_plan_world``, with the survey's models kept in a folder beside the journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.survey_plan_world import RUNS, train
from support.survey_world import SPACE

from dphypo.entropy import Seeded
from dphypo.search import LastRun, Stages, Survey
from dphypo.search.proposer import SamplerProposer


def folder(journal: str) -> Path:
    return Path(journal).with_suffix(".models")


def make(journal: str | None = None, mechanism: Any = train, name: str = "study") -> Stages:
    models = None if journal is None else folder(journal)
    survey = Survey(
        mechanism.at(fraction=0.25, match=True), RUNS, SamplerProposer(start=2, candidates=64), models=models
    )
    parts = [survey, LastRun(mechanism)]
    return Stages(SPACE, parts, delta=1e-6, journal=journal, name=name, entropy=Seeded(11))


once = train.at(seeded=False)  # a run whose process died counts as failed
