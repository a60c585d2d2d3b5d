"""The privacy statement of a certificate, in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dphypo.accounting import plan_statement

_RELATIONS = {
    "ADD_OR_REMOVE_ONE": "two data sets are neighbours if one has one {unit} more than the other",
    "REPLACE_ONE": "two data sets are neighbours if they differ in the values of one {unit}",
    "REPLACE_SPECIAL": "two data sets are neighbours if one {unit} of the first is a blank in the second",
}


def statement(document: Mapping[str, Any]) -> str:
    """Who is protected, under which relation, what was released and what the number covers."""
    unit = str(document["public"].get("unit", "record"))
    warning = document["public"].get("warning")
    terms = document.get("terms")
    searches = document.get("stages", [document]) if terms is None else terms
    relation = _RELATIONS[searches[0]["relation"]].format(unit=unit)
    guarantee = f"epsilon = {float(document['epsilon']):.5f} at delta = {document['delta']:g}"
    if warning:
        first = f"WARNING: {warning}. With private randomness the same search would have {guarantee}."
    else:
        first = f"The release is differentially private with {guarantee}."
    lines = [
        first,
        f"Who is protected: every {unit} of the private data; {relation}.",
        *(_of_a_search(searches, document) if terms is None else plan_statement.lines(terms, document["public"])),
    ]
    if lost := document["public"].get("lost runs"):
        lines.append(f"Runs that were lost: {lost}.")
    return "\n".join(lines)


def _of_a_search(searches: list[Mapping[str, Any]], document: Mapping[str, Any]) -> list[str]:
    return [
        f"What was released: {_released(len(searches))} Nothing else about the search may be published: not the "
        "number of runs, not the other runs.",
        f"What the number covers: {_covered(searches)}{_alone(document)}",
        "It holds if every run satisfies the stated event for all hyperparameters of the space, and if runs are "
        "independent of each other given their hyperparameters.",
        *_conditions(searches),
    ]


def _conditions(searches: list[Mapping[str, Any]]) -> list[str]:
    """What the number takes for granted about the search rule."""
    lines = []
    for number, search in enumerate(searches, 1):
        conditions = search.get("policy", {}).get("conditions", [])
        where = f"of stage {number} " if len(searches) > 1 else ""
        if conditions:
            lines.append(f"The number {where}also relies on this: {' '.join(conditions)}")
    return lines


def _released(stages: int) -> str:
    best = "the best of a random number of training runs, that is, one model with its hyperparameters and its score."
    if stages == 1:
        return best
    return (
        f"of the last of {stages} stages, {best} Of every earlier stage, at most the same of its own best run, which "
        "may shape the prior of the next."
    )


def _covered(searches: list[Mapping[str, Any]]) -> str:
    if len(searches) == 1:
        return (
            f"the whole search. The number of runs has mean {searches[0]['runs']['mean']:g}, and hyperparameters were "
            f"{_how(searches[0]['band'])}; choosing among the runs is paid for."
        )
    stages = "; ".join(
        f"stage {number}: mean {search['runs']['mean']:g} runs, hyperparameters {_how(search['band'])}"
        for number, search in enumerate(searches, 1)
    )
    return f"all stages together ({stages}); choosing among the runs is paid for."


def _how(band: Mapping[str, float]) -> str:
    if band["c"] == band["C"]:
        return "drawn from the prior"
    return f"chosen adaptively, with a density between {band['c']:g} and {band['C']:g} times the prior's"


def _alone(document: Mapping[str, Any]) -> str:
    one_run = [float(value) for value in document["one_run"].values()]
    return f" One run alone would have been reported as epsilon = {min(one_run):.3f}." if one_run else ""
