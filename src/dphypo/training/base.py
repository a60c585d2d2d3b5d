"""The base class of DP-SGD mechanisms, for every library: events, short runs, noise, runs in groups."""

from __future__ import annotations

import copy
import inspect
import math
import operator
import warnings
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from traceback import format_exception
from typing import Any, ClassVar, Self, TypeVar

import dp_accounting
import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.accounting import RoundedDp
from dphypo.accounting.composition import Sides
from dphypo.entropy import SEED_BITS
from dphypo.errors import UnsupportedModelError
from dphypo.mechanisms import Mechanism, Outcome, SampledGaussian, SmallerBatches, over_space, sampled_gaussian
from dphypo.mechanisms.mechanism import RunKind, read_cap
from dphypo.mechanisms.procedure import settings_of, text_of
from dphypo.mechanisms.sampled_gaussian import DECLARED_PUBLIC, describe_transfer, rate_of_drift
from dphypo.search import rates
from dphypo.space import Space
from dphypo.space.dimension import Finite
from dphypo.training import cost
from dphypo.training.cost import CALIBRATE, NoiseMultiplier, TrainingCost, learning_rates
from dphypo.training.scores import (
    Metrics,
    RecordScore,
    TrainedModel,
    is_private,
    named,
    names_in,
    no_score,
    read_by,
    read_rarest,
    scores_of,
    scoring_share,
)
from dphypo.training.setting import Setting
from dphypo.training.split import sides_of

_LITTLE, _TRIED = 1e-3, 0.1  # noise in the weights: for a trial, and to compare two scales of the inputs
_SAME = 1.2  # up to this ratio a network moves as far at both scales: it normalises its inputs
_UNKNOWN = 0.1  # the learning rate if nothing was measured

READ = ("learning_rate", "drift", "max_grad_norm", "optimizer", "clipping", "average")
COSTS = ("batch_size", "epochs", "steps")
"""Hyperparameters that determine the cost of a run, and the others that it reads."""

_WHERE = frozenset({"device", "devices", "threads", "workers", "shards", "physical_batch_size", "whole"})

T = TypeVar("T")
Begun = TypeVar("Begun")
Model = TypeVar("Model")


class DivergedError(ArithmeticError):
    """The weights are no longer finite. They are already private, so stopping here reveals nothing more."""


@dataclass(frozen=True)
class AllRecords:
    """All records, before some were set apart for scoring, and their declared number: for a last run on them."""

    data: Any
    records: int
    fits: dict[str, Any] = field(default_factory=dict)


_SHAPES: Mapping[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
}


@dataclass(frozen=True)
class Schedule:
    """A schedule by name, after a linear warm-up over a share of the steps, as in ``transformers``.

    It ends at ``end`` where its name says zero.

    >>> schedule = Schedule("linear", 0.2)
    >>> schedule(0.1), schedule(0.2), schedule(0.6)
    (0.5, 1.0, 0.5)
    """

    name: str
    warmup: float = 0.0
    end: float = 0.0

    def __call__(self, done: float) -> float:
        if done < self.warmup:
            return done / self.warmup
        return self.end + (1.0 - self.end) * _SHAPES[self.name]((done - self.warmup) / (1.0 - self.warmup))


DECREASING = Schedule("linear", end=rates.END)


def _read_schedule(schedule: Any) -> Callable[[float], float] | None:
    """A schedule as a function of the share of completed steps."""
    if schedule is None:
        return None
    remedy = (
        f'give one of {", ".join(_SHAPES)}; a name with the share of the steps for a warm-up, ("cosine", 0.1); or a '
        "function of the share of completed steps, in [0, 1), that returns a factor for the learning rate"
    )
    name, warmup = schedule if isinstance(schedule, tuple) and len(schedule) == 2 else (schedule, 0.0)
    if isinstance(name, str) and name in _SHAPES and isinstance(warmup, int | float) and 0 <= warmup < 1:
        return Schedule(name, float(warmup))
    if not callable(schedule):
        raise _validate.fail("schedule", schedule, remedy)
    for done in (0.0, 0.5):
        try:
            factor = float(schedule(done))
        except Exception as error:
            raise _validate.fail(
                "schedule", schedule, f"it raises {type(error).__name__} at {done}: {remedy}"
            ) from None
        if not math.isfinite(factor):
            raise _validate.fail("schedule", schedule, f"its value at {done} is {factor}: {remedy}")
    return schedule  # type: ignore[no-any-return]


def _check_score(score: object) -> None:
    """Refuse a function that cannot be called with the model alone, such as one of (labels, predictions)."""
    if not inspect.isroutine(score):  # a word or an object is checked where it is read
        return
    try:
        signature = inspect.signature(score)
    except (TypeError, ValueError):  # written in C
        return
    try:
        signature.bind(None)
    except TypeError:
        name = getattr(score, "__name__", type(score).__name__)
        remedy = (
            "it is called with the trained model alone: give a function of the model, such as lambda model: "
            f'{name}(...), on public records; or a name such as "accuracy", which scores private ones'
        )
        raise _validate.fail("score", f"{name}{signature}", remedy) from None


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class GradientTraining(Mechanism):
    """The part of a mechanism that does not depend on the library that trains. Its subclasses say what fields mean."""

    data: Any
    score: Any
    noise_multiplier: NoiseMultiplier = CALIBRATE
    epochs: float = 10
    batch_size: int | None = None
    learning_rate: float | None = None
    drift: float | None = None
    input_scale: float | None = None
    max_grad_norm: float = 1.0
    optimizer: Any = "sgd"
    fixed: Mapping[str, Any] = field(default_factory=dict)
    records: int | None = None
    clipping: str = "clip"
    average: str | float | None = None
    physical_batch_size: int | None = None
    fraction: float = 1.0
    match: bool = False
    transfer_rule: sampled_gaussian.Transfer | None = None
    schedule: Any = None
    rarest: float | None = None
    person: Any = None
    rows_per_person: int | None = None
    persons: int | None = None
    whole: AllRecords | None = None
    _fits: dict[str, Any] = field(default_factory=dict)  # by architecture; copies of the mechanism share it

    relation: ClassVar[dp_accounting.NeighboringRelation] = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    seed_bits: ClassVar[int] = SEED_BITS
    library: ClassVar[type[TrainedModel]]
    """How its library's models are scored."""
    read: ClassVar[tuple[str, ...]] = READ
    """Hyperparameters that the mechanism reads itself, in addition to those that determine the cost of a run."""
    same_fits: ClassVar[frozenset[str]]
    """Fields that what was found for an architecture depends on."""
    kept: ClassVar[float | None] = None
    """The κ of :meth:`continued`; None for a run that does not begin from an earlier model."""

    def __post_init__(self) -> None:
        """Check what does not depend on the library."""
        for name in ("learning_rate", "drift", "input_scale"):
            if getattr(self, name) is not None:
                _validate.positive(**{name: getattr(self, name)})
        if self.learning_rate is not None and self.drift is not None:
            raise _validate.fail("drift", self.drift, "it is the learning rate in units of noise: give one of the two")
        _validate.positive(max_grad_norm=self.max_grad_norm)
        _validate.within(0.0, 1.0, closed="right", fraction=self.fraction)
        object.__setattr__(self, "schedule", _read_schedule(self.schedule))
        read_rarest(self.rarest)
        for score in self.score.values() if isinstance(self.score, Mapping) else [self.score]:
            _check_score(score)
        Setting(physical_batch_size=self.physical_batch_size, clipping=self.clipping, average=self.average)
        if own := sorted({*self.read, *COSTS} & set(self.fixed)):
            raise ValueError(f"fixed holds {own[0]!r}, which is a separate argument: write {own[0]}=...")
        object.__setattr__(self, "noise_multiplier", cost.read(self.noise_multiplier))
        object.__setattr__(self, "fixed", dict(self.fixed))

    def __new__(cls, *_: object, **given: object) -> Self:
        """Name the nearest argument if one is misspelt, and what a score may be if there is none."""
        _validate.spelled(cls.__name__, given, [one.name for one in fields(cls) if one.init])
        if given and "score" not in given:
            raise TypeError(
                f'{cls.__name__} needs a score, by which runs are ranked: give score="accuracy", which sets private '
                "records apart; for a regression, a PrivateLoss on records that do not train; or a function of the "
                "model that looks at public records"
            )
        return super().__new__(cls)

    @property
    def unit(self) -> str:
        """Who is protected: a record, or a person with all their rows."""
        return "record" if self.rows_per_person is None else "person"

    def set_records(self, data: Any) -> None:
        """Set what follows from records that were read: how many are declared, and which train and which score.

        Args:
            data: the records, with a ``size`` and, if they are persons, the keys ``person``.
        """
        first = type(self.data) is not type(data)  # copies of a mechanism hold records that were read
        cap = read_cap(data.person, self.rows_per_person)
        if first and cap is None and self.persons is not None:
            raise _validate.fail("persons", self.persons, "it is for persons: pass person= too, or declare records=")
        if first and cap is not None and self.records is not None:
            raise _validate.fail("records", self.records, "records are persons here: declare their number, persons=")
        if cap is not None and self.persons is not None:
            _validate.integer(at_least=1, persons=self.persons)
        declared = self.records if self.persons is None or not first else self.persons
        if declared is None and not data.size:
            if cap is not None and len(data):
                raise ValueError("person holds no key that can be used: give whole numbers or texts, one per row")
            raise ValueError("data holds no records: give at least one")
        size = _validate.integer(at_least=1, records=data.size if declared is None else declared)
        changes: dict[str, Any] = {"data": data, "records": size, "rows_per_person": cap}
        if cap is not None and self.persons is None:
            changes["persons"] = size
        if self.batch_size is None:
            changes["batch_size"] = cost.batch_size(size)
        if isinstance(self.score, str | tuple | list):
            names_in(self.score)
            share, scoring = scoring_share(size)
            changes["whole"] = AllRecords(data, size)
            changes["data"], held_out = self.parts(data, share)
            changes["records"] = max(1, size - scoring)
            more = {"rarest": self.rarest, "records": scoring, "rows_per_person": cap, **self.of_named(held_out)}
            changes["score"] = named(self.score, data=held_out, **more)
        else:
            changes["score"] = self._read_score(cap)
        vars(self).update(changes)

    @abstractmethod
    def parts(self, data: Any, share: float) -> tuple[Any, Any]:
        """The records that train, and those that score: about this share of them, by a hash of each."""

    def of_named(self, held_out: Any) -> dict[str, Any]:
        """Further arguments of scores that are given by name, on these records."""
        return {}

    @abstractmethod
    def refuse_unknown(self, names: Iterable[str]) -> None:
        """Raise a ValueError for a hyperparameter that nothing uses."""

    @abstractmethod
    def make(self, params: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> Sequence[Outcome | Exception]:
        """Execute runs; an exception of a run takes the place of its outcome."""

    @abstractmethod
    def refuse_optimizer(self, optimizer: Any, argument: str) -> None:
        """Raise a ValueError for anything that is no optimiser of the library."""

    def check_space(self, space: Space) -> None:
        """Refuse hyperparameters that nothing uses, and choices that no run can take, such as an unknown optimiser."""
        self.refuse_unknown(space.names)
        for one in space.parameters:
            choices: tuple[Any, ...] = one.dimension.choices if isinstance(one.dimension, Finite) else ()
            for value in choices if choices or one.name != "optimizer" else (one,):
                if one.name == "optimizer":
                    self.refuse_optimizer(value, "space['optimizer']")
                elif one.name in ("clipping", "average"):
                    Setting(**{one.name: value})

    def _read_score(self, cap: int | None) -> Any:
        """The score that was given, if it is not a name, with its records read; of persons if training is."""
        if not callable(self.score) and not isinstance(self.score, Mapping):
            raise _validate.fail("score", self.score, 'give a function of the model, a PrivateAccuracy, or "accuracy"')
        score = Metrics(dict(self.score)) if isinstance(self.score, Mapping) else self.score
        is_private(score)  # refuses one that states its event alone
        for one in scores_of(score).values():
            if isinstance(one, RecordScore) and (one.rows_per_person is None) != (cap is None):
                remedy = "training and scoring must protect one unit: give person= to both, or to none"
                raise _validate.fail("score", type(one).__name__, remedy)
        return read_by(self.library, score)

    @property
    @abstractmethod
    def classes(self) -> int | None:
        """How many classes the model distinguishes; None while that depends on hyperparameters that are not fixed."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the metrics, if there are several."""
        return tuple(self.score.scores) if isinstance(self.score, Metrics) else ()

    @property
    def private_score(self) -> RecordScore | Metrics | None:
        """The score, if it looks at private records; else None."""
        return self.score if is_private(self.score) else None

    @property
    def ranking_score(self) -> Any:
        """The score that ranks the runs: the first, if there are several."""
        return next(iter(scores_of(self.score).values()))

    @property
    def score_event(self) -> Any:
        """The event of a score on private records; a function that raises while the noise is "calibrate"."""
        score = self.private_score
        if score is None:
            return None
        return (lambda params: score.event) if score.noise_multiplier == cost.CALIBRATE else score.event

    @property
    def score_noise_multiplier(self) -> float | str | None:
        """The noise of a score on private records; "calibrate" if it is to be solved for."""
        return None if self.private_score is None else self.private_score.noise_multiplier

    @property
    def score_records(self) -> int | None:
        """The declared number of records that the score looks at, if they are private."""
        return None if self.private_score is None else self.private_score.records

    @property
    def score_deviation(self) -> float | None:
        """The noise of the score that ranks, in units of its whole range; None if it has none that is known."""
        score = self.ranking_score
        return score.deviation(self.classes) if isinstance(score, RecordScore) else None

    @property
    def score_assumes(self) -> str:
        """What the stated noise of the score assumes, in words."""
        return self.ranking_score.assumes if isinstance(self.ranking_score, RecordScore) else ""

    def _with_noise_of_score(self, noise_multiplier: float) -> Any:
        """The score with another noise; refused for one on public records."""
        if self.private_score is None:
            remedy = "the score looks at public records: it has no noise"
            raise _validate.fail("score_noise_multiplier", noise_multiplier, remedy)
        with warnings.catch_warnings(action="ignore"):  # a plan tries out noise that it does not keep
            return replace(self.score, noise_multiplier=noise_multiplier)

    def score_reaching(self, target: float, wrong: float) -> float | None:
        """The score from which a target counts as reached; None if the ranking score cannot tell."""
        score, of = self.ranking_score, None if self.whole is None else self.whole.records
        return score.reaching(target, wrong, of) if isinstance(score, RecordScore) else None

    def event(self, params: Mapping[str, Any]) -> RoundedDp:
        """The event of training with the given hyperparameters. It reads the batch size and the epochs alone."""
        self.refuse_unknown(params)
        return cost.exact(self.cost.run(params))

    @property
    def scored_on(self) -> str:
        """On which records its scores are taken, in words for a certificate."""
        return DECLARED_PUBLIC if self.private_score is None else super().scored_on

    @property
    def split(self) -> Sides | None:
        """The sides of the records that train and those that score; None if one record may do both."""
        score = self.private_score
        return None if score is None else sides_of(self.data, score.data, score.split)

    @abstractmethod
    def hidden(self, params: Mapping[str, Any]) -> bool:
        """Whether the network at λ has hidden layers: more than one array of trained weights."""

    @abstractmethod
    def movement(self, params: Mapping[str, Any], scale: float, noise: float) -> float:
        """By how much noise in all weights moves the outputs of the layer that it moves most, on made-up records."""

    @property
    @abstractmethod
    def input_size(self) -> int | None:
        """How many numbers the input of one record has; None if it has no scale, such as text in tokens."""

    @abstractmethod
    def input_rows(self) -> Iterator[npt.NDArray[Any]]:
        """The inputs of all rows, in tables; NaN for a row that no run uses. **Secret.**"""

    def input_terms(self) -> list[float]:
        """For each record, what it adds to the scale of the inputs: of a person, the mean over the rows. **Secret.**"""
        found, person = [term for rows in self.input_rows() for term in rates.norm_terms(rows)], self.data.person
        return found if person is None else person.means(found).tolist()

    def input_vectors(self) -> Iterable[npt.NDArray[np.float64]]:
        """The unit vectors of the inputs, one row a record: of a person, the mean over the rows. **Secret.**"""
        found, person = (rates.unit_vectors(rows) for rows in self.input_rows()), self.data.person
        return found if person is None else person.mean_vectors(found)

    @property
    def wants_scale(self) -> bool:  # type: ignore[override]
        """Whether the scale of the inputs matters, and nobody has declared it."""
        sized = self.input_scale is None and self.input_size is not None
        if not sized or not self.complete or self.regression or not rates.measured(self.optimizer_name):
            return False
        small, large = (self.movement({}, scale, _TRIED) for scale in (0.1, 10.0))
        return large > _SAME * small  # else the network normalises its inputs

    @property
    @abstractmethod
    def regression(self) -> bool:
        """Whether the loss is one of regression, as far as that can be seen: rates were measured for classification."""

    @property
    @abstractmethod
    def complete(self) -> bool:
        """Whether the network can be built without further hyperparameters."""

    @property
    def optimizer_name(self) -> str:
        """The name of the optimiser in lower case; "" if it has none."""
        return _optimizer_name(self.optimizer)

    def known(self, scale: float | None = None) -> rates.Known | None:
        """What public values say about the learning rate, with normalised gradients.

        None while the network takes hyperparameters that are not fixed.
        """
        if not self.complete:
            return None
        return self.known_at({"clipping": self.searched_clipping}, scale)

    @property
    def searched_clipping(self) -> str:
        """How gradients are clipped if no space is given."""
        return "normalise"

    def known_at(self, params: Mapping[str, Any], scale: float | None = None) -> rates.Known | None:
        """What public values say about the learning rate at the other hyperparameters; None for a regression."""
        if self.regression:
            return None
        scale = self.input_scale if scale is None else scale
        scale = rates.scale_of_shape(self.input_size or 1) if scale is None else scale
        given = {"optimizer": self.optimizer, "clipping": self.clipping, **params}
        name = _optimizer_name(given["optimizer"])
        key = repr(("rate", name, given["clipping"], scale, sorted(self.shape_params(params).items())))
        if key not in self._fits:
            rehearsed: Callable[[float], float] = partial(self.movement, params, scale)
            if not 0 < rehearsed(_LITTLE) < math.inf:  # a network that made-up inputs do not suit
                rehearsed = partial(operator.mul, scale)
            facts: dict[str, Any] = {"hidden": self.hidden(params), "movement": rehearsed}
            self._fits[key] = rates.known(name, str(given["clipping"]), **facts)
        found: rates.Known | None = self._fits[key]
        return found

    @abstractmethod
    def shape_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The hyperparameters that the network is built from."""

    def rated(
        self, given: Mapping[str, Any], params: Mapping[str, Any], run: SampledGaussian
    ) -> tuple[dict[str, Any], Callable[[float], float] | None]:
        """All hyperparameters of a run with its learning rate: λ's, the mechanism's, or the one of the drift.

        Without either, the drift or the learning rate is what public values say. The schedule of the rate is returned
        with them: the mechanism's, or the one that goes with a drift.
        """
        absolute = params.get("learning_rate", None if "drift" in params else self.learning_rate)
        drift = params.get("drift", self.drift)
        name = _optimizer_name(given["optimizer"])
        if absolute is None and drift is None:
            found = self.known_at(params)
            absolute, drift = (_UNKNOWN, None) if found is None else (None, found.value)
        if absolute is not None:
            return {**given, "learning_rate": absolute}, self.schedule
        if not rates.measured(name):
            remedy = f"it is for SGD and Adam, not for {name or 'this optimiser'}: use learning_rate"
            raise _validate.fail("drift", drift, remedy)
        if self.match and self.fraction < 1:
            run = self.cost.full_run(params, given)[0]
        drift *= math.sqrt(1 - (self.kept or 0.0) ** 2)  # with the noise that is kept, it is the drift
        size, momentum = given.get("batch_size", self.batch_size), given.get("momentum") or 0.0
        more: dict[str, Any] = {"batch_size": size, "momentum": momentum}
        schedule = self.schedule
        if name == "sgd" and self.decreases(given, params, rate_of_drift(1.0, run, **more)):
            schedule, drift = DECREASING, rates.FURTHER * drift
        more |= {"schedule": schedule, "hidden": self.hidden(params), "adam": name != "sgd"}
        rate = rate_of_drift(drift, run, max_grad_norm=given["max_grad_norm"], **more)
        return {**given, "learning_rate": rate}, schedule

    def values(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """All hyperparameters of a run: λ, and the fields for those that λ does not have."""
        return {**{name: getattr(self, name) for name in self.read}, **self.fixed, **params}

    def given_at(
        self, params: Mapping[str, Any], run: SampledGaussian
    ) -> tuple[Mapping[str, Any], Callable[[float], float] | None]:
        """All hyperparameters of a run with its learning rate and schedule; of a short one, as its rule maps them."""
        given, schedule = self.rated(self.values(params), params, run)
        if self.match and self.fraction < 1:
            full, deviation = self.cost.full_run(params, given)
            rule = self.transfer_rule or self.rehearsal(full, deviation, schedule)
            return sampled_gaussian.apply_transfer(rule, given, self.fraction), schedule
        return given, schedule

    @abstractmethod
    def rehearsal(
        self, full: SampledGaussian, deviation: float, schedule: Callable[[float], float] | None
    ) -> sampled_gaussian.Transfer:
        """How λ becomes the hyperparameters of a short run, by rehearsing the full run's optimiser on pure noise."""

    def decreases(self, given: Mapping[str, Any], params: Mapping[str, Any], natural: float) -> bool:
        """Whether a rate that follows from a drift decreases: of SGD on linear models, with little noise.

        Stability limits their steps. A rate that ends small may begin large, and take weights further than the drift
        says (paper/RATES.md).
        """
        if natural < rates.LITTLE_NOISE or self.schedule is not None or self.kept is not None:
            return False
        return given["clipping"] == "normalise" and not self.regression and not self.hidden(params)

    def known_space(self, searched: Mapping[str, Any]) -> Space:
        """The learning rate about where public values put it, and what else is searched if no space is given."""
        if self.wants_scale:
            return Space({rates.DRIFT: rates.OPEN, **searched})
        found = self.known()
        if found is not None:
            return Space({found.name: found.prior, **searched})
        absolute = learning_rates(self.optimizer_name, self.fixed, self.max_grad_norm)
        return Space({"learning_rate": absolute, **searched})

    @property
    def transfer(self) -> dict[str, Any] | None:
        """How the hyperparameters of a full run become those of this short one, in plain values; None if unchanged."""
        rule = self.transfer_rule or sampled_gaussian.NoiseRehearsal
        return describe_transfer(rule, self.fraction) if self.match and self.fraction < 1 else None

    def at(self, *, match: bool = False, score_noise_multiplier: float | None = None, **changes: Any) -> Self:
        """A copy with other fields, such as a cheaper run: ``mechanism.at(fraction=0.1, match=True)``.

        Args:
            match: make the short run one that ranks λ as the full run does. λ stays the full run's: the noise is the
                full run's over √fraction, and ``transfer_rule`` maps the hyperparameters.
            score_noise_multiplier: the noise of a score on private records.
            changes: fields of the mechanism. A word as ``score`` sets records apart: give all records as ``data``, too.
        """
        cheap = {"noise_multiplier", "fraction", "match"} >= set(changes)
        if score_noise_multiplier is not None:
            changes["score"] = self._with_noise_of_score(score_noise_multiplier)
        if match:
            exponent = sampled_gaussian.batch_exponent(changes.get("transfer_rule", self.transfer_rule))
            steps = (changes.get("fraction", self.fraction) / self.fraction) ** (1 - exponent)
            full = cost.read(changes.get("noise_multiplier", self.noise_multiplier))
            changes |= {"match": True, "noise_multiplier": cost.match_noise(full, steps)}
        if not self.same_fits.isdisjoint(changes):
            changes["_fits"] = {}
            if self.whole is not None:
                changes["whole"] = replace(self.whole, fits={})
        if "data" in changes:
            changes["whole"] = None
            if self.unit == "person":
                changes.setdefault("records", None)
        made = self._recosted(changes) if cheap else replace(self, **changes)
        if match and isinstance(made.transfer_rule, SmallerBatches):
            made.transfer_rule({"learning_rate": 1.0, "optimizer": made.optimizer, **made.fixed}, 1.0)  # it may warn
        return made

    def _recosted(self, changes: Mapping[str, Any]) -> Self:
        """A copy for a solver, which tries many values of the noise: only the noise and the length are checked."""
        made = copy.copy(self)
        vars(made).update(changes)
        _validate.within(0.0, 1.0, closed="right", fraction=made.fraction)
        vars(made)["noise_multiplier"] = cost.read(made.noise_multiplier)
        _ = made.cost  # which checks both
        return made

    def without_score(self) -> Self:
        """The same training, without a score on private records."""
        return self if self.private_score is None else self._recosted({"score": no_score})

    def on_all_records(self) -> Self | None:
        """The same training on the records that score, too, where ``score`` was a word; else None."""
        if (whole := self.whole) is None:
            return None
        changes = {"data": whole.data, "records": whole.records, "whole": None, "_fits": whole.fits}
        return self._recosted(changes) if whole.fits else replace(self, **changes)  # which checks the model once

    @property
    def procedure(self) -> str:
        """All that decides a run but its records, its event and where it is executed."""
        return text_of(settings_of(self, without=_WHERE))

    def held_records(self) -> dict[str, Any]:
        """The records that train, and those of each score: for the fingerprint of a search."""
        found: dict[str, Any] = {"train": self.data.held()}
        for name, score in scores_of(self.score).items():
            if isinstance(score, RecordScore):
                found[f"score {name}"] = self.library.records(score.data, score.example).held()
        return found

    def kinds(self, space: Space) -> list[RunKind]:
        """Runs of a space that cost the same but for their noise: one for each batch size and length in it."""
        self.check_space(space)
        own = self.cost

        def kinds_at(params: Mapping[str, Any]) -> list[RunKind]:
            setting = own.setting(params)
            return [RunKind(setting, lambda noise: cost.exact(own.run_of(setting, noise)))]

        return over_space.everywhere(kinds_at, space)

    def compute(self, params: Mapping[str, Any]) -> float:
        """Examples that a run with these hyperparameters processes, on average."""
        setting = self.cost.setting(params)
        return float(self.cost.run_of(setting, 1.0).steps * self.cost.batch(setting[0]))

    calibrated = cost.calibrated

    def __call__(self, params: Mapping[str, Any], *, seed: int) -> Outcome:
        """One run: ``M_λ(D)`` of the paper."""
        self.refuse_unknown(params)
        (made,) = self.make([params], [seed])
        if isinstance(made, Exception):
            raise made
        return made

    def many(self, params: Sequence[Mapping[str, Any]], *, seeds: Sequence[int]) -> list[Outcome]:
        """Several runs at once; one that fails is an outcome."""
        for one in params:
            self.refuse_unknown(one)
        made = self.make(params, seeds)
        return [one if isinstance(one, Outcome) else Outcome.failed("".join(format_exception(one))) for one in made]

    @property
    def cost(self) -> TrainingCost:
        """What runs cost, and how large their batches are."""
        exponent = sampled_gaussian.batch_exponent(self.transfer_rule) if self.match else 0.0
        names = ("records", "batch_size", "epochs", "noise_multiplier", "fraction")
        return TrainingCost(**{name: getattr(self, name) for name in names}, batch_exponent=exponent)


def make_in_groups(
    begin: Sequence[Callable[[], Begun]],
    kind: Callable[[int, Begun], Hashable],
    train: Callable[[Sequence[Begun]], Sequence[Model]],
    finish: Callable[[int, Begun, Model], Outcome],
) -> list[Outcome | Exception]:
    """Execute runs: ``begin`` each, ``train`` those of one ``kind`` at once, ``finish`` each.

    An exception of a run takes the place of its outcome, except for ``UnsupportedModelError``.
    """
    found: list[Any] = [_tried(run) for run in begin]
    groups: dict[Hashable, dict[int, Begun]] = {}
    for at, one in enumerate(found):
        if not isinstance(one, Exception):
            groups.setdefault(kind(at, one), {})[at] = one
    waiting = list(groups.values())
    while waiting:
        group = waiting.pop(0)
        models = _tried(partial(train, list(group.values())))
        if not isinstance(models, Exception):
            for (at, one), model in zip(group.items(), models, strict=True):
                found[at] = _tried(partial(finish, at, one, model))
        elif len(group) > 1:  # it failed as a whole: its runs are executed one by one
            waiting[:0] = [{at: one} for at, one in group.items()]
        else:
            found[next(iter(group))] = models
    return found


def _optimizer_name(optimizer: object) -> str:
    return optimizer.lower() if isinstance(optimizer, str) else ""


def _tried(call: Callable[[], T]) -> T | Exception:
    try:
        return call()
    except UnsupportedModelError:
        raise
    except Exception as error:
        return error
