"""Models as their arrays: trees of dicts, lists and tuples as they are; of other nodes, arrays by their paths."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import numpy as np

from dphypo.errors.faults import UnsupportedModelError
from dphypo.mechanisms import Plain


class Trees:
    """Saves the arrays of a tree with :class:`dphypo.mechanisms.Plain`, whose format it is.

    A model of other classes, such as a module of equinox, is loaded as a dict from paths to arrays:
    ``restored(arrays, like=init(key))`` puts them into a model.
    """

    format: ClassVar[str] = Plain.format

    def dump(self, model: Any) -> bytes:
        arrays = jax.tree.map(lambda leaf: np.asarray(leaf) if hasattr(leaf, "dtype") else leaf, model)
        try:
            return Plain().dump(arrays)
        except UnsupportedModelError:
            found = jax.tree_util.tree_leaves_with_path(arrays)
            named = {jax.tree_util.keystr(path): leaf for path, leaf in found if isinstance(leaf, np.ndarray)}
            return Plain().dump(named)

    def load(self, data: bytes) -> Any:
        return Plain().load(data)


def restored(arrays: dict[str, Any], like: Any) -> Any:
    """A model like the given one with saved arrays."""

    def found(path: Any, leaf: Any) -> Any:
        return arrays.get(jax.tree_util.keystr(path), leaf)

    return jax.tree_util.tree_map_with_path(found, like)
