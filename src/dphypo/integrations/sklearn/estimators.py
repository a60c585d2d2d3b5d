"""scikit-learn estimators trained with DP-SGD, for tabular data."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_is_fitted, validate_data
from torch.nn import functional

from dphypo import _validate
from dphypo.accounting import RoundedDp
from dphypo.integrations import cost
from dphypo.integrations.record_hash import record_bytes
from dphypo.integrations.sklearn.network import OPTIMISER, Bounds, Networks, from_unit, network, outputs_of, to_unit
from dphypo.integrations.sklearn.table import Mask, check_labels, numbers, places, refuse_times
from dphypo.integrations.torch import DPSGD, hyperparameters
from dphypo.integrations.torch.hyperparameters import rehearsal
from dphypo.mechanisms import SampledGaussian, Saver
from dphypo.space import Space

_PARAMETERS = """
    **What is private.** ``fit`` is a sequence of Poisson-sampled Gaussian mechanisms under adding or removing one
    record; :meth:`privacy_event` states it. Everything else is taken as public: the number of columns, {also}the
    bounds, and the number of records (declare ``records`` if the length of the data must not show). Preprocessing that
    learns from the records, such as ``StandardScaler``, is not covered: scale with ``bounds``.

    **Which records count.** No record can make ``fit`` fail. Each is judged by itself: a missing feature counts as the
    middle of its bounds, and a record without a {target} is left out (docs/integrations.md).

    Args:
        hidden: widths of the hidden layers; empty for a linear model.
        learning_rate, optimizer, momentum, weight_decay: of the optimiser.
        epochs, batch_size: how long to train; ``batch_size`` is the expected size of a Poisson batch.
        max_grad_norm: the clipping norm.
        noise_multiplier: standard deviation of the noise over the clipping norm.
        bounds: (low, high) of the features, numbers or one a column, from public knowledge: features are cut off there
            and mapped to [-1, 1]. None leaves them as they are.{more}
        records: the number of records, as a public constant; None declares the length of the data public.
        device: where to train; a GPU if there is one.
        random_state: None draws from the operating system. **A seed voids the guarantee** for whoever knows it.
"""


@dataclass(eq=False, repr=False)
class _DPSGDEstimator(BaseEstimator):  # type: ignore[misc]
    """What the classifier and the regressor share."""

    hidden: tuple[int, ...] = (64,)
    _: KW_ONLY
    learning_rate: float = 0.5
    optimizer: str = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    epochs: float = 10
    batch_size: int = 128
    max_grad_norm: float = 1.0
    noise_multiplier: float = 1.0
    bounds: Bounds | None = None
    records: int | None = None
    device: str | None = None
    random_state: int | np.random.RandomState | None = None

    def privacy_event(self, params: Mapping[str, Any], *, records: int) -> RoundedDp:
        """The event of one ``fit`` with these parameters in place of the estimator's own.

        It reads ``batch_size``, at most the number of records as in ``fit``, ``epochs`` and ``noise_multiplier`` alone.
        """
        return cost.exact(self._run(params, records))

    def cut_short(
        self, params: Mapping[str, Any], fraction: float, *, records: int, transfer: bool = True
    ) -> dict[str, Any]:
        """The parameters that a fit with this fraction of the steps has other than a full one.

        With ``transfer`` the learning rate too, by a rehearsal (:class:`dphypo.mechanisms.NoiseRehearsal`).
        """
        cut = {"epochs": params.get("epochs", self.epochs) * fraction}
        if transfer:
            given = {name: params.get(name, getattr(self, name)) for name in (*OPTIMISER, "max_grad_norm")}
            full = self._run(params, records)
            deviation = full.noise_multiplier * given["max_grad_norm"] / (full.rate * records)
            cut["learning_rate"] = rehearsal(given, fraction, run=full, deviation=deviation)["learning_rate"]
        return cut

    def _run(self, params: Mapping[str, Any], records: int) -> SampledGaussian:
        """The rate, steps and noise of one ``fit``."""
        return SampledGaussian.of(
            records=records,
            batch_size=min(params.get("batch_size", self.batch_size), records),
            epochs=params.get("epochs", self.epochs),
            noise_multiplier=params.get("noise_multiplier", self.noise_multiplier),
        )

    def check_space(self, space: Space, prefix: str = "") -> None:
        """Refuse a space in which the name of an optimiser is wrong; in a pipeline, names there begin with a prefix."""
        hyperparameters.refuse_optimizers(space, f"{prefix}optimizer")

    def saver(self, whole: Any) -> Saver:
        """Saves fitted copies of ``whole``, which is this estimator or a pipeline that ends in it, without pickle."""
        return Networks(whole)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _features(self, X: Any, *, reset: bool = True) -> Any:
        """A table of numbers, with NaN for what is none. It may have no rows: no record makes a fit fail."""
        if reset:
            refuse_times(X, texts=False)
        least = 0 if reset else 1
        return validate_data(self, numbers(X), reset=reset, ensure_all_finite=False, ensure_min_samples=least)

    def _train(self, X: Any, targets: Any, inside: Mask, outputs: int, loss: Callable[..., Any]) -> None:
        records = len(X) if self.records is None else _validate.integer(at_least=1, records=self.records)
        mechanism = DPSGD(
            model=functools.partial(network, X.shape[1], tuple(self.hidden), outputs),
            data=(to_unit(X, self.bounds)[inside], targets[inside]),
            score=lambda model: 0.0,
            noise_multiplier=self.noise_multiplier,
            epochs=self.epochs,
            batch_size=min(self.batch_size, records),
            learning_rate=self.learning_rate,
            max_grad_norm=self.max_grad_norm,
            optimizer=self.optimizer,
            fixed={"momentum": self.momentum, "weight_decay": self.weight_decay},
            loss=loss,
            records=records,
            device=self.device,
        )
        self.model_ = mechanism({}, seed=_seed(self.random_state)).model

    def _outputs(self, X: Any) -> npt.NDArray[np.float64]:
        check_is_fitted(self, "model_")
        return outputs_of(self.model_, to_unit(self._features(X, reset=False), self.bounds))


@dataclass(eq=False, repr=False)
class DPSGDClassifier(ClassifierMixin, _DPSGDEstimator):  # type: ignore[misc]
    __doc__ = f"""A multilayer perceptron classifier trained with DP-SGD.
{
        _PARAMETERS.format(
            also="the classes, ",
            target="label among ``classes``",
            more='''
        classes: the labels there can be, from public knowledge. None takes those in the data, which declares the set of
            labels that occur public.''',
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

    def fit(self, X: Any, y: Any) -> DPSGDClassifier:
        """Train on private records."""
        X, y = self.check_data(X, y)
        targets = places(y, self.classes_)
        self._train(X, targets, targets >= 0, len(self.classes_), functional.cross_entropy)
        return self

    def check_data(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Refuse data that ``fit`` cannot use: an error in the declaration, before any run is made."""
        if self.classes is not None and y is not None:
            check_labels(y, self.classes)
        X, y = self._features(X), _column(y)
        check_consistent_length(X, y)
        if self.classes is None:
            check_classification_targets(y)
        self.classes_ = unique_labels(y) if self.classes is None else np.unique(self.classes)
        if len(self.classes_) < 2:
            raise ValueError("there is only one class: a classifier needs at least two")
        if len(set(record_bytes(self.classes_))) < len(self.classes_):
            remedy = "two of them are one number in single precision, by which labels are compared: count them from 0"
            raise _validate.fail("classes", self.classes_.tolist(), remedy)
        return X, y

    def decision_function(self, X: Any) -> npt.NDArray[np.float64]:
        """The network's outputs; for two classes, by how much the second exceeds the first."""
        outputs = self._outputs(X)
        return outputs[:, 1] - outputs[:, 0] if outputs.shape[1] == 2 else outputs

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
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
        target_bounds: (low, high) of the target, from public knowledge: it is cut off there and mapped to [-1, 1].''',
        )
    }
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(500, 2))
    >>> regressor = DPSGDRegressor(hidden=(), target_bounds=(-2, 2), epochs=20).fit(X, X.sum(1))
    >>> bool(regressor.score(X, X.sum(1)) > 0.9)
    True
    """

    _: KW_ONLY
    learning_rate: float = 0.1
    target_bounds: tuple[float, float] | None = None

    def fit(self, X: Any, y: Any) -> DPSGDRegressor:
        """Train on private records."""
        X, y = self.check_data(X, y)
        inside = np.isfinite(y) if self.target_bounds is None else ~np.isnan(y)
        self._train(X, to_unit(y, self.target_bounds)[:, None], inside, 1, functional.mse_loss)
        return self

    def check_data(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Refuse data that ``fit`` cannot use: an error in the declaration, before any run is made."""
        X, y = self._features(X), np.asarray(_column(None if y is None else numbers(y)), dtype=np.float64)
        check_consistent_length(X, y)
        if self.target_bounds is None:
            _validate.warn(
                "target_bounds = None: targets are used as they are, and training fails where they are not about -1 to "
                "1. Give target_bounds=(low, high) from public knowledge; (-1, 1) says that they are"
            )
        return X, y

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """The value for each row."""
        return from_unit(self._outputs(X)[:, 0], self.target_bounds)


def _column(y: Any) -> Any:
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    return column_or_1d(y, warn=True)


def _seed(random_state: int | np.random.RandomState | None) -> int:
    if random_state is None:
        return secrets.randbits(63)
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
