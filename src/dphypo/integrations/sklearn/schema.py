"""A public schema of a table: what must not be learnt from private records, given beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import Pipeline

from dphypo import _validate
from dphypo.integrations.record_hash import record_bytes
from dphypo.integrations.sklearn.table import Holds, holds, numbers


class Schema(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turns a frame into numbers by what is publicly known of its columns; it learns nothing from the records.

    A number is cut off at its range and mapped to [-1, 1]; one that is missing becomes 0. A category becomes one column
    of 0 and 1 for each value it may take; another value, or none, is 0 in all of them. Every value is read by itself,
    so that no record can make the others fail. Columns that the schema does not name are left out.

    Args:
        columns: for each column its range ``(low, high)``, or the list of its categories.

    >>> import pandas as pd
    >>> schema = Schema({"age": (20, 60), "work": ["office", "outside"]})
    >>> schema.fit_transform(pd.DataFrame({"age": [30, None], "work": ["outside", "at home"]}))
    array([[-0.5,  0. ,  1. ],
           [ 0. ,  0. ,  0. ]])
    >>> schema.get_feature_names_out().tolist()
    ['age', 'work=office', 'work=outside']
    """

    per_record = True

    def __init__(self, columns: Mapping[str, tuple[float, float] | Sequence[Any]]) -> None:
        self.columns = columns

    def pipeline(self, estimator: Any) -> Pipeline:
        """A pipeline of this schema and an estimator: its hyperparameters have the prefix ``estimator__``."""
        return Pipeline([("schema", self), ("estimator", estimator)])

    def fit(self, X: Any, y: Any = None) -> Schema:
        """Look at the names of the columns alone."""
        self._check(X)
        for name, given in self.columns.items():
            _check_type(name, given, holds(X[name]))
        self.feature_names_in_ = np.asarray(X.columns, dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        """A schema learns nothing: it needs no ``fit``, so that a release that was loaded can predict."""
        return True

    def _check(self, X: Any) -> None:
        if not isinstance(self.columns, Mapping) or not self.columns:
            raise _validate.fail("columns", self.columns, "give a dict of column names to ranges or categories")
        for name, given in self.columns.items():
            _check(name, given)
        if not hasattr(X, "columns"):
            raise TypeError(f"X is a {type(X).__name__}: a schema names columns, so give a frame (pandas.DataFrame)")
        if missing := [name for name in self.columns if name not in X.columns]:
            raise ValueError(f"the schema has a column {missing[0]!r} that is missing from X")

    def transform(self, X: Any) -> npt.NDArray[np.float64]:
        """The columns of the schema, in its order, as numbers."""
        self._check(X)
        parts = [_encoded(X[name], given) for name, given in self.columns.items()]
        return np.concatenate(parts, axis=1)

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[Any]:
        """A name for each column that comes out."""
        names = []
        for name, given in self.columns.items():
            names += [name] if isinstance(given, tuple) else [f"{name}={value}" for value in given]
        return np.asarray(names, dtype=object)


def _check(name: str, given: Any) -> None:
    where = f"columns[{name!r}]"
    if isinstance(given, tuple):
        if len(given) != 2 or not _validate.number(low=given[0]) < _validate.number(high=given[1]):
            raise _validate.fail(where, given, "give (low, high), low below high, or a list of categories")
        return
    if isinstance(given, str) or not hasattr(given, "__len__") or len(given) == 0:
        raise _validate.fail(where, given, "give a range (low, high), or a list of categories")
    values = list(given)
    if len(set(record_bytes(values))) < len(values):
        raise _validate.fail(where, given, "a category is listed twice")
    if len(values) == 2 and all(isinstance(one, int | float) for one in values) and abs(values[1] - values[0]) != 1:
        low, high = sorted(values)
        remedy = f"a list is of categories: for a range write ({low}, {high}); for two categories ['{low}', '{high}']"
        raise _validate.fail(where, given, remedy)


def _check_type(name: str, given: Any, kind: Holds) -> None:
    """Refuse what the type of a column contradicts: all its values would count as missing."""
    if kind is Holds.TIMES:
        raise TypeError(f"column {name!r} holds times: give a number in its place, such as the days since a date")
    if kind is Holds.NUMBERS and not isinstance(given, tuple):
        words = [value for value in given if not np.isfinite(float(numbers([value])[0]))]
        if len(words) == len(given):
            raise ValueError(f"column {name!r} holds numbers, and its categories {list(given)!r} are none")


def _encoded(values: Any, given: Any) -> npt.NDArray[np.float64]:
    if isinstance(given, tuple):
        low, high = given
        found = np.asarray(numbers(values), dtype=np.float64)
        return np.asarray(np.nan_to_num(2 * (np.clip(found, low, high) - low) / (high - low) - 1))[:, None]
    place = {label: index for index, label in enumerate(record_bytes(list(given)))}
    table = np.zeros((len(values), len(given)))
    for row, label in enumerate(record_bytes(values)):
        if label in place:
            table[row, place[label]] = 1.0
    return table
