"""How a model becomes bytes and back. Nothing here uses pickle: loading a release never runs code from it."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from dphypo import _files
from dphypo.errors import UnsupportedModelError


@runtime_checkable
class Saver(Protocol):
    """Turns one kind of model into bytes and back.

    ``format``, letters and digits such as "npz", names the kind: it ends the model's file name in a saved release
    (``model.npz``) and says which saver :func:`dphypo.load_release` needs. The bytes are released, so they must contain
    nothing about the run but the model, not even the time.
    """

    @property
    def format(self) -> str: ...
    def dump(self, model: Any) -> bytes:
        """The model as bytes; ``UnsupportedModelError`` if it is not of the kind this saver knows."""

    def load(self, data: bytes) -> Any:
        """The model again. Must not run code found in the bytes."""


@dataclass(frozen=True)
class Plain:
    """Numbers, strings, None, numpy arrays, and lists, tuples and dicts of them, as an ``.npz`` archive.

    Arrays are stored in numpy's format and the structure around them as JSON, without timestamps or pickle.

    >>> saver = Plain()
    >>> model = {"weights": np.arange(3.0), "classes": ("cat", "dog"), "bias": 0.5}
    >>> saver.load(saver.dump(model))
    {'weights': array([0., 1., 2.]), 'classes': ('cat', 'dog'), 'bias': 0.5}
    """

    format: ClassVar[str] = "npz"

    def dump(self, model: Any) -> bytes:
        arrays: list[np.ndarray[Any, Any]] = []
        tree = _to_tree(model, arrays)
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            # A ZipInfo made from a name alone carries 1980-01-01; numpy.savez would write the time of the run.
            archive.writestr(zipfile.ZipInfo("tree.json"), json.dumps(tree))
            for index, array in enumerate(arrays):
                with archive.open(zipfile.ZipInfo(f"{index}.npy"), "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        return buffer.getvalue()

    def load(self, data: bytes) -> Any:
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                members = archive.infolist()
                # Nothing is compressed when it is written: what claims to be larger than the file would fill memory.
                if sum(member.file_size for member in members) > len(data):
                    raise ValueError("members that are larger than the file")
                tree = json.loads(archive.read("tree.json"))
                arrays = [_files.read_array(archive, str(index), limit=len(data)) for index in range(len(members) - 1)]
            return _from_tree(tree, arrays)
        except Exception as error:  # the archive's modules raise many kinds on damaged bytes
            reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"the model cannot be read: it is damaged, or was not saved by Plain() ({reason:.200})")


@dataclass(frozen=True)
class Pickled:
    """Any estimator, by pickle. Loading runs code from the bytes: open only journals and releases that you created."""

    format: ClassVar[str] = "pickle"

    def dump(self, model: Any) -> bytes:
        return pickle.dumps(model)

    def load(self, data: bytes) -> Any:
        return pickle.loads(data)


def _to_tree(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    """Scalars as themselves; everything else as a list that begins with its kind."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, (np.ndarray, np.generic)) and not np.asarray(value).dtype.hasobject:
        arrays.append(np.asarray(value))
        return ["array" if isinstance(value, np.ndarray) else "scalar", len(arrays) - 1]
    if type(value) in (list, tuple):
        return [type(value).__name__, *(_to_tree(item, arrays) for item in value)]
    if type(value) is dict and all(type(key) is str for key in value):
        return ["dict", *([key, _to_tree(item, arrays)] for key, item in value.items())]
    raise UnsupportedModelError(
        f"a model of type {type(value).__name__!r} cannot be saved by Plain(): return numpy arrays, plain values, and "
        "lists, tuples or dicts of them, or say how to save it with @dphypo.mechanism(saver=...); a model of PyTorch "
        "with OwnTraining(saver=Safetensors(net)), of dphypo.torch.saver"
    )


def _from_tree(tree: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    if not isinstance(tree, list):
        return tree
    kind, *items = tree
    if kind in ("array", "scalar"):
        return arrays[items[0]] if kind == "array" else arrays[items[0]][()]
    if kind == "dict":
        return {key: _from_tree(item, arrays) for key, item in items}
    values = [_from_tree(item, arrays) for item in items]
    return tuple(values) if kind == "tuple" else values
