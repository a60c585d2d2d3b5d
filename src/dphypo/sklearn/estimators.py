"""scikit-learn estimators trained with DP-SGD: a classifier and a regressor of tables, and how they are saved."""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import json
import secrets
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_classifier
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data
from torch import nn
from torch.nn import functional

from dphypo import _validate
from dphypo.accounting import RoundedDp
from dphypo.entropy import SEED_BITS
from dphypo.errors import FileError
from dphypo.mechanisms import Outcome, SampledGaussian
from dphypo.search.rates import scale_of_columns
from dphypo.sklearn.schema import (
    check_labels,
    numbers,
    places,
    refuse_times,
    scaled,
    split_pipeline,
)
from dphypo.space import Space
from dphypo.torch import DPSGD
from dphypo.torch.data import TorchRecords, as_records
from dphypo.torch.record_values import TorchModel
from dphypo.torch.saver import Safetensors, remember
from dphypo.training import cost
from dphypo.training.persons import PersonKeys
from dphypo.training.scores import Asked, Targets, Value, as_trained, no_score
from dphypo.training.split import record_bytes

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Bounds = tuple[npt.ArrayLike, npt.ArrayLike]


_PUBLIC = ("bounds", "target_bounds", "classes")

_OPTIMISER = ("learning_rate", "drift", "optimizer", "momentum", "weight_decay")
TUNED = ("hidden", *_OPTIMISER, "epochs", "batch_size", "max_grad_norm")
"""Parameters that a search may tune; all others are those of the estimator that was searched."""


_PARAMETERS = """
    **Guarantee.** ``fit`` is a sequence of Poisson-sampled Gaussian mechanisms under adding or removing one record;
    :meth:`privacy_event` states it. The number of columns, {also}the bounds and the number of records are assumed to be
    public (declare ``records`` if the length of the data is not). Preprocessing that learns from the records, such as
    ``StandardScaler``, is not covered: scale with ``bounds``.

    **Records.** No record can make ``fit`` fail, and none affects how another is read: a missing feature becomes the
    middle of its bounds, and a record without a {target} is left out (docs/integrations.md).

    Args:
        hidden: widths of the hidden layers; empty for a linear model.
        learning_rate, drift, input_scale: the learning rate; or for SGD and Adam the same in units of noise, and how
            large inputs are, as for :class:`dphypo.torch.DPSGD`. By default they follow from public values.
        optimizer, momentum, weight_decay: of the optimiser.
        epochs, batch_size: how long to train; ``batch_size`` is the expected size of a Poisson batch.
        max_grad_norm: the clipping norm.
        noise_multiplier: standard deviation of the noise over the clipping norm.
        bounds: (low, high) of the features, numbers or one per column, from public knowledge: features are clipped and
            mapped to [-1, 1]. None leaves them as they are.{more}
        records: the number of records, as a public constant; None declares the length of the data public. With
            ``fit(X, y, groups=)`` records are persons, and it is their number.
        rows_per_person: at most this many rows of a person, drawn afresh, are used in a step; 8 by default.
        device: where to train; a GPU if there is one.
        random_state: None draws from the operating system. **A seed voids the guarantee** for anyone who knows it.
"""


@dataclass(eq=False, repr=False)
class _DPSGDEstimator(BaseEstimator):  # type: ignore[misc]
    """The base class of the classifier and the regressor."""

    hidden: tuple[int, ...] = (64,)
    _: KW_ONLY
    learning_rate: float | None = None
    drift: float | None = None
    input_scale: float | None = None
    optimizer: str = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    epochs: float = 10
    batch_size: int = 128
    max_grad_norm: float = 1.0
    noise_multiplier: float = 1.0
    bounds: Bounds | None = None
    records: int | None = None
    rows_per_person: int | None = None
    device: str | None = None
    random_state: int | np.random.RandomState | None = None

    def privacy_event(self, params: Mapping[str, Any], *, records: int) -> RoundedDp:
        """The event of one ``fit`` with these parameters in place of the estimator's own.

        It reads ``batch_size``, at most the number of records as in ``fit``, ``epochs`` and ``noise_multiplier`` alone.
        """
        run = SampledGaussian.of(
            records=records,
            batch_size=min(params.get("batch_size", self.batch_size), records),
            epochs=params.get("epochs", self.epochs),
            noise_multiplier=params.get("noise_multiplier", self.noise_multiplier),
        )
        return cost.exact(run)

    @abstractmethod
    def loss(self) -> Callable[..., Any]:
        """The loss that is trained with."""

    @abstractmethod
    def check_data(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Features and targets; data that ``fit`` cannot use are refused, by their types, before anything is spent."""

    @abstractmethod
    def targets(self, y: Any) -> Any:
        """The column of targets, each read by itself."""

    @abstractmethod
    def encoded(self, X: Any, y: Any) -> tuple[Floats, npt.NDArray[Any]]:
        """Inputs and targets as the network takes them; a target that no record may have is outside its domain."""

    def read(self, X: Any, y: Any) -> tuple[Floats, npt.NDArray[Any]]:
        """Records as the network takes them; wrong data are refused by their types."""
        return self.encoded(*self.check_data(X, y))

    @property
    @abstractmethod
    def _width(self) -> int:
        """The number of outputs of the network."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def features(self, X: Any, *, known: bool = False, least: int = 0) -> Any:
        """A table of numbers, with NaN for other values; its columns must be those of the fit if they are ``known``.

        It may be empty: neither a fit nor a private score fails for lack of records.
        """
        if not known:
            refuse_times(X, texts=False)
        return validate_data(self, numbers(X), reset=not known, ensure_all_finite=False, ensure_min_samples=least)

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Train on private records; ``groups`` has a key for each row, where rows of one key are one person's."""
        warn_of_repeats(self)
        data = self.read(X, y)
        person = None if groups is None else PersonKeys.of(groups, len(data[0]))
        records = len(data[0]) if person is None else person.count
        records = records if self.records is None else _validate.integer(at_least=1, records=self.records)
        cap = None if person is None else self.rows_per_person
        mechanism = self.mechanism(data, records, person=person, rows_per_person=cap, score=no_score)
        self.model_ = mechanism({}, seed=_seed(self.random_state)).model
        return self

    def mechanism(self, data: Any, records: int, kind: type[DPSGD] = DPSGD, **given: Any) -> DPSGD:
        """The mechanism that trains the network on ``data`` as read; further arguments are those of ``DPSGD``."""
        own: dict[str, Any] = {
            "noise_multiplier": self.noise_multiplier,
            "input_scale": self._scale(data[0].shape[1]),
            "persons" if given.get("person") is not None else "records": records,
        }
        fixed = {"hidden": tuple(self.hidden), "momentum": self.momentum, "weight_decay": self.weight_decay}
        named = ("epochs", "learning_rate", "drift", "max_grad_norm", "optimizer", "device")
        own |= {name: getattr(self, name) for name in named}
        return kind(
            model=functools.partial(network, data[0].shape[1], outputs=self._width),
            data=data,
            batch_size=min(self.batch_size, records),
            fixed=fixed,
            loss=self.loss(),
            **own | given,
        )

    def _scale(self, columns: int) -> float | None:
        """The scale of the inputs: the declared one, or that of columns with bounds."""
        if self.input_scale is None and self.bounds is not None:
            return scale_of_columns(ranges=columns, categories=0)
        return self.input_scale

    def _outputs(self, X: Any) -> Doubles:
        check_is_fitted(self, "model_")
        return outputs_of(self.model_, to_unit(self.features(X, known=True, least=1), bounds=self.bounds))


@dataclass(eq=False, repr=False)
class DPSGDClassifier(ClassifierMixin, _DPSGDEstimator):  # type: ignore[misc]
    __doc__ = f"""A multilayer perceptron classifier trained with DP-SGD.
{
        _PARAMETERS.format(
            also="the classes, ",
            target="label among ``classes``",
            more='''
        classes: the labels there can be, from public knowledge. None takes those in the data, which declares the set of
            labels that occur public.
        class_weight: how much a record of each class counts in training, ``{0: 1, 1: 10}``, from public knowledge; in
            units of the largest. "balanced" would read the private labels.''',
        )
    }
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 500)
    >>> X = rng.normal(size=(500, 2)) + 3 * y[:, None]
    >>> classifier = DPSGDClassifier(hidden=(), bounds=(-5, 10), classes=(0, 1), noise_multiplier=2.0).fit(X, y)
    >>> bool(classifier.score(X, y) > 0.9)
    True
    """

    _: KW_ONLY
    classes: npt.ArrayLike | None = None
    class_weight: Mapping[Any, float] | None = None

    def targets(self, y: Any) -> Any:
        return _column(y)

    def encoded(self, X: Any, y: Any) -> tuple[Floats, npt.NDArray[Any]]:
        """Inputs, and the places of labels among the classes, -1 for others."""
        return to_unit(X, bounds=self.bounds), places(y, self.classes_)

    @property
    def _width(self) -> int:
        return len(self.classes_)

    def check_data(self, X: Any, y: Any) -> tuple[Any, Any]:
        if self.classes is not None and y is not None:
            check_labels(y, self.classes)
        X, y = self.features(X), self.targets(y)
        check_consistent_length(X, y)
        if self.classes is None:
            check_classification_targets(y)
        self.classes_ = unique_labels(y) if self.classes is None else np.unique(self.classes)
        if len(self.classes_) < 2:
            raise ValueError("there is only one class: a classifier needs at least two")
        self.loss()  # refuses weights of other classes
        if len(set(record_bytes(self.classes_))) < len(self.classes_):
            remedy = "two of them are one number in single precision, in which labels are compared: number them from 0"
            raise _validate.fail("classes", self.classes_.tolist(), remedy)
        return X, y

    def loss(self) -> Callable[..., Any]:
        """The cross entropy, with weights of at most 1: a record's gradient is clipped after it is weighted."""
        if self.class_weight is None:
            return functional.cross_entropy
        known = np.unique(self.classes).tolist() if self.classes is not None else self.classes_.tolist()
        such = dict(zip(known, [1] * (len(known) - 1) + [10], strict=True))
        remedy = f"give a weight for each class from public knowledge, such as {such!r}"
        if not isinstance(self.class_weight, Mapping) or set(self.class_weight) != set(known):
            raise _validate.fail("class_weight", self.class_weight, remedy)
        given = [_validate.positive(class_weight=self.class_weight[label]) for label in known]
        return functools.partial(_weighted, tuple(one / max(given) for one in given))

    def decision_function(self, X: Any) -> Doubles:
        """The network's outputs; for two classes, by how much the second exceeds the first."""
        outputs = self._outputs(X)
        return outputs[:, 1] - outputs[:, 0] if outputs.shape[1] == 2 else outputs

    def predict_proba(self, X: Any) -> Doubles:
        """A probability for each class."""
        return softmax(self._outputs(X), axis=1)  # type: ignore[no-any-return]

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most likely class of each row."""
        chosen = self._outputs(X).argmax(1)
        return np.asarray(self.classes_[chosen])


@dataclass(eq=False, repr=False)
class DPSGDRegressor(RegressorMixin, _DPSGDEstimator):  # type: ignore[misc]
    __doc__ = f"""A multilayer perceptron regressor trained with DP-SGD, by squared error.
{
        _PARAMETERS.format(
            also="",
            target="finite target (with bounds: a number)",
            more='''
        target_bounds: (low, high) of the target, from public knowledge: it is clipped and mapped to [-1, 1].''',
        )
    }
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(500, 2))
    >>> regressor = DPSGDRegressor(hidden=(), target_bounds=(-2, 2), epochs=20).fit(X, X.sum(1))
    >>> bool(regressor.score(X, X.sum(1)) > 0.9)
    True
    """

    _: KW_ONLY
    target_bounds: tuple[float, float] | None = None

    def loss(self) -> Callable[..., Any]:
        return functional.mse_loss

    def targets(self, y: Any) -> Any:
        return np.asarray(_column(None if y is None else numbers(y)), dtype=np.float64)

    def encoded(self, X: Any, y: Any) -> tuple[Floats, npt.NDArray[Any]]:
        """Inputs and targets, NaN for those that are no numbers."""
        inside = np.isfinite(y) if self.target_bounds is None else ~np.isnan(y)
        target = np.where(inside, to_unit(y, target_bounds=self.target_bounds), np.float32(np.nan))
        return to_unit(X, bounds=self.bounds), target[:, None]

    @property
    def _width(self) -> int:
        return 1

    def check_data(self, X: Any, y: Any) -> tuple[Any, Any]:
        X, y = self.features(X), self.targets(y)
        check_consistent_length(X, y)
        if self.target_bounds is None:
            _validate.warn(
                "target_bounds = None: targets are used as they are, and training fails unless they are about -1 to 1. "
                "Give target_bounds=(low, high) from public knowledge; (-1, 1) states that they are"
            )
        return X, y

    def predict(self, X: Any) -> Doubles:
        """The value for each row."""
        return from_unit(self._outputs(X)[:, 0], target_bounds=self.target_bounds)


def callers() -> Iterator[tuple[Any, str, bool]]:
    """The callers of ``fit``, innermost first: the object, the function's name, and whether scikit-learn defines it."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        ours = frame.f_globals.get("__name__", "").startswith("sklearn.")
        yield frame.f_locals.get("self"), frame.f_code.co_name, ours
        frame = frame.f_back


def warn_of_repeats(estimator: Any) -> None:
    """Warn if ``fit`` is called by a search or a cross-validation of scikit-learn, found among its callers."""
    for owner, called, of_sklearn in callers():
        name = called if called == "cross_validate" else type(owner).__name__ if isinstance(owner, BaseSearchCV) else ""
        if name and of_sklearn:
            kind = type(estimator).__name__
            _validate.warn(
                f"{kind} is fitted inside {name}: every fit costs its own epsilon, scores on private records have no "
                f"noise, and no epsilon covers the choice. Use PrivateSearch({kind}(...), epsilon=...), which pays for "
                "all of it"
            )
            return


def _weighted(weights: tuple[float, ...], outputs: Any, targets: Any) -> Any:
    return functional.cross_entropy(outputs, targets, weight=outputs.new_tensor(weights), reduction="none")


def _column(y: Any) -> Any:
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    return column_or_1d(y, warn=True)


def _seed(random_state: int | np.random.RandomState | None) -> int:
    if random_state is None:
        return secrets.randbits(SEED_BITS)
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


# The network: its layers, public scaling, and its bytes.


def network(inputs: int, hidden: Sequence[int], outputs: int) -> nn.Sequential:
    """A multilayer perceptron; with no hidden layer, a linear model."""
    widths = [inputs, *(_validate.integer(at_least=1, hidden=width) for width in hidden)]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))


def to_unit(values: npt.ArrayLike, **bounds: Bounds | None) -> Floats:
    """Values clipped to public bounds and mapped to [-1, 1], unchanged without bounds; missing ones become 0."""
    limits = _limits(**bounds)
    given = np.asarray(values, dtype=np.float64) if limits is None else scaled(values, *limits)
    with np.errstate(over="ignore"):
        return np.nan_to_num(given.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)


def from_unit(values: npt.ArrayLike, **bounds: Bounds | None) -> Doubles:
    """The inverse of :func:`to_unit`."""
    given, limits = np.asarray(values, dtype=np.float64), _limits(**bounds)
    if limits is None:
        return given
    low, high = limits
    return low + (given + 1) / 2 * (high - low)


def _limits(**named: Bounds | None) -> tuple[Doubles, Doubles] | None:
    """The one value in ``named``, bounds or None; an error names it."""
    ((name, bounds),) = named.items()
    if bounds is None:
        return None
    with contextlib.suppress(TypeError, ValueError):  # one number, or not two of them
        low, high = (np.asarray(bound, dtype=np.float64) for bound in bounds)
        if np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all():
            return low, high
    each = "two numbers" if name == "target_bounds" else "numbers or one per column"
    raise _validate.fail(name, bounds, f"give (low, high), {each}, low below high")


@torch.no_grad()
def outputs_of(model: nn.Module, inputs: Floats) -> Doubles:
    """The model's outputs, in double precision."""
    return np.asarray(copy.deepcopy(model).cpu().double()(torch.from_numpy(inputs.astype(np.float64))))


def fitted(estimator: Any, model: nn.Module, **params: Any) -> Any:
    """A copy of an estimator, or of a pipeline that ends in one, with this network and parameters."""
    whole = copy.deepcopy(estimator)
    last = split_pipeline(whole)[1]
    last.set_params(**params, random_state=None)  # the seed stays with the curator
    last.model_ = model
    return whole


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Fitting(DPSGD):
    """Training whose models are fitted copies of an estimator, or of a pipeline of a schema and one.

    λ has the estimator's own names of parameters, without the prefix of a pipeline.
    """

    estimator: Any

    @property
    def saver(self) -> Any:
        """Fitted estimators are saved without pickle."""
        return Networks(self.estimator)

    @property
    def searched_clipping(self) -> str:
        """Gradients are clipped as ``fit`` clips them."""
        return str(self.clipping)

    def default_space(self) -> Space:
        """The learning rate, with a prior from public values, or with a wide range if they say nothing."""
        return self.known_space({})

    def make(self, params: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> list[Outcome | Exception]:
        """Runs, whose networks become estimators."""
        made = super().make(params, seeds)
        return [
            one if isinstance(one, Exception) else self._fitted(given, one)
            for given, one in zip(params, made, strict=True)
        ]

    def rehearse(self, params: Mapping[str, Any], *, seed: int) -> Outcome:
        """A run of two steps on a few made-up records."""
        return self._fitted(params, super().rehearse(params, seed=seed))

    def _fitted(self, params: Mapping[str, Any], made: Outcome) -> Outcome:
        noise = self.cost.run(params).noise_multiplier
        own = {**params, "noise_multiplier": noise, "records": self.records}
        return replace(made, model=fitted(self.estimator, made.model, **own))


@dataclass(frozen=True)
class Networks:
    """A fitted ``DPSGDClassifier`` or ``DPSGDRegressor``, or a pipeline that ends in one; loading runs no code."""

    estimator: Any  # the unfitted estimator that was searched
    format: ClassVar[str] = "safetensors"

    def dump(self, model: Any) -> bytes:
        fitted: Any = split_pipeline(model)[1]
        notes = {
            "params": {name: getattr(fitted, name) for name in (*TUNED, "noise_multiplier")},
            "features": fitted.n_features_in_,
            "names": getattr(fitted, "feature_names_in_", np.array([])).tolist(),
            "classes": fitted.classes_.tolist() if hasattr(fitted, "classes_") else None,
            "settings": settings(self.estimator),
        }
        remember(fitted.model_, {"notes": json.dumps(notes, default=lambda value: value.tolist())})
        return Safetensors().dump(fitted.model_)

    def load(self, data: bytes) -> Any:
        module = Safetensors(_rebuild).load(data)
        notes = json.loads(module.dphypo_arguments["notes"])
        model = copy.deepcopy(self.estimator)
        if (found := difference(notes["settings"], settings(model))) is not None:
            name, saved, given = found
            raise FileError(
                f"{name} = {given} differs from the {saved} that was searched, so predictions would have another "
                f"meaning. Give the estimator, or the pipeline, that was searched"
            )
        fitted: Any = split_pipeline(model)[1]
        # The seed of the run stays with the curator, and the search's estimator's own was not used.
        fitted.set_params(**{**notes["params"], "hidden": tuple(notes["params"]["hidden"]), "random_state": None})
        fitted.model_, fitted.n_features_in_ = module, notes["features"]
        if notes["names"]:
            fitted.feature_names_in_ = np.array(notes["names"], dtype=object)
        if notes["classes"] is not None:
            fitted.classes_ = np.array(notes["classes"])
        return model


def _rebuild(notes: str) -> nn.Sequential:
    read = json.loads(notes)
    return network(read["features"], read["params"]["hidden"], 1 if read["classes"] is None else len(read["classes"]))


def settings(estimator: Any) -> Any:
    """The public settings that give a model its meaning, as JSON: the schema, the bounds and the classes."""
    schema, last, _ = split_pipeline(estimator)
    public = {name: getattr(last, name) for name in _PUBLIC if hasattr(last, name)}
    if schema is not None:
        public["schema"] = {"columns": dict(schema.columns), "missing": dict(schema.missing or {})}
    return json.loads(json.dumps(public, default=_plain))


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else list(value)


def difference(saved: object, given: object, where: str = "") -> tuple[str, str, str] | None:
    """The first place where two descriptions differ, such as ``schema['columns']['age']``, with both values."""
    if isinstance(saved, Mapping) and isinstance(given, Mapping):
        for name in {**saved, **given}:
            place = f"{where}[{name!r}]" if where else str(name)
            if found := difference(saved.get(name), given.get(name), place):
                return found
        return None
    texts = json.dumps(saved), json.dumps(given)
    return None if texts[0] == texts[1] else (where, *texts)


@dataclass(frozen=True, eq=False, repr=False)
class TableRecords:
    """Inputs and targets as an estimator takes them, and whose row each row is."""

    X: Any
    y: Any
    person: PersonKeys | None = None

    @classmethod
    def of(cls, data: Any, person: Any = None) -> TableRecords:
        """A pair of inputs and targets, or a part of ``split_by_hash``, which knows its persons."""
        if isinstance(data, TableRecords):
            return data
        if not isinstance(data, tuple | list) or len(data) != 2:
            raise TypeError(f"data is a {type(data).__name__}: an estimator is scored on a pair (X, y)")
        X, y = data
        check_consistent_length(X, y)
        person = getattr(data, "person", None) if person is None else person
        return cls(X, y, None if person is None else PersonKeys.of(person, _num_samples(X)))

    def __len__(self) -> int:
        return len(self.y)

    @property
    def size(self) -> int:
        """The number of persons, if records are persons, or of rows."""
        return len(self) if self.person is None else self.person.count


class FittedEstimator(TorchModel):
    """The network of a fitted estimator, as scores see it: on records that the estimator reads.

    A record whose label is not declared is outside the domain. A regressor's error is absolute, in units of the target.
    """

    def __init__(self, model: Any) -> None:
        self._schema, self._last, _ = split_pipeline(model)
        if not isinstance(self._last, _DPSGDEstimator):
            raise TypeError(
                f"model is a {type(self._last).__name__}: give a DPSGDClassifier or a DPSGDRegressor, or a pipeline of "
                "a Schema and one of these"
            )
        check_is_fitted(self._last, "model_")
        super().__init__(self._last.model_, self._last.loss())
        self.model = model

    @classmethod
    def records(cls, data: Any, example: Any = None, *, public: bool = False, person: Any = None) -> TableRecords:  # type: ignore[override]
        return TableRecords.of(data, person)

    def _read(self, records: Any) -> TorchRecords:
        X = records.X if self._schema is None else self._schema.transform(records.X)
        return as_records(self._last.encoded(self._last.features(X, known=True), self._last.targets(records.y)))

    def classes(self, records: Any) -> int | None:
        return super().classes(self._read(records)) if is_classifier(self._last) else None

    def labelled(self, records: Any, value: Value, asked: Asked) -> Doubles:
        return super().labelled(self._read(records), value, asked)

    def losses(self, records: Any, loss: Callable[..., Any] | None, asked: Asked) -> Doubles:
        return super().losses(self._read(records), self._or_own(loss), asked)

    def refuse_loss(self, loss: Callable[..., Any] | None, records: Any) -> None:
        super().refuse_loss(self._or_own(loss), self._read(records))

    def _or_own(self, loss: Callable[..., Any] | None) -> Callable[..., Any] | None:
        return absolute_error(self._last) if loss is None and not is_classifier(self._last) else loss

    def targets(self, measure: str, records: Any) -> Targets:
        return super().targets(measure, self._read(records))


@as_trained.register
def _(model: BaseEstimator) -> FittedEstimator:
    return FittedEstimator(model)


def absolute_error(regressor: Any) -> Callable[..., Any]:
    """The absolute error of each record, in units of the target."""
    return functools.partial(_absolute, 1.0 if regressor.target_bounds is None else np.ptp(regressor.target_bounds) / 2)


def _absolute(unit: float, outputs: Any, targets: Any) -> Any:
    return (outputs - targets).abs() * unit
