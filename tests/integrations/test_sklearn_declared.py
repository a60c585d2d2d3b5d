"""What would spend ε on nothing is refused, or warned of, by public types and declarations, before the first run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import dphypo
from dphypo.integrations.sklearn import DPSGDClassifier, DPSGDRegressor, PrivateSearch, Schema, per_record, saver_for
from dphypo.laws import Pmf

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, 100)
PEOPLE = pd.DataFrame(
    {
        "age": 40 + 10 * RNG.normal(size=100) + 5 * Y,
        "work": np.array(["office", "outside"])[Y],
        "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(100), "D"),
    }
)
AGES = PEOPLE[["age"]]
SMALL: dict[str, Any] = {"hidden": (), "epochs": 1, "batch_size": 20, "device": "cpu", "noise_multiplier": 3.0}


def never(*_: Any) -> None:
    raise AssertionError("a run was made")


def search(estimator: Any, space: Any = None, **changes: Any) -> PrivateSearch:
    name = "learning_rate" if hasattr(estimator, "learning_rate") else "estimator__learning_rate"
    options: dict[str, Any] = {"score_noise_multiplier": 2.0, "error_bound": 10.0} | changes
    return PrivateSearch(estimator, space or {name: [0.1]}, Pmf({1: 1.0}), **options)


def _with(step: Any) -> Pipeline:
    return Pipeline([("step", step), ("estimator", classifier())])


def classifier(**changes: Any) -> DPSGDClassifier:
    return DPSGDClassifier(**SMALL | {"bounds": (0, 100), "classes": (0, 1)} | changes)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (np.array(["no", "yes"])[Y], (0, 1)),
        (pd.Series(np.array(["no", "yes"])[Y]), (0, 1)),
        (pd.Series(np.array(["no", "yes"])[Y]).astype("category"), (0, 1)),
        (Y, ("no", "yes")),
        (Y == 1, ("no", "yes")),
    ],
)
def test_labels_of_another_type_than_the_classes_are_refused(
    labels: Any, classes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DPSGDClassifier, "_train", never)
    with pytest.raises(ValueError, match=r"classes = .* such records would be left out"):
        search(classifier(classes=classes)).fit(AGES, labels)


def test_labels_of_no_type_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="whose label is none of the classes"):
        search(classifier()).fit(AGES, pd.Series(Y).astype(object))
    for labels, classes in ((Y.astype(str), ("0", "1")), (Y, ("0", "1")), (Y == 1, (0, 1)), (Y.astype(float), (0, 1))):
        assert search(classifier(classes=classes)).fit(AGES, labels).predict(AGES).shape == (100,)


def test_a_regressor_without_bounds_of_its_target_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"target_bounds=\(low, high\)"):
        search(DPSGDRegressor(**SMALL, bounds=(0, 100))).fit(AGES, PEOPLE["age"])
    search(DPSGDRegressor(**SMALL, bounds=(0, 100), target_bounds=(0, 100))).fit(AGES, PEOPLE["age"])


def test_columns_of_times_are_refused_where_numbers_are_asked_for() -> None:
    with pytest.raises(TypeError, match="column 'since' holds times: give a number"):
        search(classifier()).fit(PEOPLE[["age", "since"]], Y)
    with pytest.raises(TypeError, match="column 'since' holds times"):
        search(Schema({"since": (0, 1)}).pipeline(classifier())).fit(PEOPLE, Y)
    with pytest.raises(TypeError, match="column 'since' holds times"):
        search(make_pipeline(FunctionTransformer(np.tanh), classifier()), {"dpsgdclassifier__epochs": [1]}).fit(
            PEOPLE, Y
        )
    days = per_record(
        lambda rows: rows.assign(since=(rows["since"] - pd.Timestamp("2020-01-01")).dt.days)[["age", "since"]]
    )
    search(make_pipeline(FunctionTransformer(days), classifier()), {"dpsgdclassifier__epochs": [1]}).fit(PEOPLE, Y)


def test_columns_of_texts_are_warned_of_where_numbers_are_asked_for() -> None:
    with pytest.warns(UserWarning, match="column 'work' is not of a type of numbers"):
        search(classifier()).fit(PEOPLE[["age", "work"]], Y)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"age": [18, 100]}, r"for a range write \(18, 100\); for two categories \['18', '100'\]"),
        ({"work": ["office", "outside", "office"]}, "listed twice"),
        ({"age": [1, "1", 2]}, "listed twice"),
        ({"age": ["young", "old"]}, "column 'age' holds numbers, and its categories"),
        ({"since": ["2020-01-01"]}, "holds times"),
        ({"age": (60, 20)}, "low below high"),
        ({"work": ("office", "outside")}, "low = 'office'"),
        ({"height": (1, 2)}, "column 'height' that is missing from X"),
    ],
)
def test_schemas_that_say_something_else_than_was_meant_are_refused(columns: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Schema(columns).fit(PEOPLE)
    with pytest.raises((TypeError, ValueError), match=message):
        search(Schema(columns).pipeline(classifier())).fit(PEOPLE, Y)


@pytest.mark.parametrize(
    "columns", [{"age": [0, 1]}, {"age": ["18", "100"]}, {"age": [18, 50, 100]}, {"age": (0, 9.5)}]
)
def test_schemas_that_mean_what_they_say_are_accepted(columns: Any) -> None:
    assert Schema(columns).fit(PEOPLE).transform(PEOPLE).shape[0] == 100


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    schema = Schema({"age": (18, 90), "work": ["office", "outside"]})
    found = search(schema.pipeline(classifier(bounds=None)), data_name="people of 2020").fit(PEOPLE, Y)
    folder: Path = found.release_.save(tmp_path_factory.mktemp("release") / "people")
    return folder


def test_a_release_is_loaded_with_the_schema_that_was_searched_and_no_other(saved: Path) -> None:
    schema = Schema({"age": (18, 90), "work": ["office", "outside"]})
    loaded = dphypo.load_release(saved, model=schema.pipeline(classifier(bounds=None, learning_rate=9.0)))
    assert loaded.model.predict(PEOPLE).shape == (100,)
    others = [
        (
            Schema({"age": (0, 50), "work": ["office", "outside"]}),
            {"bounds": None},
            r"age'\] = \[0, 50\] .* \[18, 90\]",
        ),
        (Schema({"age": (18, 90), "work": ["outside", "office"]}), {"bounds": None}, "work"),
        (Schema({"age": (18, 90)}), {"bounds": None}, "work"),
        (schema, {"bounds": (0, 1)}, r"bounds = \[0, 1\]"),
        (schema, {"bounds": None, "classes": (1, 0)}, "classes"),
    ]
    for other, changes, message in others:
        with pytest.raises(ValueError, match=message):
            dphypo.load_release(saved, model=other.pipeline(classifier(**changes)))
    with pytest.raises(ValueError, match="schema"):
        dphypo.load_release(saved, model=classifier(bounds=None))


def test_settings_of_every_kind_of_step_are_compared() -> None:
    def pipeline(step: Any) -> Any:
        return make_pipeline(step, classifier())

    def fitted(at: float) -> FrozenEstimator:
        return FrozenEstimator(StandardScaler().fit([[0.0], [at]]))

    def encoder(*labels: str) -> OneHotEncoder:
        return OneHotEncoder(categories=[labels], handle_unknown="ignore")

    pairs: list[tuple[Any, Any]] = [
        (fitted(1.0), fitted(2.0)),
        (encoder("a", "b"), encoder("a", "c")),
        (FunctionTransformer(np.tanh), FunctionTransformer(np.sinh)),
        (FunctionTransformer(per_record(np.tanh)), FunctionTransformer(per_record(np.sinh))),
    ]
    for one, other in pairs:
        model = pipeline(one)
        model.steps[-1] = (model.steps[-1][0], classifier().fit(AGES, Y))
        data = saver_for(pipeline(one)).dump(model)
        assert saver_for(pipeline(one)).load(data) is not None
        with pytest.raises(ValueError, match="that was searched"):
            saver_for(pipeline(other)).load(data)


def test_the_name_of_the_data_is_in_the_certificate(saved: Path) -> None:
    certificate = dphypo.load_release(saved, model=_searched()).certificate
    assert certificate.to_dict()["data_set"] == "people of 2020"


@pytest.mark.slow
def test_the_name_of_the_data_is_in_the_certificate_of_a_survey() -> None:
    found = PrivateSearch(
        classifier(), {"learning_rate": [0.1]}, epsilon=3.0, survey=2, data_name="people of 2020", random_state=1
    ).fit(AGES, Y, holdout=(AGES, Y))
    assert found.certificate_.to_dict()["data_set"] == "people of 2020"


def _searched() -> Any:
    return Schema({"age": (18, 90), "work": ["office", "outside"]}).pipeline(classifier(bounds=None))
