"""A dry run before anything is drawn: what is wrong with a mechanism is found, and shown, before it costs anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from dphypo.entropy import Seeded
from dphypo.errors import RehearsalError
from dphypo.mechanisms.mechanism import Mechanism, check_signature
from dphypo.mechanisms.outcome import Outcome
from dphypo.space import Space


@runtime_checkable
class DryRun(Protocol):
    """A mechanism that can make a run on made-up records."""

    def rehearse(self, params: Mapping[str, Any], *, seed: int) -> Any:
        """What a run returns, made on records that are made up: no private record may be touched.

        None if there is nothing to show; what is raised is shown to the user in full.
        """
        ...


def rehearse(mechanism: Mechanism, space: Space) -> None:
    """Refuse a mechanism that cannot be called, or whose dry run fails, if it offers one.

    No private record is touched, so errors are shown as they are.

    >>> import dp_accounting as dp
    >>> import dphypo
    >>> class Training(dphypo.mechanisms.Declared):
    ...     def rehearse(self, params, *, seed):
    ...         return "a model", "no number"
    >>> train = Training(lambda params, *, seed: None, dp.GaussianDpEvent(9.0), "add or remove")
    >>> rehearse(train, dphypo.Space({"learning_rate": [0.1]}))
    Traceback (most recent call last):
    dphypo.errors.faults.RehearsalError: a dry run of <mechanism ...
    """
    check_signature(mechanism, "seed")
    if not isinstance(mechanism, DryRun):
        return
    params = space.sample(Seeded(0))  # any λ will do, and this one is public
    returned = mechanism.rehearse(params, seed=0)
    if returned is None:
        return
    outcome = Outcome.of(returned)
    if not outcome.ok:
        raise RehearsalError(f"a dry run of {mechanism!r} on made-up records failed at {params!r}: {outcome.failure}")
    mechanism.saver.load(bytes(mechanism.saver.dump(outcome.model)))
