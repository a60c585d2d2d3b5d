"""What one run is: a function that trains and scores, and the privacy event that bounds it for every λ.

``M_λ(D)`` of the paper. The data are inside the function (a closure, a global, a file): the package never sees them.
:class:`Mechanism` is the one base class; the decorator :func:`mechanism` makes one from a training function.

:func:`attempt` executes one run: whatever happens inside is its :class:`Outcome`. Training reports its steps to
:func:`current_follower`, and nothing that a follower does changes what a run returns.

If a record could make a run fail, the failure would reveal it whatever the noise. A record that raises any exception
while it is read or computed alone is therefore left out (:func:`or_none`); this includes ``MemoryError`` and panics of
other languages. Only a signal passes through.
"""

from __future__ import annotations

import contextlib
import copy
import dis
import importlib
import inspect
import math
import os
import signal
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from functools import partial
from numbers import Integral
from types import CodeType
from typing import IO, TYPE_CHECKING, Any, Required, TypedDict, TypeVar, Unpack, overload

import dp_accounting
import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo._stderr import Shield
from dphypo.accounting import Split
from dphypo.accounting.composition import Sides, read_sides
from dphypo.accounting.events import Event
from dphypo.entropy import Seeded
from dphypo.errors import Stopped, UnsupportedModelError
from dphypo.mechanisms.procedure import code_of, text_of
from dphypo.mechanisms.savers import Plain, Saver
from dphypo.space import Space

Found = TypeVar("Found")

_LONGEST_REASON = 4000
_NEITHER = "the run returned neither an Outcome nor a (model, score) pair"
_NO_NUMBER = "the score is not a number"


@dataclass(frozen=True, repr=False)
class Outcome:
    """The result of one run: the model and the score by which runs are ranked, or the reason why there are none.

    A run that fails is an outcome too, with the lowest score, and so is one whose score is not a finite number: running
    it again would change the mechanism.

    Args:
        model: the model as the run returned it; its bytes once it is saved.
        score: the score; None in a failed run.
        failure: why a failed run has no score. Secret: it is for the curator.
        metrics: further numbers of the run, by name: a survey publishes them with the score.
        started_with: set by the library: the hyperparameters and the seed of the run. A search compares them with those
            of the run that it started.

    >>> Outcome(model={"bias": 0.5}, score=0.9).ok
    True
    >>> Outcome(model=None, score=float("nan")).ok, Outcome.failed("diverged").ok
    (False, False)
    >>> Outcome(model=1, score=0.9)
    Outcome(secret)
    """

    model: Any
    score: float | None
    failure: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    started_with: tuple[Mapping[str, Any], int] | None = field(default=None, compare=False)

    @classmethod
    def failed(cls, reason: str = "failed") -> Outcome:
        """A run without a model. The reason is kept in the journal, for the curator."""
        # The reason may quote the data. Text that a database cannot store must not keep the outcome from counting.
        text = str(reason)[-_LONGEST_REASON:].encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
        return cls(None, None, text or "failed")

    @classmethod
    def of(cls, returned: object) -> Outcome:
        """What a training function returned, as an outcome: an ``Outcome``, or a ``(model, score)`` pair."""
        given: Mapping[str, float] = {}
        if isinstance(returned, Outcome):
            if returned.failure is not None:
                return cls.failed(returned.failure)
            model, score, given = returned.model, returned.score, returned.metrics
        elif isinstance(returned, tuple) and len(returned) == 2:
            model, score = returned
        else:
            return cls.failed(_NEITHER)
        try:
            value, metrics = _number(score), {str(name): _number(one) for name, one in given.items()}
        except OverflowError:
            value, metrics = math.inf, {}
        except Exception:
            return cls.failed(_NO_NUMBER)
        if not all(map(math.isfinite, (value, *metrics.values()))):
            return cls.failed("the score is not finite")
        return cls(model, value, metrics=metrics)

    @property
    def ok(self) -> bool:
        """Whether there is a model with a finite score."""
        return self.failure is None and self.score is not None and math.isfinite(self.score)

    def __repr__(self) -> str:
        return "Outcome(secret)"


def _number(score: Any) -> float:
    """A score as a float. Text is not a number, nor are arrays of text, of dates or of complex numbers."""
    kind = getattr(getattr(score, "dtype", None), "kind", "f")
    if isinstance(score, (str, bytes, bytearray)) or kind not in "biuf":
        raise TypeError("not a number")
    return float(score)


def outcome_told(outcome: object, saver: Saver) -> Outcome:
    """The outcome given to ``tell``, checked by :func:`outcome_of`; refused if it is not an outcome."""
    found = outcome_of(lambda: outcome, saver)
    failed = isinstance(outcome, Outcome) and outcome.failure is not None
    if not failed and found.failure in (_NEITHER, _NO_NUMBER):
        raise TypeError(
            f"tell() cannot record this: {found.failure}. Nothing was recorded: tell this trial again, with an "
            "Outcome, a (model, score) pair, or, if the run failed, Outcome.failed(reason)"
        )
    return found


def outcome_of(returned: Callable[[], object], saver: Saver) -> Outcome:
    """The outcome of what a run returned, with the model in bytes."""
    try:
        outcome = Outcome.of(returned())
        return replace(outcome, model=bytes(saver.dump(outcome.model))) if outcome.ok else outcome
    except UnsupportedModelError:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and Stopped.behind(error):
            raise
        reason = type(error).__name__
        with contextlib.suppress(Exception):  # formatting may fail when memory has run out
            reason = "".join(traceback.format_exception(error))
        return Outcome.failed(reason)


ROWS_PER_PERSON = 8
"""How many rows of a person are used at a time by default, if records are persons."""
CALIBRATE = "calibrate"
"""In place of the noise of a score: the noise is to be solved for."""
SILENT = 1e6
"""Noise at which a score costs nothing."""


def read_cap(person: object, rows_per_person: int | None) -> int | None:
    """The argument ``rows_per_person``, checked; None if rows are not grouped by ``person``."""
    if person is not None:
        most = ROWS_PER_PERSON if rows_per_person is None else rows_per_person
        return _validate.integer(at_least=1, rows_per_person=most)
    if rows_per_person is not None:
        remedy = "it is for persons: pass person= to say which person each row belongs to"
        raise _validate.fail("rows_per_person", rows_per_person, remedy)
    return None


@dataclass(frozen=True)
class RunKind:
    """Runs that differ in privacy only by their noise: their key, and their event as a function of noise."""

    key: Hashable
    event: Callable[[float], Event] = field(compare=False, repr=False)


M = TypeVar("M", bound="Mechanism")


class Mechanism(ABC):
    """One run: how to execute it, what bounds it, and what else a search may ask of it.

    A subclass states ``event`` and ``relation`` and is called with λ and a seed. Everything else has a default. Any of
    the attributes may be a field, a property or, for events, a function of λ.

    Attributes:
        event, relation, score_event, split, monotone, saver, seeded: as for :class:`Declared`.
        records: the declared number of records, n: δ should be well below 1/n.
        data: the records that it trains on, if it holds them.
        metrics: names of the numbers that outcomes have in addition to the score; a survey publishes them.
        score_noise_multiplier: the noise of a score on private records; "calibrate" if it is to be solved for.
        score_records: the declared number of private records that score.
        transfer: how the hyperparameters of a full run become those of this short one, in values for a certificate.
        same_alone: whether a run gives the same bits in :meth:`many` as alone. A study needs that.
        seed_bits: how long the seeds of its runs are. Most generators accept no more than 63 bits, the default.
    """

    if TYPE_CHECKING:  # as properties, so that a subclass may state them in any way

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
        @property
        def seeded(self) -> bool: ...
        @property
        def records(self) -> Any: ...
        @property
        def data(self) -> Any: ...
        @property
        def metrics(self) -> tuple[str, ...]: ...
        @property
        def score_noise_multiplier(self) -> Any: ...
        @property
        def score_records(self) -> int | None: ...
        @property
        def transfer(self) -> Mapping[str, Any] | None: ...
        @property
        def same_alone(self) -> bool: ...
        @property
        def seed_bits(self) -> int: ...
        @property
        def unit(self) -> str: ...
        @property
        def rows_per_person(self) -> int | None: ...
    else:  # as values, so that a field of a dataclass may replace them
        score_event = split = records = data = score_noise_multiplier = score_records = None
        transfer, rows_per_person, unit = None, None, "record"
        monotone, saver, seeded, metrics, same_alone, seed_bits = frozenset(), Plain(), False, (), False, 63

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse a wrapper that forwards by ``__getattr__``: the defaults would hide the score's event, for example."""
        super().__init_subclass__(**options)
        if hasattr(cls, "__getattr__"):
            raise TypeError(
                f"{cls.__name__} has or inherits __getattr__, which Python does not ask for attributes with a default "
                "in Mechanism, such as score_event: define each attribute that is forwarded"
            )

    @abstractmethod
    def __call__(self, params: Mapping[str, Any], *, seed: int) -> Any:
        """One run: an ``Outcome`` or a ``(model, score)`` pair."""

    # A search that solves for noise, or shortens runs, copies the mechanism.

    def at(self, *_: Any, **changes: Any) -> Any:
        """Return a changed copy, whose event states the change. The named arguments of ``at`` are what can be changed.

        - ``noise_multiplier``: the noise of all runs, or of each kind of run by its key; more noise must not cost more.
        - ``fraction``: this fraction of the steps. With ``match=True`` noise and hyperparameters are changed so that a
          short run ranks λ as the full run does.
        - ``score_noise_multiplier``: the noise of a score on private records.
        - ``device``: the same training on another device of this machine.
        """
        raise TypeError(f"{type(self).__name__} has no at(): it cannot be changed")

    def can(self, *changes: str) -> bool:
        """Whether :meth:`at` takes these arguments together."""
        if type(self).at is Mechanism.at:
            return False
        try:
            inspect.signature(self.at).bind(**dict.fromkeys(changes))
        except TypeError:
            return False
        except ValueError:  # it has no signature that can be read: the call will show
            pass
        return True

    def with_noise(self: M, noise_multiplier: float | Mapping[Hashable, float]) -> M:
        """The same training with this noise; an error explains how to write ``at`` if there is none."""
        return self._copy(noise_multiplier=noise_multiplier)

    def with_score_noise(self: M, noise_multiplier: float) -> M:
        """The same training with this noise on its score."""
        return self._copy(score_noise_multiplier=noise_multiplier)

    def shorten(self: M, fraction: float, *, match: bool = True) -> M:
        """The same training, cut to this part of its steps."""
        return self._copy(fraction=fraction, **({"match": True} if match else {}))

    def _copy(self: M, **changes: Any) -> M:
        if not self.can(*changes):
            name = next(iter(changes))
            example = "" if self.can("noise_multiplier") else _EXAMPLE
            raise _validate.fail("mechanism", self, f"it has no at({name}=...), {_NEEDED[name]}.{example}")
        made: M = self.at(**changes)
        return made

    # What training may offer.

    def without_score(self) -> Mechanism:
        """The same training without reading records for a score, so ``score_event`` is None; by default this one.

        A score that cannot be left out is paid for, even if it is not requested.
        """
        return self

    def on_all_records(self) -> Mechanism | None:
        """The same training on all records, if it set records apart for its scores by itself; None if it did not."""
        return None

    def continued(self, kept: float, model: Any = None) -> Mechanism | None:
        """The same training, begun from a model that an earlier run with more noise published; None if it cannot.

        With κ for ``kept``, it begins at w₀ + κ(w − w₀), where w are the weights of ``model`` and w₀ those of an
        untrained model that is the same for all runs, with √(1 − κ²) of the learning rate; without a model, at w₀.
        """
        return None

    def default_space(self) -> Space | None:
        """What is searched if no space is given."""
        return None

    wants_scale = False
    """Whether :meth:`known` needs the scale of the inputs; ``input_terms`` and ``input_vectors`` give it."""

    @property
    def input_size(self) -> int | None:
        """How many numbers the input of one record has; None if that is not known."""
        return None

    def known(self, scale: float | None = None) -> Any:
        """What public values say about the learning rate, a :class:`dphypo.search.rates.Known`; None if nothing.

        ``scale`` is that of the inputs, if it was bought.
        """
        return None

    def input_terms(self) -> Sequence[float]:
        """For each record, what it adds to the scale of the inputs (``rates.norm_terms``). **Secret.**"""
        raise NotImplementedError

    def input_vectors(self) -> Iterable[npt.NDArray[np.float64]]:
        """The same of the mean direction (``rates.unit_vectors``): tables with one row a record. **Secret.**"""
        raise NotImplementedError

    def kinds(self, space: Space) -> Sequence[RunKind]:
        """The kinds of run in a space, if noise depends on λ: ``at(noise_multiplier={key: noise})`` sets each."""
        return ()

    def compute(self, params: Mapping[str, Any]) -> float:
        """The compute of a run with these hyperparameters, in any unit; without any, of the mechanism's own setting."""
        return 1.0

    def many(self, params: Sequence[Mapping[str, Any]], *, seeds: Sequence[int]) -> Sequence[Outcome]:
        """Several runs as one program, one outcome for each λ and seed: runs share instructions, not values.

        A run that fails is an outcome and does not affect the others. All randomness comes from the seeds: if this
        raises, the runs are executed one by one with the same seeds.
        """
        raise NotImplementedError

    @property
    def makes_many(self) -> bool:
        """Whether :meth:`many` is defined."""
        return type(self).many is not Mechanism.many

    def all_devices(self) -> Sequence[str]:
        """The devices of this machine to which ``at(device=...)`` moves training; none if it cannot be moved.

        If ``at(devices=...)`` is offered too, a last run uses all of them at once.
        """
        return ()

    @property
    def processes(self) -> int:
        """How many processes, which a launcher such as ``torchrun`` has started, execute a run together."""
        return 1

    def serve(self, mechanisms: Sequence[Mechanism] = ()) -> None:  # noqa: B027 - most have nothing to serve
        """In a launched process that does not lead: serve runs of these mechanisms, then exit. In others: nothing."""

    def architecture(self, space: Space) -> str | None:
        """A text that is the same for the same model: a search resumes only with the same one."""
        return None

    @property
    def procedure(self) -> str:
        """A text that changes with the training: a study, whose runs must be of one training, resumes with the same."""
        return text_of(type(self).__call__)

    def held_records(self) -> Mapping[str, Any]:
        """The records that it holds, by use, such as ``{"train": ..., "score": ...}``; a resumed search compares them.

        Each is a mapping of columns (arrays, tensors, frames or lists, one row per record), or an object with
        ``digests()``, the digest of each record, None for one that does not count.
        """
        return {}

    def fitting_records(self, space: Space) -> Mapping[str, tuple[int, int]]:
        """For each use of records, how many of them fit the declaration, and how many were given. **Secret.**"""
        return {}

    def rehearse(self, params: Mapping[str, Any], *, seed: int) -> Any:
        """What a run on made-up records returns, or None: no private record may be read, since errors are shown."""
        return None

    def check_space(self, space: Space) -> None:  # noqa: B027 - by default every space is accepted
        """Raise a ValueError that names a hyperparameter and its wrong value, if there is one."""

    # What follows from these.

    @property
    def solves_for_scores(self) -> bool:
        """Whether the noise of its scores is to be solved for."""
        noise = self.score_noise_multiplier
        return isinstance(noise, str) and noise == CALIBRATE

    def with_silent_scores(self: M) -> M:
        """The same training, with scores so noisy that they cost nothing, if their noise is to be solved for.

        On a side of their own, scores then get the least noise that costs no more than training does.
        """
        if not self.solves_for_scores:
            return self
        if self.relation is dp_accounting.NeighboringRelation.REPLACE_ONE or self.split is None:
            remedy = "under REPLACE_ONE, or on records that may train too, scores have no side of their own: give a "
            remedy += "number, or score on records that split_by_hash or split=dphypo.Split(...) sets apart"
            raise _validate.fail("score_noise_multiplier", CALIBRATE, remedy)
        return self.with_score_noise(SILENT)

    @property
    def score_deviation(self) -> float | None:
        """The noise of its scores, in units of a score's whole range; None if scores have none that is known."""
        noise, records = self.score_noise_multiplier, self.score_records
        return noise / records if isinstance(noise, float) and records else None

    def score_reaching(self, target: float, wrong: float) -> float | None:
        """The smallest score that a model worse than ``target`` reaches with a probability of at most ``wrong``.

        It covers the noise of the score and the sampling of the records that score. None if that is not known.
        """
        return None

    @property
    def score_assumes(self) -> str:
        """What :attr:`score_deviation` assumes, in words that follow the number; "" if it assumes nothing."""
        return ""

    @property
    def scored_on(self) -> str:
        """On which records its scores are taken, in words for a certificate."""
        if self.score_event is None:
            return "public records, or private ones that the event of a run covers"
        if self.split is None:
            return "private records, which may have trained the model"
        return "private records that did not train the model"


def check_is_mechanism(mechanism: object) -> None:
    """Refuse a value that is not a mechanism, and say what is missing."""
    if isinstance(mechanism, Mechanism):
        missing = [name for name in ("event", "relation") if not hasattr(mechanism, name)]
        if not missing:
            return
        remedy = f"it does not state its {missing[0]}; dphypo.testing.check_mechanism tests the rest"
    elif "event" in dir(mechanism):
        remedy = "derive its class from dphypo.mechanisms.Mechanism; dphypo.testing.check_mechanism tests the rest"
    elif hasattr(mechanism, "get_params"):
        remedy = "it is an estimator: use dphypo.sklearn.PrivateSearch(estimator, epsilon=..., delta=...).fit(X, y)"
    elif hasattr(mechanism, "train_dataset"):
        remedy = "it is a Trainer: use dphypo.transformers.from_trainer(trainer, max_length=...)"
    elif hasattr(mechanism, "state_dict"):
        remedy = "it is a model: use dphypo.torch.DPSGD(model=lambda: ..., data=(x, y), score='accuracy')"
    else:
        remedy = "declare the function with @dphypo.mechanism(event=...), or use a DPSGD"
    raise _validate.fail("mechanism", mechanism, remedy)


def records_of(*mechanisms: Mechanism) -> int | None:
    """The largest declared number of records, or None. A user may keep data under this name: only a number counts."""
    found = [one.records for one in mechanisms]
    return max((int(count) for count in found if isinstance(count, Integral)), default=None)


@dataclass(frozen=True, repr=False)
class Declared(Mechanism):
    """One run with its privacy. Created by the decorator :func:`mechanism`; call it like the function it wraps.

    Args:
        train: ``train(params, *, seed) -> Outcome`` or a ``(model, score)`` pair.
        event: bounds one run **for every λ of the space**: a ``dp_accounting.DpEvent``, an ``RdpCurve``, a list of
            them (their pointwise supremum), or a function of the parameters that returns one of these.
        relation: the neighbouring relation the event is stated for.
        score_event: the event of computing the score, if it reads private records and ``event`` does not cover it. It
            covers only the value: the score must be finite whatever the records are, because a failed run is visible.
        split: the rule that sets records that score apart from those that train (:class:`dphypo.Split`), which looks at
            each record alone: a record is then used to train or to score, and the run costs the worse of the two. None,
            the default, if one record may be used for both: the two compose. Under ``REPLACE_ONE`` they always do. It
            needs a ``score_event``: without one, ``event`` is taken to cover the score, and counts for every record.
        monotone: names of hyperparameters in which functional events are monotone (more of one is always more private,
            or always less): the supremum is then at an end of its range. ``event`` and ``score_event`` must **each** be
            monotone in it, possibly in opposite directions, since neither is evaluated between the ends.
        saver: how the model becomes bytes.
        seeded: whether all randomness of a run comes from its seed, so that the same λ and seed give the same outcome
            (``dphypo.testing.check_mechanism`` tests it). If True, a lost run is repeated with the same seed.
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
        if self.split is not None and self.score_event is None:  # its records that score would not be charged
            remedy = "score_event is None, so the event bounds whatever a run reads, and counts for every record: "
            remedy += "leave it out; or give score_event=, dp_accounting.NoOpDpEvent() if no record that scores is read"
            raise _validate.fail("split", self.split, remedy)
        if not isinstance(self.saver, Saver) or not self.saver.format.isalnum():
            remedy = "give an object with dump(model), load(bytes) and a format of letters and digits"
            raise _validate.fail("saver", self.saver, remedy)
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            if hasattr(self.train, name):
                object.__setattr__(self, name, getattr(self.train, name))
        object.__setattr__(self, "__wrapped__", self.train)

    def __call__(self, params: Mapping[str, Any], *, seed: int) -> Any:
        return self.train(params, seed=seed)

    @property
    def procedure(self) -> str:
        return text_of(code_of(self.train))

    def __repr__(self) -> str:
        return f"<mechanism {getattr(self.train, '__qualname__', 'train')}>"

    def __reduce__(self) -> Any:
        """By name if the decorator put it in its module, so that other processes find it; otherwise by value."""
        module, name = getattr(self.train, "__module__", None), getattr(self.train, "__qualname__", "")
        if _find(module, name) is self:
            return _find, (module, name)
        return Declared, tuple(getattr(self, one.name) for one in fields(Declared))


def check_signature(train: Callable[..., Any], *named: str) -> None:
    """Refuse a function that cannot be called as ``train(params, seed=...)``, and say what is missing."""
    try:
        signature = inspect.signature(train)
    except (TypeError, ValueError):
        return  # written in C: the rehearsal will show
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
            f"{name}{signature} is declared to return no model: a run returns a model and a score. Write return model, "
            "score; dphypo.testing.check_mechanism(mechanism, space) tries it on records that are not private"
        )


def ignores(function: object, name: str) -> bool:
    """Whether a Python function has an argument of this name and never reads it.

    >>> ignores(lambda params, *, run: params, "run"), ignores(lambda params, *, run: run.steps, "run")
    (True, False)
    """
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or name not in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        return False
    loaded = [one.argval for one in dis.get_instructions(code) if "LOAD" in one.opname]
    names = [part for one in loaded for part in (one if isinstance(one, tuple) else (one,))]  # some load two at once
    return name not in names and name not in code.co_cellvars  # which functions in it read


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
    computed on private records by its own mechanism, say which with ``score_event`` and ``split``; a score
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
_NEEDED = {
    "noise_multiplier": "which returns the same training with that noise",
    "fraction": "which returns the same training cut to that part of its steps; or give the short run yourself, with "
    "SurveyPlan(short=...)",
    "score_noise_multiplier": "which returns the same training with that noise on its score",
}
_EXAMPLE = """ DPSGD and OwnTraining have it. The shortest way to write your own is a dphypo.mechanisms.Declared:

    def training(noise_multiplier):
        def train(params, *, seed):
            ...  # train with noise_multiplier
            return model, score
        return Training(train, event=dp.GaussianDpEvent(noise_multiplier), relation=relation)

    class Training(dphypo.mechanisms.Declared):
        def at(self, noise_multiplier):
            return training(noise_multiplier)

Then use training(1.0) in place of this one. So that runs can be shortened, let at() take fraction= and match= too: \
the fraction of the steps to execute, and whether the noise is divided by its square root"""


END_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""The signals that end a process."""


def or_none(call: Callable[[], Found]) -> Found | None:
    """What ``call`` returns; None if it raises anything but a signal.

    >>> or_none(lambda: 1 / 0) is None
    True
    """
    try:
        return call()
    except BaseException as error:
        if is_signal(error):
            raise
        return None


def same_twice(read: Callable[[], Found]) -> Found | None:
    """What ``read`` returns; None if it raises, or returns something else the second time."""
    first, again = or_none(read), or_none(read)
    return first if first == again else None


def is_signal(error: BaseException) -> bool:
    """Whether a signal that ends the process raised an exception. Signals reach only the main thread.

    During a run the library's own handler raises :class:`Stopped`. Elsewhere Python's raises ``KeyboardInterrupt``, and
    a handler that the user installed may raise anything.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    if Stopped.behind(error):
        return True
    handlers = [signal.getsignal(number) for number in END_SIGNALS]
    if isinstance(error, KeyboardInterrupt) and signal.default_int_handler in handlers:
        return True
    codes = {getattr(handler, "__code__", None) for handler in handlers} - {None}
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code not in codes:
        trace = trace.tb_next
    return trace is not None


def attempt(mechanism: Mechanism, params: Mapping[str, Any], seed: int) -> Outcome:
    """Train once; the outcome's model is in bytes.

    An exception is an outcome with the lowest score. Two things pass through: an interrupt that a signal caused, and a
    model that cannot be saved, which is an error in the declaration. A child that the run has forked ends here.
    """
    with _interruptible():
        outcome = outcome_of(lambda: mechanism(copy.deepcopy(dict(params)), seed=seed), mechanism.saver)
    return replace(outcome, started_with=(dict(params), seed))


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Distinguish an interrupt from the keyboard from one that a run raises. A child that is forked here ends here."""
    process, before = os.getpid(), signal.getsignal(signal.SIGINT)
    # Other threads receive no signals, and the program may have its own handler.
    ours = threading.current_thread() is threading.main_thread() and before is signal.default_int_handler

    def stop(number: int, frame: object) -> None:
        raise Stopped

    if ours:
        signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        if os.getpid() != process:
            os._exit(1)
        if ours:
            signal.signal(signal.SIGINT, before)


def attempt_many(
    mechanism: Mechanism, params: Sequence[Mapping[str, Any]], seeds: Sequence[int], size: int
) -> list[Outcome]:
    """Execute several runs at once, as :func:`attempt` executes one, padded to ``size`` by repeats of the last.

    If the group as a whole fails, its runs are executed one by one: no run may fail because another one does.
    """
    more = size - len(params)
    try:
        with _interruptible():
            together = copy.deepcopy([*map(dict, params), *[dict(params[-1])] * more])
            made = mechanism.many(together, seeds=[*seeds, *[seeds[-1]] * more])
        if len(made) != size:
            raise ValueError(f"many() returned {len(made)} outcomes for {size} runs")
    except BaseException as error:
        if isinstance(error, UnsupportedModelError) or (isinstance(error, KeyboardInterrupt) and Stopped.behind(error)):
            raise
        return [attempt(mechanism, one, seed) for one, seed in zip(params, seeds, strict=True)]
    outcomes = [outcome_of(partial(Outcome.of, one), mechanism.saver) for one in made[: len(params)]]
    runs = zip(outcomes, params, seeds, strict=True)
    return [replace(outcome, started_with=(dict(one), seed)) for outcome, one, seed in runs]


def rehearse(mechanism: Mechanism, space: Space) -> None:
    """Refuse a mechanism that cannot be called, or whose dry run fails, if it offers one.

    No private record is touched, so errors are shown as they are.
    """
    check_signature(mechanism, "seed")
    params = space.sample(Seeded(0))  # any λ will do, and this one is public
    if (returned := mechanism.rehearse(params, seed=0)) is None:
        return
    outcome = Outcome.of(returned)
    if not outcome.ok:
        raise UnsupportedModelError(
            f"a dry run of {mechanism!r} on made-up records failed at {params!r}: {outcome.failure}"
        )
    mechanism.saver.load(bytes(mechanism.saver.dump(outcome.model)))


@dataclass(frozen=True)
class Pace:
    """What is public of a run's training."""

    noise_multiplier: float
    rate: float
    steps: int
    batch_size: float


class Follower:
    """Is notified of the steps of runs that are executed at once. What it raises never reaches the runs."""

    def begin(self, runs: Sequence[Pace]) -> IO[bytes] | None:
        """The runs begin. Returns a file with what :meth:`step` stored of a killed run, or None to begin at step 0."""
        return None

    def step(self, made: int, state: Callable[[IO[bytes]], object] | None = None) -> None:
        """This many steps are complete; ``state`` writes all that is needed to resume after them to a file."""

    def end(self) -> None:
        """The runs have ended."""


_follower: ContextVar[Follower | None] = ContextVar("follower", default=None)


def current_follower() -> Follower | None:
    """The follower of the runs that this block of code executes."""
    return _follower.get()


@contextlib.contextmanager
def followed_by(follower: Follower) -> Iterator[None]:
    """A block whose runs report their steps to ``follower``."""
    shielded = _ShieldedFollower(follower)
    token = _follower.set(shielded)
    try:
        yield
    finally:
        _follower.reset(token)
        shielded.end()


class _ShieldedFollower(Follower):
    """A follower that never raises: otherwise what only watches a run could become its outcome."""

    def __init__(self, follower: Follower) -> None:
        self._follower, self._shield = follower, Shield("what follows the steps of runs")

    def begin(self, runs: Sequence[Pace]) -> IO[bytes] | None:
        return self._shield(lambda: self._follower.begin(runs), otherwise=None)

    def step(self, made: int, state: Callable[[IO[bytes]], object] | None = None) -> None:
        self._shield(lambda: self._follower.step(made, state), otherwise=None)

    def end(self) -> None:
        self._shield(self._follower.end, otherwise=None)
