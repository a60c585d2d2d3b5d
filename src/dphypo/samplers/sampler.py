"""The sampler of a study, and what it sees: the finished runs and nothing else.

A sampler that sees only the history costs less than one that may look at the data (Theorem H). Its class states this
with ``history_only = True``; :func:`basis` decides whether the statement counts.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from dphypo._validate import Floats, full_name
from dphypo.band import Band
from dphypo.band.projections import Projection
from dphypo.space import Candidates, Grid


@runtime_checkable
class Sampler(Protocol):
    """Turns the finished runs into weights on candidates: π^(j+1) of Framework 1, before projection.

    Any sampler is allowed. The band is enforced on whatever it returns, in one place, so a sampler cannot void the
    guarantee. Weights that are not finite, negative, or all zero are refused before anything is drawn.

    A sampler is a frozen dataclass: configuration is fields, and randomness comes only from a ``seed`` field and the
    arguments. It never sees T, the number of remaining runs, or the time.

    If the weights depend on nothing else, state ``history_only = True`` in the class that defines ``weights``;
    subclasses do not inherit the statement. Inside a band the search then costs less (Theorem H), and the certificate
    names the class that states it.
    """

    def weights(self, candidates: Candidates | Grid, history: History) -> Floats:
        """(n,) finite non-negative numbers, not all zero: the relative mass that each candidate should get.

        They are masses, not densities: the prior itself is ``candidates.masses``.
        """


@dataclass(frozen=True)
class Uniform:
    """Draws every run from the prior: Algorithm 2 of the paper, private random search.

    It needs no band: with ``Band(1, 1)`` it costs as much as Papernot and Steinke's random search.
    """

    history_only: ClassVar[bool] = True

    def weights(self, candidates: Candidates | Grid, history: History) -> Floats:
        """The prior masses, whatever the history."""
        return np.asarray(candidates.masses, dtype=np.float64)


def default_sampler(band: Band) -> Sampler:
    """A Gaussian process if the band allows densities other than the prior, otherwise draws from the prior.

    In ``benchmarks/rules.py`` it is the best sampler, with the greedy projection.
    """
    if band.C == 1:
        return Uniform()
    from dphypo.samplers.gaussian_process import GaussianProcess

    return GaussianProcess()


@dataclass(frozen=True, repr=False)
class History:
    """The finished runs of a search, in the order in which their λ were drawn.

    A sampler receives this and the candidates. It contains no T, no number of remaining runs, no times and no
    identifiers of runs. **Everything in it is secret**: it stays with the curator, and ``repr`` shows nothing.

    Args:
        features: (t, k) numbers for a surrogate model, one row per run.
        unit: (t, d) the same λ in the unit cube, where the prior is uniform.
        scores: (t,) larger is better, whatever the direction of the study; nan for a failed run.
        failed: (t,) whether the run failed.
        params: the hyperparameters, as plain values.

    >>> history = History.empty(features=3, unit=2)
    >>> len(history), history.features.shape, history.unit.shape
    (0, (0, 3), (0, 2))
    >>> history
    History(secret)
    """

    features: Floats
    unit: Floats
    scores: Floats
    failed: npt.NDArray[np.bool_]
    params: Sequence[Mapping[str, Any]]

    def __post_init__(self) -> None:
        length = len(self.scores)
        if self.features.ndim != 2 or self.unit.ndim != 2 or self.scores.ndim != 1 or self.failed.ndim != 1:
            raise ValueError("a History takes features (t, k), unit (t, d), scores (t,) and failed (t,)")
        if not len(self.features) == len(self.unit) == len(self.failed) == len(self.params) == length:
            raise ValueError("the arrays of a History must have one row per run")
        if not np.array_equal(np.isfinite(self.scores), ~self.failed):
            raise ValueError("give nan as the score of a failed run, and a finite score for every other run")

    @classmethod
    def empty(cls, *, features: int, unit: int) -> History:
        """The history before the first run, for a space with that many columns."""
        none = np.empty(0)
        return cls(np.empty((0, features)), np.empty((0, unit)), none, np.empty(0, dtype=np.bool_), ())

    def first(self, size: int) -> History:
        """The history after the first ``size`` runs."""
        cut = slice(size)
        return History(self.features[cut], self.unit[cut], self.scores[cut], self.failed[cut], self.params[cut])

    def __len__(self) -> int:
        return len(self.scores)

    def __repr__(self) -> str:
        return "History(secret)"


FLAG = "history_only"


def basis(sampler: Sampler, projection: Projection | None = None) -> str | None:
    """The statement that a sampler and its projection see only the history, and who makes it; None if one may see more.

    The statement counts if ``history_only = True`` is in the class that defines ``weights`` (of a projection:
    ``ratios``). Its author promises that the weights are a function of the candidates, the history and independent
    randomness: not of the data, the clock, the number of runs, or state that the history does not determine. Subclasses
    do not inherit the statement. For a sampler that wraps another one, such as ``OptunaSampler``, whoever configures it
    must make the statement: its field ``history_only`` is True.
    """
    found = _stated_by(sampler, "weights")
    if found is None or projection is None:
        return found
    by_projection = _stated_by(projection, "ratios")
    if by_projection is None or is_ours(projection):
        return None if by_projection is None else found
    return f"{found}; {by_projection}"


def _stated_by(rule: object, method: str) -> str | None:
    if is_wrapper(rule) and vars(rule).get(FLAG) is True and method not in vars(rule):
        return f"a statement by the user, who gave {FLAG}=True to {full_name(rule)}"
    own, hidden = vars(type(rule)), getattr(rule, "__dict__", {})
    # Not inherited, since a subclass may override the code; and void if the instance replaces the flag or the method.
    if own.get(FLAG) is not True or method not in own or FLAG in hidden or method in hidden:
        return None
    if is_ours(rule):
        return f"{full_name(rule)}, which is given the history and nothing else"
    return f"a statement by the author of {full_name(rule)}, who declared {FLAG} = True there"


def is_ours(rule: object) -> bool:
    """Whether the class of a rule is one that this library defines under its name."""
    kind = type(rule)
    module = sys.modules.get(kind.__module__) if kind.__module__.startswith("dphypo.") else None
    return getattr(module, kind.__qualname__, None) is kind


def is_wrapper(rule: object) -> bool:
    """Whether a rule of this library runs a sampler of somebody else: then ``history_only`` is a field."""
    return is_ours(rule) and FLAG in {field.name for field in _fields(rule)}


def description(sampler: Sampler) -> dict[str, Any]:
    """A sampler's class and settings as JSON: a history-only study must be resumed with the same sampler."""
    if fields := _fields(sampler):
        shown = {field.name: getattr(sampler, field.name) for field in fields if field.repr}
    else:  # a class of the user's: its public attributes
        shown = {name: value for name, value in getattr(sampler, "__dict__", {}).items() if not name.startswith("_")}
    return {"rule": full_name(type(sampler)), "settings": {name: _setting(value) for name, value in shown.items()}}


def _fields(value: object) -> tuple[dataclasses.Field[Any], ...]:
    kind = type(value)
    return dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()


_PLAIN = (bool, int, float, str)


def _setting(value: object) -> str:
    """Plain values as they are written; otherwise the class or name, since ``repr`` may contain an address."""
    if value is None or isinstance(value, (*_PLAIN, tuple, enum.Enum)) or dataclasses.is_dataclass(value):
        return repr(value)
    if not hasattr(value, "sample_relative"):
        return full_name(value)
    kept = [  # of a sampler of Optuna, without its seed, which may be drawn
        (name, _setting(one))
        for name, one in vars(value).items()
        if "seed" not in name and (isinstance(one, _PLAIN) or hasattr(one, "sample_relative"))
    ]
    return full_name(value) + repr(sorted(kept))
