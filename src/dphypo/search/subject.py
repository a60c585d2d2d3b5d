"""What a search is about, in public words: which data, and which model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dphypo import _validate
from dphypo.mechanisms import Mechanism, capabilities
from dphypo.space import Space

_LONGEST = 200


@dataclass(frozen=True)
class Subject:
    """A fingerprint of what is searched, so that a journal is not taken for that of other data or another model.

    Args:
        data: the name that the user gives to the data set. It is public.
        model: the SHA-256 of a text that describes the model, where mechanisms have one.
    """

    data: str | None = None
    model: str | None = None

    @classmethod
    def of(cls, data_name: str | None, mechanisms: Iterable[Mechanism], space: Space) -> Subject:
        """The subject of a search. A mechanism with a method ``architecture(space)`` describes its model by it."""
        return cls(_named(data_name), _fingerprint(mechanisms, space))

    def to_dict(self) -> dict[str, Any]:
        """What is known of it, as JSON."""
        return {name: value for name, value in (("data", self.data), ("model", self.model)) if value is not None}


def _named(data_name: object) -> str | None:
    if data_name is None:
        return None
    if not isinstance(data_name, str) or not data_name.isprintable() or not 0 < len(data_name) <= _LONGEST:
        raise _validate.fail("data_name", data_name, f"give a name of at most {_LONGEST} printable characters")
    return data_name


def _fingerprint(mechanisms: Iterable[Mechanism], space: Space) -> str | None:
    texts = [str(one.architecture(space)) for one in mechanisms if isinstance(one, capabilities.KnownModel)]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest() if texts else None
