"""The noise of a run: one multiplier for all, or one for each batch size and number of epochs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsFloat

import dp_accounting

from dphypo import _supremum, _validate
from dphypo.band import Band
from dphypo.mechanism import Declared, Split

if TYPE_CHECKING:
    from dphypo.runs import Law
    from dphypo.space import Space

CALIBRATE = "calibrate"
MOST_SETTINGS = 64

Setting = tuple[int, float]
"""A batch size and a number of epochs: what the privacy of a run depends on, besides its noise."""


@dataclass(frozen=True)
class NoiseTable:
    """A noise multiplier for each (batch size, epochs) that a search may use.

    >>> NoiseTable({(64, 10): 1.5, (128, 10): 2.0})[128, 10]
    2.0
    """

    multipliers: Mapping[Setting, float]

    def __post_init__(self) -> None:
        if not self.multipliers:
            raise _validate.fail("multipliers", self.multipliers, "give at least one")
        for multiplier in self.multipliers.values():
            _validate.positive(noise_multiplier=multiplier)

    def __getitem__(self, setting: Setting) -> float:
        if setting not in self.multipliers:
            known = ", ".join(map(str, sorted(self.multipliers)))
            raise ValueError(
                f"no noise multiplier was calibrated for (batch_size, epochs) = {setting}, only for {known}: call "
                f"calibrated() again with the space, or give a noise_multiplier"
            )
        return self.multipliers[setting]


NoiseMultiplier = float | str | NoiseTable


def read(given: SupportsFloat | str | NoiseTable) -> NoiseMultiplier:
    """What was given as ``noise_multiplier``, checked."""
    if isinstance(given, NoiseTable) or given == CALIBRATE:
        return given
    if isinstance(given, str):
        raise _validate.fail("noise_multiplier", given, f"give a number, or {CALIBRATE!r}")
    return _validate.positive(noise_multiplier=given)


def at(noise_multiplier: NoiseMultiplier, setting: Setting) -> float:
    """The noise multiplier of a run."""
    if isinstance(noise_multiplier, NoiseTable):
        return noise_multiplier[setting]
    if isinstance(noise_multiplier, str):
        raise ValueError(
            'noise_multiplier = "calibrate" needs a target: in place of the mechanism use '
            "mechanism.calibrated(space, runs, epsilon=..., delta=...)"
        )
    return noise_multiplier


def calibrate(
    settings: Sequence[Setting],
    train_event: Callable[[Setting, float], dp_accounting.DpEvent],
    whole: Callable[[list[dp_accounting.DpEvent]], list[Any]],
    runs: Law,
    band: Band,
    *,
    epsilon: float,
    delta: float,
) -> NoiseTable:
    """The noise with which a search over all settings is (ε, δ)-DP.

    First each setting by itself, so that a search over it alone costs ε. The profiles of the settings then agree about
    where the search's guarantee is read off, and differ elsewhere; the search over all of them costs what the pointwise
    supremum of the profiles does, so all multipliers are raised by one factor until that is ε.

    Args:
        settings: every (batch size, epochs) of the space.
        train_event: the event of training, from a setting and a noise multiplier.
        whole: the events of whole runs, scores included, from those of training.
        runs, band, epsilon, delta: of the search.
    """
    from dphypo import accounting

    if len(settings) > MOST_SETTINGS:
        raise ValueError(
            f"the space has {len(settings)} pairs of batch size and epochs: noise is calibrated for each, at most "
            f"{MOST_SETTINGS}. Give both as short lists, for example batch_size: [64, 128, 256]"
        )

    def solve(events: Callable[[float], list[dp_accounting.DpEvent]], smallest: float) -> float:
        found = accounting.calibrate(
            lambda knob: whole(events(knob)), runs, band, epsilon=epsilon, delta=delta, smallest=smallest
        )
        return found.value

    alone = {setting: solve(lambda knob, one=setting: [train_event(one, knob)], 0.05) for setting in settings}  # type: ignore[misc]
    if len(alone) == 1:
        return NoiseTable(alone)
    factor = solve(lambda knob: [train_event(setting, knob * sigma) for setting, sigma in alone.items()], 1.0)
    return NoiseTable({setting: factor * sigma for setting, sigma in alone.items()})


def settings_of(space: Space, setting: Callable[[Mapping[str, Any]], Setting]) -> list[Setting]:
    """Every setting that a space holds, found as a study finds every event that a mechanism may have."""
    return [found.setting for found in _events(lambda params: _Marker(setting(params)), None, Split.DISJOINT, space)]


def whole_runs(
    score_event: dp_accounting.DpEvent | None, split: Split, space: Space
) -> Callable[[list[dp_accounting.DpEvent]], list[Any]]:
    """Turns events of training into those of whole runs, as a study does."""
    return lambda trains: _events(trains, score_event, split, space)


@dataclass(frozen=True)
class _Marker:
    setting: Setting


def _events(event: Any, score_event: Any, split: Split, space: Space) -> list[Any]:
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    return _supremum.events(Declared(_no_train, event, relation, score_event, split), space)


def _no_train(params: Mapping[str, Any], *, seed: int) -> Any:
    raise NotImplementedError("this mechanism only states its events")
