"""What :class:`PrivateSearch` asks of an estimator: a private ``fit`` that states its privacy event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import dp_accounting
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from dphypo.integrations.sklearn.steps import refuse_learning, refuse_mixing


@runtime_checkable
class PrivateEstimator(Protocol):
    """A scikit-learn estimator whose ``fit`` is differentially private.

    Besides :meth:`privacy_event` it needs scikit-learn's ``get_params`` and ``set_params``, and a parameter
    ``random_state``, an integer from which **all** randomness of ``fit`` comes: the search sets it for every run.

    It may have ``check_data(X, y)``, which raises an error for data that ``fit`` cannot use (inside a run, an error is
    an outcome and would only be seen at the end), and ``saver(whole)``, the :class:`dphypo.mechanisms.Saver` of fitted
    copies of ``whole``, itself or a pipeline around it; without one, they are pickled. With ``cut_short(params,
    fraction, *, transfer)`` it can be surveyed by short fits: the parameters that such a fit has other than a full one,
    with ``transfer`` also those that only make it comparable (a learning rate), and without it those alone that its
    event depends on.
    """

    def privacy_event(self, params: Mapping[str, Any], *, records: int) -> dp_accounting.DpEvent:
        """The event of one ``fit`` with these parameters in place of the estimator's own, on so many records.

        It bounds ``fit`` under adding or removing one record. It should read only those parameters that it depends
        on, with ``params.get(name, self.name)``: a search takes the supremum over all values of what it reads.
        """
        ...

    def fit(self, X: Any, y: Any) -> Any: ...

    def predict(self, X: Any) -> Any: ...


def privacy_event(estimator: Any, params: Mapping[str, Any], *, records: int) -> dp_accounting.DpEvent:
    """The event of an estimator, or of a pipeline that ends in one and learns nothing before it."""
    prefix, last = private_part(estimator)
    return last.privacy_event(Stripped(params, prefix), records=records)


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


def prepared(estimator: Any, X: Any, y: Any) -> Any:
    """The estimator with the steps before it fitted, after a look at the data: steps that mix records are refused.

    The steps learn nothing from the records but the number, the names and the types of the columns.
    """
    if y is None:
        raise ValueError("PrivateSearch requires y to be passed, but the target y is None")
    whole = last = clone(estimator)
    while isinstance(last, Pipeline):
        if len(last) > 1:
            refuse_mixing(last[:-1], X)
            X = last[:-1].fit_transform(X)
        last = last.steps[-1][1]
    if hasattr(last, "check_data"):
        clone(last).check_data(X, y)
    return whole


def noise_name(estimator: Any) -> str | None:
    """The name of the parameter that holds the noise multiplier, if there is one."""
    name = f"{private_part(estimator)[0]}noise_multiplier"
    return name if name in estimator.get_params() else None


class Overlaid(Mapping[str, Any]):
    """Parameters with some values laid over them; reads no more than what is asked for."""

    def __init__(self, params: Mapping[str, Any], over: Mapping[str, Any]) -> None:
        self._params, self._over = params, over

    def __getitem__(self, name: str) -> Any:
        return self._over[name] if name in self._over else self._params[name]

    def __contains__(self, name: object) -> bool:
        return name in self._over or name in self._params

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._params, *self._over]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Stripped(Mapping[str, Any]):
    """Parameters by their names without a prefix; reads no more than what is asked for."""

    def __init__(self, params: Mapping[str, Any], prefix: str) -> None:
        self._params, self._prefix = params, prefix

    def __getitem__(self, name: str) -> Any:
        return self._params[self._prefix + name]

    def __contains__(self, name: object) -> bool:
        return f"{self._prefix}{name}" in self._params

    def __iter__(self) -> Iterator[str]:
        return (name.removeprefix(self._prefix) for name in self._params if name.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)
