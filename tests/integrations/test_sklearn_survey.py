"""PrivateSearch by a survey: short fits that are published, then one full fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import loguniform
from sklearn.base import clone

import dphypo
from dphypo.accounting.events import ideal
from dphypo.laws import Pmf
from dphypo.mechanisms import SampledGaussian
from dphypo.sklearn import DPSGDClassifier, DPSGDRegressor, PrivateSearch, Schema
from dphypo.torch import runs
from dphypo.training.setting import Run

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, 1000)
X = RNG.normal(size=(1000, 3)) + 2 * Y[:, None]
SPACE = {"learning_rate": loguniform(0.01, 10), "max_grad_norm": loguniform(0.1, 10)}
SMALL = dphypo.SurveyPlan(runs=5, fraction=0.25)


def classifier(**changes: Any) -> DPSGDClassifier:
    return DPSGDClassifier(
        **{"hidden": (), "bounds": (-5, 8), "classes": (0, 1), "epochs": 8, "batch_size": 100, "device": "cpu"}
        | changes
    )


def search(estimator: Any = None, space: Any = None, **changes: Any) -> PrivateSearch:
    arguments: dict[str, Any] = {"epsilon": 3.0, "survey": SMALL, "random_state": 1}
    return PrivateSearch(estimator or classifier(), space or SPACE, **arguments | changes)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("survey") / "tune.db"


@pytest.fixture(scope="module")
def found(journal: Path) -> PrivateSearch:
    return search(journal=journal).fit(X, Y)


def test_a_survey_publishes_its_table_and_releases_one_full_fit(found: PrivateSearch) -> None:
    assert found.score(X, Y) > 0.8
    assert found.best_score_ is None
    assert found.best_estimator_.epochs == 8
    assert 2.99 < found.certificate_.epsilon <= 3.0
    assert dphypo.verify(found.certificate_).problems == ()
    table = found.cv_results_
    assert len(table["params"]) == 5
    assert set(table) == {
        "params",
        "param_learning_rate",
        "param_max_grad_norm",
        "mean_test_score",
        "rank_test_score",
        "status",
    }
    assert pd.DataFrame(table).loc[table["mean_test_score"].argmax(), "rank_test_score"] == 1


@pytest.mark.slow
def test_short_fits_have_matched_noise_and_the_learning_rate_of_their_optimiser(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By what each run is told."""
    seen: list[Run] = []
    train = runs.train

    def noted(group: Any, share: Any = None) -> Any:
        seen.extend(one.run for one in group)
        return train(group, share)

    monkeypatch.setattr(runs, "train", noted)
    found = search(classifier(optimizer="adam", learning_rate=0.1), {"max_grad_norm": [1.0]}).fit(X, Y)
    *short, full = [one for one in seen if one.records > 8]  # those of 8 are rehearsals on made-up records
    assert len(short) == 5
    assert (full.steps, full.learning_rate) == (64, 0.1)
    assert found.best_estimator_.noise_multiplier == full.noise_multiplier
    for one in short:
        assert (one.steps, one.rate, one.records) == (16, 1 / 8, 800) == (16, full.rate, full.records)
        assert one.noise_multiplier == pytest.approx(2 * full.noise_multiplier)
        assert one.learning_rate == pytest.approx(0.1 * 2, rel=0.2)  # a step of Adam ignores the gradient's size
        event = classifier().privacy_event({"epochs": 2, "noise_multiplier": one.noise_multiplier}, records=800)
        assert ideal(event) == SampledGaussian(rate=1 / 8, steps=16, noise_multiplier=one.noise_multiplier).event


@pytest.mark.slow
def test_settings_get_noise_of_their_own() -> None:
    found = search(space={**SPACE, "batch_size": [50, 200]}).fit(X, Y, holdout=(X[:100], Y[:100]))
    assert 2.95 < found.certificate_.epsilon <= 3.0


@pytest.mark.slow
def test_pipelines_and_regressors_are_surveyed() -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    pipeline = Schema({"a": (-5, 8), "b": (-5, 8)}).pipeline(classifier(bounds=None))
    found = search(pipeline, {"estimator__learning_rate": loguniform(0.1, 10)}).fit(frame, Y)
    assert set(found.best_params_) == {"estimator__learning_rate"}
    assert found.predict(frame).shape == (1000,)
    regressor = DPSGDRegressor((), epochs=8, batch_size=100, device="cpu", bounds=(-5, 8), target_bounds=(-5, 8))
    found = search(regressor, error_bound=5.0).fit(X, X[:, 0])
    assert (found.cv_results_["mean_test_score"] < 1).all()
    assert found.predict(X).shape == (1000,)


@pytest.mark.slow
def test_a_survey_is_planned_where_none_is_given() -> None:
    found = search(survey=None, compute=6.0).fit(X, Y)
    assert len(found.cv_results_["params"]) >= 8


@pytest.mark.slow
def test_a_search_whose_cost_nobody_chose_is_refused() -> None:
    with pytest.raises(TypeError, match=r"needs epsilon: give epsilon=.* survey=False .*noise_multiplier=1$"):
        PrivateSearch(classifier()).fit(X, Y)
    short = classifier(epochs=1)
    for chosen in (
        {"survey": False},
        {"space": {"noise_multiplier": [1.0]}},
        {"estimator": classifier(epochs=1, noise_multiplier=2.0)},
    ):
        assert PrivateSearch(**{"estimator": short, "progress": False} | chosen).fit(X, Y).certificate_.epsilon > 0


def test_a_law_of_t_makes_a_study() -> None:
    studied = search(survey=False, runs=Pmf({1: 1.0}), score_noise_multiplier=10.0).fit(X, Y)
    assert not hasattr(studied, "cv_results_")
    assert studied.best_score_ is not None
    assert not hasattr(search(survey=None, runs=Pmf({1: 1.0}), score_noise_multiplier=10.0).fit(X, Y), "cv_results_")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runs": Pmf({1: 1.0})}, "runs is given, which belongs to a study"),
        ({"epsilon": None}, "needs epsilon"),
        ({"space": {"noise_multiplier": [1.0, 2.0]}}, "not tuned"),
        ({"survey": "twenty"}, "SurveyPlan"),
    ],
)
def test_wrong_surveys_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        search(**changes).fit(X, Y)


def test_a_survey_is_resumed_from_its_journal(found: PrivateSearch, journal: Path) -> None:
    again = search(journal=journal).fit(X, Y)
    assert found.best_params_ == again.best_params_
    assert np.array_equal(found.decision_function(X), again.decision_function(X))
    with pytest.raises(ValueError, match="a journal holds one search"):
        clone(found).fit(X, Y)


def test_the_last_fit_predicts_no_record_for_a_score_that_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from dphypo.sklearn.estimators import Fitting

    seen: list[Any] = []
    make = Fitting.make

    def noted(self: Fitting, params: Any, seeds: Any) -> Any:
        seen.append((self.fraction, self.score_event is None))
        return make(self, params, seeds)

    monkeypatch.setattr(Fitting, "make", noted)
    search().fit(X, Y)
    assert set(seen) == {(0.25, False), (1.0, True)}
    seen.clear()
    scored = search(survey=dphypo.SurveyPlan(runs=5, fraction=0.25, score=True)).fit(X, Y)
    assert set(seen) == {(0.25, False), (1.0, False)}
    assert scored.best_score_ is not None
    assert scored.certificate_.epsilon <= 3.0
