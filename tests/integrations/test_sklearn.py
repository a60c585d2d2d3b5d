"""The scikit-learn side: estimators, the search over them, what is refused, and scikit-learn's own checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import loguniform
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import dphypo
from dphypo.accounting.events import ideal
from dphypo.laws import Pmf
from dphypo.sklearn import DPSGDClassifier, DPSGDRegressor, PrivateSearch, Schema
from dphypo.sklearn.estimators import Networks
from dphypo.training.cost import MOST_KINDS

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, 400)
X = RNG.normal(size=(400, 3)) + 3 * Y[:, None]
LABELS = np.array(["no", "yes"])[Y]
PUBLIC = (RNG.normal(size=(100, 3)) + 3, np.ones(100, dtype=int))
ONCE = Pmf({1: 1.0})
RATES = {"learning_rate": loguniform(0.1, 10)}


def classifier(**changes: Any) -> DPSGDClassifier:
    return DPSGDClassifier(
        **{"hidden": (), "bounds": (-5, 8), "epochs": 3, "batch_size": 50, "device": "cpu", "random_state": 1} | changes
    )


def search(estimator: Any = None, space: Any = RATES, runs: Any = ONCE, **changes: Any) -> PrivateSearch:
    return PrivateSearch(classifier() if estimator is None else estimator, space, runs, **{"random_state": 1} | changes)


def test_the_classifier_learns_names_and_numbers() -> None:
    for y in (Y, LABELS, Y == 1):
        fitted = classifier(noise_multiplier=2.0).fit(X, y)
        assert fitted.score(X, y) > 0.9
        assert fitted.predict_proba(X).shape == (400, 2)
        assert np.array_equal(fitted.predict(X), fitted.classes_[(fitted.decision_function(X) > 0).astype(int)])


def test_the_regressor_learns() -> None:
    target = 50 + 10 * X.sum(1)
    fitted = DPSGDRegressor(
        (), bounds=(-5, 8), target_bounds=(-50, 250), epochs=20, learning_rate=0.5, batch_size=50, random_state=1
    ).fit(X, target)
    assert fitted.score(X, target) > 0.8


def test_fit_charges_what_the_estimator_states() -> None:
    event: Any = ideal(classifier().privacy_event({"noise_multiplier": 3.0, "epochs": 4}, records=1000))
    assert (event.count, event.event.sampling_probability, event.event.event.noise_multiplier) == (80, 0.05, 3.0)
    # A batch larger than the data is the data, in the event as in fit.
    event = ideal(classifier(batch_size=500).privacy_event({}, records=400))
    assert (event.count, event.event.sampling_probability) == (3, 1.0)
    classifier(batch_size=500).fit(X, Y)


def test_without_a_seed_fits_differ_and_with_one_they_do_not() -> None:
    first, second, third, fourth = (
        classifier(random_state=state).fit(X, Y).decision_function(X) for state in (None, None, 5, np.int64(5))
    )
    assert not np.allclose(first, second)
    assert np.array_equal(third, fourth)
    assert not np.allclose(third, classifier(random_state=np.random.RandomState(5)).fit(X, Y).decision_function(X))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": (0,)}, "only one class"),
        ({"classes": (0, 20231103, 20231104)}, "two of them are one number in single precision"),
        ({"bounds": (3, 1)}, "low below high"),
        ({"hidden": (0,)}, "hidden"),
        ({"noise_multiplier": 0}, "noise_multiplier"),
        ({"records": 0}, "records"),
        ({"optimizer": "none"}, "adamw"),
    ],
)
def test_wrong_parameters_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        classifier(**changes).fit(X, Y)


def test_a_search_releases_one_estimator_and_its_certificate() -> None:
    found = search(runs=dphypo.NegativeBinomial(shape=8, mean=3)).fit(X, LABELS, holdout=(X, LABELS))
    assert set(found.best_params_) == {"learning_rate"}
    assert found.best_estimator_.learning_rate == found.best_params_["learning_rate"]
    assert found.best_score_ == found.score(X, LABELS) > 0.8
    assert found.best_estimator_.random_state is None
    assert found.classes_.tolist() == ["no", "yes"]
    assert np.array_equal(found.predict(X), found.best_estimator_.predict(X))
    assert found.certificate_.warning == "no guarantee: seeded"
    assert search(random_state=None).fit(X, Y).certificate_.warning is None


def test_there_are_no_cv_results_and_asking_says_why() -> None:
    found = search().fit(X, Y)
    with pytest.raises(AttributeError, match="guarantee does not cover"):
        _ = found.cv_results_
    assert not hasattr(found, "cv_results_")
    with pytest.raises(AttributeError, match="'nonsense'"):
        _ = found.nonsense


def test_the_private_hold_out_costs_the_worse_of_training_and_scoring() -> None:
    """A score with little noise is what the guarantee is then about."""
    cheap, dear = (search(score_noise_multiplier=noise).fit(X, Y).certificate_ for noise in (15.0, 0.5))
    assert cheap.document["terms"][0]["events"][1]["event"]["noise_multiplier"] == 15.0
    alone = dphypo.account(classifier().privacy_event({}, records=320), ONCE).epsilon(1e-5)
    assert cheap.epsilon == pytest.approx(alone, rel=1e-3)
    assert dear.epsilon > alone + 1


def test_a_total_epsilon_is_met_with_noise_for_every_kind_of_run() -> None:
    space = {**RATES, "batch_size": [20, 50]}
    found = search(space=space, epsilon=3.0).fit(X, Y, holdout=(X, Y))
    assert 2.98 < found.certificate_.epsilon <= 3.0
    events = found.certificate_.document["terms"][0]["events"]
    assert len({event["event"]["event"]["event"]["noise_multiplier"] for event in events}) == 2
    chosen: Any = ideal(found.best_estimator_.privacy_event({}, records=400))
    noise = chosen.event.event.noise_multiplier
    assert noise in {event["event"]["event"]["event"]["noise_multiplier"] for event in events}


def test_too_many_kinds_of_run_are_refused() -> None:
    with pytest.raises(ValueError, match=f"at most {MOST_KINDS}"):
        search(space={"batch_size": list(range(10, 10 + MOST_KINDS + 1))}, epsilon=3.0).fit(X, Y, holdout=PUBLIC)


@pytest.mark.filterwarnings("ignore:target_bounds = None")
def test_regressors_are_ranked_privately_by_a_bounded_error() -> None:
    regressor = DPSGDRegressor((), epochs=2, batch_size=50, device="cpu", bounds=(-5, 8), target_bounds=(-5, 8))
    found = search(regressor, error_bound=5.0).fit(X, X[:, 0])
    assert is_regressor(found)
    assert not hasattr(found, "predict_proba")
    with pytest.raises(ValueError, match="error_bound"):
        search(regressor.set_params(target_bounds=None)).fit(X, X[:, 0])


def test_clone_and_pipelines_work() -> None:
    copied = clone(search(delta=1e-6))
    assert copied.delta == 1e-6
    assert is_classifier(copied)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    inside = Schema(dict.fromkeys(frame, (-5, 8))).pipeline(classifier(bounds=None))
    found = search(inside, {"estimator__learning_rate": loguniform(0.5, 10)}, epsilon=5.0).fit(frame, Y)
    assert found.score(frame, Y) > 0.7
    assert found.predict_proba(frame).shape == (400, 2)
    assert found.certificate_.epsilon <= 5.0


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (LogisticRegression(), "does not state its privacy event"),
        (make_pipeline(FunctionTransformer(), LogisticRegression()), "does not state its privacy event"),
        (DPSGDClassifier, r"is the class DPSGDClassifier: give DPSGDClassifier\(\.\.\.\)"),
        (Schema({"age": (0, 1)}).pipeline(DPSGDClassifier), "is the class DPSGDClassifier"),
    ],
)
def test_estimators_that_are_not_private_are_refused(estimator: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        search(estimator).fit(X, Y)


@pytest.mark.parametrize(
    ("changes", "fit", "message"),
    [
        ({"scoring": "precision"}, {}, "any other scorer needs public ones"),
        ({"epsilon": 1.0, "space": {"noise_multiplier": [1.0]}}, {}, "not tuned"),
        ({"score_noise_multiplier": 0.0}, {}, "score_noise_multiplier"),
        ({"records": 0}, {}, "records"),
        ({"space": {"depth": [1, 2]}}, {}, "'depth', which is not a parameter"),
        ({"runs": dphypo.Poisson(1e-9)}, {"holdout": PUBLIC}, "released no estimator"),
        ({"space": {"optimizer": ["sgd", "none"]}}, {}, r"space\['optimizer'\] = 'none' .* give one of adadelta"),
        ({"space": {"optimizer": ["none"]}, "epsilon": 1.0}, {}, "'none' .* give one of adadelta"),
        ({"space": {"learning_rate": [-1.0]}}, {"holdout": PUBLIC}, "learning_rate = -1.0 is not valid"),
        ({}, {"holdout": 0.2}, r"holdout = 0\.2 is not valid: give a pair of public records"),
        ({}, {"holdout": [PUBLIC]}, "holdout = 'list' is not valid: give a pair"),
        ({}, {"holdout": PUBLIC[0]}, "holdout = 'ndarray' is not valid: give a pair"),
    ],
)
def test_wrong_searches_are_refused(changes: dict[str, Any], fit: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        search(**changes).fit(X, Y, **fit).predict(X)


def test_data_that_no_run_could_use_are_refused_before_any_run() -> None:
    with pytest.raises(ValueError, match="y is None"):
        search().fit(X, None)
    with pytest.raises(ValueError, match="Complex data"):
        search().fit(X * 1j, Y)
    with pytest.raises(ValueError, match="records = 0 is not valid"):
        PrivateSearch(DPSGDClassifier(classes=(0, 1)), epsilon=2).fit(X[:0], Y[:0])
    with pytest.raises(NotFittedError):
        search().predict(X)


def test_any_scorer_ranks_on_public_records() -> None:
    found = search(scoring="neg_log_loss").fit(X, Y, holdout=(X, Y))
    assert found.best_score_ < 0


def test_a_journal_gives_the_same_release_again(tmp_path: Any) -> None:
    first = search(journal=tmp_path / "study.db").fit(X, Y)
    again = search(journal=tmp_path / "study.db").fit(X, Y)
    assert first.best_params_ == again.best_params_
    assert np.array_equal(first.decision_function(X), again.decision_function(X))


def test_fitted_networks_are_saved_without_pickle() -> None:
    fitted = classifier(hidden=(4,)).fit(X, LABELS)
    saver = Networks(classifier())
    data = saver.dump(fitted)
    assert b"random_state" not in data
    loaded = saver.load(data)
    assert np.array_equal(loaded.predict(X), fitted.predict(X))
    assert loaded.hidden == (4,)
    assert saver.format == "safetensors"


SMALL: dict[str, Any] = {"noise_multiplier": 0.3, "epochs": 20, "hidden": (), "device": "cpu"}
EXPECTED = {
    "check_class_weight_classifiers": "noise outweighs the fifty records of the check",
    "check_regressors_train": "the noise of a private fit leaves less than the check asks for",
    "check_supervised_y_no_nan": "one record whose target is not finite is left out and cannot fail the fit",
    "check_dtype_object": "one value that is no number counts as missing and cannot fail the fit",
    "check_estimators_empty_data_messages": "a table without records is a table: no record may decide about failure",
}
REGRESSOR = DPSGDRegressor(**SMALL, target_bounds=(-10, 10))


@parametrize_with_checks([DPSGDClassifier(**SMALL)], expected_failed_checks=lambda estimator: EXPECTED)
def test_scikit_learns_checks_of_the_classifier(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([REGRESSOR], expected_failed_checks=lambda estimator: EXPECTED)
def test_scikit_learns_checks_of_the_regressor(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the noise of the score", "ignore:bounds = None")
@parametrize_with_checks(
    [
        PrivateSearch(DPSGDClassifier(**SMALL), {"learning_rate": [0.5]}, ONCE, random_state=1),
        PrivateSearch(REGRESSOR, {"learning_rate": [0.1]}, ONCE, error_bound=3.0, random_state=1),
    ],
    expected_failed_checks=lambda estimator: EXPECTED,
)
def test_scikit_learns_checks_of_the_search(estimator: Any, check: Any) -> None:
    check(estimator)
