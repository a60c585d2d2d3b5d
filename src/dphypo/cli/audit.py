"""``dphypo audit``: attack the worst case of a search, and show what was claimed beside what the attack proves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dphypo.cli import options as o
from dphypo.cli import ranges
from dphypo.cli.plot import require_matplotlib

_LIMITS = {
    "run_epsilon": ranges.Range(0.01, 20.0),
    "mean": ranges.Range(0.01, 1000.0),  # the runs are made
    "delta": ranges.Range(1e-12, 0.1),
}


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
    from dphypo.audit import WorstCase

    if plot is not None:
        require_matplotlib()
    law = o.runs_of(runs, shape, mean, gamma, cap)
    if law.mean > _LIMITS["mean"].high:
        raise ValueError(f"T has mean {law.mean:g}: the runs are made, so give a law of mean {_LIMITS['mean'].high:g}")
    one = 1.0 if run_epsilon is None else run_epsilon
    worst = WorstCase(one, law, o.band_of(band), delta, repetitions)
    guarantee = account(PureDp(one), law, worst.band)
    claimed, exact, result = guarantee.epsilon(delta), worst.attack_epsilon(), worst.audit(confidence)
    stands = result.passed and exact <= claimed
    if as_json:
        found = {"claimed": claimed, "claimed_by_the_study": result.claimed, "attack": exact, "proven": result.epsilon}
        print(json.dumps(found | {"delta": delta, "confidence": confidence, "repetitions": repetitions}))
    else:
        print(f"claimed  ε = {o.shown(claimed)} at δ = {delta:g}: no policy in the band costs more")
        print(f"attack   ε = {exact:.4f}: this policy costs at least that")
        how = f"confidence {confidence:g}, {repetitions} searches on each side"
        study = o.shown(result.claimed or 0.0)
        print(f"proven   ε ≥ {result.epsilon:.4f} by experiment ({how}), where the study claims {study}")
        print("the claims stand" if stands else "A CLAIM IS FALSE: please report it")
    if plot is not None:
        from dphypo import plots

        plots.save(plots.audit_profile(guarantee, worst, result), plot)
    raise typer.Exit(0 if stands else 1)
