"""Private hyperparameter search with scikit-learn's habits: :class:`PrivateSearch`, and estimators to search over.

The estimators need the extra "torch" too and are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dphypo.integrations.sklearn._protocol import PrivateEstimator as PrivateEstimator
from dphypo.integrations.sklearn._search import PrivateSearch as PrivateSearch

if TYPE_CHECKING:
    from dphypo.integrations.sklearn._estimators import DPSGDClassifier as DPSGDClassifier
    from dphypo.integrations.sklearn._estimators import DPSGDRegressor as DPSGDRegressor

_HOMES = {"DPSGDClassifier": "_estimators", "DPSGDRegressor": "_estimators"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
