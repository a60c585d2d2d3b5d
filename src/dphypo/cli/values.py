"""What the options of a command describe: the event of a run, the law of T and the band."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from dphypo.cli.options import EventKind, RunsKind

if TYPE_CHECKING:
    from dphypo.accounting.events import Event
    from dphypo.band import Band
    from dphypo.laws import Law


def in_options(message: str) -> str:
    """A message of the library with options in place of arguments.

    >>> in_options("batch_size = 20 is not valid: it must be at most the declared 10 records")
    '--batch-size 20 is not valid: it must be at most the declared 10 records'
    """
    names = "records|batch_size|epochs|compute|epsilon|delta"
    return re.sub(rf"\b({names}) = ", lambda found: f"--{found[1].replace('_', '-')} ", message)


def event_of(
    kind: EventKind,
    noise_multiplier: float | None,
    sampling_rate: float | None,
    steps: int | None,
    rho: float | None,
    run_epsilon: float | None,
    rdp_file: Path | None,
) -> Event:
    """The event that the options describe."""
    import dp_accounting

    from dphypo import _validate
    from dphypo.accounting import PureDp

    refuse_unused(
        kind,
        noise_multiplier=noise_multiplier,
        sampling_rate=sampling_rate,
        steps=steps,
        rho=rho,
        run_epsilon=run_epsilon,
        rdp_file=rdp_file,
    )
    if kind in NOISY:
        rate = _given(sampling_rate, "--sampling-rate", kind) if kind is EventKind.DP_SGD else 1.0
        noise = _given(noise_multiplier, "--noise-multiplier", kind)
        _check_loss(kind, noise, rate, steps or 1)
        return noisy_event(kind, rate, steps or 1)(noise)
    if kind is EventKind.ZCDP:
        return dp_accounting.ZCDpEvent(_validate.non_negative(rho=_given(rho, "--rho", kind)))
    if kind is EventKind.PURE:
        return PureDp(_given(run_epsilon, "--run-epsilon", kind))
    return _read_curve(_given(rdp_file, "--rdp-file", kind))


NOISY = (EventKind.DP_SGD, EventKind.GAUSSIAN, EventKind.LAPLACE)
_USED = {
    EventKind.DP_SGD: {"noise_multiplier", "sampling_rate", "steps", "records", "batch_size", "epochs"},
    EventKind.GAUSSIAN: {"noise_multiplier", "steps"},
    EventKind.LAPLACE: {"noise_multiplier", "steps"},
    EventKind.ZCDP: {"rho"},
    EventKind.PURE: {"run_epsilon"},
    EventKind.RDP_FILE: {"rdp_file"},
}


def _check_loss(kind: EventKind, noise_multiplier: float, sampling_rate: float, steps: int) -> None:
    """Refuse runs that are so far from private that an accountant would need hours to say how far."""
    if kind is EventKind.LAPLACE:
        loss, most = steps / noise_multiplier, 1e3
    else:
        one = 0.5 / noise_multiplier**2
        sampled = sampling_rate**2 * math.expm1(min(2 * one, 700.0)) if sampling_rate < 1 else math.inf
        loss, most = steps * min(sampled, one), 1e6
    if loss > most:
        raise ValueError(
            f"--steps {steps} at --noise-multiplier {noise_multiplier:g} is not a private run: its loss is about "
            f"{loss:.1g}. Give more noise or fewer steps"
        )


def refuse_unused(kind: EventKind, **given: object) -> None:
    """An option that this kind of event does not use would be taken to have counted."""
    for name, value in given.items():
        if value is not None and name not in _USED[kind]:
            raise typer.BadParameter(f"--{name.replace('_', '-')} does not apply to {kind}: leave it out")


def length_of(
    kind: EventKind,
    sampling_rate: float | None,
    steps: int | None,
    records: int | None,
    batch_size: int | None,
    epochs: float | None,
) -> tuple[float | None, int | None]:
    """Sampling rate and steps of a run, given so or by its records, the size of a batch and its epochs (or steps).

    >>> length_of(EventKind.DP_SGD, None, None, 60_000, 256, 10)
    (0.004266666666666667, 2344)
    """
    if records is None and batch_size is None and epochs is None:
        return sampling_rate, steps
    refuse_unused(kind, records=records, batch_size=batch_size, epochs=epochs)
    if sampling_rate is not None:
        raise typer.BadParameter("give --sampling-rate and --steps, or --records, --batch-size and --epochs: not both")
    if records is None or batch_size is None or (epochs is None) == (steps is None):
        raise typer.BadParameter("--records, --batch-size and --epochs (or --steps) are given together")
    from dphypo.mechanisms import DpSgd

    try:
        run = DpSgd.of(records=records, batch_size=batch_size, epochs=epochs, steps=steps, noise_multiplier=1.0)
    except ValueError as error:
        raise ValueError(in_options(str(error))) from None
    return run.rate, run.steps


def noisy_event(kind: EventKind, sampling_rate: float, steps: int) -> Callable[[float], Event]:
    """The event as a function of its noise multiplier."""
    import dp_accounting

    from dphypo import _validate
    from dphypo.mechanisms import DpSgd

    _validate.within(0.0, 1.0, closed="right", sampling_rate=sampling_rate)
    _validate.integer(at_least=1, steps=steps)

    def event(noise_multiplier: float) -> Event:
        _validate.positive(noise_multiplier=noise_multiplier)
        if kind is EventKind.DP_SGD:
            return DpSgd(rate=sampling_rate, steps=steps, noise_multiplier=noise_multiplier).event
        mechanism = dp_accounting.LaplaceDpEvent if kind is EventKind.LAPLACE else dp_accounting.GaussianDpEvent
        return dp_accounting.SelfComposedDpEvent(mechanism(noise_multiplier), steps)

    return event


def runs_of(
    kind: RunsKind | None, shape: float | None, mean: float | None, gamma: float | None, cap: int | None
) -> Law:
    """The law of T that the options describe."""
    from dphypo import laws

    kind = RunsKind.GEOMETRIC if kind is None else kind
    if shape is not None and kind is not RunsKind.NEGATIVE_BINOMIAL:
        raise typer.BadParameter(f"--shape does not apply to {kind}: leave it out, or give --runs negative-binomial")
    if (mean is None) == (gamma is None):
        raise typer.BadParameter("give one of --mean and --gamma")
    law: Law
    if kind is RunsKind.POISSON:
        if mean is None:
            raise typer.BadParameter("a Poisson law has no γ: give --mean")
        law = laws.Poisson(mean)
    elif kind is RunsKind.NEGATIVE_BINOMIAL:
        law = laws.NegativeBinomial(_given(shape, "--shape", kind), mean=mean, gamma=gamma)
    else:
        family = laws.Geometric if kind is RunsKind.GEOMETRIC else laws.Logarithmic
        law = family(mean=mean, gamma=gamma)
    return law if cap is None else law.capped(cap)


def law_like(
    found: Law, kind: RunsKind | None, shape: float | None, mean: float | None, gamma: float | None, cap: int | None
) -> Law:
    """A law of T that was found in a file, with what the options change.

    >>> from dphypo.laws import NegativeBinomial
    >>> law_like(NegativeBinomial(8, mean=6).capped(40), None, None, 20, None, None)
    NegativeBinomial(shape=8, mean=20).capped(40)
    """
    from dphypo import laws

    if kind is None and shape is None and mean is None and gamma is None:
        return found if cap is None else found.capped(cap)
    inner: Law = getattr(found, "law", found)  # of a law that was cut
    cap = getattr(found, "limit", None) if cap is None else cap
    if kind is None:
        if isinstance(inner, laws.NegativeBinomial):
            kind, shape = RunsKind.NEGATIVE_BINOMIAL, inner.shape if shape is None else shape
        elif isinstance(inner, laws.Poisson):
            kind = RunsKind.POISSON
        else:
            raise typer.BadParameter(f"the certificate's law is {type(inner).__name__}: give --runs with --mean")
    if mean is None and gamma is None:
        mean = inner.mean
    return runs_of(kind, shape, mean, gamma, cap)


def band_of(band: tuple[float, float] | None) -> Band:
    """The band that the option describes; uniform search if it is left out."""
    for end in band or ():
        if not 1e-6 <= end <= 1e6:
            raise typer.BadParameter(f"--band {end:g} is out of range: give 1e-06 to 1e+06")
    from dphypo.band import Band

    return Band(1, 1) if band is None else Band(*band)


def shown(value: float, decimals: int = 4) -> str:
    """ε or a noise multiplier for people: never less than it is.

    >>> shown(0.50001), shown(float("inf"))
    ('0.5001', 'inf')
    """
    from dphypo.accounting.solve import round_up

    return f"{round_up(value, decimals):.{decimals}f}" if value < math.inf else "inf"


_T = TypeVar("_T")


def _given(value: _T | None, option: str, kind: StrEnum) -> _T:
    if value is None:
        raise typer.BadParameter(f"{kind} needs {option}")
    return value


def _read_curve(path: Path) -> Event:
    from dphypo._files import printable
    from dphypo.accounting import RdpCurve
    from dphypo.accounting.untrusted import read_json

    data = read_json(path, "RDP curve")
    try:
        return RdpCurve(data["orders"], data["epsilons"])
    except (KeyError, TypeError):
        shown = printable(path)
        raise typer.BadParameter(f'{shown} is not an RDP curve: write {{"orders": [...], "epsilons": [...]}}') from None
