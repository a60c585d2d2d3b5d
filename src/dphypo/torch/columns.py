"""The columns of data sets: those that a model takes, and records made up from a declaration.

A data set of Hugging Face declares its columns (``features``). Before any record is read, a record is made up from that
declaration and read in the same way. Otherwise a column that cannot become a tensor would leave out all records, and
only the curator could be informed.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from dphypo import _validate

if TYPE_CHECKING:
    from dphypo.torch.data import DatasetRecords

LABELS = frozenset({"label", "labels", "label_ids"})  # collators rename them
LENGTH = 4  # of a made-up list whose length is not declared


def taken_by(model: nn.Module, target: str | None) -> frozenset[str] | None:
    """The columns that a model takes by name, and the target; None if it takes any."""
    inner: Any = model
    inner = inner.get_base_model() if hasattr(inner, "get_base_model") else inner  # of peft
    known = inspect.signature(inner.forward).parameters.values()
    named = [one.name for one in known if one.kind is not inspect.Parameter.VAR_KEYWORD]
    if len(named) < len(known) and not type(inner).__module__.startswith("transformers."):  # there they are flags
        return None
    return frozenset(named) | LABELS | ({target} if target is not None else set())


def only(record: Any, columns: frozenset[str] | None) -> Any:
    """A record without the columns that the model does not take, as the ``Trainer`` of transformers leaves them out."""
    if columns is None or not isinstance(record, Mapping) or not all(isinstance(name, str) for name in record):
        return record
    kept = {name: value for name, value in record.items() if name in columns}
    return kept if set(kept) - LABELS else record  # no input is left: using it raises a clearer error


def rehearse(records: DatasetRecords, read: Callable[[Any], Mapping[str, torch.Tensor]]) -> None:
    """Refuse declared columns that cannot be read as the example says, by name; warn of those whose length varies."""
    made, features = _made_up(records)
    if not made:
        return
    fields = records.fields
    assert fields is not None
    varies = sorted(name for name in fields.names if length(features.get(name)) == -1)
    if varies and records.collate is None:
        _validate.warn(
            f"the data set declares that lengths of {', '.join(varies)!r} vary, and records of another length than the "
            "example's are left out, in training and in scoring. Bring all to one public length, by collate= or "
            "before; fitting_records shows the curator alone how many fit"
        )

    def works(record: dict[str, Any]) -> str | None:
        try:
            read(record)
        except Exception as error:  # of a made-up record: it may be shown
            return f"{type(error).__name__}: {error}"
        return None

    if (failed := works(made)) is not None:
        without = (name for name in made if works({key: one for key, one in made.items() if key != name}) is None)
        culprit = next(without, None) or next((name for name in made if not _numeric(made[name])), next(iter(made)))
        kind = "collate=" if records.collate is not None else "torch.as_tensor"
        raise ValueError(
            f"data has a column {culprit!r}, declared as {features[culprit]}, and a record made up from that "
            f"declaration cannot be read: {kind} raises {failed}. No record would count. Remove the column, such as "
            f"data.remove_columns({culprit!r}), or turn it into numbers of one shape"
        )
    found = read(made)
    for name, shape in {**fields.shapes, fields.target: tuple(records.example[1].shape[1:])}.items():
        if name in found and name not in varies and tuple(found[name].shape[1:]) != shape:
            raise ValueError(
                f"data declares column {name!r} with the shape {tuple(found[name].shape[1:])}, and example shows "
                f"{shape}. No record would count: give an example with the declared shape"
            )
    target, like = found.get(fields.target), records.example[1]
    if target is not None and target.is_floating_point() != like.is_floating_point():
        raise ValueError(
            f"data declares column {fields.target!r}, the target, with {target.dtype} values, and example shows "
            f"{like.dtype}. No record would count: give an example with the declared type"
        )


def _made_up(records: DatasetRecords) -> tuple[dict[str, Any], dict[str, Any]]:
    """A record with made-up values, and the declaration of its columns; none if something there is unknown."""
    data, features = records.dataset, None
    while data is not None and features is None:  # parts of a split hold the data set
        features = getattr(data, "features", None)
        how = getattr(data, "format", None)
        data = getattr(data, "dataset", None)
    if not isinstance(features, Mapping) or records.fields is None:
        return {}, {}
    kind = how.get("type") if isinstance(how, Mapping) else None
    if kind not in (None, "python", "torch", "numpy"):  # a transform may make other columns
        return {}, {}
    with contextlib.suppress(_Unknown):
        lengths = {name: shape[0] for name, shape in records.fields.shapes.items() if shape}
        found = only({name: made_up(one, lengths.get(name, LENGTH)) for name, one in features.items()}, records.columns)
        as_kind: dict[Any, Callable[[Any], Any]] = {"torch": torch.as_tensor, "numpy": np.asarray}
        convert = as_kind.get(kind, lambda value: value)
        return {name: convert(one) if _numeric(one) else one for name, one in found.items()}, dict(features)
    return {}, {}


class _Unknown(Exception):  # noqa: N818
    """A kind of column for which no value can be made up."""


def made_up(feature: Any, length: int) -> Any:
    if isinstance(feature, Mapping):
        return {name: made_up(one, length) for name, one in feature.items()}
    kind, dtype = type(feature).__name__, str(getattr(feature, "dtype", ""))
    if kind in ("List", "LargeList", "Sequence"):
        size = getattr(feature, "length", -1)
        return [made_up(feature.feature, LENGTH) for _ in range(length if size == -1 else size)]
    if kind.startswith("Array"):
        return np.zeros([length if size is None else size for size in feature.shape], dtype=dtype).tolist()
    if kind == "ClassLabel" or (kind == "Value" and ("int" in dtype)):
        return 0
    if kind == "Value" and dtype.startswith(("float", "double", "half")):
        return 0.0
    if kind == "Value" and dtype == "bool":
        return False
    if kind == "Value" and "string" in dtype:
        return "made up"
    raise _Unknown


def length(feature: Any) -> int | None:
    return getattr(feature, "length", None)


def _numeric(value: Any) -> bool:
    try:
        torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        return False
    return True
