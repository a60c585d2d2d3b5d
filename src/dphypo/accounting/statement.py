"""The privacy statement of a certificate, in plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dphypo.accounting.premises import arithmetic

Term = Mapping[str, Any]

_RELATIONS = {
    "ADD_OR_REMOVE_ONE": "two data sets are neighbours if one has one {unit} more than the other",
    "REPLACE_ONE": "two data sets are neighbours if they differ in the values of one {unit}",
    "REPLACE_SPECIAL": "two data sets are neighbours if one {unit} of the first is a blank in the second",
}
_SECRET = "Nothing else about a search may be published: not the number of its runs, not its other runs."


def statement(document: Mapping[str, Any]) -> str:
    """Who is protected, under which relation, what was released, what the number covers, and on what it rests."""
    public = document["public"]
    unit = str(public.get("unit", "record"))
    relation = _RELATIONS[document["relation"]].format(unit=unit)
    guarantee = f"epsilon = {float(document['epsilon']):.5f} at delta = {document['delta']:g}"
    if warning := public.get("warning"):
        first = f"WARNING: {warning}. With private randomness the same search would have {guarantee}."
    else:
        first = f"The release is differentially private with {guarantee}."
    lines = [first, f"Who is protected: every {unit} of the private data; {relation}."]
    lines += _lines(document["terms"], public, document)
    if lost := public.get("lost runs"):
        lines.append(f"Runs that were lost: {lost}.")
    return "\n".join(lines)


def _lines(terms: Sequence[Term], public: Mapping[str, Any], document: Mapping[str, Any]) -> list[str]:
    trained = [term for term in terms if not term.get("scores")]
    searches = [term for term in trained if "published" not in term]
    runs = sum(term["published"] for term in trained if "published" in term)
    scored = any(term.get("scores") for term in terms)
    both = sum(term.get("published", 1) for term in trained if not term["reads"])
    parts = [part for part in public.get("releases", []) if isinstance(part, Mapping)]
    last = any(part.get("part") == "last run" for part in parts)
    durations = any(part.get("durations") == "public" for part in parts)
    return [
        f"What was released: {_released(runs, len(searches), last=last)}{_warm(parts)}",
        f"What the number covers: {_covered(runs, searches, _sides(both) if scored else '')}{_alone(document)}",
        _conditions(runs, searches, scored=scored, durations=durations),
        *_policies(searches),
        *(f"{line[0].upper()}{line[1:]}." for line in arithmetic(document)),
    ]


def _released(runs: int, searches: int, *, last: bool) -> str:
    best = "the best of a random number of training runs, that is, one model with its hyperparameters and its score."
    if searches and runs:
        chosen = "the best run of a search" if searches == 1 else f"the best run of each of {searches} searches"
        return f"all results of {_count(runs)}, and {chosen}. {_SECRET}"
    if searches == 1:
        return f"{best} {_SECRET}"
    if searches:
        return (
            f"of the last of {searches} stages, {best} Of every earlier stage, at most the same of its own best run, "
            f"which may shape the prior of the next. {_SECRET}"
        )
    if last and runs > 1:
        first = f"all results of the first {runs - 1} are public, and so is the model of the last"
        return f"{_count(runs)} were made; {first}."
    if last:
        return "1 run was made; its model is public."
    return f"{_count(runs)} were made; all their results are public."


def _warm(parts: Sequence[Mapping[str, Any]]) -> str:
    if any("starts from" in part for part in parts):
        return " The last run may have started from a published model, which is paid for."
    return ""


def _count(runs: int) -> str:
    return "1 run" if runs == 1 else f"{runs} runs"


def _sides(both: int) -> str:
    apart = ". Records that train and records that score are set apart by a rule"
    if not both:
        return f"{apart}, so that a record meets one of the two"
    return f"{apart}; {'one run trains' if both == 1 else f'{both} runs train'} on both, which is paid for"


def _covered(runs: int, searches: Sequence[Term], sides: str) -> str:
    parts = [f"{_count(runs)} by composition, each at any hyperparameters of the space"] if runs else []
    parts += [
        f"a search with {search['runs']['mean']:g} runs on average, {_how(search['band'])}" for search in searches
    ]
    paid = "; choosing among the runs of a search is paid for" if searches else ""
    return f"all of it together: {'; '.join(parts)}{paid}{sides}."


def _how(band: Mapping[str, float]) -> str:
    if band["c"] == band["C"]:
        return "whose hyperparameters were drawn from the prior"
    return (
        f"whose hyperparameters were chosen adaptively, with a density between {band['c']:g} and {band['C']:g} times "
        "the prior's"
    )


def _alone(document: Mapping[str, Any]) -> str:
    one_run = [float(value) for value in document["one_run"].values()]
    return f" One run alone would have been reported as epsilon = {min(one_run):.3f}." if one_run else ""


def _conditions(runs: int, searches: Sequence[Term], *, scored: bool, durations: bool) -> str:
    needs = ["every run satisfies the stated event for all hyperparameters of the space"]
    if scored:
        needs.append("which side a record is on depends on that record alone, by the rule that is stated")
    if searches:
        needs.append("runs of a search are independent of each other given their hyperparameters")
    if runs:
        needs.append(
            "how long runs take, which was published, does not depend on the data"
            if durations
            else "how long runs take is not published"
        )
        needs.append("whether a run fails depends on the data no more than its event says")
    return f"It holds if {', and if '.join([', if '.join(needs[:-1]), needs[-1]] if len(needs) > 1 else needs)}."


def _policies(searches: Sequence[Term]) -> list[str]:
    """What the number takes for granted about the rule of each search."""
    lines = []
    for number, search in enumerate(searches, 1):
        where = f"of search {number} " if len(searches) > 1 else ""
        if conditions := search["policy"]["conditions"]:
            lines.append(f"The number {where}also relies on this: {' '.join(conditions)}")
    return lines
