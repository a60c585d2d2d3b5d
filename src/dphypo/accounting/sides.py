"""Which records a mechanism uses. A side is the set of records that a stated rule assigns to it, not a name.

A *split* puts each record on one of two sides, looking at that record alone. Two splits are one and the same if all
that is stated of them is equal; a record may be on either side of any other.

**Proposition G.** If neighbours differ by one record that is added, removed, or blanked, all terms together cost the
**maximum, over all combinations of parts, of the composition of the terms that read such a record**. A term that states
no side reads all records. If the record is replaced by another, it may leave a side and enter another: **all compose**.
Proof: docs/theory/surveys.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dphypo import _validate


class Role(StrEnum):
    """The two parts of a split, by what their records are usually for."""

    TRAINING = "training"
    SCORING = "scoring"


@dataclass(frozen=True)
class Split:
    """A rule that puts each record on one of two sides. It looks at that record alone: not at its place, not at others.

    Args:
        how: how the side of a record is decided, in words. ``split_by_hash`` fills in this and the rest.
        hashed: which values of a record decide; another form of the data set has other values.
        share: about how much is set apart for scoring.
        key: SHA-256 of the key, in hexadecimal.
        data: the public name of the data set, where several are used together.

    >>> by_number, by_key = Split("patients whose number ends in 9 score").sides, Split("hash", key="ab").sides
    >>> by_number.training.apart_from(by_number.scoring), by_number.training.apart_from(by_key.scoring)
    (True, False)
    """

    how: str
    hashed: str = ""
    share: float | None = None
    key: str = ""
    data: str = ""

    def __post_init__(self) -> None:
        for name in ("how", "hashed", "key", "data"):
            _validate.line(least=1 if name == "how" else 0, most=_validate.LONGEST_NAME, **{name: getattr(self, name)})
        if self.share is not None:
            object.__setattr__(self, "share", _validate.within(0.0, 1.0, share=self.share))

    @property
    def sides(self) -> Sides:
        """The records that train and those that score."""
        return Sides(EVERYONE.inside(self, Role.TRAINING), EVERYONE.inside(self, Role.SCORING))

    def to_json(self) -> dict[str, Any]:
        """What is stated of the split; documents call ``how`` "rule"."""
        stated = {"rule": self.how, "hashed": self.hashed, "share": self.share, "key": self.key, "data": self.data}
        return {name: value for name, value in stated.items() if value not in ("", None)}

    @classmethod
    def from_json(cls, stated: Mapping[str, Any]) -> Split:
        """The split that :meth:`to_json` wrote."""
        given = dict(stated)
        return cls(given.pop("rule"), **given)


@dataclass(frozen=True)
class Side:
    """The records that are on the stated part of every stated split; without any, all records."""

    conditions: frozenset[tuple[Split, Role]] = frozenset()

    def __post_init__(self) -> None:
        if len({split for split, _ in self.conditions}) < len(self.conditions):
            raise ValueError(
                f"{self} is not a side: it names both parts of one split, which have no record in common, so nothing "
                "would be charged. To split records that were split before, give another key="
            )

    def __str__(self) -> str:
        parts = sorted(f"{part.value} of {split.how!r}" for split, part in self.conditions)
        return " and ".join(parts) or "all records"

    def inside(self, split: Split, part: Role) -> Side:
        """Of these records, those on one part of a split."""
        return Side(self.conditions | {(split, Role(part))})

    def apart_from(self, other: Side) -> bool:
        """Whether no record can be on both sides: some split puts them on different parts."""
        splits = {split for split, _ in self.conditions}
        return any((split, part) not in self.conditions for split, part in other.conditions if split in splits)

    def to_json(self) -> list[dict[str, Any]]:
        """The conditions; an empty list is all records."""
        return sorted(({"part": part.value, "split": split.to_json()} for split, part in self.conditions), key=repr)

    @classmethod
    def from_json(cls, conditions: Sequence[Mapping[str, Any]]) -> Side:
        """The side that :meth:`to_json` wrote."""
        return cls(frozenset((Split.from_json(one["split"]), Role(one["part"])) for one in conditions))


EVERYONE = Side()
"""All records."""


@dataclass(frozen=True)
class Sides:
    """The records that train and the records that score. No record can be among both."""

    training: Side
    scoring: Side

    def __post_init__(self) -> None:
        if not self.training.apart_from(self.scoring):
            raise ValueError(
                f"training = {self.training} and scoring = {self.scoring} are not two sides: a record may be on both"
            )


def read_sides(split: Sides | Split | str | None) -> Sides | None:
    """What was given as ``split``: None, or "same", where one record may train and score."""
    given: object = split
    if given is None or (isinstance(given, str) and given == "same"):
        return None
    if isinstance(given, (Split, Sides)):
        return given.sides if isinstance(given, Split) else given
    remedy = (
        "state the rule that separates the records: the parts of split_by_hash carry it, and dphypo.Split(how) states "
        'your own, which must depend on each record alone. If a record may both train and score, give "same"'
    )
    raise _validate.fail("split", given, remedy)
