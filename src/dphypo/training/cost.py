"""What a run costs at λ, the noise with which a whole search costs a given (ε, δ), and defaults from public numbers.

If the privacy of a run depends on λ (batch size, epochs), runs come in kinds. Each kind gets its own noise, and
the guarantee of the search is that of the envelope: the pointwise supremum of the profiles of all kinds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, SupportsFloat, TypeVar

from scipy.stats import loguniform

from dphypo import _validate
from dphypo.accounting import Guarantee, RoundedDp, account
from dphypo.accounting.calibrate import REMEDY_OF_A_SEARCH, solve_settings
from dphypo.accounting.events import Event
from dphypo.accounting.guarantee import PolicyClass
from dphypo.band import Band
from dphypo.band.band import BandLike
from dphypo.journal.journal import keeping
from dphypo.journal.store import Store
from dphypo.laws import Law
from dphypo.mechanisms import Declared, Mechanism, SampledGaussian, over_space, sampled_gaussian
from dphypo.mechanisms.mechanism import CALIBRATE as CALIBRATE
from dphypo.mechanisms.mechanism import records_of
from dphypo.search.declaration import check_space
from dphypo.search.progress import solving
from dphypo.space import Space
from dphypo.training.setting import Run
from dphypo.training.sum_on_grid import slack

_RATES = {"sgd": (0.1, 30.0), "adagrad": (3e-3, 1.0), "rmsprop": (1e-4, 0.03)}
_RATES_LIKE_ADAM = (3e-4, 0.1)

BatchAndLength = tuple[int, float] | tuple[int, None, int]
"""A batch size and a number of epochs, or (batch size, None, steps): what a run costs depends on it and its noise."""


NoiseMultiplier = float | str | Mapping[BatchAndLength, float]
"""The noise multiplier of all runs, one for each batch size and length, or "calibrate" to solve for it."""


def read(given: SupportsFloat | str | Mapping[BatchAndLength, float]) -> NoiseMultiplier:
    """The argument ``noise_multiplier``, checked."""
    if isinstance(given, Mapping) and given:
        return {setting: _validate.positive(noise_multiplier=noise) for setting, noise in given.items()}
    if isinstance(given, str) and given == CALIBRATE:
        return given
    if isinstance(given, str | Mapping):
        raise _validate.fail("noise_multiplier", given, f"give a number, or {CALIBRATE!r}")
    return _validate.positive(noise_multiplier=given)


def match_noise(noise_multiplier: NoiseMultiplier, fraction: float) -> NoiseMultiplier:
    """The noise of runs that make only this fraction of the steps; "calibrate" stays."""
    if isinstance(noise_multiplier, str):
        return noise_multiplier
    factor = sampled_gaussian.match_noise(1.0, fraction)
    if isinstance(noise_multiplier, Mapping):
        return {setting: factor * noise for setting, noise in noise_multiplier.items()}
    return noise_multiplier * factor


def exact(run: SampledGaussian) -> RoundedDp:
    """The event of a run of this library's engine, with its slack."""
    return RoundedDp(run.event, slack(steps=run.steps, rate=run.rate))


@dataclass(frozen=True, kw_only=True)
class TrainingCost:
    """Runs on a declared number of records, of which λ may choose the batch size and the length in epochs or steps.

    ``fraction`` is as for :class:`dphypo.mechanisms.SampledGaussian`. The batch of a short run is that of the full run
    times the fraction to the ``batch_exponent``, and as many examples are processed.

    >>> cost = TrainingCost(records=200, batch_size=20, epochs=3, noise_multiplier=1.0)
    >>> cost.run({"batch_size": 40, "learning_rate": 0.1})
    SampledGaussian(rate=0.2, steps=15, noise_multiplier=1.0)
    """

    records: int
    batch_size: int
    epochs: float
    noise_multiplier: NoiseMultiplier
    fraction: float = 1.0
    batch_exponent: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.noise_multiplier, Mapping):
            for setting, multiplier in self.noise_multiplier.items():
                self.run_of(setting, multiplier)
        else:
            self.run_of(self.setting({}), 1.0 if isinstance(self.noise_multiplier, str) else self.noise_multiplier)

    def setting(self, params: Mapping[str, Any]) -> BatchAndLength:
        """The batch size and the length at λ; nothing else of λ is read."""
        batch_size = params.get("batch_size", self.batch_size)
        if "steps" in params:
            return batch_size, None, params["steps"]
        return batch_size, params.get("epochs", self.epochs)

    def run(self, params: Mapping[str, Any]) -> SampledGaussian:
        """The run at λ."""
        setting, noise = self.setting(params), self.noise_multiplier
        if isinstance(noise, str):
            remedy = "solve for it first: mechanism.calibrated(space, runs, epsilon=..., delta=...); or give a number"
            raise _validate.fail("noise_multiplier", noise, remedy)
        if isinstance(noise, Mapping) and setting not in noise:
            known = ", ".join(sorted(map(str, noise)))
            raise ValueError(
                f"no noise multiplier was calibrated for (batch_size, epochs) = {setting}, only for {known}: call "
                f"calibrated() again with the space, or give a noise_multiplier"
            )
        return self.run_of(setting, noise[setting] if isinstance(noise, Mapping) else noise)

    def run_of(self, setting: BatchAndLength, noise_multiplier: float) -> SampledGaussian:
        """The run at a setting, with any noise."""
        batch_size, epochs, steps = (*setting, None)[:3]
        run = partial(SampledGaussian.of, records=self.records, noise_multiplier=noise_multiplier)
        short = self.batch(batch_size)
        if short == batch_size:
            return run(batch_size=batch_size, epochs=epochs, steps=steps, fraction=self.fraction)
        full = run(batch_size=batch_size, epochs=epochs, steps=steps)
        return run(batch_size=short, steps=math.ceil(full.steps * self.fraction * batch_size / short))

    def full_run(self, params: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[SampledGaussian, float]:
        """The full run of a matched short one, and the deviation of the noise on a weight's mean gradient in it."""
        noise = self.run(params).noise_multiplier * math.sqrt(self.fraction)
        full = replace(self, fraction=1.0).run_of(self.setting(params), noise)
        norm = _validate.positive(max_grad_norm=given["max_grad_norm"])
        return full, noise * norm / given.get("batch_size", self.batch_size)

    def engine_run(self, run: SampledGaussian, given: Mapping[str, Any], seed: int, **more: Any) -> Run:
        """A run as the engine takes it, at the given hyperparameters."""
        return Run(
            seed=seed,
            records=self.records,
            rate=run.rate,
            steps=run.steps,
            batch_size=self.batch(given.get("batch_size", self.batch_size)),
            noise_multiplier=run.noise_multiplier,
            max_grad_norm=_validate.positive(max_grad_norm=given["max_grad_norm"]),
            learning_rate=_validate.positive(learning_rate=given["learning_rate"]),
            **more,
        )

    def batch(self, batch_size: int) -> int:
        """The batch of a run whose full run has the given one."""
        return max(1, round(batch_size * math.pow(self.fraction, self.batch_exponent)))


M = TypeVar("M", bound=Mechanism)

MOST_KINDS = 64


def calibrated(
    mechanism: M,
    space: Space,
    runs: Law,
    band: BandLike = Band(1, 1),  # noqa: B008 - a frozen value
    *,
    epsilon: float,
    delta: float,
    policy: PolicyClass | str = PolicyClass.ANYTHING,
    first_from_prior: int = 0,
    journal: str | Path | Store | None = None,
    progress: bool = True,
) -> M:
    """A copy whose noise makes a whole search over ``space`` cost ε at δ, and no more.

    Each kind of run, a batch size and a length, gets its own noise. ``policy`` is what the search rule sees, and
    ``first_from_prior`` the number of first runs that are drawn from the prior: for a band and a sampler of the
    library, ``policy="history", first_from_prior=1`` needs less noise. A ``journal`` stores the noise, so that a
    resumed search finds it. On a terminal, progress is shown after two seconds.
    """
    check_space(space)
    _validate.warn_of_delta(delta, records_of(mechanism))
    found = mechanism.kinds(space)
    if len(found) > MOST_KINDS:
        raise ValueError(
            f"the space holds {len(found)} kinds of run, each with its own noise (batch sizes and epochs): at most "
            f"{MOST_KINDS} are calibrated. Give short lists, for example batch_size: [64, 128, 256]"
        )

    def search(*events: Event) -> Guarantee:
        declared = Declared(mechanism, events, mechanism.relation, mechanism.score_event, mechanism.split)
        every = over_space.events(declared, space)
        given: dict[str, Any] = {"policy": policy, "first_from_prior": first_from_prior}
        return account(every, runs, Band.of(band), relation=mechanism.relation, **given)

    with keeping(journal, "noise") as keep, solving(show=progress):
        noise, _ = solve_settings(
            {kind.key: lambda value, kind=kind: search(kind.event(value)) for kind in found},  # type: ignore[misc]
            lambda noise: search(*(kind.event(noise[kind.key]) for kind in found)),
            epsilon=epsilon,
            delta=delta,
            keep=keep,
            remedy=REMEDY_OF_A_SEARCH,
        )
    return mechanism.with_noise(noise)


def batch_size(records: int) -> int:
    """The power of two next to 4·√records: 128 of a thousand records, 1 024 of sixty thousand.

    >>> batch_size(1200), batch_size(60_000)
    (128, 1024)
    """
    return max(1, min(int(2 ** round(math.log2(4 * math.sqrt(records)))), records // 2))


def learning_rates(optimizer: str, fixed: Mapping[str, Any], max_grad_norm: float) -> Any:
    """The learning rates to search if no prior is known (:mod:`dphypo.search.rates`).

    Where the optimiser follows the size of gradients, they are in units of one over the clipping norm.
    """
    low, high = _RATES.get(optimizer, _RATES_LIKE_ADAM)
    scale = (1 - fixed.get("momentum", 0.0)) / max_grad_norm if optimizer == "sgd" else 1.0
    return loguniform(low * scale, high * scale)
