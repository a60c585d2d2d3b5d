"""The privacy statement of a certificate, in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_RELATIONS = {
    "ADD_OR_REMOVE_ONE": "two data sets are neighbours if one has one {unit} more than the other",
    "REPLACE_ONE": "two data sets are neighbours if they differ in the values of one {unit}",
    "REPLACE_SPECIAL": "two data sets are neighbours if one {unit} of the first is a blank in the second",
}


def statement(document: Mapping[str, Any]) -> str:
    """Who is protected, under which relation, what was released and what the number covers."""
    unit = str(document["public"].get("unit", "record"))
    warning = document["public"].get("warning")
    relation = _RELATIONS[document["relation"]].format(unit=unit)
    band = document["band"]
    adaptive = band["c"] != band["C"]
    how = (
        f"chosen adaptively, with a density between {band['c']:g} and {band['C']:g} times the prior's"
        if adaptive
        else "drawn from the prior"
    )
    one_run = [float(value) for value in document["one_run"].values()]
    alone = f" One run alone would have been reported as epsilon = {min(one_run):.3f}." if one_run else ""
    guarantee = f"epsilon = {float(document['epsilon']):.4f} at delta = {document['delta']:g}"
    if warning:
        first = f"WARNING: {warning}. With private randomness the same search would have {guarantee}."
    else:
        first = f"The release is differentially private with {guarantee}."
    lines = [
        first,
        f"Who is protected: every {unit} of the private data; {relation}.",
        "What was released: the best of a random number of training runs, that is, one model with its "
        "hyperparameters and its score. Nothing else about the search may be published: not the number of runs, not "
        "the other runs.",
        f"What the number covers: the whole search. The number of runs has mean {document['runs']['mean']:g}, and "
        f"hyperparameters were {how}; choosing among the runs is paid for.{alone}",
        "It holds if every run satisfies the stated event for all hyperparameters of the space, and if runs are "
        "independent of each other given their hyperparameters.",
    ]
    return "\n".join(lines)
