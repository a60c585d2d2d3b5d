"""What a choice among designs found: public, and for people to read."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from dphypo.laws import Law
from dphypo.planning.design import Design
from dphypo.planning.landscape import Landscape

# Why a design was not judged.
NOISE = "the proxy has no scores at this noise"
UNPAID = "too dear with any noise"
UNFIT = "does not fit the proxy, the compute or the steps"


@dataclass(frozen=True)
class Row:
    """One search on the proxy.

    Args:
        design: the design; None for a uniform search.
        laws: of T, stage by stage.
        noise_multipliers: stage by stage, approximately.
        expected: the expected mean score of what it releases, on the proxy.
    """

    design: Design | None
    laws: tuple[Law, ...]
    noise_multipliers: tuple[float, ...]
    expected: float

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON."""
        return {
            "design": None if self.design is None else asdict(self.design),
            "runs": [law.to_dict() for law in self.laws],
            "mean_runs": [law.mean for law in self.laws],
            "noise_multipliers": list(self.noise_multipliers),
            "expected": self.expected,
        }


@dataclass(frozen=True, repr=False)
class Choice:
    """Designs and uniform searches of one compute and one (ε, δ), by what they reach on a proxy. ``str`` is a table.

    Args:
        landscape: the proxy.
        compute, epsilon, delta: of every search.
        staged: the designs, best first.
        uniform_searches: uniform search with several laws of T, best first; given that there is a run.
        unjudged: designs that could not be judged, each with why: no noise pays for them, or the proxy has not the
            noise they need; and the default design, where it was left out.
        public_scores: whether scores were taken to cost nothing.

    Derived from these: ``design``, ``expected``, ``uniform``, ``pays``, ``margin``, ``table``.
    """

    landscape: Landscape
    compute: float
    epsilon: float
    delta: float
    staged: tuple[Row, ...]
    uniform_searches: tuple[Row, ...]
    unjudged: tuple[tuple[Design, str], ...] = ()
    public_scores: bool = True

    @property
    def design(self) -> Design:
        """The best design in stages, whether or not stages pay."""
        found = self.staged[0].design
        assert found is not None
        return found

    @property
    def expected(self) -> float:
        """What the best design reaches on the proxy, in expectation."""
        return self.staged[0].expected

    @property
    def uniform(self) -> Row:
        """The best uniform search of the same compute and ε."""
        return self.uniform_searches[0]

    @property
    def pays(self) -> bool:
        """Whether stages reach more on the proxy than the best uniform search."""
        return self.margin > 0

    @property
    def margin(self) -> float:
        """By how much the best design exceeds the best uniform search on the proxy; negative where it does not."""
        return self.expected - self.uniform.expected

    @property
    def table(self) -> tuple[Row, ...]:
        """Every search that was judged, best first."""
        return tuple(sorted((*self.staged, *self.uniform_searches), key=lambda row: -row.expected))

    def to_dict(self, rows: int | None = None) -> dict[str, Any]:
        """The choice as JSON, with the best ``rows`` of its table; all if None."""
        return {
            "proxy": self.landscape.name,
            "about": self.landscape.about,
            "score_noise": self.landscape.score_noise,
            "public_scores": self.public_scores,
            "compute": self.compute,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "pays": self.pays,
            "margin": self.margin,
            "stages": self.staged[0].to_dict(),
            "uniform": self.uniform.to_dict(),
            "table": [row.to_dict() for row in self.table[:rows]],
            "judged": len(self.table),
            "unjudged": dict(Counter(why for _, why in self.unjudged)),
        }

    def __repr__(self) -> str:
        return f"<choice on {self.landscape.name}: {self.design}, pays={self.pays}, margin={self.margin:.4g}>"

    def __str__(self) -> str:
        rows = [("search", "mean runs", "noise multipliers", "expected score")]
        rows.append(("stages, the best design", *_cells(self.staged[0])))
        default = [row for row in self.staged[1:] if row.design == Design()]
        rows.extend(("stages, the default design", *_cells(row)) for row in default)
        missing = [why for design, why in self.unjudged if design == Design()]
        rows.extend(("stages, the default design", "", "", f"not judged: {why}") for why in missing)
        rows.extend((_uniform(row.laws[0]), *_cells(row)) for row in self.uniform_searches)
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        head = (
            f"Searches on the proxy {self.landscape.name!r}, each ε = {self.epsilon:g} at δ = {self.delta:g} and the "
        )
        return "\n".join([f"{head}compute of {self.compute:g} full runs:", *lines, *self._words()])

    def _words(self) -> list[str]:
        gain = abs(self.margin)
        if self.pays:
            verdict = f"Stages pay on this proxy: {gain:.4f} more than the best uniform search."
        else:
            verdict = f"Stages do not pay on this proxy: the best uniform search reaches {gain:.4f} more."
        judged = f"The best of {len(self.staged)} designs is the best on this proxy: {self.design}."
        if self.unjudged:
            counts = Counter(why for _, why in self.unjudged)
            whys = "; ".join(f"{count}: {why}" if len(counts) > 1 else why for why, count in counts.items())
            judged += f" {len(self.unjudged)} more could not be judged ({whys})."
        about = f": {self.landscape.about}" if self.landscape.about else ""
        cost = "to cost nothing (public)" if self.public_scores else "to cost what the mechanism states"
        proxy = f"The proxy is read by fraction and noise multiplier alone{about}; score noise "
        return [verdict, judged, f"{proxy}{self.landscape.score_noise:g}. Scores are taken {cost}."]


def _cells(row: Row) -> tuple[str, str, str]:
    runs = " then ".join(f"{law.mean:.3g}" for law in row.laws)
    noise = " then ".join(f"{sigma:.2f}" for sigma in row.noise_multipliers)
    return runs, noise, f"{row.expected:.4f}"


def _uniform(law: Law) -> str:
    nothing = float(law.pgf(0.0))
    return f"uniform, {law!r}" + (f" given T > 0 ({1 - nothing:.0%})" if nothing > 0.005 else "")
