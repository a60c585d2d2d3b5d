"""What each number on the command line may be. What lies outside is refused before anything is computed.

The ranges hold every search that anyone would pay for, and keep each command to seconds and to little memory: an
accountant asked for ε = 10¹⁰ or for a noise of 0.001 would run for hours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """From ``low`` to ``high``, both included; zero too where ``zero`` is set."""

    low: float
    high: float
    zero: bool = False

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high or (self.zero and value == 0)

    def __str__(self) -> str:
        return f"{'0, or ' if self.zero else ''}{self.low:g} to {self.high:g}"


RANGES = {
    "noise_multiplier": Range(0.05, 1e6),
    "sampling_rate": Range(1e-9, 1.0),
    "steps": Range(1, 1e7),
    "rho": Range(1e-12, 1e3, zero=True),
    "run_epsilon": Range(1e-12, 1e3, zero=True),
    "shape": Range(-0.999, 1e6),
    "mean": Range(0.01, 1e9),
    "gamma": Range(1e-9, 1 - 1e-9),
    "cap": Range(1, 1e9),
    "band": Range(1e-6, 1e6),
    "delta": Range(1e-300, 0.1, zero=True),
    "epsilon": Range(1e-4, 50.0),
    "records": Range(1, 1e12),
    "batch_size": Range(1, 1e12),
    "runs": Range(1, 1e4),
    "fraction": Range(1e-6, 1.0),
    "epochs": Range(1e-6, 1e5),
    "compute": Range(1e-3, 1e5),
    "repetitions": Range(4, 1e6),
    "confidence": Range(0.5, 1 - 1e-9),
}

_LARGEST_FILE = 2**22  # bytes
_LARGEST_LOSS = 1e3  # of the runs whose loss can be told at a glance


def check(arguments: Mapping[str, object]) -> None:
    """Refuse the first number that is out of its range; the message names the option, the value and the range."""
    check_within(arguments, RANGES)
    for name in ("rdp_file", "certificate"):
        path = arguments.get(name)
        try:
            size = 0 if path is None else path.stat().st_size if path.is_file() else 0  # type: ignore[attr-defined]
        except (OSError, ValueError):
            size = 0  # what reads it says why
        if size > _LARGEST_FILE:
            raise ValueError(f"{path} is not valid: it has {size} bytes, and at most {_LARGEST_FILE} are read")


def check_within(arguments: Mapping[str, object], allowed: Mapping[str, Range]) -> None:
    """Refuse the first number that is out of one of these ranges."""
    for name, its in allowed.items():
        value = arguments.get(name)
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, (int, float)) and number not in its:
                shown = f"{number:g}" if isinstance(number, float) else str(number)[:30]
                raise ValueError(f"{option(name)} {shown} is out of range: give {its}")


def check_loss(kind: str, noise_multiplier: float, sampling_rate: float, steps: int) -> None:
    """Refuse runs that are so far from private that an accountant would need hours to say how far."""
    if kind == "laplace":
        loss = steps / noise_multiplier
    else:
        one = 0.5 / noise_multiplier**2
        sampled = sampling_rate**2 * math.expm1(min(2 * one, 700.0)) if sampling_rate < 1 else math.inf
        loss = steps * min(sampled, one)
    if loss > _LARGEST_LOSS * (1 if kind == "laplace" else 1e3):
        raise ValueError(
            f"--steps {steps} at --noise-multiplier {noise_multiplier:g} is not a private run: its loss is about "
            f"{loss:.1g}. Give more noise or fewer steps"
        )


def option(name: str) -> str:
    """
    >>> option("noise_multiplier")
    '--noise-multiplier'
    """
    return f"--{name.replace('_', '-')}"
