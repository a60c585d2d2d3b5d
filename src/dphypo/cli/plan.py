"""``dphypo plan``: what it costs to tune a private model by a survey of short runs."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from dphypo.cli import options as o
from dphypo.cli import ranges


def plan(
    records: Annotated[int, typer.Option(help="Number of private records, as a public constant.")],
    batch_size: Annotated[int, typer.Option(help="Expected size of a batch.")],
    epsilon: Annotated[float, typer.Option(help="Total ε of the survey and the last run.")],
    epochs: Annotated[float | None, typer.Option(help="Epochs of the full run.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of the full run, instead of its epochs.")] = None,
    runs: Annotated[int | None, typer.Option(help="Short runs; planned if left out.")] = None,
    fraction: Annotated[float | None, typer.Option(help="Part of the steps of a short run; planned.")] = None,
    compute: Annotated[float | None, typer.Option(help="Most compute, in full runs.")] = None,
    delta: o.Delta = 1e-5,
    as_json: o.AsJson = False,
) -> None:
    """The noise of a survey of short runs and of the full run after it, and what tuning costs. Takes seconds.

    All results of the short runs are published. Their noise is the full run's over the square root of the fraction.
    """
    ranges.check(locals())
    from dphypo.mechanisms import DpSgd, OwnTraining
    from dphypo.space import Space
    from dphypo.survey import SurveyPlan, plan_tuning

    run = DpSgd.of(records=records, batch_size=batch_size, epochs=epochs, steps=steps, noise_multiplier=1.0)
    found = plan_tuning(
        Space({"any": [0.0, 1.0]}),  # what a run costs does not depend on what is tuned
        OwnTraining(_no_training, run),
        epsilon=epsilon,
        delta=delta,
        compute=compute,
        survey=SurveyPlan(runs=runs, fraction=fraction),
    )
    full, short = found.noise.full.run, found.noise.short.run  # type: ignore[attr-defined]
    numbers = {
        "epsilon": found.noise.guarantee.epsilon(delta),
        "delta": delta,
        "noise_multiplier": full.noise_multiplier,
        "steps": full.steps,
        "noise_multiplier_without_tuning": full.noise_multiplier / (1 + found.noise.price),
        "price": found.noise.price,
        "compute": found.survey.compute,
        "survey": {"runs": found.survey.runs, "steps": short.steps, "noise_multiplier": short.noise_multiplier},
    }
    if as_json:
        print(json.dumps(numbers))
        return
    print(f"{found.summary}\n")
    print(f"full run        {full.steps} steps, noise multiplier {full.noise_multiplier:.4f}")
    print(f"without tuning  {full.steps} steps, noise multiplier {numbers['noise_multiplier_without_tuning']:.4f}")
    print(
        f"survey          {found.survey.runs} runs, {short.steps} steps, noise multiplier {short.noise_multiplier:.4f}"
    )
    print(f"privacy         ε = {numbers['epsilon']:.4f} at δ = {delta:g} for all of it together")
    print(f"compute         {found.survey.compute:.3g} full runs")


def _no_training(params: object, *, seed: int, run: object) -> object:
    raise NotImplementedError("a plan is not run")
