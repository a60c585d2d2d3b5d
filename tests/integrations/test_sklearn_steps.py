"""Steps around a private estimator act on each record alone, no record fails a search, and a journal is not reused."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import loguniform
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_selector
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    QuantileTransformer,
    StandardScaler,
    scale,
)
from support.slow import mostly_slow

from dphypo.integrations.sklearn import DPSGDClassifier, DPSGDRegressor, PrivateSearch, per_record
from dphypo.integrations.sklearn.records import Prepared
from dphypo.laws import Pmf

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


class Centres(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Mixes records and says nothing about it."""

    def fit(self, X: Any, y: Any = None) -> Centres:
        self.fitted_ = True
        return self

    def transform(self, X: Any) -> Any:
        return X - np.asarray(X).mean(0)


class Claims(Centres):
    """Mixes records and says that it does not."""

    per_record = True
    transform = Centres.transform


class Doubles(Centres):
    """Says that it mixes none, and does not."""

    per_record = True

    def transform(self, X: Any) -> Any:
        return 2 * X


class Inherits(Doubles):
    """Mixes records, and inherits the word of a class that does not."""

    def transform(self, X: Any) -> Any:
        return X - np.asarray(X).mean(0)


def columns(step: Any, **options: Any) -> ColumnTransformer:
    options = {"remainder": "passthrough", "sparse_threshold": 0} | options
    return ColumnTransformer([("some", step, [0, 1])], **options)


def columns_by_data() -> ColumnTransformer:
    return ColumnTransformer([("a", FILL, make_column_selector())], sparse_threshold=0)


LEARNING: dict[str, Any] = {
    "StandardScaler": StandardScaler(),
    "MinMaxScaler": MinMaxScaler(),
    "PCA": PCA(2),
    "QuantileTransformer": QuantileTransformer(n_quantiles=5),
    "KNNImputer": KNNImputer(),
    "mean imputer": SimpleImputer(),
    "constant imputer that drops empty columns": SimpleImputer(strategy="constant", fill_value=0.0),
    "constant imputer with an indicator": clone(FILL).set_params(add_indicator=True),
    "constant imputer without a constant": clone(FILL).set_params(fill_value=None),
    "categories learnt": OneHotEncoder(),
    "ordinal categories learnt": OrdinalEncoder(),
    "one category fails": OneHotEncoder(categories=[[0, 1]] * 3),
    "FunctionTransformer(scale)": FunctionTransformer(scale),
    "FunctionTransformer(np.sort)": FunctionTransformer(np.sort, kw_args={"axis": 0}),
    "in a pipeline": make_pipeline(FILL, StandardScaler()),
    "in a union": FeatureUnion([("a", Normalizer()), ("b", PCA(1))]),
    "in columns": columns(StandardScaler()),
    "as remainder": columns(Normalizer(), remainder=StandardScaler()),
    "columns chosen by the data": columns_by_data(),
    "a class of one's own": Centres(),
    "a class that inherits": type("MyScaler", (StandardScaler,), {})(),
    "a declaration that is wrong": FunctionTransformer(per_record(scale)),
    "a declaration that is wrong, in columns": columns(FunctionTransformer(per_record(scale))),
    "a class that claims": Claims(),
    "a class that inherits a claim": Inherits(),
    "columns that learn whether they are sparse": columns(FILL, sparse_threshold=0.3),
}


@pytest.mark.parametrize("step", LEARNING.values(), ids=LEARNING.keys())
def test_steps_that_learn_from_the_records_are_refused(step: Any) -> None:
    with pytest.raises(TypeError, match="nothing makes that private"):
        search(make_pipeline(step, classifier())).fit(X, Y, holdout=PUBLIC)


ALONE: dict[str, Any] = {
    "identity": FunctionTransformer(),
    "ufunc": FunctionTransformer(np.tanh),
    "declared": FunctionTransformer(per_record(lambda rows: rows - rows.mean(axis=1, keepdims=True))),
    "a class that says so": Doubles(),
    "Normalizer": Normalizer(),
    "Binarizer": Binarizer(),
    "PolynomialFeatures": PolynomialFeatures(2),
    "constant imputer": FILL,
    "given categories": OneHotEncoder(categories=[[0, 1]] * 3, handle_unknown="ignore", sparse_output=False),
    "given order": OrdinalEncoder(categories=[[0, 1]] * 3, handle_unknown="use_encoded_value", unknown_value=-1),
    "given statistics": FrozenEstimator(StandardScaler().fit(X[:20])),
    "pipeline": make_pipeline(FILL, FunctionTransformer(np.tanh), "passthrough"),
    "columns": columns(make_pipeline(FILL, Normalizer()), remainder="drop"),
    "union": FeatureUnion([("a", Normalizer()), ("b", FILL)]),
}


@pytest.mark.parametrize("step", ALONE.values(), ids=ALONE.keys())
def test_steps_that_act_on_each_record_alone_are_accepted(step: Any) -> None:
    found = search(make_pipeline(step, classifier())).fit(X, Y, holdout=PUBLIC)
    assert found.predict(X).shape == (200,)


def test_a_function_that_says_nothing_is_refused_though_the_trial_sees_nothing() -> None:
    def mixes_many(rows: Any) -> Any:
        return rows / np.abs(rows).max() if len(rows) > 30 else rows  # the trial has fewer rows

    with pytest.raises(TypeError, match="may mix records"):
        search(make_pipeline(FunctionTransformer(mixes_many), classifier())).fit(X, Y, holdout=PUBLIC)


def try_steps(step: Any, X: Any) -> None:
    Prepared.of(make_pipeline(step, classifier()), X).try_out()


def test_without_the_trial_a_wrong_declaration_would_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant believes every declaration."""
    monkeypatch.setattr(Prepared, "try_out", lambda self: None)
    search(make_pipeline(FunctionTransformer(per_record(scale)), classifier())).fit(X, Y, holdout=PUBLIC)


def test_the_trial_looks_at_types_and_not_at_records() -> None:
    """Records that are all alike would hide a mean, and a record that fails would show itself."""
    alike = np.ones((50, 3))
    with pytest.raises(TypeError, match="other values when other records are beside it"):
        try_steps(FunctionTransformer(per_record(scale)), alike)
    frame = pd.DataFrame({"a": alike[:, 0], "b": "text"})
    mixing = ColumnTransformer([("a", FunctionTransformer(per_record(scale)), ["a"])], sparse_threshold=0)
    with pytest.raises(TypeError, match="other values"):
        try_steps(mixing, frame)
    twice = FunctionTransformer(per_record(lambda rows: rows.assign(c=rows["a"] * 2)))
    try_steps(twice, frame)
    try_steps(twice, frame.iloc[:0])  # there need not be any record


def numbers_in_a_text(rows: Any) -> Any:
    """As many columns as the first row has numbers; it raises on any other text."""
    return np.array([[float(part) for part in text.split(" ")] for text in rows["b"]])


def test_no_record_decides_how_many_columns_steps_make() -> None:
    """Where no made-up record is taken, the first private one that is decided which of the others are."""
    frame = pd.DataFrame({"b": ["1 2"] * 200})
    unknown = FunctionTransformer(per_record(numbers_in_a_text))
    with pytest.raises(TypeError, match="do not say how many columns they make"):
        search(make_pipeline(unknown, classifier())).fit(frame, Y, holdout=(frame, Y))
    declared = FunctionTransformer(per_record(numbers_in_a_text), feature_names_out=lambda step, names: ["one", "two"])
    found = []
    for first in ("1 2", "1 2 3", "text"):
        frame.loc[0, "b"] = first
        whole = search(make_pipeline(declared, classifier()))
        with pytest.warns(UserWarning, match="take none of the made-up records"):
            whole.fit(frame, Y, holdout=(frame[1:], Y[1:]))
        found.append(whole.decision_function(frame[1:]))
    assert len(found[0]) == 199
    assert np.array_equal(found[1], found[2])  # neither is taken


def test_steps_around_a_search_are_refused_and_inside_it_accepted() -> None:
    """Around it they see every record first, and one that they cannot take fails the fit."""
    for around in (
        make_pipeline(StandardScaler(), search()),
        make_pipeline(FILL, make_pipeline(PCA(2), search())),
        make_pipeline(Normalizer(), search()),
    ):
        with pytest.raises(TypeError, match="Put it inside"):
            around.fit(X, Y)
    make_pipeline("passthrough", search()).fit(X, Y)
    regressor = DPSGDRegressor((), epochs=1, batch_size=50, device="cpu", bounds=(-5, 8), target_bounds=(-5, 8))
    with pytest.raises(TypeError, match="Transform the targets first"):
        TransformedTargetRegressor(search(regressor, error_bound=5.0), func=np.arcsinh, inverse_func=np.sinh).fit(
            X, X[:, 0]
        )


@pytest.mark.slow
def test_searches_inside_other_searches_work_and_say_what_they_cost() -> None:
    with pytest.warns(UserWarning, match="inside cross_validate: every fit is a search .* composition"):
        assert cross_val_score(search(), X, Y, cv=2).shape == (2,)
    with pytest.warns(UserWarning, match="inside GridSearchCV"):
        GridSearchCV(search(), {"score_share": [0.2, 0.3]}, cv=2).fit(X, Y)


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
    with pytest.raises(ValueError, match="another fit would give that release again"):
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


@pytest.mark.filterwarnings("ignore:y is of no type of numbers")
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
    found = search(regressor, error_bound=5.0, score_noise_multiplier=0.1).fit(X, X[:, 0])
    errors = np.abs(found.predict(X) - X[:, 0])
    assert found.best_score_ == pytest.approx(-errors.mean(), abs=0.5)
    assert found.best_score_ < 0


@pytest.mark.filterwarnings("ignore:target_bounds = None", "ignore:A column-vector y")
@pytest.mark.parametrize("before", [(), (FILL,)], ids=["alone", "behind a step"])
@pytest.mark.parametrize("form", [lambda y: y[:, None], lambda y: pd.DataFrame({"y": y})], ids=["column", "frame"])
def test_a_column_of_targets_is_scored_as_the_targets(form: Any, before: Any) -> None:
    """A column less a row of guesses is a table of all errors of all guesses, which one record moves by all of them."""
    regressor = DPSGDRegressor((), epochs=1, batch_size=50, device="cpu", bounds=(-5, 8))
    whole = make_pipeline(*before, regressor)
    found = [search(whole, error_bound=5.0).fit(X, y).best_score_ for y in (X[:, 0], form(X[:, 0]))]
    assert found[0] == found[1] is not None


def test_frames_with_categories_and_missing_values() -> None:
    frame = pd.DataFrame(
        {
            "age": np.where(RNG.random(200) < 0.1, np.nan, 40 + 10 * X[:, 0]),
            "work": pd.Categorical.from_codes(Y, ["office", "outside"]),
            "town": np.where(RNG.random(200) < 0.2, np.array(None), np.array(["a", "b"], dtype=object)[Y]),
        }
    )
    encode = OneHotEncoder(categories=[["office", "outside"], ["a", "b"]], handle_unknown="ignore", sparse_output=False)
    before = ColumnTransformer([("numbers", FILL, ["age"]), ("words", encode, ["work", "town"])], sparse_threshold=0)
    found = search(make_pipeline(before, classifier(bounds=([0] + [0] * 4, [100] + [1] * 4)))).fit(frame, Y)
    assert found.score(frame, Y) > 0.7
    assert found.n_features_in_ == 3
    assert found.feature_names_in_.tolist() == ["age", "work", "town"]
    assert found.predict(frame.iloc[:3]).shape == (3,)
