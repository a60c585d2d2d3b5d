"""What a comparison of ways to tune found: public, and for people to read."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dphypo import _validate
from dphypo.planning.landscape import Landscape
from dphypo.planning.ways import SHARES, Batch, Spent
from dphypo.search import PlanFile

_WIDTH = 110  # of lines of prose, in letters


@dataclass(frozen=True, repr=False)
class Comparison:
    """Ways to spend one total (ε, δ), beside each other. ``str`` is a table that ends with a recommendation."""

    rows: tuple[Spent, ...]
    best: Spent  # the one that is recommended
    epsilon: float
    delta: float
    compute: float
    settings: Mapping[str, Any] = field(default_factory=dict)  # public numbers of the training
    batches: tuple[Batch, ...] = ()  # one run with larger batches, at the same total
    landscape: Landscape | None = None  # where scores were read
    left_out: tuple[tuple[str, str], ...] = ()  # ways that no noise pays for, each with why
    why: str = ""  # what the recommended way was chosen for, in a clause

    def file(self, design: str | int | None = None) -> PlanFile:
        """The plan file of a design, by its name or its number, counted from 1; of the recommended one if None."""
        row = self.best if design is None else self._row(design)
        return PlanFile.of(row.name, row.parts, row.guarantee, delta=self.delta, settings=dict(self.settings))

    def _row(self, design: str | int) -> Spent:
        for number, row in enumerate(self.rows, 1):
            if design in (number, str(number), row.name):
                return row
        known = "; ".join(f"{number}: {row.name}" for number, row in enumerate(self.rows, 1))
        raise _validate.fail("design", design, f"give the number or the name of one of these: {known}")

    def to_dict(self) -> dict[str, Any]:
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
        (first, *rest) = self.best.parts
        if self.best.way.kind == "survey" and rest:
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
        rows += [self._cells(number, row) for number, row in enumerate(self.rows, 1)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        title = f"Each design costs ε = {self.epsilon:g} at δ = {self.delta:g}, all that it releases together."
        notes = [line for note in self._notes() for line in textwrap.wrap(note, _WIDTH)]
        words = [line for word in self._words() for line in textwrap.wrap(word, _WIDTH)]
        return "\n".join([title, "", *lines, "", *notes, *self._batch_lines(), "", *words, f"Run it: {self.code}"])

    def _cells(self, number: int, row: Spent) -> list[str]:
        way = row.way
        ranges = [way.chances(share) for share in SHARES]
        chances = " ".join(_per_cent(low, high) for low, high in ranges)
        low, middle, high = way.quantiles()
        runs = f"{middle}" if low == high else f"{low}/{middle}/{high}"
        mark = "*" if row is self.best else " "
        noise = [f"{row.noise_multiplier:.4f}", f"{100 * max(row.price, 0.0):+.2f} %"]
        cells = [f"{mark}{number}", row.name, *noise, runs, f"{way.compute:.3g}", chances]
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
        way = self.best.way
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
    first, last = f"{100 * low:.0f}", f"{100 * high:.0f}"
    return first if first == last else f"{first}-{last}"
