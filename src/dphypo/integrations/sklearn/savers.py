"""How fitted estimators become bytes: as they say themselves, or by pickle, scikit-learn's own format."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any, ClassVar

from dphypo.integrations.sklearn.protocol import private_part
from dphypo.mechanisms import Saver


def saver_for(estimator: Any) -> Saver:
    """How the fitted copies of an estimator, or of a pipeline that ends in one, are saved."""
    _, last = private_part(estimator)
    make = getattr(last, "saver", None)
    found: Saver = Pickled() if make is None else make(estimator)
    return found


@dataclass(frozen=True)
class Pickled:
    """Any estimator, by pickle. Loading runs code from the bytes: open only journals and releases of your own."""

    format: ClassVar[str] = "pickle"

    def dump(self, model: Any) -> bytes:
        return pickle.dumps(model)

    def load(self, data: bytes) -> Any:
        return pickle.loads(data)
