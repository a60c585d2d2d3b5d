"""``dphypo audit``: attack the worst case of a search, and show what was claimed beside what the attack proves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dphypo.cli import options as o
from dphypo.cli import values
from dphypo.cli.plot import require_matplotlib

_MOST_RUNS = 1000.0  # on average: they are made


def audit(
    run_epsilon: Annotated[float, o.number("ε of one run.", 0.01, 20)] = 1.0,
    runs: o.Runs = None,
    shape: o.Shape = None,
    mean: o.Mean = None,
    gamma: o.Gamma = None,
    cap: o.Cap = None,
    band: o.BandOption = None,
    delta: Annotated[float, o.number("δ of the guarantee.", 1e-12, 0.1)] = 1e-3,
    repetitions: Annotated[
        int, o.number("How often the search is run on each of two neighbours.", 4, 1e6, whole=True)
    ] = 1000,
    confidence: Annotated[float, o.number("Of the bound that is proven.", 0.5, 1 - 1e-9)] = 0.99,
    plot: Annotated[Path | None, typer.Option(help="Draw the profiles into this file; needs matplotlib.")] = None,
    as_json: o.AsJson = False,
) -> None:
    """Run the worst case of a search, and compare what it shows with what is claimed.

    One run is randomised response, the worst run that is ε-DP; the policy knows the data and is at the edges of the
    band. "claimed" is the accountant's upper bound for any policy. "attack" is what the explicit attack achieves,
    computed exactly. "proven" is the lower bound that these repetitions prove, an experiment: they are run as a study,
    which draws its first run from the prior and may claim a little less. The exit status is 1 if a claim is false.
    """
    from dphypo.accounting import PureDp, account
    from dphypo.audit import WorstCase

    if plot is not None:
        require_matplotlib()
    law = values.runs_of(runs, shape, mean, gamma, cap)
    if law.mean > _MOST_RUNS:
        raise typer.BadParameter(
            f"--mean {law.mean:g} is out of range: the runs are made, so give at most {_MOST_RUNS:g}"
        )
    worst = WorstCase(run_epsilon, law, values.band_of(band), delta, repetitions)
    guarantee = account(PureDp(run_epsilon), law, worst.band)
    claimed, exact, result = guarantee.epsilon(delta), worst.attack_epsilon(), worst.audit(confidence)
    stands = result.passed and exact <= claimed
    if as_json:
        found = {"claimed": claimed, "claimed_by_the_study": result.claimed, "attack": exact, "proven": result.epsilon}
        print(json.dumps(found | {"delta": delta, "confidence": confidence, "repetitions": repetitions}))
    else:
        print(f"claimed  ε = {values.shown(claimed)} at δ = {delta:g}: no policy in the band costs more")
        print(f"attack   ε = {exact:.4f}: this policy costs at least that")
        how = f"confidence {confidence:g}, {repetitions} searches on each side"
        study = values.shown(result.claimed or 0.0)
        print(f"proven   ε ≥ {result.epsilon:.4f} by experiment ({how}), where the study claims {study}")
        print("the claims stand" if stands else "A CLAIM IS FALSE: please report it")
    if plot is not None:
        from dphypo import plots

        plots.save(plots.audit_profile(guarantee, worst, result), plot)
    raise typer.Exit(0 if stands else 1)
