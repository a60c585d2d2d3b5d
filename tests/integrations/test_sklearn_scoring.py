"""``PrivateSearch`` ranks by scikit-learn's names on private records, weighs classes, and is pickled when fitted."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dphypo
from dphypo.sklearn import DPSGDClassifier, DPSGDRegressor, PrivateSearch, Schema
from dphypo.sklearn.estimators import FittedEstimator
from dphypo.sklearn.private_search import SCORINGS
from dphypo.training.scores import PrivateConfusion

RNG = np.random.default_rng(0)
Y = np.where(RNG.random(2000) < 0.1, "ill", "healthy")
X = RNG.normal(size=(2000, 3)) + 1.5 * (Y == "ill")[:, None]
SKLEARN: dict[str, Any] = {
    "balanced_accuracy": lambda model: balanced_accuracy_score(Y, model.predict(X)),
    "f1": lambda model: f1_score(Y, model.predict(X), pos_label="ill"),
    "f1_macro": lambda model: f1_score(Y, model.predict(X), average="macro"),
    "roc_auc": lambda model: roc_auc_score(Y == "ill", model.decision_function(X)),
}


def classifier(**changes: Any) -> DPSGDClassifier:
    given = {"hidden": (), "classes": ("healthy", "ill"), "bounds": (-3, 5), "epochs": 3}
    return DPSGDClassifier(**{**given, **changes})


def mechanism(estimator: Any, y: Any, **options: Any) -> Any:
    """What a search executes, with a score on private records."""
    return PrivateSearch(estimator, {}, **options)._mechanism(estimator, X, y, estimator.read(X, y), None, None, 5.0)


@pytest.mark.parametrize("name", SCORINGS)
def test_without_noise_a_private_score_is_that_of_sklearn(name: str) -> None:
    fitted = classifier(noise_multiplier=1e-3, learning_rate=1.0, random_state=1).fit(X, Y)
    score = PrivateConfusion((X, Y), 1e-9, measure=SCORINGS[name])
    tolerance = 0.01 if name == "roc_auc" else 1e-9  # its margins are in 64 bins
    assert score(FittedEstimator(fitted), seed=1) == pytest.approx(SKLEARN[name](fitted), abs=tolerance)


def test_a_search_is_ranked_by_a_name_on_private_records_and_pickled(capsys: pytest.CaptureFixture[str]) -> None:
    search = PrivateSearch(
        classifier(), {"learning_rate": [0.3, 1.0]}, epsilon=4, survey=2, scoring="roc_auc", rarest=0.1
    )
    search.fit(X, Y)
    assert "Tuning costs" in capsys.readouterr().err, "as tune says it"
    assert all(0 < score < 1.2 for score in search.cv_results_["mean_test_score"])
    assert search.certificate_.epsilon <= 4
    assert search.score(X, Y) == SKLEARN["roc_auc"](search.best_estimator_), "by scoring, as in scikit-learn"
    again = pickle.loads(pickle.dumps(search))
    assert np.array_equal(again.predict_proba(X[:9]), search.predict_proba(X[:9]))
    assert again.certificate_.epsilon == search.certificate_.epsilon


def test_a_search_scores_f1_of_the_second_class_whatever_its_label() -> None:
    search = PrivateSearch(classifier(epochs=1), epsilon=8, scoring="f1", progress=False).fit(X, Y)
    assert search.score(X, Y) == SKLEARN["f1"](search.best_estimator_)


def test_the_noise_of_a_measure_is_stated_for_the_rarest_class() -> None:
    made = [
        mechanism(classifier(), Y, scoring=name, rarest=share)
        for name, share in (("accuracy", None), ("balanced_accuracy", 0.5), ("balanced_accuracy", 0.02))
    ]
    noise = [one.score_deviation for one in made]
    assert noise[0] < noise[1] < noise[2]
    assert "2 % of the records" in made[2].score_assumes


def test_a_scorer_that_is_not_private_names_those_that_are() -> None:
    with pytest.raises(
        ValueError, match=r"scoring = 'precision' is not valid: on private records give one of accuracy, bal"
    ):
        PrivateSearch(classifier(), {"learning_rate": [1.0]}, epsilon=4, scoring="precision").fit(X, Y)
    with pytest.raises(ValueError, match=r"it needs two classes, and there are 3: give 'f1_macro'"):
        PrivateSearch(
            classifier(classes=("healthy", "ill", "no")), {"learning_rate": [1.0]}, epsilon=4, scoring="f1"
        ).fit(X, Y)


def test_weights_of_classes_are_public_and_change_what_is_predicted() -> None:
    given: dict[str, Any] = {"noise_multiplier": 0.5, "learning_rate": 1.0, "random_state": 1}
    even, weighted = (classifier(class_weight=one, **given).fit(X, Y) for one in (None, {"healthy": 1, "ill": 10}))
    assert np.mean(weighted.predict(X) == "ill") > 2 * np.mean(even.predict(X) == "ill")
    for wrong in ("balanced", {"ill": 2}, {"ill": 2, "healthy": 0}):
        with pytest.raises(ValueError, match="class_weight = "):
            classifier(class_weight=wrong).fit(X, Y)


def test_the_bound_of_errors_follows_from_the_bounds_of_the_target() -> None:
    regressor = DPSGDRegressor(hidden=(), bounds=(-3, 5), target_bounds=(0, 50))
    fitting = mechanism(regressor, X[:, 0])
    assert fitting.score.bound == 25
    assert fitting.score_assumes == " times the bound of 25"
    space = fitting.default_space()  # public values say nothing of the rate of a regression
    assert space is not None
    assert space.names == ("learning_rate",)


def test_wide_ranges_are_warned_of_in_one_message() -> None:
    frame = pd.DataFrame({"born": [1970.0], "income": [3e4], "age": [40], "year": [2001], "height": [1700.0]})
    fine: dict[str, Any] = {"age": (0, 120), "year": (1900, 2030), "height": (1000, 2200)}
    with pytest.warns(UserWarning, match=r"'born': \(0, 2030\), 'income': \(-5, 1000000\)\. A range.*log1p") as warned:
        Schema({"born": (0, 2030), "income": (-5, 1_000_000), **fine}).fit(frame)
    assert len(warned) == 1
    Schema(fine).fit(frame)


def test_columns_without_ranges_are_warned_of() -> None:
    frame, search = pd.DataFrame(X, columns=list("abc")), PrivateSearch(classifier(bounds=None), {"wrong": [1]})
    with pytest.warns(UserWarning, match=r"bounds = None.*Schema\("), pytest.raises(ValueError, match="'wrong'"):
        search.fit(frame, Y)


def test_tune_says_what_an_estimator_needs() -> None:
    with pytest.raises(ValueError, match=r"it is an estimator: use dphypo\.sklearn\.PrivateSearch"):
        dphypo.tune(make_pipeline(StandardScaler(), LogisticRegression()), epsilon=1, delta=1e-5)
