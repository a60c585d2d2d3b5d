"""What every kind of parameter can do: maps between values, the unit interval and features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dphypo.space.unit import Array
from dphypo.space.values import Value


class Dimension(Protocol):
    """One parameter. Its prior is uniform in ``unit``; every other map goes through that coordinate."""

    @property
    def size(self) -> int | None:
        """The number of values, or None where they are too many to list."""
        ...

    @property
    def ordered(self) -> bool:
        """Whether nearby coordinates mean nearby values, so that an interval of them is a meaningful cell."""
        ...

    @property
    def width(self) -> int:
        """The number of feature columns."""
        ...

    def values(self, unit: Array) -> list[Value]:
        """The prior's quantiles at these coordinates."""
        ...

    def unit(self, values: Sequence[object]) -> Array:
        """For each value a coordinate with that value; an error names what is not a value of the parameter."""
        ...

    def features(self, unit: Array) -> Array:
        """The (n, width) features of the values at these coordinates."""
        ...

    def coordinates(self, features: Array) -> Array:
        """Coordinates whose features are, as nearly as possible, these."""
        ...
