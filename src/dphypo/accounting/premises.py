"""What a certificate takes for granted, and what would break it, in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dphypo.accounting.untrusted import printable


def assumptions(document: Mapping[str, Any]) -> list[str]:
    """What must be true for the guarantee of this certificate to hold, one sentence a line.

    >>> assumptions({"data_set": "digits", "terms": [{"runs": {}}]})[-1]
    'noise that is drawn in floating point is taken as real numbers'
    """
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
    for split in _splits(parts):
        lines.append(f"each record was put on one side by a rule that looks at that record alone: {split}")
    lines += arithmetic(document)
    if document.get("data_set") is None:
        lines.append("the reader knows which data set is meant: the certificate does not name it")
    return lines


def arithmetic(document: Mapping[str, Any]) -> list[str]:
    """What is taken for granted about the numbers that runs compute with."""
    events = [event for part in _parts(document) for event in _list(part.get("events"))] or [None]
    exact = [_mapping(event).get("exact") is True for event in events]
    lines = []
    if any(exact):
        added = f"what rounding adds, a total variation of {_number(document.get('slack'))} at most, is in delta"
        lines.append(
            f"noise is drawn exactly: {added}, random words are taken as ideal, and a device computes the same twice"
        )
    if not all(exact):
        lines.append("noise that is drawn in floating point is taken as real numbers")
    return lines


def breaks(document: Mapping[str, Any]) -> list[str]:
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


def _parts(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The terms; whatever else a file of unknown origin holds is left out."""
    parts = document.get("terms")
    return [_mapping(part) for part in parts] if isinstance(parts, list) else []


def _splits(parts: list[Mapping[str, Any]]) -> list[str]:
    """The rules by which records are set apart, in words, each once."""
    found = []
    for part in parts:
        for condition in _list(part.get("reads")):
            split = _mapping(_mapping(condition).get("split"))
            more = [f"{name} {split[name]}" for name in ("hashed", "share", "key", "data") if name in split]
            found.append(printable(", ".join([str(split.get("rule")), *more]), 500))
    return list(dict.fromkeys(found))


def _number(value: object) -> str:
    return f"{value:.2g}" if isinstance(value, (int, float)) else "an unknown size"


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
