"""An Optuna script, and the five lines that make it private. Storage, sampler, pruner and dashboard stay Optuna's.

    python examples/tune_optuna.py --storage sqlite:///tuned.db --folder release
    optuna-dashboard sqlite:///tuned.db

What changed:

    +SURVEY = OptunaSurvey(RUN, epsilon=4, delta=1e-5, runs=20, scores="public", durations="public")  # 1
    -    return train(lr, max_grad_norm, noise_multiplier=1.0, steps=240)[1]
    +    return train(lr, max_grad_norm, SURVEY.short)[1]                                     # 2
    -study.optimize(objective, n_trials=20)
    +SURVEY.optimize(study, objective)                                                        # 3
    -model = train(**study.best_params, noise_multiplier=1.0, steps=240)[0]
    +model, params, certificate = SURVEY.last_run(study, last)                                # 4, and last() is 5

All trials are published and paid for, so Optuna may look at them as it likes. Its storage keeps when trials began and
ended: durations="public" declares that how long a run takes does not depend on the data, and the certificate says so.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import optuna
from sklearn.datasets import load_digits

from dphypo.mechanisms import SampledGaussian
from dphypo.optuna import OptunaSurvey

PIXELS, LABELS = load_digits(return_X_y=True)
PIXELS = np.hstack([PIXELS / 16, np.ones((len(PIXELS), 1))])
PRIVATE, PUBLIC = slice(0, 1500), slice(1500, None)  # assume the last 297 are public
RUN = SampledGaussian.of(records=1500, batch_size=125, epochs=20, noise_multiplier=1.0)  # the noise is solved for
SURVEY = OptunaSurvey(RUN, epsilon=4, delta=1e-5, runs=20, scores="public", durations="public")


def train(lr: float, max_grad_norm: float, run: SampledGaussian) -> tuple[Any, float]:
    """Softmax regression by DP-SGD in a few lines of numpy: weights and their accuracy on public digits."""
    rng = np.random.default_rng()
    weights = np.zeros((65, 10))
    inputs, targets = PIXELS[PRIVATE], np.eye(10)[LABELS[PRIVATE]]
    for _ in range(run.steps):
        chosen = rng.random(len(inputs)) < run.rate
        x, errors = inputs[chosen], targets[chosen] - _softmax(inputs[chosen] @ weights)
        # The gradient of a record is the outer product of the two.
        norms = np.linalg.norm(x, axis=1) * np.linalg.norm(errors, axis=1)  # of an outer product
        clipped = errors * np.minimum(1.0, max_grad_norm / np.maximum(norms, 1e-12))[:, None]
        noise = run.noise_multiplier * max_grad_norm * rng.normal(size=weights.shape)
        weights += lr * (x.T @ clipped + noise) / 125
    accuracy = float(np.mean((PIXELS[PUBLIC] @ weights).argmax(axis=1) == LABELS[PUBLIC]))
    return weights, accuracy


def _softmax(values: Any) -> Any:
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def objective(trial: optuna.Trial) -> float:
    lr = trial.suggest_float("lr", 0.01, 10, log=True)
    max_grad_norm = trial.suggest_float("max_grad_norm", 0.1, 10, log=True)
    return train(lr, max_grad_norm, SURVEY.short)[1]


def last(lr: float, max_grad_norm: float) -> Any:
    return train(lr, max_grad_norm, SURVEY.full)


def main() -> None:
    parser = argparse.ArgumentParser(description="Tune an Optuna script.")
    parser.add_argument("--storage", default=None, help="of the Optuna study, such as sqlite:///tuned.db")
    parser.add_argument("--folder", default=None, help="where the release is kept, and read again by a second start")
    storage, folder = (given := parser.parse_args()).storage, given.folder
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(storage=storage, study_name="tuned", direction="maximize", load_if_exists=True)
    SURVEY.optimize(study, objective)
    (_, accuracy), params, certificate = SURVEY.last_run(study, last, folder=folder)
    print(SURVEY.table(study).table())
    print(f"accuracy on public digits: {accuracy:.3f} with {params}\n{certificate.statement()}")


if __name__ == "__main__":
    main()
