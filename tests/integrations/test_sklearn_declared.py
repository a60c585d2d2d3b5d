"""What would spend ε on nothing is refused, or warned of, by public types and declarations, before the first run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import OneHotEncoder

import dphypo
from dphypo.laws import Pmf
from dphypo.sklearn import DPSGDClassifier, DPSGDRegressor, PrivateSearch, Schema
from dphypo.sklearn.schema import made_up

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
        (Y, ("0", "1")),
        (Y.astype(float), ("0", "1")),
        (Y.astype(str), (0, 1)),
    ],
)
def test_labels_of_another_type_than_the_classes_are_refused(
    labels: Any, classes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DPSGDClassifier, "_train", never)
    with pytest.raises(ValueError, match=r"classes = .* such records would be left out"):
        search(classifier(classes=classes)).fit(AGES, labels)


def test_labels_of_no_type_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="whose label is not among the classes"):
        search(classifier()).fit(AGES, pd.Series(Y).astype(object))
    for labels, classes in ((Y.astype(str), ("0", "1")), (Y == 1, (0, 1)), (Y.astype(float), (0, 1))):
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


def test_columns_of_texts_are_warned_of_where_numbers_are_asked_for() -> None:
    with pytest.warns(UserWarning, match="column 'work' does not have a numeric type"):
        search(classifier()).fit(PEOPLE[["age", "work"]], Y)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"age": [18, 100]}, r"for a range write \(18, 100\); for two categories \['18', '100'\]"),
        ({"work": ["office", "outside", "office"]}, "listed twice"),
        ({"age": [1, "1", 2]}, "listed twice"),
        ({"age": ["young", "old"]}, "column 'age' holds numbers, but none of its categories"),
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


def test_a_release_is_not_loaded_with_another_constant_for_missing_values(tmp_path: Path) -> None:
    def pipeline(**missing: float) -> Any:
        return Schema({"age": (18, 90)}, missing=missing or None).pipeline(classifier(bounds=None))

    folder = search(pipeline(age=30)).fit(PEOPLE, Y).release_.save(tmp_path / "release")
    assert dphypo.load_release(folder, model=pipeline(age=30)).model is not None
    with pytest.raises(ValueError, match=r"missing'\]\['age'\] = 40 differs from the 30"):
        dphypo.load_release(folder, model=pipeline(age=40))


def test_missing_numbers_become_the_declared_constant() -> None:
    frame = pd.DataFrame({"age": [18.0, None, "old", np.inf]})
    assert Schema({"age": (18, 90)}).transform(frame)[:, 0].tolist() == [-1.0, 0.0, 0.0, 1.0]
    assert Schema({"age": (18, 90)}, missing={"age": 90}).transform(frame)[:, 0].tolist() == [-1.0, 1.0, 1.0, 1.0]
    for missing in ({"work": 1.0}, {"height": 1.0}, {"age": "old"}):
        with pytest.raises(ValueError, match="missing"):
            Schema({"age": (18, 90), "work": ["office", "outside"]}, missing=missing).fit(PEOPLE)  # type: ignore[arg-type]


class Encodes(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Encodes texts when it is fitted, and raises in ``predict`` on a table that also has numbers."""

    def __init__(self, classes: Any = None, random_state: int | None = None) -> None:
        self.classes, self.random_state = classes, random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def privacy_event(self, params: Any, *, records: int) -> Any:
        return dphypo.accounting.PureDp(1.0)

    def fit(self, X: Any, y: Any) -> Encodes:
        spent.append(len(y))
        self.encoder_ = OneHotEncoder(categories=[["office", "outside"], [0, 1]]).fit(
            pd.DataFrame({"work": ["office"], "children": [0]}).astype(object)
        )
        self.classes_ = np.array([0, 1])
        return self

    def predict(self, X: Any) -> Any:
        return (self.encoder_.transform(X) @ np.ones(4) > 0).astype(int)


spent: list[int] = []


def test_predict_is_rehearsed_before_anything_is_spent() -> None:
    """An encoder over a text and a whole number fitted, and raised when the release was to predict."""
    frame = pd.DataFrame({"work": ["office", "other"] * 50, "children": [0, 1] * 50})
    spent.clear()
    with pytest.raises(ValueError, match=r"Encodes: predict raises \w+ on made-up records .* after ε is spent"):
        search(Encodes(), {"classes": [(0, 1)]}).fit(frame, Y)
    assert spent == [24], "only the rehearsal was fitted"
    with pytest.raises(ValueError, match=r"fit raises .* made-up records"):
        search(classifier(hidden=(0,))).fit(AGES, Y)


def test_a_scorer_is_rehearsed_on_the_public_records() -> None:
    def raises(estimator: Any, X: Any, y: Any) -> float:
        raise RuntimeError("three classes")

    with pytest.raises(ValueError, match=r"scoring raises RuntimeError on the public records.*: three classes"):
        search(classifier(), scoring=raises).fit(AGES, Y, holdout=(AGES[:10], Y[:10]))


@pytest.mark.parametrize("kind", [float, "Int64", bool, "category", "string", object, "datetime64[ns]"])
def test_made_up_records_have_the_types_of_the_columns(kind: Any) -> None:
    frame = pd.DataFrame({"a": pd.Series([0, 1, 1]).astype(kind), "b": [0.5, 1, 2]})
    rows = made_up(frame, 24)
    assert rows.shape == (24, 2)
    assert rows.dtypes.tolist() == frame.dtypes.tolist()
    twice = frame.set_axis(["a", "a"], axis=1)
    assert made_up(twice, 3).columns.tolist() == ["a", "a"]


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
