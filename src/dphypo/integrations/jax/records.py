"""Trees of arrays: private records, one row each, and models as they are saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import jax
import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.errors import UnsupportedModelError
from dphypo.integrations.persons import PersonKeys
from dphypo.integrations.split import Origin, remember
from dphypo.mechanisms import Plain

Tree = Any
"""Nested tuples, lists and dicts of arrays."""


@dataclass(frozen=True, eq=False, repr=False)
class TreeRecords:
    """Arrays with one row per record, in the types that JAX computes with, and their side of a split.

    ``person`` says whose row each row is, where a record is all rows of a person.
    """

    tree: Tree
    origin: Origin = field(default_factory=Origin)
    person: PersonKeys | None = None

    def __len__(self) -> int:
        return len(jax.tree.leaves(self.tree)[0])

    @property
    def size(self) -> int:
        """How many records there are: rows, or persons."""
        return len(self) if self.person is None else self.person.count

    def held(self) -> dict[str, npt.NDArray[Any]]:
        """The records as columns, for a fingerprint."""
        found = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(self.tree)}
        return found if self.person is None else {**found, "person": self.person.rows}

    def inside(self, classes: int | None) -> npt.NDArray[np.bool_]:
        """Which records are in the domain: those outside have a value that is not finite or a label without a class.

        Whether a record is in the domain depends on that record alone, so dropping it costs no privacy.
        """
        inside = np.ones(len(self), dtype=np.bool_)
        for leaf in jax.tree.leaves(self.tree):
            if leaf.dtype.kind == "f":
                inside &= np.isfinite(leaf.reshape(len(leaf), -1 if leaf.size else 0)).all(1)
        if classes is not None and isinstance(self.tree, tuple) and len(self.tree) == 2:
            labels = self.tree[1]
            if isinstance(labels, np.ndarray) and labels.ndim == 1 and labels.dtype.kind in "iu":
                inside &= (labels >= 0) & (labels < classes)
        return inside if self.person is None else inside & self.person.known

    def chosen(self, rows: Any) -> TreeRecords:
        """Some of the records."""
        person = None if self.person is None else self.person[rows]
        return replace(self, tree=jax.tree.map(lambda leaf: leaf[rows], self.tree), person=person)

    def synthetic_rows(self, count: int, *, zeros: bool = False) -> Tree:
        """Made-up records of the same shapes and types: normal numbers, or 0 and 1 for integers."""
        random = np.random.default_rng(0)

        def like(leaf: npt.NDArray[Any]) -> npt.NDArray[Any]:
            shape = (count, *leaf.shape[1:])
            drawn = random.normal(size=shape) if leaf.dtype.kind == "f" else random.integers(0, 2, shape)
            return (0 * drawn if zeros else drawn).astype(leaf.dtype)

        return jax.tree.map(like, self.tree)

    def synthetic_row(self) -> Tree:
        """One made-up record."""
        return jax.tree.map(lambda leaf: leaf[0], self.synthetic_rows(1))


def as_records(data: Any, person: Any = None) -> TreeRecords:
    """Records as they were given: arrays, or tuples, lists and dicts of them; ``person`` is as for ``DPSGD``."""
    if isinstance(data, TreeRecords):
        return data
    keys = getattr(data, "person", person)
    if isinstance(keys, str):
        if not isinstance(data, Mapping) or keys not in data:
            known = f"data has {', '.join(map(str, data))}" if isinstance(data, Mapping) else "data has no names"
            raise _validate.fail("person", keys, f"{known}: name the entry of a dict, or give an array, one key a row")
        data, keys = {name: part for name, part in data.items() if name != keys}, data[keys]
    found = _as_tree(data)
    if keys is None:
        return found

    def record(at: int) -> Tree:
        return jax.tree.map(lambda leaf: leaf[at], found.tree)

    return replace(found, person=PersonKeys.of(keys, len(found), record))


def _as_tree(data: Any) -> TreeRecords:
    # JAX takes a subclass of tuple, such as a part of split_by_hash, for one leaf.
    plain = tuple(data) if isinstance(data, tuple) and not hasattr(data, "_fields") else data
    if not isinstance(plain, (tuple, list, Mapping)) and not hasattr(plain, "shape"):
        raise TypeError(f"data is a {type(data).__name__}: give arrays with one row per record, such as data=(X, y)")
    tree = jax.tree.map(_array, plain)
    sizes = [leaf.shape[0] if leaf.ndim else None for leaf in jax.tree.leaves(tree)]
    if not sizes or None in sizes or len(set(sizes)) > 1:
        raise ValueError("the arrays of data have different numbers of rows: give one row per record in each")
    for leaf in jax.tree.leaves(tree):
        remember(leaf, Origin.of(data))
    return TreeRecords(tree, Origin.of(data))


def _array(values: Any) -> npt.NDArray[Any]:
    found = np.asarray(values)
    if found.dtype.kind not in "biuf":
        raise TypeError(f"data holds {found.dtype} values: encode everything as numbers first")
    wanted = jax.dtypes.canonicalize_dtype(found.dtype)
    if found.dtype.kind in "iu" and wanted != found.dtype:
        found = np.clip(found, np.iinfo(wanted).min, np.iinfo(wanted).max)  # a cast would make another label of it
    with np.errstate(over="ignore"):
        return found.astype(wanted)


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
