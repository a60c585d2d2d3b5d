"""What a comparison of ways to tune found: public, and for people to read."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dphypo import _validate
from dphypo.planning.landscape import Landscape
from dphypo.planning.spend import Batch, Spent
from dphypo.search import PlanFile

_WIDTH = 110  # of lines of prose, in letters
SHARES = (0.01, 0.05, 0.10)
"""The best parts of the prior whose chances are shown."""


@dataclass(frozen=True)
class Compared:
    """One way to spend the total, by how much its full runs have more noise than a run without tuning, and the expected
    score on the landscape, where there is one."""

    spent: Spent
    price: float
    score: float | None = None

    @property
    def name(self) -> str:
        """What the way is called."""
        return self.spent.way.name

    def to_dict(self, delta: float) -> dict[str, Any]:
        """The row as JSON."""
        way = self.spent.way
        return {
            "design": self.name,
            "kind": way.kind,
            "epsilon": self.spent.guarantee.epsilon(delta),
            "bound": self.spent.guarantee.bound(delta),
            "noise_multiplier": self.spent.noise_multiplier,
            "price": self.price,
            "runs": dict(zip(("0.05", "0.5", "0.95"), way.quantiles(), strict=True)),
            "compute": way.compute,
            "chances": {f"{share:g}": list(way.chances(share)) for share in SHARES},
            "expected_score": self.score,
            "parts": [part.to_dict() for part in self.spent.parts],
        }


@dataclass(frozen=True, repr=False)
class Comparison:
    """Ways to spend one total (ε, δ), beside each other. ``str`` is a table that ends with a recommendation.

    Args:
        rows: the ways.
        best: the one that is recommended.
        epsilon, delta, compute: of all of them.
        settings: public numbers of the training, for people to read.
        batches: one run with larger batches, at the same total.
        landscape: where scores were read, if anywhere.
        left_out: ways that no noise pays for, each with why.
        why: what the recommended way was chosen for, in a clause.
    """

    rows: tuple[Compared, ...]
    best: Compared
    epsilon: float
    delta: float
    compute: float
    settings: Mapping[str, Any] = field(default_factory=dict)
    batches: tuple[Batch, ...] = ()
    landscape: Landscape | None = None
    left_out: tuple[tuple[str, str], ...] = ()
    why: str = ""

    def file(self, design: str | int | None = None) -> PlanFile:
        """The plan file of a design, by its name or its number, counted from 1; of the recommended one if None."""
        row = self.best if design is None else self._row(design)
        return PlanFile.of(
            row.name, row.spent.parts, row.spent.guarantee, delta=self.delta, settings=dict(self.settings)
        )

    def _row(self, design: str | int) -> Compared:
        for number, row in enumerate(self.rows, 1):
            if design in (number, str(number), row.name):
                return row
        known = "; ".join(f"{number}: {row.name}" for number, row in enumerate(self.rows, 1))
        raise _validate.fail("design", design, f"give the number or the name of one of these: {known}")

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "compute": self.compute,
            "settings": dict(self.settings),
            "landscape": None if self.landscape is None else self.landscape.name,
            "designs": [row.to_dict(self.delta) for row in self.rows],
            "recommended": self.best.name,
            "why": self.why,
            "code": self.code,
            "batches": [vars(one) for one in self.batches],
            "left_out": dict(self.left_out),
        }

    @property
    def code(self) -> str:
        """The line that runs what is recommended."""
        (first, *rest) = self.best.spent.parts
        if self.best.spent.way.kind == "survey" and rest:
            planned = f"dphypo.SurveyPlan(runs={first.runs}, fraction={first.fraction:.6g})"
            return (
                f"release = dphypo.tune(space, mechanism, epsilon={self.epsilon:g}, delta={self.delta:g}, "
                f"survey={planned})"
            )
        return 'release = dphypo.tune(space, mechanism, plan="plan.json")  # dphypo plan ... --write plan.json'

    def __repr__(self) -> str:
        return f"<comparison of {len(self.rows)} designs: {self.best.name}>"

    def __str__(self) -> str:
        head = ["", "design", "noise", "more", "runs 5/50/95 %", "compute", "in best 1/5/10 %"]
        rows = [head + (["score"] if self.landscape is not None else [])]
        for number, row in enumerate(self.rows, 1):
            rows.append(self._cells(number, row))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        title = f"Each design costs ε = {self.epsilon:g} at δ = {self.delta:g}, all that it releases together."
        notes = [line for note in self._notes() for line in textwrap.wrap(note, _WIDTH)]
        words = [line for word in self._words() for line in textwrap.wrap(word, _WIDTH)]
        return "\n".join([title, "", *lines, "", *notes, *self._batch_lines(), "", *words, f"Run it: {self.code}"])

    def _cells(self, number: int, row: Compared) -> list[str]:
        way = row.spent.way
        ranges = [way.chances(share) for share in SHARES]
        chances = " ".join(_per_cent(low, high) for low, high in ranges)
        low, middle, high = way.quantiles()
        runs = f"{middle}" if low == high else f"{low}/{middle}/{high}"
        mark = "*" if row is self.best else " "
        cells = [
            f"{mark}{number}",
            row.name,
            f"{row.spent.noise_multiplier:.4f}",
            f"{100 * max(row.price, 0.0):+.2f} %",
        ]
        cells += [runs, f"{way.compute:.3g}", chances]
        if self.landscape is not None:
            cells.append("-" if row.score is None else f"{row.score:.4f}")
        return cells

    def _notes(self) -> list[str]:
        notes = [
            "noise: the noise multiplier of full runs; more: than without tuning. compute: expected, in full runs.",
            "in best: the chance that a run is in the best 1, 5, 10 % of the prior, counting runs as drawn from it "
            "(a band: from c to C times that).",
        ]
        if self.landscape is not None:
            about = f": {self.landscape.about}" if self.landscape.about else ""
            notes.append(
                f"score: expected on {self.landscape.name!r}{about}; read by fraction and noise alone. Surveys count "
                "as random search, bands as uniform search: their search rules do better."
            )
        notes += [f"left out: {name} ({why})" for name, why in self.left_out]
        return notes

    def _batch_lines(self) -> list[str]:
        if not self.batches:
            return []
        lines = ["", f"What a larger batch buys one run at the same ε (now {self.settings['batch_size']}):"]
        lines += [
            f"  batch {one.batch_size} x {one.steps} steps: compute {one.compute:g}, noise {one.noise_multiplier:.4f}, "
            f"noise of a step's mean gradient x {one.gradient_noise:.2f}"
            for one in self.batches
        ]
        return lines

    def _words(self) -> list[str]:
        way = self.best.spent.way
        runs = "run" if way.compute == 1 else "runs"
        words = [f"Recommended: {self.best.name} (*){': ' if self.why else ''}{self.why}."]
        if way.kind == "none":
            return [*words, "Train once."]
        words.append(
            f"Its full runs have {100 * max(self.best.price, 0.0):.2g} % more noise than one run without tuning, and "
            f"it takes the compute of {way.compute:.3g} full {runs}."
        )
        if way.kind == "survey":
            words.append("All short runs are published: any optimiser, plot or dashboard may use them.")
            if self.batches and self.compute > way.compute:
                words.append(
                    "Put compute that is left into a larger batch, not into more or longer runs: see the lines above."
                )
        else:
            words.append("Only the best run is released; the number of runs and the others are secret.")
        return words


def _per_cent(low: float, high: float) -> str:
    """
    >>> _per_cent(0.1, 0.1), _per_cent(0.07, 0.183)
    ('10', '7-18')
    """
    first, last = f"{100 * low:.0f}", f"{100 * high:.0f}"
    return first if first == last else f"{first}-{last}"
