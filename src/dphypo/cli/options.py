"""The options that the commands share, each with its range, and what they describe: a run, the law of T, the band."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dphypo.accounting.events import Event
    from dphypo.band import Band
    from dphypo.laws import Law


class RunsKind(StrEnum):
    """The family of the distribution of T."""

    GEOMETRIC = "geometric"
    NEGATIVE_BINOMIAL = "negative-binomial"
    POISSON = "poisson"


def number(help: str, low: float, high: float, *names: str, zero: bool = False, whole: bool = False) -> Any:
    """An option that is a number from ``low`` to ``high``, both included; zero too where ``zero`` is set.

    Numbers outside the range are refused before anything is computed. The ranges include every search that anyone
    would pay for, and keep each command to seconds and to little memory: an accountant asked for ε = 10¹⁰ or for a
    noise of 0.001 would run for hours.

    >>> number("Sampling rate.", 0, 1).parser("256/60000") == 256 / 60000
    True
    """
    read = _reader(low, high, zero=zero, whole=whole)
    return typer.Option(*names, parser=read, metavar="WHOLE NUMBER" if whole else "NUMBER", help=help)


def _reader(low: float, high: float, *, zero: bool = False, whole: bool = False) -> Callable[[Any], Any]:
    """Reads a number within a range."""

    def read(text: Any) -> Any:
        value = text
        if isinstance(text, str):
            above, ratio, below = text[:100].partition("/")
            try:
                value = int(text[:100]) if whole else float(above) / float(below) if ratio else float(above)
            except (ValueError, ZeroDivisionError):
                kind = "a whole number" if whole else "a number or a ratio such as 256/60000"
                raise typer.BadParameter(f"{text[:30]!r} is not {kind}") from None
        if not (low <= value <= high or (zero and value == 0)):
            shown = str(text)[:30]
            raise typer.BadParameter(f"{shown} is out of range: give {'0, or ' if zero else ''}{low:g} to {high:g}")
        return value

    return read


_BAND_END = _reader(1e-6, 1e6)
_EPSILON = _reader(1e-4, 50.0)


def several(text: str) -> tuple[float, ...]:
    """Several ε, separated by spaces or commas; :func:`joined` makes one argument of them.

    >>> several("0.5,1 2")
    (0.5, 1.0, 2.0)
    """
    return tuple(_EPSILON(one) for one in text.replace(",", " ").split()[:50])


def joined(arguments: list[str]) -> list[str]:
    """The arguments with all numbers after --epsilons as one argument.

    >>> joined(["plan", "--epsilons", "1", "2", "--records", "9"])
    ['plan', '--epsilons', '1 2', '--records', '9']
    """
    if "--epsilons" not in arguments:
        return arguments
    start = arguments.index("--epsilons") + 1
    end = next((at for at in range(start, len(arguments)) if arguments[at].startswith("-")), len(arguments))
    return [*arguments[:start], *([" ".join(arguments[start:end])] if end > start else []), *arguments[end:]]


_SAMPLING_RATE = number("Poisson sampling rate of a step, such as 256/60000; 1 uses all records.", 1e-9, 1.0)
NOISE = number("Noise of a step, as a multiple of the clipping norm.", 0.05, 1e6)
RECORDS = number("Number of private records; a public constant.", 1, 1e12, whole=True)
BATCH_SIZE = number("Expected batch size.", 1, 1e12, whole=True)
EPOCHS = number("Number of epochs of a full run.", 1e-6, 1e5)
STEPS = number("Number of steps of a full run.", 1, 1e7, whole=True)
EPSILON = number("Total ε of everything that is released.", 1e-4, 50.0)
Epsilon = Annotated[float, EPSILON]
Delta = Annotated[float, number("δ of the guarantee.", 1e-300, 0.1, zero=True)]
CertificateOut = Annotated[Path | None, typer.Option("--certificate", help="Write a certificate to this file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command for typer: a parameter whose type is a dataclass is replaced by options, one for each field."""
    taken = inspect.signature(command, eval_str=True).parameters
    groups: dict[str, Any] = {n: one.annotation for n, one in taken.items() if dataclasses.is_dataclass(one.annotation)}
    options: list[inspect.Parameter] = []
    for name, one in taken.items():
        inner = inspect.signature(groups[name], eval_str=True).parameters.values() if name in groups else [one]
        options += [each.replace(kind=each.KEYWORD_ONLY) for each in inner]

    @functools.wraps(command)
    def call(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
        command(**given)

    call.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in options}
    return call


@dataclass(frozen=True)
class RunOptions:
    """One run of DP-SGD, without its noise."""

    sampling_rate: Annotated[float | None, _SAMPLING_RATE] = None
    steps: Annotated[int | None, STEPS] = None
    records: Annotated[int | None, RECORDS] = None
    batch_size: Annotated[int | None, BATCH_SIZE] = None
    epochs: Annotated[float | None, EPOCHS] = None

    def at_noise(self, noise_multiplier: float) -> Event:
        """The event with this noise. Its length is given by rate and steps, or by records, batch and epochs or steps.

        >>> run = RunOptions(records=60_000, batch_size=256, epochs=10)
        >>> run.at_noise(1.0) == RunOptions(sampling_rate=256 / 60_000, steps=2344).at_noise(1.0)
        True
        """
        from dphypo.mechanisms import SampledGaussian

        records, batch_size, epochs, steps = self.records, self.batch_size, self.epochs, self.steps
        if records is None and batch_size is None and epochs is None:
            if self.sampling_rate is None:
                raise typer.BadParameter("a run needs --sampling-rate, or --records and --batch-size")
            return SampledGaussian(rate=self.sampling_rate, steps=steps or 1, noise_multiplier=noise_multiplier).event
        if self.sampling_rate is not None:
            raise typer.BadParameter("give either --sampling-rate, or --records and --batch-size")
        if records is None or batch_size is None or (epochs is None) == (steps is None):
            raise typer.BadParameter("give --records, --batch-size and --epochs (or --steps) together")
        given: dict[str, Any] = {"records": records, "batch_size": batch_size, "epochs": epochs, "steps": steps}
        return SampledGaussian.of(**given, noise_multiplier=noise_multiplier).event

    def checked(self, noise_multiplier: float | None) -> Event:
        """The event with this noise, refused if it is so large that nobody would call the run private."""
        from dphypo._validate import fail
        from dphypo.accounting.dp_library import DEFAULT_GRID
        from dphypo.accounting.verify import check_event
        from dphypo.errors import FileError

        if noise_multiplier is None:
            raise typer.BadParameter("a run needs --noise-multiplier")
        event = self.at_noise(noise_multiplier)
        try:
            check_event(event, DEFAULT_GRID)
        except FileError as error:
            remedy = f"this is not a private run: {error}. Give more noise or fewer steps"
            raise fail("noise_multiplier", noise_multiplier, remedy) from None
        return event


@dataclass(frozen=True)
class SearchOptions:
    """The law of T and the band."""

    runs: Annotated[
        RunsKind | None, typer.Option(help="Distribution of the number of runs, T; geometric by default.")
    ] = None
    shape: Annotated[float | None, number("Shape of the negative binomial distribution.", -0.999, 1e6)] = None
    mean: Annotated[float | None, number("Mean of T.", 0.01, 1e9)] = None
    band: Annotated[
        tuple[str, str] | None,
        typer.Option("--band", help="The band c C; 1 1 (the default) is uniform search.", metavar="C_LOW C_HIGH"),
    ] = None

    def law(self) -> Law:
        """The law of T."""
        from dphypo import laws

        kind = RunsKind.GEOMETRIC if self.runs is None else self.runs
        if self.mean is None:
            raise typer.BadParameter("the distribution of T needs --mean")
        if self.shape is not None and kind is not RunsKind.NEGATIVE_BINOMIAL:
            raise typer.BadParameter(f"--shape does not apply to {kind}: remove it, or use negative-binomial")
        if self.shape is None and kind is RunsKind.NEGATIVE_BINOMIAL:
            raise typer.BadParameter(f"{kind} needs --shape")
        if kind is RunsKind.POISSON:
            return laws.Poisson(self.mean)
        return laws.NegativeBinomial(1.0 if self.shape is None else self.shape, mean=self.mean)

    def law_like(self, found: Law) -> Law:
        """The law of T of a certificate, with the changes that the options state.

        >>> from dphypo.laws import NegativeBinomial
        >>> SearchOptions(mean=20).law_like(NegativeBinomial(8, mean=6))
        NegativeBinomial(shape=8, mean=20)
        """
        from dphypo import laws

        if dataclasses.replace(self, band=None) == SearchOptions():
            return found
        changes: dict[str, Any] = {"mean": found.mean} if self.mean is None else {}
        if self.runs is None:
            if isinstance(found, laws.NegativeBinomial):
                changes["runs"] = RunsKind.NEGATIVE_BINOMIAL
                changes["shape"] = found.shape if self.shape is None else self.shape
            elif isinstance(found, laws.Poisson):
                changes["runs"] = RunsKind.POISSON
            else:
                raise typer.BadParameter(f"the certificate's law is {type(found).__name__}: give --runs and --mean")
        return dataclasses.replace(self, **changes).law()

    def to_band(self) -> Band:
        """The band; uniform search by default."""
        from dphypo.band import Band

        if self.band is None:
            return Band(1, 1)
        try:
            return Band(*(_BAND_END(end) for end in self.band))
        except typer.BadParameter as error:
            raise typer.BadParameter(f"--band {error.message}") from None
        except ValueError as error:
            raise ValueError(f"--band {' '.join(self.band)}: {error}") from None
