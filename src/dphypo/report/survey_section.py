"""The survey in a report: its table and its pictures. All of it is public."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dphypo import plots
from dphypo.report.html import Html, join, table, tag
from dphypo.report.pictures import SIZE, picture
from dphypo.table import Surveyed

MOST_ROWS = 300
_MOST_SLICES = 4


def survey_section(survey: Surveyed, space: Mapping[str, Any] | None, key: str) -> Html:
    """One survey.

    Args:
        survey: what it has published.
        space: what the certificate says of the space.
        key: tells the pictures of several surveys apart.
    """
    failed = sum(row.score is None for row in survey.rows)
    best = survey.best
    words = f"{len(survey)} runs were made and all their results are published, {failed or 'none'} of them failed. "
    words += (
        "" if best is None else f"The best score is {best.score:.5g}. Scores are noisy: the best may be a lucky one."
    )
    return join([tag("p", words), _history(survey, key), *_fitted(survey, space, key), _rows(survey)])


def _history(survey: Surveyed, key: str) -> Html:
    alt = "Score of every run of the survey in order, with the best so far. The same numbers are in the table below."
    return picture(plots.survey_history(survey, size=SIZE), f"{key}-history", alt, "The score of every run, in order.")


def _fitted(survey: Surveyed, space: Mapping[str, Any] | None, key: str) -> list[Html]:
    """What matters, slices and contours, where there are enough scores."""
    try:
        fitted = plots.Surrogate(survey, space)
    except ValueError:
        few = f"Fewer than {plots.FEWEST} runs have a score, or all are alike: what matters cannot be told from them."
        return [tag("p", few)]
    effects = fitted.effects
    names = [effect.column.name for effect in effects]
    shares = "; ".join(f"{effect.column.name}: {effect.total:.0%}" for effect in effects)
    parts = [
        picture(
            plots.survey_importance(survey, space=space, fitted=fitted, size=(SIZE[0], 1.5 + 0.4 * len(names))),
            f"{key}-importance",
            f"Bar chart: share of the variance of the score that each hyperparameter explains. {shares}.",
            "What matters: how much of the variance of the score each hyperparameter explains, by a Gaussian process "
            f"fitted to this table. Solid: by itself; hatched: together with others. {_trust(fitted.explained)} Failed "
            "runs do not count.",
        )
    ]
    slices = [
        picture(
            plots.survey_slice(survey, name, space=space, fitted=fitted, size=SIZE),
            f"{key}-slice-{place}",
            f"Scatter plot: score against {name}, with its mean over the other hyperparameters.",
            f"Score against {name}.",
        )
        for place, name in enumerate(names[:_MOST_SLICES])
    ]
    parts.append(tag("div", *slices, class_="pair"))
    if len(names) > 1:
        parts.append(
            picture(
                plots.survey_contour(
                    survey, names[0], names[1], space=space, fitted=fitted, size=(SIZE[0], SIZE[1] + 0.4)
                ),
                f"{key}-contour",
                f"Map of the mean score over {names[0]} and {names[1]}, with the runs that were made.",
                f"The mean score over {names[0]} and {names[1]}, the two that matter most.",
            )
        )
    return parts


def _trust(explained: float) -> str:
    """How far what matters can be told from the table."""
    words = f"It predicts {explained:.0%} of the variance of scores that it was not fitted to."
    return words if explained >= 0.5 else f"{words} That is little: take the shares with care."


def _rows(survey: Surveyed) -> Html:
    records = survey.records()
    names = [name for name in (records[0] if records else {}) if name not in ("score", "status")]
    rows = [
        [number, *(short(record[name]) for name in names), short(record["score"]), record["status"]]
        for number, record in enumerate(records[:MOST_ROWS], 1)
    ]
    caption = (
        f"All {len(records)} runs" if len(records) <= MOST_ROWS else f"The first {MOST_ROWS} of {len(records)} runs"
    )
    return table(caption, ["run", *names, "score", "status"], rows)


def short(value: object) -> str:
    """A value of a table.

    >>> short(0.123456789), short(None), short("relu"), short(10)
    ('0.12346', '–', 'relu', '10')
    """
    if value is None:
        return "–"
    return f"{value:.5g}" if isinstance(value, float) else str(value)
