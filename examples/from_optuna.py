"""An Optuna script and its private twin, side by side.

python examples/from_optuna.py

The same training function and the same search space. The first half is ordinary: its best trial looks like one private
run, but it is the best of twenty, and what choosing it leaks appears nowhere. The second half pays for the choice.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import dp_accounting
import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution
from sklearn.datasets import load_breast_cancer

import dphypo
from dphypo.sklearn import DPSGDClassifier

X, Y = load_breast_cancer(return_X_y=True)
X = np.log1p(X)
TRAIN, PUBLIC = slice(0, 450), slice(450, None)  # the last 119 tumours are taken to be public
MODEL = DPSGDClassifier(hidden=(), bounds=(0, 8), classes=(0, 1), epochs=15, batch_size=64, noise_multiplier=2.0)
DISTRIBUTIONS = {
    "learning_rate": FloatDistribution(0.01, 10, log=True),
    "max_grad_norm": FloatDistribution(0.1, 10, log=True),
    "optimizer": CategoricalDistribution(["sgd", "adam"]),
}


def fit(params: Mapping[str, Any], seed: int | None = None) -> tuple[DPSGDClassifier, float]:
    """One private run and its accuracy on public records."""
    model = DPSGDClassifier(**{**MODEL.get_params(), **params, "records": 450, "random_state": seed})
    model.fit(X[TRAIN], Y[TRAIN])
    return model, float(model.score(X[PUBLIC], Y[PUBLIC]))


# ── Optuna ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def objective(trial: optuna.Trial) -> float:
    return fit(
        {
            "learning_rate": trial.suggest_float("learning_rate", 0.01, 10, log=True),
            "max_grad_norm": trial.suggest_float("max_grad_norm", 0.1, 10, log=True),
            "optimizer": trial.suggest_categorical("optimizer", ["sgd", "adam"]),
        }
    )[1]


def with_optuna(trials: int) -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize")
    study.optimize(objective, n_trials=trials)
    print(f"Optuna: accuracy {study.best_value:.3f} with {study.best_params}")
    print("        privacy: unknown; the best of the trials was chosen by looking at all of them\n")


# ── and its private twin ─────────────────────────────────────────────────────────────────────────────────────────────
@dphypo.mechanism(
    event=MODEL.privacy_event({}, records=450),
    relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
)
def private_objective(params: Mapping[str, Any], *, seed: int) -> tuple[Any, float]:
    model, score = fit(params, seed)
    return {"weights": model.model_[0].weight.detach().numpy(), "bias": model.model_[0].bias.detach().numpy()}, score


def with_dphypo(trials: float) -> None:
    space = dphypo.Space.from_optuna(DISTRIBUTIONS)
    runs = dphypo.NegativeBinomial(shape=8, mean=trials)
    study = dphypo.Study(space, private_objective, runs, delta=1e-5, journal=None)
    release = study.run(progress=False)
    print(f"dphypo: accuracy {release.score:.3f} with {dict(release.params or {})}")
    print(f"        privacy: ε = {release.certificate.epsilon:.2f} at δ = 1e-5 for the whole search", end="")
    print(f" ({study.guarantee.one_run(1e-5)['pld']:.2f} for one run)")


def main() -> None:
    parser = argparse.ArgumentParser(description="An Optuna script and its private twin.")
    parser.add_argument("--trials", type=int, default=20, help="trials of Optuna, and the mean number of private runs")
    trials = parser.parse_args().trials
    with_optuna(trials)
    with_dphypo(trials)


if __name__ == "__main__":
    main()
