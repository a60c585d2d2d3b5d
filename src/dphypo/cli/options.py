"""The options that the commands share, each with its range."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer


class EventKind(StrEnum):
    """What is known of one run."""

    DP_SGD = "dp-sgd"
    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"
    ZCDP = "zcdp"
    PURE = "pure"
    RDP_FILE = "rdp-file"


class RunsKind(StrEnum):
    """The family of the law of T."""

    GEOMETRIC = "geometric"
    LOGARITHMIC = "logarithmic"
    NEGATIVE_BINOMIAL = "negative-binomial"
    POISSON = "poisson"


def _value(text: str, *, whole: bool) -> float:
    """What a text says: a number, or a ratio such as 256/60000."""
    try:
        above, ratio, below = text[:100].partition("/")
        if whole:
            return int(text[:100])
        return float(above) / float(below) if ratio else float(above)
    except (ValueError, ZeroDivisionError):
        kind = "a whole number" if whole else "a number or a ratio such as 256/60000"
        raise typer.BadParameter(f"{text[:30]!r} is not {kind}") from None


def within(low: float, high: float, *, zero: bool = False, whole: bool = False) -> Callable[[Any], Any]:
    """Read a number from ``low`` to ``high``, both included; zero too where ``zero`` is set.

    What lies outside is refused before anything is computed. The ranges hold every search that anyone would pay for,
    and keep each command to seconds and to little memory: an accountant asked for ε = 10¹⁰ or for a noise of 0.001
    would run for hours.

    >>> within(0, 1)("256/60000") == 256 / 60000
    True
    """

    def read(text: Any) -> Any:
        value = _value(text, whole=whole) if isinstance(text, str) else text
        if not (low <= value <= high or (zero and value == 0)):
            shown = str(text)[:30]
            raise typer.BadParameter(f"{shown} is out of range: give {'0, or ' if zero else ''}{low:g} to {high:g}")
        return value

    return read


def number(help: str, low: float, high: float, *names: str, zero: bool = False, whole: bool = False) -> Any:
    """An option that is a number in a range."""
    kind = "WHOLE NUMBER" if whole else "NUMBER"
    return typer.Option(*names, parser=within(low, high, zero=zero, whole=whole), metavar=kind, help=help)


RECORDS = number("Number of private records, as a public constant.", 1, 1e12, whole=True)
BATCH_SIZE = number("Expected size of a batch.", 1, 1e12, whole=True)
EPOCHS = number("Epochs of one full run.", 1e-6, 1e5)
STEPS = number("Steps of one full run (dp-sgd, gaussian, laplace).", 1, 1e7, whole=True)
RUN_EPSILON = number("ε of one run (pure).", 1e-12, 1e3, zero=True)

Kind = Annotated[EventKind, typer.Option("--event", help="What one run is.")]
NoiseMultiplier = Annotated[
    float | None, number("Noise of one step, in sensitivities (dp-sgd, gaussian, laplace).", 0.05, 1e6)
]
SamplingRate = Annotated[float | None, number("Poisson sampling rate (dp-sgd), such as 256/60000.", 1e-9, 1.0)]
Steps = Annotated[int | None, STEPS]
Records = Annotated[int | None, RECORDS]
BatchSize = Annotated[int | None, BATCH_SIZE]
Epochs = Annotated[float | None, EPOCHS]
Epsilon = Annotated[float, number("Total ε of everything together.", 1e-4, 50.0)]
CertificateOut = Annotated[Path | None, typer.Option("--certificate", help="Write a certificate to this file.")]
From = Annotated[
    Path | None,
    typer.Option(
        "--from", help="What if: take all that is not given here from this certificate, or the folder of a release."
    ),
]
Rho = Annotated[float | None, number("ρ of zero-concentrated DP (zcdp).", 1e-12, 1e3, zero=True)]
RunEpsilon = Annotated[float | None, RUN_EPSILON]
RdpFile = Annotated[
    Path | None, typer.Option(help='JSON file {"orders": [...], "epsilons": [...]} with the RDP curve of one run.')
]
Runs = Annotated[RunsKind | None, typer.Option(help="Law of the number of runs T; geometric if left out.")]
Shape = Annotated[float | None, number("Shape of the negative binomial.", -0.999, 1e6)]
Mean = Annotated[float | None, number("Mean of T.", 0.01, 1e9)]
Gamma = Annotated[float | None, number("Parameter γ of T, instead of its mean.", 1e-9, 1 - 1e-9)]
Cap = Annotated[int | None, number("Largest T: the law is cut there and accounted as cut.", 1, 1e9, whole=True)]
BandOption = Annotated[
    tuple[float, float] | None,
    typer.Option("--band", help="The band c C; 1 1 is uniform search.", metavar="C_LOW C_HIGH"),
]
Delta = Annotated[float, number("δ of the guarantee.", 1e-300, 0.1, zero=True)]
DeltaOrFile = Annotated[
    float | None, number("δ of the guarantee; 1e-5, or that of the file.", 1e-300, 0.1, "--delta", zero=True)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
