"""The network of the estimators: its layers, public scaling of what goes in and comes out, and its bytes.

The public settings of an estimator and of the steps before it are saved with it, and compared when it is loaded.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.frozen import FrozenEstimator
from torch import nn

from dphypo import _validate
from dphypo._validate import full_name
from dphypo.integrations.sklearn.pipeline import Parts
from dphypo.integrations.sklearn.table import scaled
from dphypo.integrations.torch.saver import Safetensors, remember

Floats = npt.NDArray[np.float32]
Bounds = tuple[npt.ArrayLike, npt.ArrayLike]


def network(inputs: int, hidden: Sequence[int], outputs: int) -> nn.Sequential:
    """A multilayer perceptron; with no hidden layer, a linear model."""
    widths = [inputs, *(_validate.integer(at_least=1, hidden=width) for width in hidden)]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))


def to_unit(values: npt.ArrayLike, bounds: Bounds | None) -> Floats:
    """Values cut off at public bounds and mapped to [-1, 1]; as they are without bounds. What is missing becomes 0."""
    given = np.asarray(values, dtype=np.float64) if bounds is None else scaled(values, *_bounds(bounds))
    with np.errstate(over="ignore"):
        return np.nan_to_num(given.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)


def from_unit(values: npt.ArrayLike, bounds: Bounds | None) -> npt.NDArray[np.float64]:
    """The inverse of :func:`to_unit`."""
    given = np.asarray(values, dtype=np.float64)
    if bounds is None:
        return given
    low, high = _bounds(bounds)
    return low + (given + 1) / 2 * (high - low)


def _bounds(bounds: Bounds) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    low, high = (np.asarray(bound, dtype=np.float64) for bound in bounds)
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise _validate.fail("bounds", bounds, "give (low, high), numbers or one a column, low below high")
    return low, high


def outputs_of(model: nn.Sequential, inputs: Floats) -> npt.NDArray[np.float64]:
    """What the model says of each row, to the last bit whatever rows are beside it.

    Products are added one input at a time, in double precision. A matrix product would add them in an order that
    depends on the number of rows.
    """
    values = np.asarray(inputs, dtype=np.float64)
    for layer in model:
        if isinstance(layer, nn.ReLU):
            values = np.maximum(values, 0.0)
            continue
        assert isinstance(layer, nn.Linear)
        weight, bias = (one.detach().cpu().double().numpy() for one in (layer.weight, layer.bias))
        total = np.tile(bias, (len(values), 1))
        for place in range(weight.shape[1]):
            total += values[:, place, None] * weight[:, place]
        values = total
    return values


_PUBLIC = ("bounds", "target_bounds", "classes")

# Plain values that may differ from run to run; everything else is as in the search's own estimator.
OPTIMISER = ("learning_rate", "optimizer", "momentum", "weight_decay")
_TUNED = ("hidden", *OPTIMISER, "epochs", "batch_size", "max_grad_norm", "noise_multiplier")


@dataclass(frozen=True)
class Networks:
    """A fitted ``DPSGDClassifier`` or ``DPSGDRegressor``, or a pipeline that ends in one; loading runs no code."""

    estimator: Any  # of the search, unfitted but for the steps before it, which learn nothing
    format: ClassVar[str] = "safetensors"

    def dump(self, model: Any) -> bytes:
        fitted: Any = Parts.of(model).last
        notes = {
            "params": {name: getattr(fitted, name) for name in _TUNED},
            "features": fitted.n_features_in_,
            "names": getattr(fitted, "feature_names_in_", np.array([])).tolist(),
            "classes": fitted.classes_.tolist() if hasattr(fitted, "classes_") else None,
            "settings": settings(self.estimator),
        }
        remember(fitted.model_, {"notes": json.dumps(notes, default=lambda value: value.tolist())})
        return Safetensors().dump(fitted.model_)

    def load(self, data: bytes) -> Any:
        module = Safetensors(_rebuild).load(data)
        notes = json.loads(module.dphypo_arguments["notes"])
        model = copy.deepcopy(self.estimator)
        if (found := difference(notes["settings"], settings(model))) is not None:
            name, saved, given = found
            raise ValueError(
                f"{name} = {given} of the estimator to load is not the {saved} that was searched: what it predicts "
                f"would mean something else. Give the estimator, or the pipeline, that was searched"
            )
        fitted: Any = Parts.of(model).last
        # The seed of the run stays with the curator, and the search's estimator's own was not used.
        fitted.set_params(**{**notes["params"], "hidden": tuple(notes["params"]["hidden"]), "random_state": None})
        fitted.model_, fitted.n_features_in_ = module, notes["features"]
        if notes["names"]:
            fitted.feature_names_in_ = np.array(notes["names"], dtype=object)
        if notes["classes"] is not None:
            fitted.classes_ = np.array(notes["classes"])
        return model


def _rebuild(notes: str) -> nn.Sequential:
    read = json.loads(notes)
    return network(read["features"], read["params"]["hidden"], 1 if read["classes"] is None else len(read["classes"]))


def settings(estimator: Any) -> Any:
    """The steps before the private part with all their parameters, and the bounds and classes of that part, as JSON."""
    parts = Parts.of(estimator)
    steps = {name: _describe(step) for name, step in parts.steps}
    public = {name: _describe(getattr(parts.last, name)) for name in _PUBLIC if hasattr(parts.last, name)}
    return json.loads(json.dumps({**steps, **public}))


def _describe(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return _describe(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): _describe(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | range):
        return [_describe(one) for one in value]
    if not hasattr(value, "get_params") or isinstance(value, type):
        return full_name(getattr(value, "function", value))  # of a per_record its function
    held = value.get_params(deep=False)
    if isinstance(value, FrozenEstimator):  # what it was fitted to is part of it
        held |= vars(value.estimator)
    return {"class": full_name(value), **{name: _describe(one) for name, one in held.items()}}


def difference(saved: object, given: object, where: str = "") -> tuple[str, str, str] | None:
    """The first place where two descriptions differ, such as ``schema['columns']['age']``, with both values."""
    if isinstance(saved, Mapping) and isinstance(given, Mapping):
        for name in {**saved, **given}:
            place = f"{where}[{name!r}]" if where else str(name)
            if found := difference(saved.get(name), given.get(name), place):
                return found
        return None
    texts = json.dumps(saved), json.dumps(given)
    return None if texts[0] == texts[1] else (where, *texts)
