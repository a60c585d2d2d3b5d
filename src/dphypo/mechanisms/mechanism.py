"""What one run is: a function that trains and scores, and the privacy event that bounds it for every λ.

``M_λ(D)`` of the paper. The data are inside the function (a closure, a global, a file): the package never sees them.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Protocol, Required, TypedDict, Unpack, overload, runtime_checkable

from dphypo import _validate
from dphypo.accounting import Split
from dphypo.accounting.sides import Sides, read_sides
from dphypo.mechanisms.savers import Plain, Saver


@runtime_checkable
class Mechanism(Protocol):
    """What a study needs to know of one run: how to make it, what bounds it, how to save its model.

    The decorator :func:`mechanism` makes one from a function (:class:`Declared`, which explains the attributes);
    integrations bring their own.
    """

    @property
    def event(self) -> Any: ...
    @property
    def relation(self) -> Any: ...
    @property
    def score_event(self) -> Any: ...
    @property
    def split(self) -> Sides | None: ...
    @property
    def monotone(self) -> frozenset[str]: ...
    @property
    def saver(self) -> Saver: ...

    def __call__(self, params: Mapping[str, Any], *, seed: int) -> Any: ...


@dataclass(frozen=True, repr=False)
class Declared:
    """One run with its privacy. Made by the decorator :func:`mechanism`; call it like the function it wraps.

    Args:
        train: ``train(params, *, seed) -> Outcome`` or a ``(model, score)`` pair.
        event: bounds one run **for every λ of the space**: a ``dp_accounting.DpEvent``, an ``RdpCurve``, a list of
            them (their pointwise supremum), or a function of the parameters that returns one of these.
        relation: the neighbouring relation the event is stated for.
        score_event: the event of computing the score, when it looks at private records and ``event`` leaves it out. It
            covers the value. Whatever the records are, there must be a finite one: a run that fails shows.
        split: the rule that sets records that score apart from those that train (:class:`dphypo.Split`), which looks at
            each record alone: a record then meets training or scoring, and the run costs the worse of the two. None,
            the default, if one record may meet both: the two compose. Under ``REPLACE_ONE`` they always do.
        monotone: names of hyperparameters in which functional events are monotone (more of one is always more private,
            or always less): the supremum is then at an end of its range. ``event`` and ``score_event`` must **each** be
            monotone in it, be it in opposite directions, since neither is evaluated between the ends.
        saver: how the model becomes bytes.
        seeded: whether all randomness of a run comes from its seed, so that the same λ and seed give the same outcome
            (``dphypo.testing.check_mechanism`` tests it). Then a run whose process died is made again.
    """

    train: Callable[..., Any]
    event: Any
    relation: Any
    score_event: Any = None
    split: Sides | None = None
    monotone: frozenset[str] = frozenset()
    saver: Saver = field(default_factory=Plain)
    seeded: bool = False

    def __post_init__(self) -> None:
        if not callable(self.train):
            raise _validate.fail("train", self.train, "give a function train(params, *, seed) -> Outcome")
        check_signature(self.train, "seed")
        if self.event is None:
            raise _validate.fail("event", None, "state the event that bounds one run, for example a DpEvent")
        object.__setattr__(self, "split", read_sides(self.split))
        given: Any = self.monotone
        names = frozenset(given if isinstance(given, Iterable) and not isinstance(given, (str, bytes)) else [None])
        if not all(isinstance(name, str) for name in names):
            raise _validate.fail("monotone", given, 'give a list of names of hyperparameters, such as ["noise"]')
        object.__setattr__(self, "monotone", names)
        _validate.flag(seeded=self.seeded)
        if isinstance(self.score_event, (list, tuple)) and not self.score_event:
            raise _validate.fail("score_event", self.score_event, "give None if the score looks at no private record")
        if not isinstance(self.saver, Saver) or not self.saver.format.isalnum():
            remedy = "give an object with dump(model), load(bytes) and a format of letters and digits"
            raise _validate.fail("saver", self.saver, remedy)
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            if hasattr(self.train, name):
                object.__setattr__(self, name, getattr(self.train, name))
        object.__setattr__(self, "__wrapped__", self.train)

    def __call__(self, params: Mapping[str, Any], *, seed: int) -> Any:
        return self.train(params, seed=seed)

    def __repr__(self) -> str:
        return f"<mechanism {getattr(self.train, '__qualname__', 'train')}>"

    def __reduce__(self) -> Any:
        """By name where the decorator put it in its module, so that other processes find it; else by value."""
        module, name = getattr(self.train, "__module__", None), getattr(self.train, "__qualname__", "")
        if _find(module, name) is self:
            return _find, (module, name)
        return Declared, tuple(getattr(self, one.name) for one in fields(Declared))


def check_signature(train: Callable[..., Any], *named: str) -> None:
    """Refuse a function that cannot be called as ``train(params, seed=...)``, and say what is missing."""
    try:
        signature = inspect.signature(train)
    except (TypeError, ValueError):
        return  # written in C: the rehearsal will tell
    name = getattr(train, "__qualname__", type(train).__qualname__)
    try:
        signature.bind({}, **dict.fromkeys(named))
    except TypeError as error:
        called = ", ".join(f"{one}=..." for one in named)
        raise TypeError(
            f"{name}{signature} cannot be called as train(params, {called}): {error}. Write def train(params, *, "
            f"{', '.join(named)})"
        ) from None
    other = inspect.isclass(train) or hasattr(train, "__wrapped__")  # whose annotation is not that of the call
    if signature.return_annotation in _NO_PAIR and not other:
        raise TypeError(
            f"{name}{signature} is declared to return no model: a run gives a model and a score. Write return model, "
            "score; dphypo.testing.check_mechanism(mechanism, space) tries it on records that are not private"
        )


_NO_PAIR = (None, "None", *(kind for one in (float, int, bool, str) for kind in (one, one.__name__)))


def _find(module: str | None, name: str) -> Any:
    found: Any = importlib.import_module(module) if module else None
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


class _Options(TypedDict, total=False):
    event: Required[Any]
    relation: Required[Any]
    score_event: Any
    split: Sides | Split | str | None
    monotone: Iterable[str]
    saver: Saver | None
    seeded: bool


@overload
def mechanism(train: Callable[..., Any], /, **options: Unpack[_Options]) -> Declared: ...
@overload
def mechanism(**options: Unpack[_Options]) -> Callable[[Callable[..., Any]], Declared]: ...
def mechanism(train: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Declare a training function and the privacy event of one run of it: a decorator.

    ``@dphypo.mechanism(event=..., relation=...)`` above ``def train(params, *, seed)`` makes the function a mechanism,
    which :class:`dphypo.Study`, :class:`dphypo.Survey` and :func:`dphypo.tune` take.

    The event must bound one run for **every** λ of the space: its model and its score, on any data. If the score is
    computed on private records by a mechanism of its own, say which with ``score_event`` and ``split``; a score
    computed on public records costs nothing. Given λ and the seed, a run must depend on no other run: no warm start,
    no shared noise, no shared timeout.

    The arguments are those of :class:`Declared`. Two have no default: what a run costs, and for which neighbours, only
    its author can say. A function may also be given first, ``dphypo.mechanism(train, event=..., relation=...)``.

    >>> import dp_accounting as dp
    >>> @mechanism(event=dp.GaussianDpEvent(2.0), relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    ... def train(params, *, seed):
    ...     rng = np.random.default_rng(seed)
    ...     return {"mean": params["clip"] * rng.normal()}, 0.5
    >>> train
    <mechanism train>
    >>> import numpy as np
    >>> sorted(train({"clip": 1.0}, seed=3)[0])
    ['mean']
    """
    _validate.spelled("mechanism", options, _Options.__annotations__)
    if missing := [name for name in _EXAMPLES if options.get(name) is None]:
        stated = ", ".join(f"{name}={_EXAMPLES[name]}" for name in missing)
        above = "" if train is None else f" above def {getattr(train, '__name__', 'train')}"
        raise TypeError(
            f"@dphypo.mechanism has no {' and no '.join(missing)}: it must say what one run costs, for every λ of the "
            f"space. Write @dphypo.mechanism({stated}){above}, with the noise of your run"
        )
    if options.get("saver") is None:
        options["saver"] = Plain()
    return partial(Declared, **options) if train is None else Declared(train, **options)


_EXAMPLES = {
    "event": "dp_accounting.GaussianDpEvent(2.0)",
    "relation": "dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE",
}
