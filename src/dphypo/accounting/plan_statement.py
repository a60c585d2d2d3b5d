"""The statement of a plan with published runs, in plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Term = Mapping[str, Any]


def lines(terms: Sequence[Term], public: Mapping[str, Any]) -> list[str]:
    """What was released, what the number covers, and on what it rests.

    >>> survey, last = ({"sides": ["training"], "published": count} for count in (20, 1))
    >>> lines([survey, last], {"releases": [{"part": "survey"}, {"part": "last run"}]})[0]
    'What was released: 21 runs were made; all results of the first 20 are public, and so is the model of the last.'
    """
    trained = [term for term in terms if "training" in term["sides"]]
    searches = [term for term in trained if "published" not in term]
    runs = sum(term["published"] for term in trained if "published" in term)
    scored = [term for term in terms if term["sides"] == ["scoring"]]
    parts = [part for part in public.get("releases", []) if isinstance(part, Mapping)]
    last = any(part.get("part") == "last run" for part in parts)
    durations = any(part.get("durations") == "public" for part in parts)
    return [
        f"What was released: {_released(runs, len(searches), last=last)}",
        f"What the number covers: {_covered(runs, searches, scored)}",
        _conditions(scored, searches, durations=durations),
        *_policies(searches),
    ]


def _released(runs: int, searches: int, *, last: bool) -> str:
    if searches:
        best = "the best run of a search" if searches == 1 else f"the best run of each of {searches} searches"
        published = f"all results of {_count(runs)}, and " if runs else ""
        return (
            f"{published}{best}. Nothing else about a search may be published: not the number "
            "of its runs, not its other runs."
        )
    if last and runs > 1:
        first = f"all results of the first {runs - 1} are public, and so is the model of the last"
        return f"{_count(runs)} were made; {first}."
    if last:
        return "1 run was made; its model is public."
    return f"{_count(runs)} were made; all their results are public."


def _policies(searches: Sequence[Term]) -> list[str]:
    """What the number takes for granted about the rule of a search."""
    found = [condition for search in searches for condition in search.get("policy", {}).get("conditions", [])]
    return [f"The number also relies on this: {' '.join(dict.fromkeys(found))}"] if found else []


def _count(runs: int) -> str:
    return "1 run" if runs == 1 else f"{runs} runs"


def _covered(runs: int, searches: Sequence[Term], scored: Sequence[Term]) -> str:
    parts = [f"{_count(runs)} by composition, each at any hyperparameters of the space"] if runs else []
    parts += [f"a search with {search['runs']['mean']:g} runs on average{_how(search)}" for search in searches]
    sides = (
        ". Records that train and records that score are different records, so a record meets one of the two"
        if scored
        else ""
    )
    whole = "all of it together" if runs else "all stages together"
    paid = "; choosing among the runs of a search is paid for" if searches else ""
    return f"{whole}: {'; '.join(parts)}{paid}{sides}."


def _how(search: Term) -> str:
    band = search.get("band")
    if band is None or band["c"] == band["C"]:
        return ""
    return f", whose hyperparameters have a density between {band['c']:g} and {band['C']:g} times the prior's"


def _conditions(scored: Sequence[Term], searches: Sequence[Term], *, durations: bool) -> str:
    needs = ["every run satisfies the stated event for all hyperparameters of the space"]
    if scored:
        needs.append("which side a record is on depends on that record alone")
    if searches:
        needs.append("runs of a search are independent of each other given their hyperparameters")
    needs.append(
        "how long runs take, which was published, does not depend on the data"
        if durations
        else "how long runs take is not published"
    )
    needs.append("whether a run fails depends on the data no more than its event says")
    return f"It holds if {', if '.join(needs[:-1])}, and if {needs[-1]}."
