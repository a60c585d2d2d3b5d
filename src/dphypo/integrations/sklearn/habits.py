"""What people used to scikit-learn's searches expect: their arguments answered, and a survey as ``cv_results_``."""

from __future__ import annotations

from typing import Any

import numpy as np

from dphypo.search.table import Surveyed

# What people used to scikit-learn's searches pass, and what to use here.
ELSEWHERE = {
    "cv": "folds would train several models on each record, and every one costs. Runs are ranked on records set "
    "apart by a hash of each (score_share), or on public ones, fit(X, y, holdout=(X_public, y_public))",
    "n_iter": "give epsilon=..., survey=20 for a survey of 20 short runs. In a study the number of runs is drawn from "
    "a law, since the best of a chosen number costs more: runs=dphypo.NegativeBinomial(shape=8, mean=10)",
    "n_jobs": "give workers=2 to make two runs at a time, each in a process of its own",
    "refit": "the released estimator is the best of the runs itself: training it again would cost again. It is "
    "best_estimator_",
    "param_grid": "give the hyperparameters as space={'learning_rate': [0.1, 1.0]}",
    "param_distributions": "give the hyperparameters as space={'learning_rate': loguniform(0.1, 10)}",
    "return_train_score": "scores on training records cost privacy and are not computed",
    "error_score": "a run that fails counts as one with the lowest score",
    "verbose": "give progress=True; what single runs reach is secret",
    "pre_dispatch": "give workers=2 to make two runs at a time",
}


def cv_results(survey: Surveyed) -> dict[str, Any]:
    """The table of a survey in the columns of scikit-learn's ``cv_results_``; all of it is published."""
    rows = survey.rows
    scores = np.array([np.nan if row.score is None else row.score for row in rows])
    order = np.argsort(np.argsort(-np.nan_to_num(scores, nan=-np.inf), kind="stable"))
    names = dict.fromkeys(name for row in rows for name in row.params)
    return {
        "params": [dict(row.params) for row in rows],
        **{f"param_{name}": np.array([row.params.get(name) for row in rows], dtype=object) for name in names},
        "mean_test_score": scores,
        "rank_test_score": order + 1,
        "status": np.array([str(row.status) for row in rows]),
    }
