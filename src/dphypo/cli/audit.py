"""The command ``audit``: attack a search by experiment, and show what was claimed beside what the attack proves."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dphypo.cli import options as o
from dphypo.cli import ranges

if TYPE_CHECKING:
    from dphypo.accounting import Guarantee
    from dphypo.audit import Audit, Pair, WorstCase

_LIMITS = {
    "run_epsilon": ranges.Range(0.01, 20.0),
    "mean": ranges.Range(0.01, 1000.0),  # the runs are made
    "delta": ranges.Range(1e-12, 0.1),
    "repetitions": ranges.Range(4, 1e6),
    "confidence": ranges.Range(0.5, 1 - 1e-9),
}
_POINTS = 60


def audit(
    run_epsilon: o.RunEpsilon = 1.0,
    runs: o.Runs = None,
    shape: o.Shape = None,
    mean: o.Mean = None,
    gamma: o.Gamma = None,
    cap: o.Cap = None,
    band: o.BandOption = None,
    delta: o.Delta = 1e-3,
    repetitions: Annotated[int, typer.Option(help="How often the search is run on each of two neighbours.")] = 1000,
    confidence: Annotated[float, typer.Option(help="Of the bound that is proven.")] = 0.99,
    plot: Annotated[Path | None, typer.Option(help="Draw the profiles into this file; needs matplotlib.")] = None,
    as_json: o.AsJson = False,
) -> None:
    """Run the worst case of a search, and compare what it shows with what is claimed.

    One run is randomised response, the worst run that is ε-DP; the policy knows the data and is at the edges of the
    band. "claimed" is the accountant's upper bound for any policy. "attack" is what the explicit attack achieves,
    computed exactly. "proven" is the lower bound that these repetitions prove, an experiment: they are run as a study,
    which draws its first run from the prior and may claim a little less. The exit status is 1 if a claim is false.
    """
    ranges.check(locals())
    ranges.check_within(locals(), _LIMITS)
    from dphypo.accounting import PureDp, account
    from dphypo.audit import WorstCase, attack_epsilon

    run_epsilon = 1.0 if run_epsilon is None else run_epsilon
    pair = _response(run_epsilon)
    law = o.runs_of(runs, shape, mean, gamma, cap)
    if law.mean > _LIMITS["mean"].high:
        raise ValueError(f"T has mean {law.mean:g}: the runs are made, so give a law of mean {_LIMITS['mean'].high:g}")
    attack = WorstCase(pair, PureDp(run_epsilon), law, o.band_of(band), delta, repetitions)
    if plot is not None:
        _require_matplotlib()
    guarantee = account(attack.event, law, attack.band)
    claimed, exact = guarantee.epsilon(delta), attack_epsilon(pair, law, attack.band, delta)
    result = attack.audit(confidence)
    stands = result.passed and exact <= claimed
    if as_json:
        found = {"claimed": claimed, "claimed_by_the_study": result.claimed, "attack": exact, "proven": result.epsilon}
        print(json.dumps(found | {"delta": delta, "confidence": confidence, "repetitions": repetitions}))
    else:
        print(f"claimed  ε = {claimed:.4f} at δ = {delta:g}: no policy in the band costs more")
        print(f"attack   ε = {exact:.4f}: this policy costs at least that")
        how = f"confidence {confidence:g}, {repetitions} searches on each side"
        print(f"proven   ε ≥ {result.epsilon:.4f} by experiment ({how}), where the study claims {result.claimed:.4f}")
        print("the claims stand" if stands else "A CLAIM IS FALSE: please report it")
    if plot is not None:
        _draw(attack, guarantee, result, plot)
    raise typer.Exit(0 if stands else 1)


def _response(epsilon: float) -> Pair:
    """Randomised response."""
    import numpy as np

    from dphypo.audit import Pair

    truth = 1 / (1 + math.exp(-epsilon))
    return Pair(np.array([-epsilon, epsilon]), np.array([1 - truth, truth]), np.array([truth, 1 - truth]))


def _require_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ValueError("--plot needs matplotlib: pip install 'dphypo[plots]'") from None


def _draw(attack: WorstCase, guarantee: Guarantee, result: Audit, path: Path) -> None:
    """Three curves of δ over ε, each below the one before: what is claimed, what is achieved, what is proven."""
    import numpy as np
    from matplotlib.figure import Figure

    from dphypo.audit import attack_delta

    epsilons, claimed = guarantee.profile(_POINTS)
    lowest = min(1e-6, result.delta / 10)
    last = _last(epsilons, claimed, lowest)
    fine = np.linspace(0.0, last, 5 * _POINTS)
    achieved = [attack_delta(attack.pair, attack.runs, attack.band, float(epsilon)) for epsilon in fine]
    proven_at = np.linspace(0.0, result.epsilon, 50 * _POINTS)  # it falls steeply at its end
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    proven = [result.delta_at(float(epsilon)) for epsilon in proven_at]
    axes.semilogy(epsilons, claimed, label="claimed: no policy in the band costs more")
    axes.semilogy(fine, achieved, "--", label="attack: computed exactly")
    how = f"{result.repetitions} searches on each side, confidence {result.confidence:.10g}"
    axes.semilogy(proven_at, proven, "-.", label=f"proven by experiment ({how})")
    axes.axhline(result.delta, color="0.7", linewidth=0.8)
    axes.plot([result.epsilon], [result.delta], "o", color="C2")
    axes.set(xlabel="ε", ylabel="δ", xlim=(0.0, last), ylim=(lowest, 1.0))
    axes.legend(fontsize="small", loc="lower left")
    figure.savefig(path)


def _last(epsilons: Iterable[float], claimed: Iterable[float], lowest: float) -> float:
    """Where the claimed profile leaves the picture."""
    last = 0.0
    for epsilon, delta in zip(epsilons, claimed, strict=True):
        last = float(epsilon)
        if delta < lowest:
            break
    return last
