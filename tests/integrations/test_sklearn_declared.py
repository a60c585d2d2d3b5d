"""What would spend ε on nothing is refused, or warned of, by public types and declarations, before the first run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dphypo
from dphypo.laws import Pmf
from dphypo.sklearn import DPSGDClassifier, DPSGDRegressor, PrivateSearch, Schema
from dphypo.torch import runs

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
    monkeypatch.setattr(DPSGDClassifier, "mechanism", never)
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


@pytest.mark.parametrize("bounds", [100, (100, 0), (0, 50, 100), ("low", "high"), (0, np.nan)])
def test_bounds_that_are_no_range_are_named(bounds: Any) -> None:
    with pytest.raises(ValueError, match=r"^target_bounds = .* give \(low, high\), two numbers, low below high"):
        search(DPSGDRegressor(**SMALL, bounds=(0, 100), target_bounds=bounds)).fit(AGES, PEOPLE["age"])
    with pytest.raises(ValueError, match=r"^bounds = .* give \(low, high\), numbers or one per column"):
        search(classifier(bounds=bounds)).fit(AGES, Y)


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
        ({"work": ("office", "outside")}, r"columns\['work'\] = .* give categories as a list"),
        ({"work": {"office", "outside"}}, "a set has no order"),
        ({"since": ("2020-01-01", "2021-01-01")}, r"columns\['since'\] = .* of two numbers"),
        ({"since": (pd.Timestamp(2020, 1, 1), pd.Timestamp(2021, 1, 1))}, "days since some date"),
        ({"height": (1, 2)}, "column 'height' that is missing from X"),
    ],
)
def test_schemas_that_say_something_else_than_was_meant_are_refused(columns: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Schema(columns).fit(PEOPLE)
    with pytest.raises((TypeError, ValueError), match=message):
        search(Schema(columns).pipeline(classifier())).fit(PEOPLE, Y)


def test_a_constant_for_no_column_and_a_column_given_twice_are_refused() -> None:
    with pytest.raises(ValueError, match=r"missing = 0 is not valid: give a constant for each column, .*\{'age': 0\}"):
        Schema({"age": (18, 90)}, missing=0).fit(PEOPLE)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="X has several columns 'age'"):
        Schema({"age": (18, 90)}).fit(pd.concat([PEOPLE, AGES], axis=1))


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


def test_a_network_that_cannot_be_built_is_refused_before_anything_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "train", never)
    with pytest.raises(ValueError, match="hidden = 0 is not valid"):
        search(classifier(hidden=(0,))).fit(AGES, Y)


def test_a_scorer_is_rehearsed_on_the_public_records() -> None:
    def raises(estimator: Any, X: Any, y: Any) -> float:
        raise RuntimeError("three classes")

    with pytest.raises(ValueError, match=r"scoring raises RuntimeError on the public records.*: three classes"):
        search(classifier(), scoring=raises).fit(AGES, Y, holdout=(AGES[:10], Y[:10]))


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


def test_the_curator_is_told_of_columns_that_are_not_as_the_schema_says(capsys: pytest.CaptureFixture[str]) -> None:
    frame = pd.DataFrame({"age": [30, 40, None] * 100, "sex": ["f", "m", "m"] * 100, "work": ["a", "b", None] * 100})
    schema = Schema({"age": (20, 60), "sex": ["female", "male"], "work": ["a", "b"]})
    assert schema.outside(frame) == ["sex"]
    assert Schema({"age": (45, 60)}).outside(frame) == ["age"]
    search = PrivateSearch(schema.pipeline(DPSGDClassifier(hidden=(), classes=(0, 1), epochs=1)), epsilon=8, delta=1e-4)
    search.fit(frame, np.array([0, 1, 1] * 100))
    assert "SECRET, for the curator alone: most values of 'sex' are outside" in capsys.readouterr().err
    search.set_params(progress=False).fit(frame, np.array([0, 1, 1] * 100))
    assert "SECRET" not in capsys.readouterr().err
