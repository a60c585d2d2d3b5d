"""Which ε? The noise that each asks for, and how much accuracy such noise cost on public tasks: ``plan(epsilons=)``.

What noise costs depends on how far training moves weights compared with the noise that it leaves in them. A run of T
steps with batches of B records and noise multiplier σ moves a weight by at most ηT along a constant gradient, and
leaves noise of standard deviation ησ√T/B in it: their ratio, B√T/σ, is the *reach* of a run. It is a heuristic, and
says nothing about privacy: what each public task lost at the reach that an ε allows is shown, with the spread over
tasks. No data are read.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from dphypo.accounting import solve_noise
from dphypo.accounting.calibrate import run_alone
from dphypo.mechanisms import SampledGaussian
from dphypo.search.ladder import increasing

_WIDTH = 48  # of a picture, in letters
_EDGES = (5, 10, 20, 40, 100)  # in points: where a picture may end


@cache
def public_tasks() -> dict[str, list[tuple[float, float]]]:
    """By task, reach and the share of accuracy lost there (``python -m paper.ladder landscape`` writes the file)."""
    content = (files("dphypo.planning") / "reach.json").read_text(encoding="utf-8")
    return {
        name: [(float(reach), float(lost)) for reach, lost in points] for name, points in json.loads(content).items()
    }


def lost_at(reach: float) -> dict[str, float]:
    """How much accuracy each public task lost at a reach; tasks that were not trained with so much noise are left out.

    >>> found = lost_at(1e9)
    >>> set(found.values()), len(found) >= 3
    ({0.0}, True)
    >>> lost_at(1.0)
    {}
    """
    known = {name: np.array(points) for name, points in public_tasks().items()}
    return {
        name: float(np.interp(math.log(reach), np.log(points[:, 0]), points[:, 1]))
        for name, points in known.items()
        if reach >= points[0, 0] * (1 - 1e-9)
    }


@dataclass(frozen=True)
class AtEpsilon:
    """What one ε asks for, and what that cost elsewhere."""

    epsilon: float
    noise_multiplier: float
    reach: float
    lost: Mapping[str, float]  # accuracy, by public task


@dataclass(frozen=True, repr=False)
class EpsilonCurve:
    """Several ε compared, for one run without a search. ``str`` is a picture."""

    rows: tuple[AtEpsilon, ...]
    delta: float

    def to_dict(self) -> dict[str, Any]:
        return {"delta": self.delta, "epsilons": [{**vars(row), "lost": dict(row.lost)} for row in self.rows]}

    def __repr__(self) -> str:
        return f"<{len(self.rows)} epsilons from {self.rows[0].epsilon:g} to {self.rows[-1].epsilon:g}>"

    def __str__(self) -> str:
        most = max((100 * loss for row in self.rows for loss in row.lost.values()), default=0.0)
        edge = next((one for one in _EDGES if one >= most), _EDGES[-1])
        lines = [
            f"One run with all of ε at δ = {self.delta:g}, and what such noise cost on other people's tasks.",
            "",
            f"{'ε':>6}  {'noise':>8}  {'reach':>7}  accuracy lost there, 0 to {edge} points",
        ]
        for row in self.rows:
            lines.append(f"{row.epsilon:>6g}  {row.noise_multiplier:>8.4f}  {row.reach:>7.0f}  {_picture(row, edge)}")
        names = "; ".join(public_tasks())
        return "\n".join(
            [
                *lines,
                "",
                *textwrap.wrap(f"o: the median task; -: from the least to the most, of {names}.", 98),
                "Lost: compared with the least noise that was tried there. Your task may lose more or less: what it",
                "loses is known only after a run that is paid for (dphypo.tune(until=...), dphypo.frontier).",
                "reach: batch size times the root of the steps, over the noise multiplier. Tasks are compared at the",
                "same reach, and left out where they were not trained with so much noise.",
            ]
        )


def _picture(row: AtEpsilon, edge: float) -> str:
    """The spread of what was lost, as a line of letters, and in numbers."""
    found = sorted(100 * loss for loss in row.lost.values())
    if not found:
        return "more noise than on any of these tasks"

    def place(points: float) -> int:
        return min(round(points / edge * (_WIDTH - 1)), _WIDTH - 1)

    middle = float(np.median(found))
    drawn = ["-" if place(found[0]) <= at <= place(found[-1]) else " " for at in range(_WIDTH)]
    drawn[place(middle)] = "o"
    return f"|{''.join(drawn)}| {middle:.1f} ({found[0]:.1f} to {found[-1]:.1f}, {len(found)} tasks)"


def epsilon_curve(run: SampledGaussian, batch: float, *, epsilons: Sequence[float], delta: float) -> EpsilonCurve:
    """The noise of one run of these steps for each ε, and what such noise cost elsewhere."""
    rows = []
    for epsilon in increasing(epsilons):
        at = run_alone(lambda noise: SampledGaussian(rate=run.rate, steps=run.steps, noise_multiplier=noise).event)
        noise = solve_noise(at, epsilon=epsilon, delta=delta).value
        reach = batch * math.sqrt(run.steps) / noise
        rows.append(AtEpsilon(epsilon, noise, reach, lost_at(reach)))
    return EpsilonCurve(tuple(rows), delta)
