"""Argument checks whose errors name the argument, its value and the remedy.

Each function takes its argument by name, ``positive(gamma=gamma)``, and returns the value, so that one line checks and
assigns.
"""

from __future__ import annotations

import contextlib
import difflib
import enum
import functools
import inspect
import math
import operator
import os
import struct
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, ParamSpec, SupportsFloat, SupportsIndex, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Kind = TypeVar("Kind", bound=enum.Enum)
P = ParamSpec("P")
R = TypeVar("R")
LONGEST_NAME = 200  # characters of a name in a document
_LONGEST_VALUE = 200  # characters of a value in an error
_CHOOSE_DELTA = "choose δ well below 1/(number of records), for example 1e-5"
_LARGE_DELTA = 1e-3  # above this δ means little for any number of records
_LOUD = 0.2  # above this standard deviation, in units of the score's range, noise decides which run is best


def _only(named: dict[str, Any]) -> tuple[str, Any]:
    ((name, value),) = named.items()
    return name, value


def fail(name: str, value: object, remedy: str) -> ValueError:
    """The error for a wrong argument: its name, its value (cut if it is long) and the remedy."""
    return ValueError(f"{name} = {printable(repr(value), _LONGEST_VALUE)} is not valid: {remedy}")


def ensure(holds: object, otherwise: str) -> None:
    """An ``assert`` that ``python -O`` does not remove."""
    if not holds:
        raise AssertionError(otherwise)


_ELSEWHERE = {
    **dict.fromkeys(("n_trials", "n_iter", "n_runs"), "give survey=20, the number of short runs"),
    **dict.fromkeys(("timeout", "max_time"), "time depends on the data, so give compute=, in full runs"),
    **dict.fromkeys(("callbacks", "callback"), "give on_run=, which is called with every published run"),
    "n_jobs": "give workers= for several runs at a time",
    "show_progress_bar": "give progress=True or False",
    "catch": "an exception inside a run makes it a failed run: leave it out",
    "gc_after_trial": "with workers= each run is executed in its own process: leave it out",
    "lr": "give learning_rate=",
    "steps": "give epochs=, which is steps times batch_size over records; or a space with 'steps'",
    "seed": "seeds come from the operating system; for a simulation without a guarantee, give entropy=Seeded(1)",
}
"""Arguments of other optimisers, and what to write instead."""


def spelled(called: str, given: Iterable[str], names: Collection[str]) -> None:
    """Refuse an argument that does not exist, and suggest the nearest one that does."""
    for name in given:
        if name not in names:
            instead = _ELSEWHERE.get(name, "")
            if instead.endswith("leave it out") or any(f" {one}=" in f" {instead}" for one in names):
                raise TypeError(f"{called}() has no {name}: {instead}")
            close = difflib.get_close_matches(name, names, 1)
            meant = f". Did you mean {close[0]!r}?" if close else ""
            raise TypeError(f"{called}() got an unexpected keyword argument {name!r}{meant}")


def named_right(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that misspelt arguments, and a missing ε or δ, are refused."""
    names = inspect.signature(function).parameters

    @functools.wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> R:
        spelled(function.__name__, named, names)
        needed = [name for name in ("epsilon", "delta") if name in names and names[name].default is names[name].empty]
        if missing := [name for name in needed if name not in named]:
            raise TypeError(
                f"{function.__name__} needs {' and '.join(missing)}: give epsilon=, the total privacy cost, such as 4, "
                "and delta=, well below one over the number of records, such as 1e-6"
            )
        return function(*args, **named)

    return call


def number(**named: SupportsFloat) -> float:
    """A finite real number."""
    name, value = _only(named)
    result = math.nan
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        result = math.nan if isinstance(value, (str, bytes, bytearray)) else float(value)  # float() would parse text
    if not math.isfinite(result):
        raise fail(name, value, "give a finite number")
    return result


def within(low: float, high: float, *, closed: str = "neither", why: str = "", **named: SupportsFloat) -> float:
    """A number between ``low`` and ``high``; ``closed`` is "neither", "left", "right" or "both"."""
    result = number(**named)
    above = result >= low if closed in ("left", "both") else result > low
    below = result <= high if closed in ("right", "both") else result < high
    if not (above and below):
        left, right = ("[" if closed in ("left", "both") else "("), ("]" if closed in ("right", "both") else ")")
        raise fail(*_only(named), f"it must lie in {left}{low:g}, {high:g}{right}{'; ' + why if why else ''}")
    return result


def positive(**named: SupportsFloat) -> float:
    """A finite number greater than 0."""
    result = number(**named)
    if result <= 0:
        raise fail(*_only(named), "it must be greater than 0")
    return result


def non_negative(**named: SupportsFloat) -> float:
    """A finite number, 0 or greater."""
    result = number(**named)
    if result < 0:
        raise fail(*_only(named), "it must be 0 or greater")
    return result


def integer(*, at_least: int | None = None, **named: SupportsIndex) -> int:
    """A whole number; numpy integers are accepted, floats and booleans are not."""
    name, value = _only(named)
    result: int | None = None
    with contextlib.suppress(TypeError):
        result = None if isinstance(value, (bool, np.bool_)) else operator.index(value)
    if result is None or (at_least is not None and result < at_least):
        raise fail(name, value, "give a whole number" + ("" if at_least is None else f", {at_least} or greater"))
    return result


def choice(kind: type[Kind], **named: object) -> Kind:
    """A member of an enumeration, or its value."""
    name, value = _only(named)
    try:
        return kind(value)
    except ValueError:
        values = ", ".join(repr(member.value) for member in kind)
        raise fail(name, value, f"give one of {values}") from None


def _checked(named: dict[str, Any], holds: Callable[[Any], bool], remedy: str) -> Any:
    name, value = _only(named)
    if not holds(value):
        raise fail(name, value, remedy)
    return value


def flag(**named: object) -> bool:
    """True or False, and nothing else."""
    return bool(_checked(named, lambda value: isinstance(value, (bool, np.bool_)), "give True or False"))


def mapping(**named: object) -> Mapping[Any, Any]:
    """A dict or another mapping."""
    found: Mapping[Any, Any] = _checked(named, lambda value: isinstance(value, Mapping), "give a dict")
    return found


def sequence(**named: object) -> Sequence[Any]:
    """A list, a tuple, an array or another sequence, but not text."""
    name, value = _only(named)
    if isinstance(value, np.ndarray) and value.ndim > 0:
        value = list(value)
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray)):
        raise fail(name, value, "give a list")
    return value


def function(**named: object) -> None:
    """A callable."""
    _checked(named, callable, "give a function")


def path(**named: object) -> Path:
    """The path of a file or folder."""
    name, value = _only(named)
    if not isinstance(value, (str, os.PathLike)) or not str(value).strip() or "\0" in str(value):
        raise fail(name, value, "give the name of a file or folder")
    return Path(value)


def line(*, least: int = 1, most: int = 500, **named: object) -> str:
    """A line of printable text, without control characters."""
    name, value = _only(named)
    if not isinstance(value, str) or not least <= len(value) <= most or not value.isprintable():
        raise fail(name, value, f"give a line of text of {least} to {most} characters")
    return value


def probability(**named: SupportsFloat) -> float:
    """A number in [0, 1]."""
    return within(0.0, 1.0, closed="both", why="", **named)


def delta(**named: SupportsFloat) -> float:
    """A δ: a number in [0, 1)."""
    return within(0.0, 1.0, closed="left", why=_CHOOSE_DELTA, **named)


def positive_delta(**named: SupportsFloat) -> float:
    """A δ greater than 0: a number in (0, 1)."""
    return within(0.0, 1.0, closed="neither", why=_CHOOSE_DELTA, **named)


def warn_of_delta(delta: float, records: object) -> None:
    """Warn of a δ that means little: 1/records or more, or above 1e-3 if the number of records is unknown.

    Publishing a random record in full would satisfy such a guarantee.
    """
    known = int(records) if isinstance(records, Integral) and int(records) > 0 else None
    if known is None and delta > _LARGE_DELTA:
        means, example = f"above {_LARGE_DELTA:g}", "1/10 of 1/(number of records)"
    elif known is not None and delta >= 1 / known:
        means, example = f"not below 1/records = {1 / known:.2g}", f"{0.1 / known:.0e}"
    else:
        return
    warn(
        f"delta = {delta:g} is {means}: with 1/delta records, publishing a random one of them in full satisfies such a "
        f"guarantee. Choose a much smaller delta, for example {example}"
    )


def warn(message: str) -> None:
    """Warn, pointing to the line that called the library."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "dphypo":
        level, frame = level + 1, frame.f_back
    with contextlib.suppress(OSError, ValueError, AttributeError):  # stderr is closed or cannot be written
        warnings.warn(message, stacklevel=level)


def warn_of_score_noise(noise: float, *, search: bool = True) -> None:
    """Warn if noise dominates a score; ``noise`` is its standard deviation, in units of the score's range."""
    if noise > _LOUD:
        ranks = (
            "noise decides which run is best. Score on more records, allow a larger epsilon, or use a smaller "
            'noise_multiplier of the score (with "calibrate", dphypo.tune chooses it)'
        )
        alone = "it says little about the model. Score on more records, or allow a larger epsilon"
        warn(
            f"the noise of the score has a standard deviation of {noise:.2g} of the score's whole range, so "
            f"{ranks if search else alone}"
        )


def _array(named: dict[str, npt.ArrayLike], remedy: str) -> tuple[str, Floats]:
    name, value = _only(named)
    try:
        return name, np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise fail(name, value, remedy) from None


def vector(*, length: int | None = None, **named: npt.ArrayLike) -> Floats:
    """A one-dimensional array of finite numbers."""
    name, result = _array(named, "give a one-dimensional array of numbers")
    if result.ndim != 1:
        raise ValueError(f"{name} has shape {result.shape}: give a one-dimensional array")
    if length is not None and len(result) != length:
        raise ValueError(f"{name} has length {len(result)}: give {length} numbers")
    if not np.isfinite(result).all():
        where = int(np.flatnonzero(~np.isfinite(result))[0])
        raise ValueError(f"{name}[{where}] = {result[where]} is not finite: give finite numbers only")
    return result


def _each(named: dict[str, npt.ArrayLike], right: Callable[[Any], Any], remedy: str) -> Floats:
    name, result = _array(named, remedy)
    wrong = ~right(result)
    if wrong.any():
        raise fail(name, float(result[wrong][0]), remedy)
    return result


def fractions(**named: npt.ArrayLike) -> Floats:
    """Numbers in [0, 1], as an array of any shape; a single number is accepted."""
    return _each(named, lambda x: (x >= 0) & (x <= 1), "give numbers in [0, 1]")


def counts(**named: npt.ArrayLike) -> Floats:
    """Whole numbers, as an array of floats of any shape; a single number is accepted."""
    return _each(named, lambda x: np.isfinite(x) & (x == np.floor(x)), "give whole numbers")


def printable(value: object, most: int = 300) -> str:
    """Text that is safe on a terminal: control characters are escaped, and long text is cut.

    >>> printable("a\\x1b[31mred")
    'a\\\\x1b[31mred'
    """
    text = str(value)[: 2 * most]
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return shown if len(shown) <= most else shown[:most] + "…"


def full_name(thing: type | object) -> str:
    """The module and name of a class or function, or of the class of a value."""
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}.{named.__qualname__}"


def half_way(low: float, high: float) -> float:
    """The midpoint in the order of floats: bisection with it takes at most 64 steps."""
    middle = (_rank(low) + _rank(high)) // 2
    size: float = struct.unpack("<d", struct.pack("<q", abs(middle)))[0]
    return math.copysign(size, middle)


def _rank(x: float) -> int:
    """The number of floats between 0 and x, with the sign of x."""
    (size,) = struct.unpack("<q", struct.pack("<d", abs(x)))
    return int(math.copysign(1, x)) * int(size)
