"""The survey in a report: its table and its pictures. All of it is public."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dphypo import plots
from dphypo.report.html import Html, join, short, table, tag
from dphypo.report.pictures import SIZE, picture
from dphypo.search.table import Surveyed, at_edge

MOST_ROWS = 300
_MOST_SLICES = 8


def survey_section(survey: Surveyed, space: Mapping[str, Any] | None, key: str) -> Html:
    """One survey.

    Args:
        survey: what it has published.
        space: what the certificate says of the space.
        key: tells the pictures of several surveys apart.
    """
    failed = sum(row.score is None for row in survey.rows)
    best = survey.best
    words = f"{len(survey)} runs were made, and all their results are published. "
    words += f"{failed} of them failed. " if failed else "None of them failed. "
    words += (
        "" if best is None else f"The best score is {best.score:.5g}. Scores are noisy: the best may be a lucky one. "
    )
    words += at_edge(survey, space or {})
    alt = "Score of every run of the survey in order, with the best so far. The same numbers are in the table below."
    caption = "The score of every run, in order."
    history = picture(plots.survey_history(survey, size=SIZE), f"{key}-history", alt, caption)
    return join([tag("p", words), history, _slices(survey, space, key), table_of_runs(survey)])


def _slices(survey: Surveyed, space: Mapping[str, Any] | None, key: str) -> Html:
    """The scores against each hyperparameter that differs between runs."""
    values: dict[str, set[str]] = {}
    for row in survey.rows:
        for name, value in row.params.items():
            values.setdefault(name, set()).add(repr(value))
    names = [name for name, different in values.items() if len(different) > 1][:_MOST_SLICES]
    slices = [
        picture(
            plots.survey_slices(survey, names=[name], space=space, width=SIZE[0]),
            f"{key}-slice-{place}",
            f"Scatter plot: score against {name}. The same numbers are in the table below.",
            f"Score against {name}.",
        )
        for place, name in enumerate(names)
    ]
    return tag("div", *slices, class_="pair")


def table_of_runs(survey: Surveyed) -> Html:
    """A row for every run."""
    names = list(dict.fromkeys(name for row in survey.rows for name in row.params))
    rows = [
        [number, "failed" if row.score is None else short(row.score), *(short(row.params.get(name)) for name in names)]
        for number, row in enumerate(survey.rows[:MOST_ROWS], 1)
    ]
    whole = f"All {len(survey)} runs"
    caption = whole if len(survey) <= MOST_ROWS else f"The first {MOST_ROWS} of {len(survey)} runs"
    return table(caption, ["run", "score", *names], rows)
