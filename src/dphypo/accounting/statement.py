"""A certificate in plain words: its privacy statement, what it takes for granted, and what would break it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dphypo._files import Json
from dphypo._validate import printable
from dphypo.accounting.guarantee import PolicyClass

_RELATIONS = {
    "ADD_OR_REMOVE_ONE": "two data sets are neighbours if one has one {unit} more than the other",
    "REPLACE_ONE": "two data sets are neighbours if they differ in the values of one {unit}",
    "REPLACE_SPECIAL": "two data sets are neighbours if one {unit} of the first is a blank in the second",
}
_SECRET = "Nothing else about a search may be published: not the number of its runs, not its other runs."


def statement(document: Json) -> str:
    """Who is protected, under which relation, what was released, what the number covers, and on what it rests."""
    public, terms = document["public"], document["terms"]
    unit = _text(public.get("unit", "record"))
    relation = _RELATIONS[document["relation"]].format(unit=unit)
    guarantee = f"epsilon = {float(document['epsilon']):.5f} at delta = {document['delta']:g}"
    if warning := public.get("warning"):
        first = f"WARNING: {_text(warning)}. With private randomness the same search would have {guarantee}."
    else:
        first = f"The release is differentially private with {guarantee}."
    trained = [term for term in terms if not term.get("scores")]
    searches = [term for term in trained if "published" not in term]
    runs = sum(term["published"] for term in trained if "published" in term)
    sides = _sides(trained) if len(trained) < len(terms) else ""
    parts = [part for part in public.get("releases", []) if isinstance(part, Mapping)]
    last = any(part.get("part") == "last run" for part in parts)
    durations = any(part.get("durations") == "public" for part in parts)
    one_run = [float(value) for value in document["one_run"].values()]
    alone = f" One run alone would have been reported as epsilon = {min(one_run):.3f}." if one_run else ""
    lines = [
        first,
        f"Who is protected: every {unit} of the private data; {relation}.",
        f"What was released: {_released(runs, len(searches), last=last)}{_scored_on(public, parts)}",
        f"What the number covers: {_covered(runs, searches, sides)}{alone}",
        _conditions(runs, searches, scored=bool(sides), durations=durations),
    ]
    for number, search in enumerate(searches, 1):
        where = f"of search {number} " if len(searches) > 1 else ""
        if conditions := search["policy"]["conditions"]:
            lines.append(f"The number {where}also relies on this: {_text(' '.join(conditions))}")
    lines += [f"{line[0].upper()}{line[1:]}." for line in arithmetic(document)]
    if lost := public.get("lost runs"):
        lines.append(f"Runs that were lost: {_text(lost)}.")
    return "\n".join(lines)


def _text(value: object) -> str:
    """What others wrote, on one line: a second one would read as a line of ours."""
    return printable(value, 2000)


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
        first = f"all results of the first {runs - 1} are public"
        return f"{runs} runs were made; {first}, and so is the model of the last."
    if last:
        return "1 run was made; its model is public."
    return f"{_count(runs)} were made; all their results are public."


def _scored_on(public: Json, parts: Sequence[Json]) -> str:
    """On which records the scores of surveys and the released score were taken; "" if none is released."""
    surveys = {_text(part["score on"]): None for part in parts if "score on" in part and part.get("part") == "survey"}
    others = [part["score on"] for part in (public, *parts) if "score on" in part and part.get("part") != "survey"]
    said = "".join(f" The scores of a survey were taken on {one}." for one in surveys)
    return f"{said} The released score was taken on {_text(others[-1])}." if others else said


def _count(runs: int) -> str:
    return "1 run" if runs == 1 else f"{runs} runs"


def _sides(trained: Sequence[Json]) -> str:
    both = sum(term.get("published", 1) for term in trained if not term["reads"])
    apart = ". Records that train and records that score are set apart by a rule"
    if not both:
        return f"{apart}, so that a record meets one of the two"
    return f"{apart}; {'one run trains' if both == 1 else f'{both} runs train'} on both, which is paid for"


def _covered(runs: int, searches: Sequence[Json], sides: str) -> str:
    parts = [f"{_count(runs)} by composition, each at any hyperparameters of the space"] if runs else []
    for search in searches:
        c, C = search["band"]["c"], search["band"]["C"]
        chosen = f"chosen adaptively, with a density between {c:g} and {C:g} times the prior's"
        how = f"whose hyperparameters were {'drawn from the prior' if c == C else chosen}"
        parts.append(f"a search with {search['runs']['mean']:g} runs on average, {how}")
    paid = "; choosing among the runs of a search is paid for" if searches else ""
    return f"all of it together: {'; '.join(parts)}{paid}{sides}."


def _conditions(runs: int, searches: Sequence[Json], *, scored: bool, durations: bool) -> str:
    needs = ["every run satisfies the stated event for all hyperparameters of the space"]
    if scored:
        needs.append("which side a record is on depends on that record alone, by the rule that is stated")
    if searches:
        needs.append("runs of a search are independent of each other given their hyperparameters")
    if runs:
        published = "how long runs take, which was published, does not depend on the data"
        needs.append(published if durations else "how long runs take is not published")
        needs.append("whether a run fails depends on the data no more than its event says")
    return f"It holds if {', and if '.join([', if '.join(needs[:-1]), needs[-1]] if len(needs) > 1 else needs)}."


def conditions(policy: PolicyClass, first_from_prior: int) -> list[str]:
    """The conditions under which a guarantee for this class of policies holds, in words."""
    found = []
    if policy is PolicyClass.HISTORY:
        found += [
            "The search rule saw only the hyperparameters and outcomes of earlier runs, by number and not by time of "
            "arrival, and randomness of its own. It did not see the data, the number of runs, the clock or memory, "
            "and it stayed the same throughout the search.",
            "The stated event covers all that the search rule saw of a run.",
            "Every run used the same training procedure.",
        ]
    if first_from_prior:
        runs = "run" if first_from_prior == 1 else f"{first_from_prior} runs"
        found.append(f"The hyperparameters of the first {runs} were drawn from the prior.")
    if found:
        found.append("Runs with equal scores were ranked by a fresh random key.")
    return found


def assumptions(document: Json) -> list[str]:
    """What must be true for the guarantee of this certificate to hold, one sentence a line."""
    lines = [
        "one run satisfies the stated event for every value of the hyperparameters, its score included",
        "given its hyperparameters and its seed, a run depends on no other run",
        "the space, the laws and the noise were fixed before anybody looked at the data",
        "what training starts from, pretrained weights among it, is public, or made by an earlier part and paid for",
    ]
    parts = _parts(document)
    if any("runs" in part for part in parts):
        lines.append("the number of runs was drawn once, from the stated law, and is secret")
    if any(_mapping(part.get("policy")).get("class") == "history" for part in parts):
        lines.append("the search rule saw the earlier hyperparameters and scores, and nothing else of the data")
    splits = [_mapping(_mapping(one).get("split")) for part in parts for one in _list(part.get("reads"))]
    for rule in dict.fromkeys(map(_rule, splits)):
        lines.append(f"each record was put on one side by a rule that looks at that record alone: {rule}")
    lines += arithmetic(document)
    if document.get("data_set") is None:
        lines.append("the reader knows which data set is meant: the certificate does not name it")
    return lines


def arithmetic(document: Json) -> list[str]:
    """What is taken for granted about the numbers that runs compute with."""
    events = [event for part in _parts(document) for event in _list(part.get("events"))] or [None]
    exact = [_mapping(event).get("exact") is True for event in events]
    slack = document.get("slack")
    size = f"{slack:.2g}" if isinstance(slack, (int, float)) else "an unknown size"
    drawn = (
        f"noise is drawn exactly: what rounding adds, a total variation of {size} at most, is in delta, random "
        "words are taken as ideal, and a device computes the same twice"
    )
    real = "noise that is drawn in floating point is taken as real numbers"
    return [line for line, holds in ((drawn, any(exact)), (real, not all(exact))) if holds]


def breaks(document: Json) -> list[str]:
    """What would make the guarantee of this certificate false, one case a line."""
    lines = [
        "training that differs from its event: other noise, shuffled batches, clipping of batches, a warm start",
        "a preprocessing step that was fitted to the private records and not paid for",
        "another search on the same data: its cost comes on top (dphypo compose, dphypo ledger)",
    ]
    parts = _parts(document)
    if any("runs" in part for part in parts):
        lines.append("anything published but the release: the number of runs, a losing run, the journal, a log")
    if any("published" in part for part in parts):
        lines.append("more runs than the survey declared, or a run that was made again with other randomness")
    return lines


def _parts(document: Json) -> list[Json]:
    """The terms; whatever else a file of unknown origin holds is left out."""
    return [_mapping(part) for part in _list(document.get("terms"))]


def _rule(split: Json) -> str:
    more = [f"{name} {split[name]}" for name in ("hashed", "share", "key", "data") if name in split]
    return printable(", ".join([str(split.get("rule")), *more]), 500)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: object) -> Json:
    return value if isinstance(value, Mapping) else {}
