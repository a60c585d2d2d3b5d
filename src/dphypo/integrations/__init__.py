"""Other libraries' models and estimators as mechanisms, each in a package of its own that needs its extra."""

from __future__ import annotations

from typing import Any

from dphypo.mechanisms import Saver


def saver_for(format: str, model: Any) -> Saver | None:
    """The saver that reads a format into what ``model`` is: a PyTorch model or its factory, an estimator, or None."""
    if hasattr(model, "get_params"):
        from dphypo.integrations.sklearn import saver_for as of_estimator

        found = of_estimator(model)
        return found if found.format == format else None
    if format == "safetensors" and model is None:
        from dphypo.integrations.torch.saver import SavedGraph

        return SavedGraph()
    if format == "safetensors":
        from dphypo.integrations.torch.saver import Safetensors

        return Safetensors(model)
    return None
