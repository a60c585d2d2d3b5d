"""An Optuna user: the objective, the storage and the sampler stay; what tuning costs is paid for.

python examples/users/trials.py
"""

from __future__ import annotations

import dp_accounting
import numpy as np
import optuna
from scipy.stats import loguniform

import dphypo
from dphypo.mechanisms import SampledGaussian
from dphypo.optuna import OptunaSurvey
from dphypo.samplers import OptunaSampler

RECORDS = np.random.default_rng(0).normal(0.4, 0.2, 2000)
SURVEY = OptunaSurvey(
    SampledGaussian.of(records=2000, batch_size=100, epochs=2, noise_multiplier=1.0),  # the noise is solved for
    *(4.0, 1e-6),  # ε and δ of all trials and the last run together
    scores="public",
    durations="public",
    runs=6,
    fraction=0.75,  # thirty steps: fewer say little
)


def train(lr: float, run: SampledGaussian, seed: int | None = None) -> tuple[float, float]:
    """A private mean by DP-SGD, and minus its error on a public value."""
    rng, mean = np.random.default_rng(seed), 0.0
    for _ in range(run.steps):
        batch = RECORDS[rng.random(len(RECORDS)) < run.rate]
        step = np.clip(batch - mean, -1, 1).sum() + run.noise_multiplier * rng.normal()
        mean += lr * step / 100
    return mean, -abs(mean - 0.4)


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=1))
    SURVEY.optimize(study, lambda trial: train(trial.suggest_float("lr", 0.01, 1, log=True), SURVEY.short)[1])
    (mean, _), params, certificate = SURVEY.last_run(study, lambda lr: train(lr, SURVEY.full))
    print(f"survey: mean {mean:.3f} with {params}\n{certificate.statement()}\n")

    # Or a study, of which only the best run is released: Optuna's sampler follows it within a band of the prior.
    event, relation = SURVEY.full.event, dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    run = dphypo.mechanism(event=event, relation=relation)(
        lambda params, *, seed: train(params["lr"], SURVEY.full, seed)
    )
    sampler = OptunaSampler(optuna.samplers.TPESampler(seed=1), history_only=True)
    space = dphypo.Space({"lr": loguniform(0.01, 1)})  # or Space.from_optuna(a study on public data)
    best = dphypo.Study(space, run, dphypo.Geometric(mean=3), dphypo.Band(0.5, 2), sampler, delta=1e-6, journal=None)
    print(f"study: {best.run(progress=False).certificate.statement()}")


if __name__ == "__main__":
    main()
