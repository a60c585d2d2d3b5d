"""What :class:`PrivateSearch` asks of an estimator: a private ``fit`` that states its privacy event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from dphypo.accounting.events import Event
from dphypo.integrations.sklearn.steps import Parts, refuse_learning
from dphypo.mechanisms import Saver
from dphypo.mechanisms.savers import Pickled as Pickled
from dphypo.space import Space


@runtime_checkable
class PrivateEstimator(Protocol):
    """A scikit-learn estimator whose ``fit`` is differentially private.

    Besides :meth:`privacy_event` it needs scikit-learn's ``get_params`` and ``set_params``, and a parameter
    ``random_state``, an integer from which **all** randomness of ``fit`` comes: the search sets it for every run.

    It may also be :class:`CutShort`, :class:`ChecksData`, :class:`ChecksSpace` or :class:`Saved`.
    """

    def privacy_event(self, params: Mapping[str, Any], *, records: int) -> Event:
        """The event of one ``fit`` with these parameters in place of the estimator's own, on so many records.

        It bounds ``fit`` under adding or removing one record. It should read only those parameters that it depends
        on, with ``params.get(name, self.name)``: a search takes the supremum over all values of what it reads.
        """

    def fit(self, X: Any, y: Any) -> Any: ...

    def predict(self, X: Any) -> Any: ...


@runtime_checkable
class CutShort(Protocol):
    """An estimator that can be surveyed by short fits."""

    def cut_short(self, params: Mapping[str, Any], fraction: float, *, records: int, transfer: bool) -> dict[str, Any]:
        """The parameters that a fit with this fraction of the steps has other than a full one.

        With ``transfer`` also those that only make it comparable (a learning rate); without, those alone that its
        event depends on.
        """


@runtime_checkable
class ChecksData(Protocol):
    """An estimator that refuses data which ``fit`` cannot use: inside a run, an error is an outcome."""

    def check_data(self, X: Any, y: Any) -> Any:
        """Raise an error for such data, by their types alone."""


@runtime_checkable
class ChecksSpace(Protocol):
    """An estimator that refuses spaces which it cannot be searched over."""

    def check_space(self, space: Space, prefix: str) -> None:
        """Raise an error for such a space, in which the names of its parameters begin with a prefix."""


@runtime_checkable
class Saved(Protocol):
    """An estimator that says how its fitted copies are saved; others are pickled."""

    def saver(self, whole: Any) -> Saver:
        """Saves fitted copies of ``whole``, which is this estimator or a pipeline that ends in it."""


def private_part(estimator: Any) -> tuple[str, PrivateEstimator]:
    """The estimator that states an event, and the prefix of its parameters' names."""
    parts = Parts.of(estimator)
    for name, step in parts.steps:
        refuse_learning(step, name)
    if not isinstance(parts.last, PrivateEstimator):
        raise TypeError(
            f"{type(parts.last).__name__} does not state its privacy event: PrivateSearch needs an estimator whose fit "
            f"is private and that has privacy_event(params, *, records), such as DPSGDClassifier"
        )
    return parts.prefix, parts.last


def noise_name(estimator: Any) -> str | None:
    """The name of the parameter that holds the noise multiplier, if there is one."""
    name = f"{private_part(estimator)[0]}noise_multiplier"
    return name if name in estimator.get_params() else None


def saver_for(estimator: Any) -> Saver:
    """How the fitted copies of an estimator, or of a pipeline that ends in one, are saved."""
    _, last = private_part(estimator)
    return last.saver(estimator) if isinstance(last, Saved) else Pickled()


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
