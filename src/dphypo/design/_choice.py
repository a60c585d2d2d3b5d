"""What a choice among designs found: public, and for people to read."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from dphypo.design._design import Design
from dphypo.design._landscape import Landscape
from dphypo.runs import Law


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
            "noise_multipliers": list(self.noise_multipliers),
            "expected": self.expected,
        }


@dataclass(frozen=True)
class Choice:
    """Designs and uniform searches of one compute and one (ε, δ), by what they reach on a proxy. ``str`` is a table.

    Args:
        landscape: the proxy.
        compute, epsilon, delta: of every search.
        staged: the designs, best first.
        uniform_searches: uniform search with several laws of T, best first; given that there is a run.
        unknown: how many designs could not be judged: they cannot be paid for, or the proxy does not know their noise.
    """

    landscape: Landscape
    compute: float
    epsilon: float
    delta: float
    staged: tuple[Row, ...] = field(repr=False)
    uniform_searches: tuple[Row, ...] = field(repr=False)
    unknown: int = 0

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
        return self.expected > self.uniform.expected

    @property
    def table(self) -> tuple[Row, ...]:
        """Every search that was judged, best first."""
        return tuple(sorted((*self.staged, *self.uniform_searches), key=lambda row: -row.expected))

    def to_dict(self) -> dict[str, Any]:
        """The choice as JSON."""
        return {
            "proxy": self.landscape.name,
            "compute": self.compute,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "pays": self.pays,
            "stages": self.staged[0].to_dict(),
            "uniform": self.uniform.to_dict(),
            "table": [row.to_dict() for row in self.table],
        }

    def __str__(self) -> str:
        rows = [("search", "mean runs", "noise multipliers", "expected score")]
        rows.append(("stages, the best design", *_cells(self.staged[0])))
        default = [row for row in self.staged[1:] if row.design == Design()]
        rows.extend(("stages, the default design", *_cells(row)) for row in default)
        rows.extend((_uniform(row.laws[0]), *_cells(row)) for row in self.uniform_searches)
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        head = (
            f"Searches on the proxy {self.landscape.name!r}, each ε = {self.epsilon:g} at δ = {self.delta:g} and the "
        )
        return "\n".join([f"{head}compute of {self.compute:g} full runs:", *lines, *self._words()])

    def _words(self) -> list[str]:
        gain = abs(self.expected - self.uniform.expected)
        if self.pays:
            verdict = f"Stages pay on this proxy: {gain:.4f} more than the best uniform search."
        else:
            verdict = f"Stages do not pay on this proxy: the best uniform search reaches {gain:.4f} more."
        judged = f"The best of {len(self.staged)} designs: {self.design}."
        unknown = f" {self.unknown} more could not be judged." if self.unknown else ""
        return [verdict, judged + unknown]


def _cells(row: Row) -> tuple[str, str, str]:
    runs = " then ".join(f"{law.mean:.3g}" for law in row.laws)
    noise = " then ".join(f"{sigma:.2f}" for sigma in row.noise_multipliers)
    return runs, noise, f"{row.expected:.4f}"


def _uniform(law: Law) -> str:
    nothing = float(law.pgf(0.0))
    return f"uniform, {law!r}" + (f" given T > 0 ({1 - nothing:.0%})" if nothing > 0.005 else "")
