"""Which records a mechanism reads: those that train, those that score, or all."""

from __future__ import annotations

from enum import StrEnum


class Side(StrEnum):
    """Which records a mechanism reads."""

    TRAINING = "training"
    SCORING = "scoring"


BOTH = frozenset(Side)
