"""The curator's report of a study: everything that is secret, on a page that says so wherever one looks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from dphypo import __version__, plots
from dphypo.report.html import Html, facts, join, lines, short, table, tag
from dphypo.report.page import Kind, Section, page, write
from dphypo.report.pictures import SIZE, picture
from dphypo.search.curator import Curator

WARNING = "SECRET: for the curator alone. Nothing on this page carries a privacy guarantee."


def write_curator_report(curator: Curator, path: str | os.PathLike[str]) -> Path:
    """Write the curator's report to a file that only its owner may read. ``study.curator().report`` is the same."""
    return write(curator_page(curator), path, Kind.SECRET)


def curator_page(curator: Curator) -> str:
    """The page."""
    trials = curator.trials()
    sections = [
        Section("runs", "The runs", _runs(curator, trials)),
        Section("failures", "Why runs failed", _failures(curator, trials)),
    ]
    lead = (
        "The number of runs, their scores and their failures depend on the private data. Looking at them is like "
        "looking at the data, and so is whatever is decided, said or published because of them."
    )
    foot = f"Written by dphypo {__version__}. The page to publish is that of release.report()."
    top = _summary(curator, trials)
    return page("The curator's view of a study", lead, top, sections, foot, secret=WARNING)


def _summary(curator: Curator, trials: list[dict[str, Any]]) -> Html:
    total, best = curator.total(), curator.best()
    return facts(
        [
            ("T, the number of runs", "shredded" if total is None else total),
            ("ended", sum(trial["done"] for trial in trials)),
            ("failed", sum(trial["failure"] is not None for trial in trials)),
            ("released", "nothing yet" if best is None else f"run {best + 1}"),
        ],
        class_="headline",
    )


def _runs(curator: Curator, trials: list[dict[str, Any]]) -> Html:
    if not trials:
        return tag("p", "There is no run yet, or the journal was shredded.")
    alt = "Score of every run of the study in order, with the best so far. The same numbers are in the table below."
    names = list(dict.fromkeys(name for trial in trials for name in trial["params"]))
    rows = [
        [
            number,
            "failed" if trial["failure"] is not None else short(trial["score"]) if trial["done"] else "not ended",
            *(short(trial["params"].get(name)) for name in names),
            trial["attempts"],
        ]
        for number, trial in enumerate(trials, 1)
    ]
    return join(
        [
            picture(plots.curator_history(curator, size=SIZE), "history", alt, "Secret: the score of every run."),
            _slices(curator),
            table("Secret: all runs", ["run", "score", *names, "attempts"], rows),
        ]
    )


def _slices(curator: Curator) -> Html:
    """Where scores are good and where runs fail, if runs differ."""
    try:
        figure = plots.curator_slices(curator, width=SIZE[0])
    except ValueError:
        return join([])
    alt = "Score of every run against each hyperparameter, with crosses where a run failed. The table has the numbers."
    return picture(figure, "slices", alt, "Secret: the scores against each hyperparameter.")


def _failures(curator: Curator, trials: list[dict[str, Any]]) -> Html:
    failed = [(number, trial["failure"]) for number, trial in enumerate(trials, 1) if trial["failure"] is not None]
    parts: list[Html] = []
    if curator.sampler_error is not None:
        error = curator.sampler_error
        parts.append(tag("p", f"The search rule failed last with {type(error).__name__}: {error}", class_="warning"))
    if not failed:
        parts.append(tag("p", "No run has failed."))
    for number, why in failed:
        heading, body = tag("h3", f"Run {number}"), tag("pre", tag("code", lines(str(why))), tabindex="0")
        parts.append(join([heading, body]))
    return join(parts)
