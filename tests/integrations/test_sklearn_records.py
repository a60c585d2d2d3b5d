"""Records meet the steps of a pipeline one by one: none decides whether a run fails, or what becomes of another."""

from __future__ import annotations

import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import loguniform
from sklearn.linear_model import LogisticRegression

from dphypo.laws import Pmf
from dphypo.sklearn import DPSGDClassifier, DPSGDRegressor, PrivateSearch, Schema
from dphypo.sklearn.estimators import FittedEstimator, difference, network, outputs_of, to_unit
from dphypo.sklearn.schema import Holds, holds, numbers
from dphypo.training.scores import PrivateAccuracy, PrivateLoss

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, 60)
X = RNG.normal(size=(60, 3)) + 3 * Y[:, None]
FRAME = pd.DataFrame({"age": 40 + 10 * X[:, 0], "work": np.array(["office", "outside"])[Y]})
SCHEMAS: dict[str, Any] = {
    "both": Schema({"age": (20, 60), "work": ["office", "outside"]}),
    "with a constant": Schema({"age": (20, 60)}, missing={"age": 30}),
    "ages as categories": Schema({"age": ["30", "40"], "work": ["office", 7]}),
}
BAD_ROWS = [[np.nan, 1, 2], [np.inf, 1, 2], [-np.inf, 0, 0], ["text", 1, 2], [None, 1, 2], [1e308, 1e308, 1e308]]
BAD_PEOPLE: list[tuple[Any, Any]] = [
    (np.nan, "office"),
    (np.inf, "office"),
    (30, "at home"),
    (30, None),
    (30, np.nan),
    ("old", "office"),
]
BAD_PEOPLE += [(None, 7), ([1, 2], {"a": 1})]


def classifier(**changes: Any) -> DPSGDClassifier:
    fixed = {"hidden": (), "classes": (0, 1), "epochs": 1, "batch_size": 20, "device": "cpu", "noise_multiplier": 3.0}
    return DPSGDClassifier(**fixed | changes)


def read(schema: Schema | None, table: Any, labels: Any, **changes: Any) -> tuple[Any, Any]:
    return classifier(**changes).read(table if schema is None else schema.transform(table), labels)


def with_row(row: list[Any], place: int) -> Any:
    rows = [*X.tolist()]
    rows.insert(place, row)
    array = np.empty((len(rows), 3), dtype=object)
    for number, values in enumerate(rows):
        array[number] = values
    numeric = all(isinstance(value, int | float) for value in row)
    return array.astype(float) if numeric else array


def with_person(age: Any, work: Any, place: int) -> pd.DataFrame:
    people = FRAME.to_dict("records")
    people.insert(place, {"age": age, "work": work})
    return pd.DataFrame(people)


@pytest.mark.parametrize("place", [0, 60])
@pytest.mark.parametrize("row", BAD_ROWS, ids=str)
def test_what_becomes_of_a_record_does_not_depend_on_another(row: Any, place: int) -> None:
    alone, labels = read(None, X, Y)
    found, targets = read(None, with_row(row, place), np.insert(Y, place, 1))
    assert len(found) == len(alone) + 1
    found, targets = np.delete(found, place, 0), np.delete(targets, place)
    assert found.tobytes() == alone.tobytes()
    assert np.array_equal(targets, labels)


@pytest.mark.parametrize("person", BAD_PEOPLE, ids=str)
@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_what_becomes_of_a_person_does_not_depend_on_one_that_is_not_as_declared(schema: Any, person: Any) -> None:
    alone, _ = read(schema, FRAME, Y)
    found, _ = read(schema, with_person(*person, 0), np.insert(Y, 0, 1))
    assert len(found) == len(alone) + 1 == len(FRAME) + 1
    assert found[1:].tobytes() == alone.tobytes()


def test_a_side_without_records_is_no_error() -> None:
    found, targets = read(None, X[:0], Y[:0].astype(float))
    assert (found.shape, targets.shape) == ((0, 3), (0,))
    found, targets = read(SCHEMAS["both"], FRAME[:0], Y[:0])
    assert (found.shape, targets.shape) == ((0, 3), (0,))


@pytest.mark.parametrize("row", [["text", 1.0, 2.0], [1j, 1.0, 2.0], [b"1", 1.0, 2.0], [None, 1.0, 2.0]], ids=str)
def test_one_value_in_a_list_changes_no_other(row: list[Any]) -> None:
    """numpy makes texts of all values where one is a text: True is then no number, and others have other digits."""
    rows: list[Any] = [[True, np.float32(0.1), 2**60 + 1], [False, 1e-7, 3]]
    for values, more in ((rows, row), ([one[0] for one in rows] + [np.float32(0.1)], row[0])):
        alone = np.asarray(numbers(values), dtype=np.float64)
        found = np.asarray(numbers([*values, more]), dtype=np.float64)
        assert found[:-1].tobytes() == alone.tobytes()


def test_values_are_read_by_their_type_and_one_by_one() -> None:
    days = np.array(["2024-01-01"], dtype="datetime64[D]")
    kinds = [holds(np.array(["a"])), holds(np.array([1.5])), holds(days)]
    assert kinds == [Holds.TEXTS, Holds.NUMBERS, Holds.TIMES]
    assert np.array_equal(numbers([["1.5", 2], [None, "two"]]), [[1.5, 2.0], [np.nan, np.nan]], equal_nan=True)
    scaled = to_unit([[0.0, 5.0, 30.0, np.nan]], bounds=(0, 20))
    assert (scaled.tolist(), scaled.dtype) == ([[-1.0, -0.5, 1.0, 0.0]], np.float32)


def test_the_first_difference_of_two_descriptions_is_named() -> None:
    found = difference({"schema": {"columns": {"age": [18, 90]}}}, {"schema": {"columns": {"age": [0, 50]}}})
    assert found == ("schema['columns']['age']", "[18, 90]", "[0, 50]")
    assert difference({"a": [1]}, {"a": [1]}) is None


@pytest.mark.filterwarnings("ignore:target_bounds = None")
def test_one_target_in_a_list_changes_no_other() -> None:
    regressor = DPSGDRegressor(device="cpu")
    targets = [True, np.float32(0.1), 0.5]
    alone = regressor.check_data(X[:3], targets)[1]
    assert regressor.check_data(X[:4], [*targets, "text"])[1][:3].tobytes() == alone.tobytes()


VALUE = st.one_of(st.floats(), st.integers(-3, 3), st.none(), st.text(max_size=2), st.booleans(), st.just([1]))


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(st.tuples(VALUE, VALUE), min_size=2, max_size=9),
    schema=st.sampled_from(list(SCHEMAS)),
    without=st.integers(0, 8),
)
def test_taking_a_record_out_changes_no_other(rows: list[Any], schema: str, without: int) -> None:
    """Whatever the records are: each other record is left out as before, or is the same to the bit."""
    whole = pd.DataFrame(rows, columns=["age", "work"], dtype=object)
    place = without % len(rows)
    labels = np.arange(len(rows))  # the targets tell which records are left

    def kept(frame: pd.DataFrame, targets: Any) -> dict[int, bytes]:
        table, left = read(SCHEMAS[schema], frame, targets, classes=range(9))
        return {int(target): row.tobytes() for target, row in zip(left, table, strict=True)}

    first = kept(whole, labels)
    second = kept(whole.drop(index=place), np.delete(labels, place))
    first.pop(place, None)
    assert first == second


def test_every_record_may_be_left_out() -> None:
    """A search on a table of which nothing is left releases something: one more record would decide otherwise."""
    labels = np.full(20, np.nan)
    found = PrivateSearch(classifier(), {"learning_rate": [0.1]}, Pmf({1: 1.0})).fit(X[:20], labels, holdout=(X, Y))
    assert found.predict(X).shape == (60,)


@pytest.mark.parametrize("private", [True, False], ids=["private", "public"])
def test_one_record_turns_no_release_into_an_exception(private: bool) -> None:
    pipeline = SCHEMAS["both"].pipeline(classifier())
    holdout = {} if private else {"holdout": (FRAME, Y)}

    def search(table: Any, labels: Any) -> Any:
        options = {"random_state": 1, "records": 60, "score_noise_multiplier": 2.0}
        space = {"estimator__learning_rate": loguniform(0.1, 10)}
        return PrivateSearch(pipeline, space, Pmf({1: 1.0}), **options).fit(table, labels, **holdout)

    without, found = search(FRAME, Y), search(with_person([1, 2], {"a": 1}, 5), np.insert(Y.astype(float), 5, np.nan))
    assert found.best_params_ == without.best_params_
    assert np.array_equal(found.decision_function(FRAME), without.decision_function(FRAME))
    assert found.best_score_ == without.best_score_


def test_a_released_schema_holds_nothing_of_the_records() -> None:
    def released(frame: pd.DataFrame) -> bytes:
        search = PrivateSearch(
            SCHEMAS["both"].pipeline(classifier()), {"estimator__epochs": [1]}, Pmf({1: 1.0}), random_state=1
        )
        holdout = (FRAME, Y)
        return pickle.dumps(search.fit(frame, np.resize(Y, len(frame)), holdout=holdout).best_estimator_[:-1])

    assert released(FRAME) == released(FRAME.iloc[:7]) == released(with_person(1e9, "office", 3))


def test_a_list_of_rows_is_a_table() -> None:
    alone, labels = read(None, X, Y)
    found, targets = read(None, X.tolist(), Y)
    assert found.tobytes() == alone.tobytes()
    assert np.array_equal(targets, labels)


def test_hidden_layers_are_followed_by_rectifiers() -> None:
    model = network(3, (16, 8), 2)
    assert [type(layer).__name__ for layer in model] == ["Linear", "ReLU", "Linear", "ReLU", "Linear"]
    found = outputs_of(model, X.astype(np.float32))
    assert found == pytest.approx(model(torch.from_numpy(X).float()).detach().numpy(), rel=1e-5, abs=1e-5)


def test_a_private_score_is_a_ratio_of_whole_numbers() -> None:
    """A float Gaussian would show the count in its last bits."""
    for seed in range(5):
        found = PrivateSearch(
            classifier(bounds=(-5, 8)), {"learning_rate": [0.5]}, Pmf({1: 1.0}), random_state=seed, records=60
        )
        with pytest.warns(UserWarning, match="noise of the score"):
            found.fit(X, Y)
        assert found.best_score_ == float(Fraction(found.best_score_).limit_denominator(200))


def regressor() -> DPSGDRegressor:
    return DPSGDRegressor(hidden=(), bounds=(-5, 8), target_bounds=(-10, 10), device="cpu").fit(X, X[:, 0])


def error_of(fitted: Any, data: Any) -> float:
    return -PrivateLoss(data, 1e-6, bound=20.0, records=60)(FittedEstimator(fitted), seed=1)


def test_a_regressor_that_gives_no_numbers_is_not_the_best() -> None:
    """An error that is not a number would count as none."""
    fitted = regressor()
    fitted.model_[0].bias.data[:] = np.nan
    assert error_of(fitted, (X, X[:, 0])) == pytest.approx(20.0, abs=1e-3)


def test_an_estimator_is_scored_as_it_predicts() -> None:
    fitted = regressor()
    assert error_of(fitted, (X, X[:, 0])) == pytest.approx(np.abs(fitted.predict(X) - X[:, 0]).mean(), rel=1e-4)
    assert error_of(fitted, (X[:0], X[:0, 0])) == pytest.approx(0.0, abs=1e-3), (
        "no record decides whether a score fails"
    )
    pipeline = SCHEMAS["both"].pipeline(classifier()).fit(FRAME, Y)
    score = PrivateAccuracy((FRAME, np.where(np.arange(60) < 20, 7, Y)), 1e-6, records=60)
    right = (pipeline.predict(FRAME) == Y)[20:].mean()  # a label that is not declared counts for nothing
    assert score(FittedEstimator(pipeline), seed=1) == pytest.approx(right, abs=1e-9)
    with pytest.raises(TypeError, match="model is a LogisticRegression"):
        score(LogisticRegression(), seed=1)
