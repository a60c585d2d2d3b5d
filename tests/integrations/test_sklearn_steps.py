"""Pipelines are answered with the schema to write, no record fails a search, and a journal is not reused."""

from __future__ import annotations

import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import loguniform
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, OneHotEncoder, StandardScaler, scale
from support.slow import mostly_slow

from dphypo.laws import Pmf
from dphypo.sklearn import DPSGDClassifier, DPSGDRegressor, PrivateSearch, Schema

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, 200)
X = RNG.normal(size=(200, 3)) + 3 * Y[:, None]
ONCE = Pmf({1: 1.0})
PUBLIC = (X[:20], Y[:20])
FILL = SimpleImputer(strategy="constant", fill_value=0.0, keep_empty_features=True)


def classifier(**changes: Any) -> DPSGDClassifier:
    return DPSGDClassifier(
        **{"hidden": (), "bounds": (-5, 8), "epochs": 2, "batch_size": 50, "device": "cpu", "classes": (0, 1)} | changes
    )


def search(estimator: Any = None, **changes: Any) -> PrivateSearch:
    estimator = classifier() if estimator is None else estimator
    name = "learning_rate" if hasattr(estimator, "learning_rate") else f"{estimator.steps[-1][0]}__learning_rate"
    arguments = {"random_state": 1, "score_noise_multiplier": 2.0} | changes
    return PrivateSearch(estimator, {name: loguniform(0.1, 10)}, ONCE, **arguments)


PEOPLE = pd.DataFrame({"age": 40 + X[:, 0], "town": "here", "work": np.array(["office", "outside"])[Y]})
PEOPLE["since"] = pd.Timestamp("2020-01-01")
WORK = OneHotEncoder(categories=[["office", "outside"]], handle_unknown="ignore")
COLUMNS = ColumnTransformer(
    [
        ("numbers", make_pipeline(FILL, StandardScaler()), ["age"]),
        ("work", WORK, ["work"]),
        ("towns", OneHotEncoder(), ["town"]),
    ]
)


def test_a_pipeline_is_answered_by_every_step_that_learns_and_by_the_schema() -> None:
    pipeline = Pipeline([("columns", COLUMNS), ("norm", Normalizer()), ("dp", classifier())])
    with pytest.raises(TypeError) as caught:
        search(pipeline).fit(PEOPLE, Y)
    assert str(caught.value) == (
        "PrivateSearch takes a private estimator, alone or in Schema(...).pipeline(estimator).\n"
        "These steps learn from the records, and nothing makes that private:\n"
        "  'columns' > 'numbers' > 'simpleimputer' (SimpleImputer)\n"
        "  'columns' > 'numbers' > 'standardscaler' (StandardScaler)\n"
        "  'columns' > 'work' (OneHotEncoder)\n"
        "  'columns' > 'towns' (OneHotEncoder)\n"
        "Apply these to X before fit, if they treat each record by itself:\n"
        "  'norm' (Normalizer)\n"
        "Instead write, with ranges and categories from public knowledge:\n"
        "  Schema({\n"
        "      'age': (low, high),\n"
        '      \'town\': ["one", "other"],\n'
        "      'work': ['office', 'outside'],\n"
        "      'since': (low, high),  # a time: give a number instead, such as the days since some date\n"
        "  }).pipeline(DPSGDClassifier(...))"
    )


def test_the_answer_is_a_schema_that_works() -> None:
    with pytest.raises(TypeError) as caught:
        search(make_pipeline(COLUMNS, classifier())).fit(PEOPLE.drop(columns="since"), Y)
    written = str(caught.value).split("public knowledge:\n")[1].replace("...", "(), classes=(0, 1), epochs=1")
    names = {"Schema": Schema, "DPSGDClassifier": DPSGDClassifier, "low": 20, "high": 60}
    found = search(eval(written.strip(), names)).fit(PEOPLE, Y)
    assert found.predict(PEOPLE).shape == (200,)


class Inherits(Schema):
    """A schema whose ``transform`` learns from the records."""

    def transform(self, X: Any) -> Any:
        return scale(super().transform(X))


REFUSED: dict[str, Any] = {
    "learns": make_pipeline(StandardScaler(), classifier()),
    "a function": make_pipeline(FunctionTransformer(scale), classifier()),
    "no state": make_pipeline(Normalizer(), classifier()),
    "frozen": make_pipeline(FrozenEstimator(StandardScaler().fit(X)), classifier()),
    "in a union": make_pipeline(FeatureUnion([("a", Normalizer()), ("b", PCA(1))]), classifier()),
    "nested": make_pipeline(PCA(2), make_pipeline(FILL, classifier())),
    "behind a schema": make_pipeline(Schema({"a": (0, 1)}), PCA(1), classifier()),
    "before a schema": make_pipeline(PCA(1), Schema({"a": (0, 1)}).pipeline(classifier())),
    "a subclass of Schema": make_pipeline(Inherits({"a": (0, 1)}), classifier()),
    "alone": make_pipeline(classifier()),
}


@pytest.mark.parametrize("pipeline", REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("table", [X, pd.DataFrame(X, columns=["a", "b", "c"])], ids=["array", "frame"])
def test_every_other_step_is_refused(pipeline: Any, table: Any) -> None:
    message = r"takes a private estimator, alone or in Schema\(.*from public knowledge"
    with pytest.raises(TypeError, match=re.compile(message, re.DOTALL)):
        search(pipeline).fit(table, Y, holdout=(table, Y))


def test_one_message_names_steps_and_an_estimator_that_is_not_private() -> None:
    whole = make_pipeline(StandardScaler(), LogisticRegression())
    with pytest.raises(
        TypeError,
        match=r"(?s)'standardscaler'.* DPSGDClassifier\(bounds=\(low, high\).*does not state its privacy event",
    ):
        PrivateSearch(whole, {"logisticregression__C": [1.0]}, ONCE).fit(X, Y)


def test_a_space_over_the_schema_is_refused() -> None:
    pipeline = Schema({"age": (0, 100)}).pipeline(classifier())
    for name in ("schema__columns", "schema", "learning_rate"):
        with pytest.raises(ValueError, match=f"{name}', which is not a parameter of DPSGDClassifier"):
            PrivateSearch(pipeline, {name: [1]}, ONCE).fit(PEOPLE, Y)
    with pytest.raises(ValueError, match=r"by this name: write 'estimator__learning_rate'"):
        PrivateSearch(pipeline, {"learning_rate": [1]}, ONCE).fit(PEOPLE, Y)


def test_steps_around_a_search_are_refused() -> None:
    """They read every record first, and one that they cannot take fails the fit."""
    for around in (
        make_pipeline(StandardScaler(), search()),
        make_pipeline(FILL, make_pipeline(PCA(2), search())),
        make_pipeline(Normalizer(), search()),
    ):
        with pytest.raises(TypeError, match="Put a Schema inside"):
            around.fit(X, Y)
    make_pipeline("passthrough", search()).fit(X, Y)
    regressor = DPSGDRegressor((), epochs=1, batch_size=50, device="cpu", bounds=(-5, 8), target_bounds=(-5, 8))
    with pytest.raises(TypeError, match="transform X and y before fit"):
        TransformedTargetRegressor(search(regressor, error_bound=5.0), func=np.arcsinh, inverse_func=np.sinh).fit(
            X, X[:, 0]
        )


@pytest.mark.slow
def test_searches_inside_other_searches_work_and_say_what_they_cost() -> None:
    with pytest.warns(UserWarning, match="inside cross_validate: every fit is a search .* composition"):
        assert cross_val_score(search(), X, Y, cv=2).shape == (2,)
    with pytest.warns(UserWarning, match="inside GridSearchCV"):
        GridSearchCV(search(), {"delta": [1e-5, 1e-6]}, cv=2).fit(X, Y)


def test_a_journal_is_refused_under_clone_cross_validation_and_another_fit(tmp_path: Path) -> None:
    """With one journal every fold would be scored by the release of the first."""
    journal = tmp_path / "cv.db"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match=r"copy \(clone, cross-validation"):
            cross_val_score(search(journal=journal), X, Y, cv=2, error_score="raise")
    assert not journal.exists()
    copied = clone(search(journal=journal))
    with pytest.raises(ValueError, match="a journal holds one search"):
        pickle.loads(pickle.dumps(copied)).fit(X, Y)
    copied.set_params(journal=tmp_path / "own.db").fit(X, Y)
    with pytest.raises(ValueError, match="another fit would return that release again"):
        copied.fit(X, Y)
    first = search(journal=journal).fit(X, Y)
    resumed = search(journal=journal).fit(X, Y)  # a new process does this after it was killed
    assert first.best_params_ == resumed.best_params_


WORSE: dict[str, tuple[Any, Any]] = {
    "a label that is not declared": (X[0], 2),
    "a label of another type": (X[0], "two"),
    "no label": (X[0], None),
    "a label that is not a number": (X[0], np.nan),
    "a feature that is not a number": ([np.nan, 1, 2], 1),
    "an infinite feature": ([np.inf, -np.inf, 2], 0),
    "a feature that is a text": (["missing", 1, 2], 1),
    "a huge feature": ([1e300, 1, 2], 1),
}


@pytest.mark.filterwarnings("ignore:y does not have a numeric type")
@pytest.mark.parametrize(("row", "label"), WORSE.values(), ids=WORSE.keys())
@pytest.mark.parametrize("private", mostly_slow([True, False]))
def test_one_record_outside_the_domain_cannot_fail_a_search(row: Any, label: Any, private: bool) -> None:
    more = np.vstack([X.astype(object), np.array(row, dtype=object)]), np.append(Y.astype(object), label)
    if all(isinstance(value, int | float) for value in more[0].ravel()):
        more = more[0].astype(float), more[1]
    holdout = {} if private else {"holdout": PUBLIC}
    without = search(records=200).fit(X, Y, **holdout)
    found = search(records=200).fit(*more, **holdout)
    assert found.best_params_ == without.best_params_
    assert found.score(X, Y) > 0.7
    if label not in (0, 1):
        assert np.array_equal(found.decision_function(X), without.decision_function(X))
        assert found.best_score_ == without.best_score_


@pytest.mark.filterwarnings("ignore:target_bounds = None")
@pytest.mark.parametrize("target", [np.nan, np.inf, "a text", None])
def test_one_target_outside_the_domain_cannot_fail_a_regression(target: Any) -> None:
    regressor = DPSGDRegressor((), epochs=2, batch_size=50, device="cpu", bounds=(-5, 8))
    targets = np.append(X[:, 0].astype(object), target)
    found = search(regressor, error_bound=5.0, records=200).fit(np.vstack([X, X[:1]]), targets)
    without = search(regressor, error_bound=5.0, records=200).fit(X, X[:, 0])
    assert np.array_equal(found.predict(X), without.predict(X))


@pytest.mark.filterwarnings("ignore:target_bounds = None")
def test_a_regressors_score_is_in_the_metrics_own_units() -> None:
    regressor = DPSGDRegressor((), epochs=20, batch_size=50, device="cpu", bounds=(-5, 8), learning_rate=0.3)
    found = search(regressor, error_bound=5.0, score_noise_multiplier=0.1, random_state=2).fit(X, X[:, 0])
    errors = np.abs(found.predict(X) - X[:, 0])
    assert found.best_score_ == pytest.approx(-errors.mean(), abs=0.5)
    assert found.best_score_ < 0


@pytest.mark.filterwarnings("ignore:target_bounds = None", "ignore:A column-vector y")
@pytest.mark.parametrize("form", [lambda y: y[:, None], lambda y: pd.DataFrame({"y": y})], ids=["column", "frame"])
def test_a_column_of_targets_is_scored_as_the_targets(form: Any) -> None:
    """A column less a row of guesses is a table of all errors of all guesses, which one record moves by all of them."""
    regressor = DPSGDRegressor((), epochs=1, batch_size=50, device="cpu", bounds=(-5, 8))
    found = [search(regressor, error_bound=5.0).fit(X, y).best_score_ for y in (X[:, 0], form(X[:, 0]))]
    assert found[0] == found[1] is not None


def test_frames_with_categories_and_missing_values() -> None:
    frame = pd.DataFrame(
        {
            "age": np.where(RNG.random(200) < 0.1, np.nan, 40 + 10 * X[:, 0]),
            "work": pd.Categorical.from_codes(Y, ["office", "outside"]),
            "town": np.where(RNG.random(200) < 0.2, np.array(None), np.array(["a", "b"], dtype=object)[Y]),
        }
    )
    schema = Schema({"age": (0, 100), "work": ["office", "outside"], "town": ["a", "b"]})
    found = search(schema.pipeline(classifier(bounds=None))).fit(frame, Y)
    assert found.score(frame, Y) > 0.7
    assert found.n_features_in_ == 3
    assert found.feature_names_in_.tolist() == ["age", "work", "town"]
    assert found.predict(frame.iloc[:3]).shape == (3,)
