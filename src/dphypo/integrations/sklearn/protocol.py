"""What :class:`PrivateSearch` asks of an estimator: a private ``fit`` that states its privacy event."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import dp_accounting
from sklearn.pipeline import Pipeline

from dphypo.integrations.sklearn.steps import refuse_learning
from dphypo.mechanisms import Saver


@runtime_checkable
class PrivateEstimator(Protocol):
    """A scikit-learn estimator whose ``fit`` is differentially private.

    Besides :meth:`privacy_event` it needs scikit-learn's ``get_params`` and ``set_params``, and a parameter
    ``random_state``, an integer from which **all** randomness of ``fit`` comes: the search sets it for every run.

    It may have ``check_data(X, y)``, which raises an error for data that ``fit`` cannot use, by their types alone
    (inside a run, an error is an outcome and would only be seen at the end), and ``saver(whole)``, the
    :class:`dphypo.mechanisms.Saver` of fitted copies of ``whole``, itself or a pipeline around it; without one, they
    are pickled. With ``cut_short(params, fraction, *, transfer)`` it can be surveyed by short fits: the parameters that
    such a fit has other than a full one, with ``transfer`` also those that only make it comparable (a learning rate),
    and without it those alone that its event depends on.
    """

    def privacy_event(self, params: Mapping[str, Any], *, records: int) -> dp_accounting.DpEvent:
        """The event of one ``fit`` with these parameters in place of the estimator's own, on so many records.

        It bounds ``fit`` under adding or removing one record. It should read only those parameters that it depends
        on, with ``params.get(name, self.name)``: a search takes the supremum over all values of what it reads.
        """
        ...

    def fit(self, X: Any, y: Any) -> Any: ...

    def predict(self, X: Any) -> Any: ...


def private_part(estimator: Any) -> tuple[str, PrivateEstimator]:
    """The estimator that states an event, and the prefix of its parameters' names."""
    prefix = ""
    while isinstance(estimator, Pipeline):
        for name, step in estimator.steps[:-1]:
            refuse_learning(step, name)
        name, estimator = estimator.steps[-1]
        prefix += f"{name}__"
    if not isinstance(estimator, PrivateEstimator):
        raise TypeError(
            f"{type(estimator).__name__} does not state its privacy event: PrivateSearch needs an estimator whose fit "
            f"is private and that has privacy_event(params, *, records), such as DPSGDClassifier"
        )
    return prefix, estimator


def noise_name(estimator: Any) -> str | None:
    """The name of the parameter that holds the noise multiplier, if there is one."""
    name = f"{private_part(estimator)[0]}noise_multiplier"
    return name if name in estimator.get_params() else None


def saver_for(estimator: Any) -> Saver:
    """How the fitted copies of an estimator, or of a pipeline that ends in one, are saved."""
    _, last = private_part(estimator)
    make = getattr(last, "saver", None)
    found: Saver = Pickled() if make is None else make(estimator)
    return found


@dataclass(frozen=True)
class Pickled:
    """Any estimator, by pickle. Loading runs code from the bytes: open only journals and releases of your own."""

    format: ClassVar[str] = "pickle"

    def dump(self, model: Any) -> bytes:
        return pickle.dumps(model)

    def load(self, data: bytes) -> Any:
        return pickle.loads(data)


class Seen(Mapping[str, Any]):
    """Parameters as a private part sees them: without their prefix, and some with other values.

    It reads no more than what is asked for, so that a search knows what an event depends on.
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
