"""Fitted networks as bytes: the weights as safetensors, the rest as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from torch import nn

from dphypo.integrations.opacus.saver import Safetensors, remember
from dphypo.integrations.sklearn.estimators import DPSGDClassifier, DPSGDRegressor
from dphypo.integrations.sklearn.network import network
from dphypo.integrations.sklearn.protocol import private_part

# Plain values that may differ from run to run; everything else is as in the search's own estimator.
_TUNED = (
    "hidden",
    "learning_rate",
    "optimizer",
    "momentum",
    "weight_decay",
    "epochs",
    "batch_size",
    "max_grad_norm",
    "noise_multiplier",
)


@dataclass(frozen=True)
class Networks:
    """A fitted ``DPSGDClassifier`` or ``DPSGDRegressor``, or a pipeline that ends in one; loading runs no code.

    Args:
        estimator: the unfitted estimator of the search.
    """

    estimator: Any
    format: ClassVar[str] = "safetensors"

    def dump(self, model: Any) -> bytes:
        _, fitted = private_part(model)
        assert isinstance(fitted, DPSGDClassifier | DPSGDRegressor)
        notes = {
            "params": {name: getattr(fitted, name) for name in _TUNED},
            "features": fitted.n_features_in_,
            "names": getattr(fitted, "feature_names_in_", np.array([])).tolist(),
            "classes": fitted.classes_.tolist() if isinstance(fitted, DPSGDClassifier) else None,
        }
        remember(fitted.model_, {"notes": json.dumps(notes, default=lambda value: value.tolist())})
        return Safetensors().dump(fitted.model_)

    def load(self, data: bytes) -> Any:
        module = Safetensors(_rebuild).load(data)
        notes = json.loads(module.dphypo_arguments["notes"])
        model = clone(self.estimator)
        _, fitted = private_part(model)
        assert isinstance(fitted, DPSGDClassifier | DPSGDRegressor)
        # The seed of the run stays with the curator, and the search's estimator's own was not used.
        fitted.set_params(**{**notes["params"], "hidden": tuple(notes["params"]["hidden"]), "random_state": None})
        fitted.model_, fitted.n_features_in_ = module, notes["features"]
        if notes["names"]:
            fitted.feature_names_in_ = np.array(notes["names"], dtype=object)
        if notes["classes"] is not None:
            fitted.classes_ = np.array(notes["classes"])
        return model


def _rebuild(notes: str) -> nn.Module:
    read = json.loads(notes)
    return network(read["features"], read["params"]["hidden"], 1 if read["classes"] is None else len(read["classes"]))
