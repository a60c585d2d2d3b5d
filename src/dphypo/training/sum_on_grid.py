"""The grid of a run: its unit, what records are clipped to, and the rounding of a clipped sum with dither.

A step releases whole numbers k + Z: hk is the clipped sum on a grid of unit h, and Z = ⌊N + ½⌋ with N ∼ N(0, s²). With
s = σC/h that is a Gaussian mechanism of noise multiplier σ, rounded, if one record moves hk by at most C. Rounding
k = ⌊S/h + U⌋ with a fresh uniform dither U moves it by at most

    √((C₀ + 2ρ + P·√d·h·2^−b)² + d·h²/4) + h·√ln(1/β)        with probability 1 − β,

where records are clipped to C₀, ρ bounds the error of the computed sum, and each of at most P pieces of a batch is
rounded to multiples of h·2^−b before they are added (docs/theory/engine.md). C₀ is what makes this C.

| symbol | here |
|---|---|
| σ, C | ``noise_multiplier``, ``max_grad_norm`` |
| s, h, C₀ | ``deviation``, ``unit``, ``radius`` |
| κ, β | :data:`SPREAD`, :data:`BETA` |
| d, m | ``size`` (parameters), ``terms`` (of the longest sum in double precision) |
| P, b | ``pieces`` (of the largest batch), ``bits`` |
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dphypo import _validate, noise

UNIT = 2.0**-53
"""u, the relative error of one rounding in double precision."""
SPREAD = 64.0
"""κ: weights are at most κC₀/A, A being what a record's gradient is summed from. Networks stay below 20."""
NORMALISED = 0.01
"""r of ``clipping="normalise"``: weights are C₀/(n̄ + r)."""
BETA = 2.0**-60
_TURN = math.sqrt(60 * math.log(2))  # √ln(1/β)
_BITS = 16  # of the dither
_FIRST, _LAST = 2.0**13, 2.0**18  # deviations
_PARAMETERS = 2.0**36
_OVERFLOW = 2.0**-100  # of a batch that is larger than the sums are proven for


@dataclass(frozen=True, kw_only=True)
class SumGrid:
    """Public numbers of one run.

    >>> given = {"noise_multiplier": 1.0, "max_grad_norm": 0.5, "size": 26_000, "terms": 256 * 25}
    >>> grid = SumGrid.of(**given, largest_batch=800, pieces=4)
    >>> grid.deviation, round(100 * grid.raised, 2)
    (8192.0, 0.08)
    """

    deviation: float
    unit: float
    radius: float
    bits: int
    raised: float
    """C/C₀ − 1: by how much rounding raises the ratio of noise to signal."""

    @classmethod
    def of(
        cls,
        *,
        noise_multiplier: float,
        max_grad_norm: float,
        size: int,
        terms: int,
        largest_batch: int,
        pieces: int = 1,
    ) -> SumGrid:
        """The grid of a run with this many parameters, whose batches hold at most ``largest_batch`` records.

        They are in at most ``pieces`` pieces, whose sums are each rounded to multiples of h·2^−bits.
        """
        sigma = _validate.positive(noise_multiplier=noise_multiplier)
        limit = _validate.within(1e-100, 1e100, why="squares of smaller norms are zero", max_grad_norm=max_grad_norm)
        if size > _PARAMETERS:
            raise _validate.fail("size", size, "models of more than 2³⁶ parameters are not covered by the slack")
        deviation = _FIRST
        while deviation < _LAST and (
            sigma * math.sqrt(size) / 2 > 0.1 * deviation or sigma * _TURN > 0.005 * deviation
        ):
            deviation *= 2
        step = sigma / deviation  # h/C
        # The sum of all pieces stays below 2⁵²: its whole numbers are exact, as float64 and as int64, in any order.
        bits = min(_BITS, 51 - math.ceil(math.log2(largest_batch / step)))
        units = (terms + 4) * UNIT
        error = SPREAD * largest_batch * units / (1 - units)
        ratio = clipped_to(step, size, bits, error, pieces) if bits >= 8 else 0.0
        if ratio < 0.5:
            raise ValueError(
                f"noise_multiplier = {sigma:g} with {size} parameters and batches of up to {largest_batch} records of "
                f"{terms} terms, in {pieces} pieces, leave no margin for rounding: use a smaller noise_multiplier, a "
                f"smaller model, or another physical_batch_size"
            )
        return cls(deviation=deviation, unit=limit * step, radius=limit * ratio, bits=bits, raised=1 / ratio - 1)

    @property
    def scale(self) -> float:
        """2^bits/h: sums are in units of h·2^−bits."""
        return 2.0**self.bits / self.unit

    @property
    def most(self) -> float:
        """What a record adds at most, in these units, rounded down."""
        return self.radius * self.scale * (1 - 2.0**-50)


def clipped_to(step: float, size: int, bits: int, error: float, pieces: int = 1) -> float:
    """C₀/C, rounded down: the root of √((C₀ + 2ρ + P·√d·h·2^−bits)² + d·h²/4) + h·√ln(1/β) = C; 0 if there is none.

    Args:
        step: h/C.
        size: d.
        bits: of the dither; the sums of pieces are first rounded to multiples of h·2^−bits.
        error: ρ/C₀.
        pieces: P, of the largest batch: rounding moves each of two sums by at most P·√d·h·2^−bits/2.
    """
    within = (1 - step * _TURN) ** 2 - size * step**2 / 4
    if step * _TURN >= 1 or within <= 0:
        return 0.0
    ratio = (math.sqrt(within) - pieces * math.sqrt(size) * step * 2.0**-bits) / (1 + 2 * error)
    return max(0.0, ratio * (1 - 2.0**-40))  # these lines are in floating point themselves


def slack(*, steps: int, rate: float) -> float:
    """An upper bound on the total variation between a run and the Poisson-sampled Gaussian mechanisms of its event.

    Three terms a step: noise from 128-bit tables, a dither that falls badly while the record is in the batch (β), and
    a batch larger than twice the declared records could give. It holds for every model of up to 2³⁶ parameters.

    >>> slack(steps=2344, rate=256 / 60_000) < 1e-16
    True
    """
    steps = _validate.integer(at_least=1, steps=steps)
    rate = _validate.within(0.0, 1.0, closed="both", rate=rate)
    return math.nextafter(steps * (noise.slack(_PARAMETERS, _LAST) + rate * BETA + _OVERFLOW), math.inf)
