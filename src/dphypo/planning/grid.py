"""The designs that are tried by default."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from dphypo.errors import NoDesignError
from dphypo.planning.costs import Costs
from dphypo.planning.design import Design, refuse_uncut
from dphypo.planning.landscape import Landscape

COMPUTE_SHARES = (0.2, 0.35, 0.5)
SPLITS = (0.05, 0.1, 0.2, 0.35)
SPREADS = (0.03, 0.05, 0.08, 0.12)
FLOORS = (0.05, 0.1, 0.2)
FIRST_RUNS = (4, 400)  # mean runs of the first stage that are tried: fewer find nothing, more are slow to account for


def grid(landscape: Landscape, compute: float) -> Iterator[Design]:
    """The default design, and a grid of others, as far as the proxy knows them and the compute allows."""
    numbers = product(landscape.fractions, COMPUTE_SHARES, SPLITS, SPREADS, FLOORS)
    for design in dict.fromkeys((Design(), *(Design(*each) for each in numbers))):
        cheap, full = design.compute_share * compute / design.fraction, (1 - design.compute_share) * compute
        known = design.fraction in landscape.fractions and design.fraction < 1
        if known and FIRST_RUNS[0] <= cheap <= FIRST_RUNS[1] and full > 1:
            yield design


def possible(landscape: Landscape, compute: float, costs: Costs) -> list[Design]:
    """The grid, without runs shorter than whole steps allow; an error that names the limit where nothing is left."""
    fitting = list(grid(landscape, compute))
    if not fitting:
        raise _nothing_fits(landscape, compute)
    made = [design for design in fitting if costs.makes(design.fraction)]
    if not made:
        raise _nothing_cut(landscape, compute, costs, sorted({design.fraction for design in fitting}))
    return made


def _nothing_fits(landscape: Landscape, compute: float) -> NoDesignError:
    cheaper = [fraction for fraction in landscape.fractions if fraction < 1]
    if not cheaper:
        return NoDesignError(f"the proxy {landscape.name} has no runs cheaper than full ones", "give another proxy")
    few, many = FIRST_RUNS
    fewest = min(COMPUTE_SHARES) * compute / max(cheaper)
    if fewest > many:
        made = f"compute = {compute:g} makes {fewest:.0f} or more runs in the first stage of every design that is tried"
        return NoDesignError(f"{made}, and more than {many} are too many to account for", "give less", ", or designs=")
    kept = f"compute = {compute:g} is too little for more than one full run after a first stage of {few} runs or more"
    return NoDesignError(kept, "give more", ", or designs=")


def _nothing_cut(landscape: Landscape, compute: float, costs: Costs, tried: list[float]) -> NoDesignError:
    full = costs.mechanism(1.0)
    if full.steps > 1:  # type: ignore[attr-defined]  # it has steps, or all fractions would have been trusted
        for fraction in tried:
            refuse_uncut(full, costs.mechanism(fraction), fraction)
    lengths = ", ".join(f"{fraction:g}" for fraction in tried)
    reason = (
        f"a full run has {full.steps} steps, too few to be cut to {lengths} of them"  # type: ignore[attr-defined]
        f" (what compute = {compute:g} and the proxy {landscape.name} allow)"
    )
    longer_ones = tried[-1] < max(fraction for fraction in landscape.fractions if fraction < 1)
    more = ", or more compute, for longer runs in the first stage" if longer_ones else ""
    return NoDesignError(reason, f"give longer full runs{more}", ", or designs=")
