"""Fitting a private estimator as a mechanism: one run fits and scores a copy with λ, noise and seed.

Runs are scored on public records without cost, or on private ones with noise.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Protocol, runtime_checkable

import dp_accounting
import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags

from dphypo import _validate
from dphypo.accounting.composition import Sides
from dphypo.accounting.events import Event, canonical
from dphypo.mechanisms import Outcome, Saver, over_space
from dphypo.mechanisms.fingerprint import held
from dphypo.mechanisms.mechanism import RunKind
from dphypo.mechanisms.sampled_gaussian import match_noise
from dphypo.mechanisms.savers import Pickled as Pickled
from dphypo.search.rates import Known, scale_of_columns
from dphypo.sklearn.schema import (
    Holds,
    Schema,
    holds,
    is_frame,
    made_up,
    missing_in,
    numbers,
    places,
    split_pipeline,
    steps_instead,
    width_of,
)
from dphypo.space import Space
from dphypo.training.persons import PersonKeys
from dphypo.training.scores import (
    Asked,
    Floats,
    PrivateLoss,
    Scored,
    TrainedModel,
    Value,
    as_trained,
    no_score,
)
from dphypo.training.split import record_bytes

_MADE_UP = 24  # records of a rehearsal
SCORINGS = {"balanced_accuracy": "balanced_accuracy", "f1": "f1 of class 1", "f1_macro": "f1", "roc_auc": "auc"}
"""Names of scikit-learn's scorers that are computed privately from one noisy matrix, and the measures of it."""


@runtime_checkable
class PrivateEstimator(Protocol):
    """A scikit-learn estimator whose ``fit`` is differentially private.

    Besides :meth:`privacy_event` it needs scikit-learn's ``get_params`` and ``set_params``, and a parameter
    ``random_state``, an integer from which **all** randomness of ``fit`` comes: the search sets it for every run.

    If the event depends on the number of records (a sampling rate, a number of steps), it also needs a parameter
    ``records``, a public constant that the search sets and that ``fit`` uses in place of ``len(X)``, because the number
    of records that ``fit`` is given is private. Without this parameter such an event is refused.

    An estimator may also have:

    - ``classes``: its labels. ``fit`` and ``predict`` are rehearsed with them on made-up records;
    - ``cut_short(params, fraction, *, records, transfer)``, for surveys: the parameters in which a fit with this
      fraction of the steps differs from a full one. With ``transfer`` also those that only make it comparable (a
      learning rate); without, only those that its event depends on;
    - ``check_data(X, y)``: raises an error, by types alone, for data that ``fit`` cannot use;
    - ``check_space(space, prefix)``: raises an error for a space that it cannot be searched over, in which the names of
      its parameters begin with a prefix;
    - ``saver(whole)``: gives a :class:`dphypo.mechanisms.Saver` of fitted copies of ``whole``, which is this estimator
      or a pipeline that ends in it. Without it they are pickled.
    """

    def privacy_event(self, params: Mapping[str, Any], *, records: int) -> Event:
        """The event of one ``fit`` with these parameters in place of the estimator's own, on this many records.

        It bounds ``fit`` under adding or removing one record. It should read only those parameters that it depends
        on, with ``params.get(name, self.name)``: a search takes the supremum over all values of what it reads.
        """

    def fit(self, X: Any, y: Any) -> Any: ...

    def predict(self, X: Any) -> Any: ...


def check_estimator(estimator: Any, X: Any) -> None:
    """TypeError unless an estimator is private, alone or behind a :class:`Schema`: one message with all problems."""
    _, last, _ = split_pipeline(estimator)
    steps: list[tuple[str, Any]] = []
    problems: list[str] = []
    foreign = isinstance(last, Pipeline)
    while isinstance(last, Pipeline):
        steps, last = [*steps, *last.steps[:-1]], last.steps[-1][1]
    if foreign:
        problems.append(steps_instead(steps, last, X))
    if not isinstance(last, PrivateEstimator):
        problems.append(
            f"{type(last).__name__} does not state its privacy event: PrivateSearch needs an estimator whose fit is "
            f"private and that has privacy_event(params, *, records), such as DPSGDClassifier"
        )
    if problems:
        raise TypeError("\n".join(problems))


def callers() -> Iterator[tuple[Any, str, bool]]:
    """Who called ``fit``, from the inside: the object, the function's name, and whether scikit-learn defines it."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        yield (
            frame.f_locals.get("self"),
            frame.f_code.co_name,
            frame.f_globals.get("__name__", "").startswith("sklearn."),
        )
        frame = frame.f_back


def saver_for(estimator: Any) -> Saver:
    """How the fitted copies of an estimator, or of a pipeline that ends in one, are saved."""
    _, last, _ = split_pipeline(estimator)
    return last.saver(estimator) if hasattr(last, "saver") else Pickled()


def usable(schema: Schema | None, last: Any, X: Any, y: Any) -> tuple[Any, Any]:
    """The inputs and targets that a private estimator is given; whether a record is depends on that record alone.

    A record without a target is left out, and one with a value that is not finite where the estimator says that it
    takes none (scikit-learn's tag ``allow_nan``).
    """
    table, inside = usable_rows(schema, last, X, y)
    if inside.all():
        return table, y
    chosen = np.flatnonzero(inside)
    return _safe_indexing(table, chosen), _safe_indexing(y, chosen)


def usable_rows(schema: Schema | None, last: Any, X: Any, y: Any) -> tuple[Any, Any]:
    """The table as a private estimator reads it, and which of its rows it is given."""
    table = X if schema is None else schema.transform(X)
    inside = ~missing_in(y)
    if not get_tags(last).input_tags.allow_nan:
        table = numbers(table) if is_frame(table) else np.asarray(numbers(table))
        values = np.asarray(table, dtype=np.float64)
        inside &= np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
    return table, inside


def rehearse(estimator: Any, X: Any, y: Any, public: tuple[Any, Any] | None, score: Any) -> None:
    """ValueError if ``fit``, ``predict`` or a score on public records fails, before anything is spent.

    Made-up records have the names and types of the columns of X, and labels from ``classes`` or public records. No
    private value is read.
    """
    whole = clone(estimator)
    schema, last, _ = split_pipeline(whole)
    labels = getattr(last, "classes", None)
    labels = public[1] if labels is None and public is not None else labels
    labels = None if labels is None else np.squeeze(np.asarray(labels))
    if labels is not None and is_classifier(last) and labels.ndim == 1:
        labels = np.asarray(list(dict.fromkeys(labels.tolist())))
    if labels is None or (is_classifier(last) and len(labels) < 2):
        labels = np.arange(2) if is_classifier(last) else np.linspace(-1.0, 1.0, _MADE_UP)
        labels = labels.astype(str) if holds(y) is Holds.TEXTS and is_classifier(last) else labels
    count = max(_MADE_UP, min(len(labels), 1000))
    rows, targets = made_up(X, count), labels[np.arange(count) % len(labels)]
    constants = {"random_state": 0, "records": count}
    last.set_params(**{name: value for name, value in constants.items() if name in last.get_params()})
    step = "fit"
    try:
        with warnings.catch_warnings(action="ignore"):  # about made-up values
            if schema is not None:
                schema.fit(rows)
            last.fit(*usable(schema, last, rows, targets))
            step = "predict"
            whole.predict(rows)
            if public is not None:
                step = "scoring"
                score(whole)
    except Exception as error:
        where = "the public records" if step == "scoring" else "made-up records with the columns and types of X"
        raise ValueError(
            f"{type(last).__name__}: {step} raises {type(error).__name__} on {where}, and would do so "
            f"after ε is spent: {error}"
        ) from error


@dataclass(frozen=True, repr=False, kw_only=True)
class Fitting(Scored):
    """Fits of an estimator on some records, each with a score.

    A score on private records is the accuracy, or minus the mean absolute error, with exact noise. Correct records are
    counted; errors are clipped to ``error_bound``, rounded to a grid and added up. Adding or removing one record
    changes the count by at most 1 and the sum by at most ``error_bound``, so the score is a Gaussian mechanism. It
    publishes a whole number of units over a public number of records. The prediction for a record is assumed to depend
    on that record alone; a matrix product may round the last bit of a row by its place.
    """

    estimator: Any  # a private estimator, or a pipeline of a schema and one
    like: Any  # the table without its records
    train: tuple[Any, Any]  # inputs and targets to fit the private estimator on
    records: int  # their declared number
    score: Any  # to rank the fits by: on private records, as in ``train``, or a function of the fitted estimator
    saver: Saver  # saves fitted copies of the estimator
    noise: float | Mapping[Hashable, float] | None = None  # the multiplier, or one for each kind; None: the estimator's
    fraction: float = 1.0  # of a full fit's steps
    match: bool = False  # whether the estimator maps λ, the full fit's hyperparameters, to those of a short one
    split: Sides | None = None  # of the records to fit on and of those that score, where both are private
    whole: tuple[tuple[Any, Any], int, PersonKeys | None] | None = None  # all private records, where some score
    person: PersonKeys | None = None  # whose rows those to fit on are, where records are persons
    rows_per_person: int | None = None
    named_by: int | None = None  # the number of records by which kinds of runs are named, if not their own

    relation: ClassVar[dp_accounting.NeighboringRelation] = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    monotone: ClassVar[frozenset[str]] = frozenset()
    seeded: ClassVar[bool] = True
    """All randomness of a fit comes from ``random_state`` (:class:`PrivateEstimator`)."""

    @property
    def unit(self) -> str:
        """Who is protected: a record, or a person with all their rows."""
        return "record" if self.person is None else "person"

    @property
    def last(self) -> Any:
        """The private estimator."""
        return split_pipeline(self.estimator)[1]

    @property
    def prefix(self) -> str:
        """What the names of its parameters begin with."""
        return split_pipeline(self.estimator)[2]

    def takes(self, name: str) -> bool:
        """Whether the private estimator has a parameter of this name."""
        return name in self.last.get_params()

    def event(self, params: Mapping[str, Any]) -> Event:
        """The event of fitting with the given parameters."""
        return self._event(params, self._noise(params))

    def held_records(self) -> dict[str, Any]:
        """The private records that are fitted, and those that score: for the fingerprint of a search."""
        found = {"train": held(self.train)}
        if self.private_score is not None:
            found["score"] = held(self.score.data)
            if self.score.person is not None:
                found["score"]["person"] = self.score.person.rows
        if self.person is not None:
            found["train"]["person"] = self.person.rows
        return found

    def at(
        self,
        *,
        noise_multiplier: float | Mapping[Hashable, float] | None = None,
        fraction: float | None = None,
        match: bool = False,
        score_noise_multiplier: float | None = None,
    ) -> Fitting:
        """A copy with other noise, or cut short; ``match`` as in :meth:`dphypo.torch.DPSGD.at`."""
        part = self.fraction if fraction is None else _validate.within(0.0, 1.0, closed="right", fraction=fraction)
        if part < 1 and not hasattr(self.last, "cut_short"):
            remedy = "it does not define a shorter fit: give it a method cut_short, or use full fits only"
            raise _validate.fail("estimator", self.estimator, remedy)
        noise = self.noise if noise_multiplier is None else noise_multiplier
        if match and noise is not None:
            ratio = match_noise(1.0, part / self.fraction)
            noise = {key: ratio * one for key, one in noise.items()} if isinstance(noise, Mapping) else ratio * noise
        score = self.score if score_noise_multiplier is None else self.with_noise_of_score(score_noise_multiplier)
        return replace(self, noise=noise, fraction=part, score=score, match=self.match or match)

    def without_score(self) -> Fitting:
        """The same fit, which looks at no private record for a score."""
        return self if self.private_score is None else replace(self, score=no_score)

    def on_all_records(self) -> Fitting | None:
        """The same fit on the records that score, too, where the search set them apart; else None."""
        if self.whole is None:
            return None
        train, records, person = self.whole
        changes: dict[str, Any] = {"train": train, "records": records, "person": person, "named_by": self.records}
        return replace(self, **changes, score=no_score, split=None, whole=None)

    def known(self, scale: float | None = None) -> Known | None:
        """What public values say of the learning rate: by the columns of a schema, if there is one."""
        if not hasattr(self.last, "known"):
            return None
        schema = split_pipeline(self.estimator)[0]
        if schema is None:
            found = self.last.known(width_of(self.like), scale)
        else:
            ranges = sum(isinstance(given, tuple) for given in schema.columns.values())
            declared = scale_of_columns(ranges=ranges, categories=len(schema.columns) - ranges)
            found = self.last.known(len(schema.get_feature_names_out()), declared if scale is None else scale)
        return None if found is None else replace(found, name=f"{self.prefix}{found.name}")

    def default_space(self) -> Space | None:
        """The learning rate where public values say that it is, or what the estimator searches if they say nothing."""
        found = self.known()
        if found is not None:
            return Space({found.name: found.prior})
        rates = getattr(self.last, "learning_rates", None)
        return None if rates is None else Space({f"{self.prefix}learning_rate": rates()})

    def architecture(self, space: Space) -> str:
        """The kind of estimator and the number of columns, which must be the same when a search resumes."""
        kind = type(self.last).__name__
        return f"{f'Schema > {kind}' if self.prefix else kind} on {width_of(self.like)} columns"

    def check_space(self, space: Space) -> None:
        """Refuse a space that the estimator refuses, if it has a method ``check_space(space, prefix)``."""
        if hasattr(self.last, "check_space"):
            self.last.check_space(space, self.prefix)

    def kinds(self, space: Space) -> list[RunKind]:
        """The kinds of runs in a space: runs of one kind have the same full fit's event at noise 1."""
        self.check_space(space)
        return over_space.everywhere(lambda params: [RunKind(self._key(params), partial(self._event, params))], space)

    def __call__(self, params: Mapping[str, Any], *, seed: int) -> Outcome:
        """One run: ``M_λ(D)`` of the paper."""
        own = {**self._over(params, self._noise(params), transfer=True), "random_state": seed}
        if self.takes("records"):
            own["records"] = self.records
        groups = {} if self.person is None else {"groups": self.person}
        if groups and self.takes("rows_per_person"):
            own["rows_per_person"] = self.rows_per_person
        chosen = {**params, **{f"{self.prefix}{name}": value for name, value in own.items()}}
        whole = clone(self.estimator).set_params(**chosen)
        schema, last, prefix = split_pipeline(whole)
        with warnings.catch_warnings(action="ignore"):  # about single records
            if schema is not None:
                schema.fit(self.like)
            last.fit(*self.train, **groups)
            private = self.private_score is not None
            score = self.score(FittedEstimator(last), seed=seed) if private else float(self.score(whole))
        whole.set_params(**{f"{prefix}random_state": None})  # the seed stays with the curator
        return Outcome(whole, score)

    @property
    def classes(self) -> int | None:
        """How many classes the estimator distinguishes; two if it does not say."""
        known = getattr(self.last, "classes", None)
        return 2 if known is None else len(known)

    @property
    def score_assumes(self) -> str:
        """What the stated noise of the measure assumes, or is a part of, in words."""
        bounded = isinstance(self.score, PrivateLoss)
        return f" times the error_bound of {self.score.bound:g}" if bounded else super().score_assumes

    def _event(self, params: Mapping[str, Any], noise: float | None) -> Event:
        seen = _Seen(params, self.prefix, self._over(params, noise, transfer=False))
        state = partial(self.last.privacy_event, seen)
        event: Event = state(records=self.records)
        if not self.takes("records"):
            self._refuse_another_number(event, state)
        return event

    def _refuse_another_number(self, event: Event, state: Callable[..., Event]) -> None:
        """Refuse an event that depends on the number of records if ``fit`` does not know the declared number.

        It would count the records that it is given. Their number is private: a hash decides which records score, and
        records without a target are left out.
        """
        declared, stated = self.records, _canonical(event)
        for records in (max(1, declared // 2), max(1, declared - 1), declared + 1, 2 * declared, 10 * declared):
            try:
                same = _canonical(state(records=records)) == stated
            except (ValueError, ArithmeticError):  # such as a batch that is larger than the data
                same = False
            if not same:
                remedy = (
                    "its privacy_event changes with the number of records, and fit does not know the declared number: "
                    "give it a parameter records=None, which the search sets, and use that in place of len(X) in fit"
                )
                raise _validate.fail("estimator", self.last, remedy)

    def _over(self, params: Mapping[str, Any], noise: float | None, *, transfer: bool) -> dict[str, Any]:
        """The parameters of a fit that are not λ's, without their prefix: those of a shorter fit, and the noise."""
        over: dict[str, Any] = {}
        if self.fraction < 1:
            seen, transfer = _Seen(params, self.prefix, {}), transfer and self.match
            over.update(self.last.cut_short(seen, self.fraction, records=self.records, transfer=transfer))
        if noise is not None and self.takes("noise_multiplier"):
            over["noise_multiplier"] = noise
        return over

    def _noise(self, params: Mapping[str, Any]) -> float | None:
        return self.noise[self._key(params)] if isinstance(self.noise, Mapping) else self.noise

    def _key(self, params: Mapping[str, Any]) -> Hashable:
        """The kind of a run: the full fit's event at noise 1."""
        return replace(self, fraction=1.0, records=self.named_by or self.records)._event(params, 1.0)


class FittedEstimator(TrainedModel):
    """A private estimator as scores see it: its predictions, one by one."""

    def __init__(self, model: Any) -> None:
        self.model = model

    @classmethod
    def records(cls, data: Any, example: Any = None, *, public: bool = False, person: Any = None) -> Any:
        return data

    def correct(self, records: Any, asked: Asked) -> Floats:
        """Compared by value, one record at a time: one label of another type changes the type of all labels.

        A label that is not declared is neither correct nor wrong: its record counts for nothing.
        """
        records = _chosen(records, asked)
        pairs = zip(record_bytes(self._guesses(records)), record_bytes(records[1]), strict=True)
        found = np.array([guess == label for guess, label in pairs], dtype=np.float64)
        if not hasattr(self.model, "classes_"):
            return found
        return np.where(places(records[1], self.model.classes_) < 0, np.nan, found)

    def losses(self, records: Any, loss: Any, asked: Asked) -> Floats:
        """Absolute errors, one number per record: a column minus a row would be a table."""
        records = _chosen(records, asked)
        y = records[1]
        targets, guesses = (
            np.reshape(np.asarray(one, dtype=np.float64), len(y)) for one in (numbers(y), self._guesses(records))
        )
        return np.nan_to_num(np.abs(targets - guesses), nan=np.inf)

    def _guesses(self, records: Any) -> Any:
        X, y = records
        return self.model.predict(X) if len(y) else np.zeros(0)

    def classes(self, records: Any) -> int | None:
        return len(self.model.classes_) if hasattr(self.model, "classes_") else None

    def labelled(self, records: Any, value: Value, asked: Asked) -> Floats:
        """By the positions of labels among the classes; of two classes, by the decision function if there is one."""
        X, y = _chosen(records, asked)
        known = self.model.classes_
        if not len(y):
            return np.zeros(0)
        if len(known) == 2 and hasattr(self.model, "decision_function"):
            outputs = np.stack([np.zeros(len(y)), np.asarray(self.model.decision_function(X), dtype=np.float64)], 1)
        else:
            outputs = np.eye(len(known))[places(self.model.predict(X), known)]
        labels = places(y, known).astype(np.float64)
        return np.where(labels < 0, np.nan, value(outputs, labels, None))

    def targets(self, measure: str, records: Any) -> dict[str, Any]:
        y, classes = np.asarray(records[1]), self.classes(records)  # labels are compared by value, whatever their type
        return {"shape": y.shape[1:], "kind": "int64", "outputs": () if classes is None else (classes,)}


def _chosen(records: Any, asked: Asked) -> Any:
    return records if asked.rows is None else [_safe_indexing(part, asked.rows) for part in records]


@as_trained.register
def _(model: BaseEstimator) -> TrainedModel:
    return FittedEstimator(model)


def _canonical(event: Event | Sequence[Event]) -> list[Event]:
    return [canonical(one) for one in (event if isinstance(event, list | tuple) else [event])]


class _Seen(Mapping[str, Any]):
    """Parameters as a private estimator reads them: without their prefix, and some with other values.

    It reads only what is asked for, so that a search knows what an event depends on.
    """

    def __init__(self, params: Mapping[str, Any], prefix: str, over: Mapping[str, Any]) -> None:
        self._params, self._prefix, self._over = params, prefix, over

    def __getitem__(self, name: str) -> Any:
        return self._over[name] if name in self._over else self._params[self._prefix + name]

    def __contains__(self, name: object) -> bool:
        return name in self._over or f"{self._prefix}{name}" in self._params

    def __iter__(self) -> Iterator[str]:
        inner = (name.removeprefix(self._prefix) for name in self._params if name.startswith(self._prefix))
        return iter(dict.fromkeys([*inner, *self._over]))

    def __len__(self) -> int:
        return sum(1 for _ in self)
