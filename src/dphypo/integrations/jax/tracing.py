"""Which programs of a single record may be mapped over a batch: those of JAX's own operators.

``jax.vmap`` replaces each operator by its rule for a batch. The rules of JAX's own operators treat every record by
itself, up to rounding. A rule that somebody else wrote (``custom_vmap``, a foreign call, a Pallas kernel) is given the
whole batch, and one record may change what it computes for the others. So the operators that may be mapped are a closed
list. A program with any other operator is run for one record, and one run, after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.extend.core import Primitive, jaxpr_as_fun, primitives

_RANDOM = {  # operators whose rule draws for a whole batch from one key, or from none
    primitives.rng_bit_generator_p,
    primitives.rng_uniform_p,
}
OURS = {one for room in (primitives, jax.lax) for one in vars(room).values() if isinstance(one, Primitive)} - _RANDOM
"""What JAX itself exports: neither ``custom_vmap``, foreign calls, callbacks nor kernels are among it."""


def traced(function: Callable[..., Any], *example: Any) -> tuple[Callable[..., Any], bool]:
    """A function as the program that JAX sees for arguments of these types, and whether it may be mapped.

    The program is run, not the function, so that what was checked is what is mapped.
    """
    code, shapes = jax.make_jaxpr(function, return_shape=True)(*example)
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
