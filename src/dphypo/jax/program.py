"""A model as JAX sees it: records, a row of trained numbers, and the gradients and scores of single records.

**Which programs may be mapped over a batch.** ``jax.vmap`` replaces each operator by its rule for a batch. The rules of
JAX's own operators treat every record by itself, up to rounding. A third-party rule (``custom_vmap``, a foreign call, a
Pallas kernel) receives the whole batch, and one record may change what it computes for the others. So the operators
that may be mapped are a closed list. A program with any other operator is executed for one record, and one run, after
the other.

Private records are trees of arrays, one row per record.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax
from jax.extend.core import Primitive, jaxpr_as_fun, primitives

from dphypo import _validate
from dphypo.errors import UnsupportedModelError
from dphypo.jax.step import Optimizer, RecordGradients, Stepper, gradients, names_of, read_optimizer
from dphypo.mechanisms import Plain
from dphypo.mechanisms.mechanism import or_none
from dphypo.training.persons import PersonKeys, Persons, known_keys, words_of
from dphypo.training.poisson_draws import MULTIPLE
from dphypo.training.scores import Asked, Floats, Targets, TrainedModel, Value
from dphypo.training.split import Origin

Tree = Any
"""Nested tuples, lists and dicts of arrays."""


@dataclass(frozen=True, eq=False, repr=False)
class TreeRecords:
    """Arrays with one row per record, in the types that JAX computes with, and their side of a split.

    ``person`` identifies the person of each row, if a record is all rows of a person.
    """

    tree: Tree
    origin: Origin = field(default_factory=Origin)
    person: PersonKeys | None = None

    def __len__(self) -> int:
        return len(jax.tree.leaves(self.tree)[0])

    @property
    def size(self) -> int:
        """The number of records: rows, or persons."""
        return len(self) if self.person is None else self.person.count

    def held(self) -> dict[str, npt.NDArray[Any]]:
        """The records as columns, for a fingerprint."""
        found = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(self.tree)}
        return found if self.person is None else {**found, "person": self.person.rows}

    def inside(self, classes: int | None) -> npt.NDArray[np.bool_]:
        """A mask of the records in the domain: others have a value that is not finite, or a label without a class.

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
    keys: Any = known_keys(data, person)
    keys = person if keys is None else keys
    if isinstance(keys, str):
        if not isinstance(data, Mapping) or keys not in data:
            known = f"data has {', '.join(map(str, data))}" if isinstance(data, Mapping) else "data has no names"
            raise _validate.fail("person", keys, f"{known}: name an entry of a dict, or give an array, one key per row")
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


_RANDOM = {  # operators whose rule draws for a whole batch from one key, or from none
    primitives.rng_bit_generator_p,
    primitives.rng_uniform_p,
}
_UNSTEADY = frozenset({"svd", "eig", "schur", "hessenberg"})
"""Decompositions of LAPACK that, unlike ``eigh``, ``qr``, ``lu`` and ``cholesky``, are not total."""
OURS = {one for room in (primitives, jax.lax) for one in vars(room).values() if isinstance(one, Primitive)} - _RANDOM
"""The operators that JAX itself exports: no ``custom_vmap``, foreign call, callback or kernel is among them."""


def traced(function: Callable[..., Any], *example: Any) -> tuple[Callable[..., Any], bool]:
    """A function as the program that JAX sees for arguments of these types, and whether it may be mapped.

    The program is executed and not the function: what was checked is what is mapped. It calls no Python.
    """
    code, shapes = jax.make_jaxpr(function, return_shape=True)(*example)
    if code.effects or any("callback" in one.primitive.name for one in _operators(code)):
        raise UnsupportedModelError(
            "loss or predict calls back into Python (jax.debug.print, pure_callback or similar), where it could show "
            "single records without noise. Leave the callback out"
        )
    if found := _UNSTEADY.intersection(one.primitive.name for one in _operators(code)):
        raise UnsupportedModelError(
            f"loss or predict uses {min(found)}, whose library writes to standard error for numbers of one record that "
            "are not finite, or does not end: compute it before, or use eigh or an iteration of products"
        )
    structure, run = jax.tree.structure(shapes), jaxpr_as_fun(code)

    def program(*given: Any) -> Any:
        return jax.tree.unflatten(structure, run(*jax.tree.leaves(given)))

    return program, not foreign(code)


def foreign(code: Any) -> set[str]:
    """The operators of a program, and of programs inside it, that are not in the list."""
    return {one.primitive.name for one in _operators(code) if not _is_ours(one)}


def _is_ours(operator: Any) -> bool:
    kinds = [str(value.aval.dtype) for value in operator.invars if hasattr(value.aval, "dtype")]
    keys = [kind for kind in kinds if kind.startswith("key<")]  # another generator may have other rules
    return operator.primitive in OURS and all(kind == "key<fry>" for kind in keys)


def _operators(code: Any) -> Iterator[Any]:
    for operator in getattr(code, "jaxpr", code).eqns:
        yield operator
        for inner in _programs(list(operator.params.values())):
            yield from _operators(inner)


def _programs(value: Any) -> Iterator[Any]:
    """The programs among the parameters of an operator, such as the body of a loop or the branches of a condition."""
    if hasattr(value, "eqns") or hasattr(getattr(value, "jaxpr", None), "eqns"):
        yield value
    elif isinstance(value, dict):
        yield from _programs(list(value.values()))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _programs(one)


_DRAWS = 3  # weights at which places are compared
_LARGE = 2**17  # numbers: runs with larger gradients go one after the other in one program: they stay in cache


def named(function: Callable[..., Any] | None, leading: int) -> dict[str, bool]:
    """The hyperparameters that a function names after its first arguments, and whether each must be given."""
    parameters = () if function is None else inspect.signature(function).parameters.values()
    found = [one for one in parameters if one.kind is not one.VAR_KEYWORD]
    return {one.name: one.default is one.empty for one in found[leading:] if one.name != "key"}


class Program:
    """One architecture: ``init``, ``loss`` and ``predict`` of :class:`DPSGD` with the hyperparameters that they name.

    Numbers of single or double precision in what ``init`` returns are trained; everything else in it stays.
    """

    def __init__(
        self,
        init: Callable[..., Tree],
        loss: Callable[..., Any] | None,
        predict: Callable[..., Any] | None,
        arguments: Mapping[str, Any],
        records: TreeRecords,
        rows_per_person: int | None = None,
    ) -> None:
        def bound(function: Callable[..., Any], leading: int) -> Callable[..., Any]:
            taken = named(function, leading).keys() & arguments.keys()
            return partial(function, **{name: arguments[name] for name in taken})

        self._init, self._predict = bound(init, 1), None if predict is None else bound(predict, 2)
        self._is_cross_entropy = loss is None
        self._loss = self._cross_entropy if loss is None else bound(loss, 2)
        self._takes_key = loss is not None and "key" in names_of(loss)
        self._compiled: Callable[[jax.Array], list[Any]] = jax.jit(self._arrays)
        arrays = self.built(jax.random.key(0))
        shown, some = [leaf for leaf in arrays if _is_trained(leaf)], iter(arrays)
        whole = [next(some) if leaf is None else leaf for leaf in self._others]
        self._kept = [None if _is_trained(leaf) else leaf for leaf in whole]
        if not shown:
            raise UnsupportedModelError("init returns nothing to train: give a tree of arrays of single precision")
        if len(kinds := {str(leaf.dtype) for leaf in shown}) > 1 or not kinds <= {"float32", "float64"}:
            raise UnsupportedModelError(
                f"the parameters are {', '.join(sorted(kinds))}: use float32 or float64 for all"
            )
        self._shapes, self.dtype = [leaf.shape for leaf in shown], shown[0].dtype
        self.sizes = [leaf.size for leaf in shown]
        self.size = sum(self.sizes)
        self.records = records
        self._try_out()
        self.records = self.usable(records)
        self._views = rows_per_person
        self._alone: dict[tuple[int, ...], bool] = {}
        self._steppers: dict[Any, Stepper] = {}
        self._mapped: dict[Any, Callable[..., Any]] = {}
        self.description = repr([(leaf.shape, str(leaf.dtype)) for leaf in shown] + [str(self._structure)])

    def _try_out(self) -> None:
        """Refuse a loss that does not give a number, or that could show records to other code."""
        record = self.records.synthetic_row()
        row = jnp.zeros(self.size, self.dtype)
        called, shapes = "loss(params, record)", jax.tree.map(np.shape, record)
        if self._is_cross_entropy:
            self._refuse_labels(record)
            called, shapes = "predict(params, input)", np.shape(record[0])
        try:
            code = jax.make_jaxpr(self.loss)(row, record, jax.random.key(0))
        except Exception as error:
            raise UnsupportedModelError(
                f"{called} fails on a made-up record ({type(error).__name__}: {error}). It gets what init returns and "
                f"one record, without the dimension of a batch: shapes {shapes}"
            ) from error
        if [(value.shape, value.dtype.kind) for value in code.out_avals] != [((), "f")]:
            raise UnsupportedModelError("the loss of a record must be one real number: loss(params, record) -> scalar")
        for function in (self.loss, jax.grad(self.loss)):
            traced(function, row, record, jax.random.key(0))
        if self._predict is not None and isinstance(record, tuple) and self.classes is not None:
            traced(self.predict, row, record[0])

    def built(self, key: jax.Array) -> list[Any]:
        """The arrays that ``init`` returns. It is compiled, unless it needs the value of the key."""
        try:
            return self._compiled(key)
        except jax.errors.JAXTypeError:
            return self._arrays(key)

    def _arrays(self, key: jax.Array) -> list[Any]:
        leaves, self._structure = jax.tree.flatten(self._init(key))
        self._others = [None if _is_array(leaf) else leaf for leaf in leaves]
        return [leaf for leaf in leaves if _is_array(leaf)]

    def row(self, tree: Tree) -> npt.NDArray[Any]:
        """The trained numbers of a tree."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree) if _is_trained(leaf)]
        if [leaf.shape for leaf in leaves] != self._shapes:
            raise UnsupportedModelError("init returned different shapes: build the model from its arguments")
        return np.concatenate([leaf.reshape(-1) for leaf in leaves]).astype(self.dtype)

    def leaves(self, row: Any) -> list[Any]:
        """The trained arrays of a row."""
        parts = zip(np.cumsum(self.sizes), self.sizes, self._shapes, strict=True)
        return [row[end - size : end].reshape(shape) for end, size, shape in parts]

    def tree(self, leaves: list[Any], *, whole: bool = True) -> Tree:
        """The tree of ``init`` with other trained arrays; unless ``whole``, without those that are not trained."""
        some = iter(leaves)
        every = [next(some) if leaf is None else leaf if whole else None for leaf in self._kept]
        return jax.tree.unflatten(self._structure, every)

    def loss(self, row: Any, record: Tree, key: jax.Array) -> Any:
        """The loss of one record."""
        return self.loss_of(self.leaves(row), record, key)

    def loss_of(self, leaves: list[Any], record: Tree, key: jax.Array) -> Any:
        """The loss of one record, at these trained arrays."""
        return self._loss(self.tree(leaves), record, **({"key": key} if self._takes_key else {}))

    def _of_person(self, leaves: list[Any], person: Tree, key: jax.Array) -> Any:
        """The mean loss over a person's rows, as their weights say."""
        rows, weights = person
        keys = jax.random.split(key, len(weights))
        losses = jax.vmap(partial(self.loss_of, leaves))(rows, keys)
        return jnp.sum(losses.astype(weights.dtype) * weights)

    def _refuse_labels(self, record: Tree) -> None:
        labels = record[1]
        if labels.ndim or labels.dtype.kind not in "iu":
            remedy = "the default loss takes one whole number per record, its class: encode them so, or give a loss"
            raise _validate.fail("data", f"targets of {labels.dtype}, {labels.size} a record", remedy)

    def _cross_entropy(self, params: Tree, record: Tree) -> Any:
        assert self._predict is not None
        self._refuse_labels(record)
        return optax.softmax_cross_entropy_with_integer_labels(self._predict(params, record[0]), record[1])

    def predict(self, row: Any, inputs: Any) -> Any:
        """The model's output for the input of one record."""
        if self._predict is None:
            raise ValueError("predict = None: a score of accuracy needs predict(params, inputs) -> outputs")
        return self._predict(self.tree(self.leaves(row)), inputs)

    @cached_property
    def classes(self) -> int | None:
        """The number of classes, found on made-up inputs; None without ``predict``."""
        if self._predict is None or not isinstance(self.records.tree, tuple):
            return None
        shape = self.outputs(self.records.tree[0])
        return max(2, shape[-1]) if shape else 2

    @property
    def matrices(self) -> int:
        """The number of trained arrays of weights, vectors aside."""
        return sum(len(shape) > 1 for shape in self._shapes)

    def movement(self, scale: float, noise: float, shape: tuple[int, ...]) -> float:
        """The distance by which noise in all weights moves the outputs, on made-up inputs of this scale and shape."""
        random = np.random.default_rng(0)
        inputs = random.normal(size=(32, *shape)) * scale / math.sqrt(max(1, math.prod(shape)))
        row = self.row(self.built(jax.random.key(0)))
        steps = [random.normal(size=leaf.shape) * (leaf.ndim > 1) for leaf in self.leaves(row)]
        shaken = (row + noise * np.concatenate([step.reshape(-1) for step in steps])).astype(self.dtype)
        outputs = [jax.vmap(partial(self.predict, one))(jnp.asarray(inputs, self.dtype)) for one in (row, shaken)]
        moved = np.asarray(outputs[1] - outputs[0], dtype=np.float64)
        return float(np.sqrt(np.mean((moved - moved.mean(0)) ** 2)))

    def outputs(self, inputs: Tree) -> tuple[int, ...]:
        """The shape of the model's output for one of these inputs; no value is read."""
        one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), inputs)  # type: ignore[no-untyped-call]
        found: tuple[int, ...] = jax.eval_shape(self.predict, jnp.zeros(self.size, self.dtype), one).shape
        return found

    def inside(self, records: TreeRecords) -> npt.NDArray[np.bool_]:
        """A mask of the records in the domain. With a single output, which may be a number, any label is in it."""
        return records.inside(self.classes if self._is_cross_entropy or (self.classes or 0) > 2 else None)

    def usable(self, records: TreeRecords) -> TreeRecords:
        """The records in the domain."""
        inside = self.inside(records)
        return records if inside.all() else records.chosen(inside)

    @property
    def count(self) -> int:
        """The number of records to sample from: rows, or persons. **Secret.**"""
        return len(self.records) if self._views is None else len(self._persons)

    @cached_property
    def _persons(self) -> Persons:
        assert self.records.person is not None
        assert self._views is not None
        return self.records.person.grouped(self._views)

    def gradients(
        self, rows: Any, numbers: npt.NDArray[np.int32], keys: jax.Array, step: int, words: npt.NDArray[np.int64]
    ) -> tuple[list[RecordGradients], jax.Array]:
        """Gradients of the records of these numbers, [runs, records, ...] for each trained array; finite losses.

        ``words``, one a run, decide which rows of a person are used, where records are persons.
        """
        alone = self._alone.get(numbers.shape)
        if alone is None:
            small = numbers.shape[-1] % MULTIPLE > 0  # there a record's address depends on its place
            alone = self._alone[numbers.shape] = small or not self._same_everywhere(numbers.shape, keys)
        if self._views is None:
            some = _rows(self._data, numbers)
        else:  # rows of a person are averaged: those that are drawn have equal weights
            each = numbers.astype(np.int64)
            chosen, held = self._persons.drawn(each.reshape(-1), words_of(words, step, each).reshape(-1))
            weights = (held / np.maximum(held.sum(1, keepdims=True), 1)).astype(self.dtype)
            sizes = (*numbers.shape, self._views)
            some = _rows(self._data, chosen.reshape(sizes).astype(np.int32)), weights.reshape(sizes)
        return self._gradients(alone, rows, some, numbers, keys, np.int32(step))

    @cached_property
    def _data(self) -> Tree:
        """The records as arrays of JAX. If there is none, one of zeros, which never counts."""
        return jax.tree.map(
            jnp.asarray, self.records.tree if len(self.records) else self.records.synthetic_rows(1, zeros=True)
        )

    @cached_property
    def _gradients(self) -> Callable[..., tuple[list[RecordGradients], jax.Array]]:
        def of_record(leaves: list[Any], key: Any, step: Any, record: Tree, number: Any) -> Any:
            own = jax.random.fold_in(jax.random.fold_in(key, step), number) if self._takes_key else key
            loss, found = gradients(self.loss_of if self._views is None else self._of_person, leaves, record, own)
            return found, jnp.isfinite(loss)

        def of_runs(alone: bool, rows: jax.Array, some: Tree, numbers: Any, keys: Any, step: Any) -> Any:
            first = jax.tree.map(lambda leaf: leaf[0, 0], (some, numbers))
            single, mapped = traced(of_record, self.leaves(rows[0]), keys[0], step, *first)

            def of_run(row: Any, some: Tree, numbers: Any, key: Any) -> Any:
                each = partial(single, self.leaves(row), key, step)
                return jax.vmap(each)(some, numbers) if mapped and not alone else _one_by_one(each, some, numbers)

            given = (rows, some, numbers, keys)
            shapes = jax.eval_shape(of_run, *jax.tree.map(lambda leaf: leaf[0], given))
            if mapped and sum(leaf.size for leaf in jax.tree.leaves(shapes)) <= _LARGE:
                return jax.vmap(of_run)(*given)
            return _one_by_one(of_run, *given)

        return jax.jit(of_runs, static_argnums=0)

    def _same_everywhere(self, shape: tuple[int, ...], keys: jax.Array) -> bool:
        """Whether a made-up record has the same gradient, bit by bit, at other positions and next to other records.

        Otherwise records are differentiated one after the other. The other records are NaN, or as large as numbers can
        be. Weights are random too: initial ones may be zeros, for which nothing is rounded.
        """
        places, data = np.arange(shape[-1], dtype=np.int32), self.records.synthetic_rows(shape[-1])
        if self._views is not None:
            views = self._views
            data = jax.tree.map(lambda leaf: np.stack([np.roll(leaf, at, 0) for at in range(views)], 1), data)
            data = data, np.full((shape[-1], views), 1 / views, dtype=self.dtype)
        watched, turned = places % 3 == 1, np.roll(places, 1)

        def found(rows: jax.Array, order: npt.NDArray[np.int32], data: Tree) -> npt.NDArray[np.uint8]:
            numbers = np.broadcast_to(order, shape)
            made = self._gradients(False, rows, _rows(data, numbers), numbers, keys, np.int32(0))[0]
            parts = [np.asarray(part) for part in jax.tree.leaves(made)]
            return np.concatenate([part.reshape(*shape, -1).view(np.uint8) for part in parts], 2)

        def spoilt(large: bool, leaf: npt.NDArray[Any]) -> npt.NDArray[Any]:
            if leaf.dtype.kind not in "fiu":
                return leaf
            limits = np.finfo(leaf.dtype) if leaf.dtype.kind == "f" else np.iinfo(leaf.dtype)
            other = limits.max if large else np.nan if leaf.dtype.kind == "f" else limits.min
            kept = watched.reshape(-1, *[1] * (leaf.ndim - 1))
            return np.where(kept, leaf, np.asarray(other, leaf.dtype))

        for seed in range(_DRAWS):
            rows = self._random(shape[0], seed)
            moved = np.roll(found(rows, places, data), 1, 1)
            others = [found(rows, turned, jax.tree.map(partial(spoilt, large), data)) for large in (False, True)]
            beside = [(moved == other)[:, np.roll(watched, 1)].all() for other in others]
            if not (moved == found(rows, turned, data)).all() or not all(beside):
                return False
        return True

    def _random(self, runs: int, seed: int) -> jax.Array:
        """Weights of several runs. Vectors lie in [½, 1½), where a scale may be."""
        drawn, made = np.random.default_rng(seed), []
        for shape in self._shapes:
            sizes = (runs, *shape)
            normal = drawn.normal(size=sizes) / math.sqrt(math.prod(shape[:-1]))
            made.append((normal if len(shape) > 1 else drawn.random(sizes) + 0.5).reshape(runs, -1))
        return jnp.asarray(np.concatenate(made, 1).astype(self.dtype))

    def stepper(self, optimizer: Optimizer, static: Mapping[str, Any]) -> Stepper:
        """An optimiser for the rows of several runs, compiled once."""
        key = (optimizer, repr(sorted(static.items())))
        if key not in self._steppers:
            self._steppers[key] = Stepper(
                lambda row: self.tree(self.leaves(row), whole=False), read_optimizer(optimizer), static
            )
        return self._steppers[key]

    def each(
        self, value: Callable[[Program, Any, Tree], Any], row: Any, records: TreeRecords
    ) -> npt.NDArray[np.float64]:
        """A value for each record, one by one: in a batch its place can change the last bits."""
        if value not in self._mapped:

            def mapped(row: Any, tree: Tree) -> Any:
                single, _ = traced(partial(value, self), row, jax.tree.map(lambda leaf: leaf[0], tree))
                return jax.lax.map(partial(single, row), tree)

            self._mapped[value] = jax.jit(mapped)
        found = self._mapped[value](row, records.tree) if len(records) else []
        return np.asarray(found, dtype=np.float64)


def _one_by_one(function: Callable[..., Any], *given: Any) -> Any:
    return jax.lax.map(lambda one: function(*one), given)


@jax.jit
def _rows(data: Tree, numbers: Any) -> Tree:
    """The records with these numbers.

    This is a separate program, which rounds nothing: the number of records is private, and the program of the
    gradients must not depend on it.
    """
    return jax.tree.map(lambda leaf: leaf.at[numbers].get(mode="clip"), data)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray))


def _is_trained(leaf: Any) -> bool:
    return _is_array(leaf) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def _outputs(program: Program, row: Any, record: Tree) -> Any:
    return program.predict(row, record[0]).reshape(-1)


def _loss(program: Program, row: Any, record: Tree) -> Any:
    return program.loss(row, record, jax.random.key(0))


class JaxModel(TrainedModel):
    """A program of JAX as scores see it, with its trained parameters: as one row, and as ``init`` returned them."""

    def __init__(self, program: Program, row: Any = None, model: Any = None) -> None:
        self._program, self._row, self.model = program, row, model

    @classmethod
    def records(cls, data: Any, example: Any = None, *, public: bool = False, person: Any = None) -> TreeRecords:
        return as_records(data, person)

    def classes(self, records: TreeRecords) -> int | None:
        return self._program.classes

    def labelled(self, records: TreeRecords, value: Value, asked: Asked) -> Floats:
        group = asked.group

        def of_records(inside: TreeRecords) -> Floats:
            inputs, labels = inside.tree
            groups = None
            if group is not None:
                each = (jax.tree.map(lambda leaf, at=at: leaf[at], inputs) for at in range(len(inside)))
                read = [or_none(partial(lambda one: float(np.reshape(group(one), ())), one)) for one in each]
                groups = np.array([-1.0 if one is None else one for one in read])
            found = value(self._program.each(_outputs, self._row, inside), labels.astype(np.float64), groups)
            return found if asked.ignored is None else np.where(labels.reshape(-1) == asked.ignored, np.nan, found)

        return self._of(records, asked, of_records)

    def losses(self, records: TreeRecords, loss: Callable[..., Any] | None, asked: Asked) -> Floats:
        if loss is not None:
            raise _validate.fail("loss", loss, "in JAX a score uses the training loss: leave it out")
        return self._of(
            records, asked, lambda inside: np.nan_to_num(self._program.each(_loss, self._row, inside), nan=np.inf)
        )

    def _of(self, records: TreeRecords, asked: Asked, values: Callable[[TreeRecords], Floats]) -> Floats:
        """The values of some records; NaN for those outside the domain."""
        some = records if asked.rows is None else records.chosen(asked.rows)
        inside = self._program.inside(some)
        found = np.full(len(some), np.nan)
        if inside.any():
            found[inside] = values(some if inside.all() else some.chosen(inside))
        return found

    def targets(self, measure: str, records: TreeRecords) -> Targets:
        """The loss is a user's function: whether it is one of regression cannot be seen."""
        tree = records.tree
        if not isinstance(tree, tuple | list) or len(tree) != 2 or not isinstance(tree[1], np.ndarray):
            raise _validate.fail("score", measure, "it compares labels: give it pairs, data=(inputs, labels)")
        inputs, labels = tree
        return Targets(labels.shape[1:], str(labels.dtype), self._program.outputs(inputs))
