"""What a mechanism can do besides make one run. Each capability is a protocol of its own, declared here.

A mechanism needs none of them to be searched over. Whether it has one is asked by ``isinstance``, or by a function
below where more than that is to be known.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dphypo import _validate
from dphypo.mechanisms.mechanism import Mechanism
from dphypo.space import Space

if TYPE_CHECKING:
    from dphypo.accounting.events import Event
    from dphypo.mechanisms.outcome import Outcome

CALIBRATE = "calibrate"
"""In the place of the noise of a score: it is to be solved for."""


@runtime_checkable
class Adjustable(Protocol):
    """Training whose noise can be set, or that can be cut short: what its ``at`` takes, by name, it can do."""

    def at(self, **changes: Any) -> Any:
        """A copy of the mechanism, whose event says what was changed.

        - ``noise_multiplier``: another noise, for all runs or by the key of their kind; more must not cost more.
        - ``fraction``: this part of the steps. With ``match=True`` noise and hyperparameters are changed so that a
          short run ranks λ as the full run does.
        - ``score_noise_multiplier``: another noise of a score on private records.
        """


@runtime_checkable
class PrivateScores(Protocol):
    """Scores on private records, of which the declared number is ``score_records``.

    Their noise is None where they look at public records, and "calibrate" if it is to be solved for.
    """

    @property
    def score_noise_multiplier(self) -> float | str | None: ...
    @property
    def score_records(self) -> int | None: ...


@runtime_checkable
class OwnSplit(Protocol):
    """Training that may have set records apart for its scores by itself."""

    def on_all_records(self) -> Mechanism | None:
        """The same training on all records, those that score included; None if it did not set any apart."""


@runtime_checkable
class Scoreless(Protocol):
    """Training that can leave out a score on private records."""

    def without_score(self) -> Mechanism:
        """The same training, which looks at no record for a score: its ``score_event`` is None."""


@runtime_checkable
class OwnSpace(Protocol):
    """Training that knows what to search where no space is given."""

    def default_space(self) -> Space: ...


@dataclass(frozen=True)
class RunKind:
    """Runs with the same privacy but for their noise: what tells them apart, and their event as a function of noise."""

    key: Hashable
    event: Callable[[float], Event] = field(compare=False, repr=False)


@runtime_checkable
class Settings(Protocol):
    """Training whose noise depends on λ: every batch size and length in the space has noise of its own."""

    def kinds(self, space: Space) -> Sequence[RunKind]:
        """The kinds of run in a space. With several, ``at(noise_multiplier={key: noise})`` sets the noise of each."""


@runtime_checkable
class Compute(Protocol):
    """Training that takes longer at some λ than at others."""

    def compute(self, params: Mapping[str, Any]) -> float:
        """What a run with these hyperparameters takes, in any unit; without any, the mechanism's own setting."""


@runtime_checkable
class SeededRuns(Protocol):
    """Training that says whether all its randomness comes from the seed: then a lost run is made again."""

    @property
    def seeded(self) -> bool: ...


@runtime_checkable
class ManyAtOnce(Protocol):
    """Several runs as one program. **Each run has the same result as alone**: runs share instructions, not values."""

    @property
    def same_alone(self) -> bool:
        """Whether a run ends in the same bits alone and among others. A study makes many at once only then."""

    def many(self, params: Sequence[Mapping[str, Any]], *, seeds: Sequence[int]) -> Sequence[Outcome]:
        """One outcome for each λ and seed, in order. A run that fails is an outcome and leaves the others alone.

        All randomness comes from the seeds: if this raises, the runs are made one by one with the same seeds.
        """


@runtime_checkable
class OnDevices(Protocol):
    """Training that can be moved: ``at(device=...)`` gives the same training on another device of this machine."""

    def devices(self) -> Sequence[str]: ...
    def at(self, **changes: Any) -> Any: ...


@runtime_checkable
class KnownData(Protocol):
    """Training on a declared number of records, n: δ should be well below 1/n."""

    @property
    def records(self) -> Any: ...


@runtime_checkable
class HeldData(Protocol):
    """Training that holds its records itself."""

    @property
    def data(self) -> Any: ...


@runtime_checkable
class KnownModel(Protocol):
    """Training of a model that can be described."""

    def architecture(self, space: Space) -> str:
        """A text that is the same for the same model; a search goes on with the same one only."""


@runtime_checkable
class SeveralMetrics(Protocol):
    """Training whose outcomes have metrics of these names beside the score; none if there is the score alone."""

    @property
    def metrics(self) -> tuple[str, ...]: ...


@runtime_checkable
class CountsRecords(Protocol):
    """Training that leaves out records which do not look as declared, and can tell the curator how many."""

    def fitting_records(self, space: Space) -> Mapping[str, tuple[int, int]]:
        """For each use of records, how many of them fit, and how many were given. **Secret.**"""


@runtime_checkable
class KnownTransfer(Protocol):
    """Short runs whose hyperparameters are made from those of the full run: how, in values for a certificate."""

    @property
    def transfer(self) -> dict[str, Any] | None: ...


@runtime_checkable
class DryRun(Protocol):
    """Training that can make a run on made-up records."""

    def rehearse(self, params: Mapping[str, Any], *, seed: int) -> Any:
        """What such a run returns, or None: no private record may be touched, since all that is raised is shown."""


@runtime_checkable
class SpaceCheck(Protocol):
    """Training that knows which values it can take."""

    def check_space(self, space: Space) -> None:
        """Raise a ValueError that names the hyperparameter and its wrong value."""


def check_is_mechanism(mechanism: object) -> None:
    """Refuse a value that is not a mechanism, and say what it lacks."""
    if not isinstance(mechanism, Mechanism):
        lacks = _validate.lacks(Mechanism, mechanism, "check_mechanism") if "event" in dir(mechanism) else ""
        raise _validate.fail("mechanism", mechanism, lacks or "declare the function with @dphypo.mechanism(event=...)")


def with_noise(mechanism: Mechanism, noise_multiplier: float | Mapping[Hashable, float]) -> Mechanism:
    return _copy(mechanism, noise_multiplier=noise_multiplier)


def shorten(mechanism: Mechanism, fraction: float, *, match: bool = True) -> Mechanism:
    return _copy(mechanism, fraction=fraction, **({"match": True} if match else {}))


def with_score_noise(mechanism: Mechanism, noise_multiplier: float) -> Mechanism:
    return _copy(mechanism, score_noise_multiplier=noise_multiplier)


def can(mechanism: object, *changes: str) -> bool:
    """Whether ``mechanism.at`` takes these arguments together."""
    if not isinstance(mechanism, Adjustable):
        return False
    try:
        inspect.signature(mechanism.at).bind(**dict.fromkeys(changes))
    except TypeError:
        return False
    except ValueError:  # it has no signature that can be read: the call will tell
        pass
    return True


def solves_for_scores(mechanism: Mechanism) -> bool:
    """Whether the noise of its scores is to be solved for."""
    return isinstance(mechanism, PrivateScores) and mechanism.score_noise_multiplier == CALIBRATE


def on_all_records(mechanism: Mechanism) -> Mechanism | None:
    """The same training on the records that score, too; None where that is not known to be possible."""
    return mechanism.on_all_records() if isinstance(mechanism, OwnSplit) else None


def default_space(mechanism: Mechanism) -> Space:
    """What is searched where no space is given."""
    check_is_mechanism(mechanism)
    if not isinstance(mechanism, OwnSpace):
        remedy = 'the mechanism has no default: give one, such as Space({"lr": loguniform(1e-3, 10)})'
        raise _validate.fail("space", None, remedy)
    return mechanism.default_space()


def score_deviation(mechanism: Mechanism) -> float | None:
    """The noise of its scores, in units of a score's whole range; None where scores have none that is known."""
    if not isinstance(mechanism, PrivateScores) or not mechanism.score_records:
        return None
    noise = mechanism.score_noise_multiplier
    return noise / mechanism.score_records if isinstance(noise, float) else None


def scored_on(mechanism: Mechanism) -> str:
    """On which records its scores are taken, in words for a certificate."""
    if mechanism.score_event is None:
        return "public records, or private ones that the event of a run covers"
    if mechanism.split is None:
        return "private records, which may have trained the model"
    return "private records that did not train the model"


def devices_of(mechanism: Mechanism, devices: Sequence[str] | str) -> Sequence[str]:
    """The devices that are meant, "all" being all of this machine; refused if training cannot be moved."""
    if not isinstance(mechanism, OnDevices):
        remedy = "the mechanism has no devices() and at(device=...): choose the device in your training"
        raise _validate.fail("devices", devices, remedy)
    names = mechanism.devices() if devices == "all" else devices
    if isinstance(names, str) or not names or not all(isinstance(name, str) for name in names):
        raise _validate.fail("devices", devices, 'give "all", or a list such as ["cuda:0", "cuda:1"]')
    return names


def kinds_of(mechanism: Mechanism, space: Space) -> Sequence[RunKind]:
    """The kinds of run in a space; none where every run has the same noise."""
    return mechanism.kinds(space) if isinstance(mechanism, Settings) else ()


def data_of(mechanism: Mechanism) -> Any:
    """The records that it holds; None where it holds none."""
    return mechanism.data if isinstance(mechanism, HeldData) else None


def is_seeded(mechanism: Mechanism) -> bool:
    """Whether the mechanism says of itself that all randomness of a run comes from its seed."""
    return isinstance(mechanism, SeededRuns) and mechanism.seeded is True


def records_of(*mechanisms: Mechanism) -> int | None:
    """The largest declared number of records, or None. A user may keep data under this name: only a number counts."""
    found = [one.records for one in mechanisms if isinstance(one, KnownData)]
    return max((int(count) for count in found if isinstance(count, Integral)), default=None)


def _copy(mechanism: Mechanism, **changes: Any) -> Mechanism:
    if not isinstance(mechanism, Adjustable) or not can(mechanism, *changes):
        name = next(iter(changes))
        example = "" if can(mechanism, "noise_multiplier") else _EXAMPLE
        raise _validate.fail("mechanism", mechanism, f"it has no at({name}=...), {_NEEDED[name]}.{example}")
    made: Mechanism = mechanism.at(**changes)
    return made


_NEEDED = {
    "noise_multiplier": "which returns the same training with that noise",
    "fraction": "which returns the same training cut to that part of its steps; or give the short run yourself, with "
    "SurveyPlan(short=...) or cheap=",
    "score_noise_multiplier": "which returns the same training with that noise on its score",
}
_EXAMPLE = """ DPSGD and OwnTraining have it; a mechanism of your own is shortest as a dphypo.mechanisms.Declared:

    def training(noise_multiplier):
        def train(params, *, seed):
            ...  # train with noise_multiplier
            return model, score
        return Training(train, event=dp.GaussianDpEvent(noise_multiplier), relation=relation)

    class Training(dphypo.mechanisms.Declared):
        def at(self, noise_multiplier):
            return training(noise_multiplier)

Then training(1.0) takes the place of this one. To be cut short, let at take fraction= and match= too: the part of the \
training that is made, and whether its noise is divided by the root of it"""
