"""Models as bytes: they come back as they were, and nothing of them is a pickle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dphypo.errors import UnsupportedModelError
from dphypo.mechanisms import Plain

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
MODELS = st.recursive(
    LEAVES, lambda x: st.lists(x) | st.lists(x).map(tuple) | st.dictionaries(st.text(), x), max_leaves=12
)


@given(MODELS)
def test_plain_models_come_back_as_they_were(model):
    def kinds(value):
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
        return [type(value), *map(kinds, inner)]

    again = Plain().load(Plain().dump(model))
    assert again == model
    assert kinds(again) == kinds(model)


@pytest.mark.parametrize(
    "array",
    [np.arange(6.0).reshape(2, 3), np.float32([1, 2]), np.array("x"), np.int8(3), np.zeros((0, 4)), np.array([True])],
)
def test_arrays_come_back_as_they_were(array):
    again = Plain().load(Plain().dump({"a": [array]}))["a"][0]
    assert again.dtype == array.dtype
    assert again.shape == array.shape
    assert type(again) is type(array)
    assert np.array_equal(again, array)


@pytest.mark.parametrize("model", [object(), {1: 2}, {"a": {1, 2}}, np.array([object()]), print, b"bytes"])
def test_what_would_need_pickle_is_refused(model):
    with pytest.raises(UnsupportedModelError):
        Plain().dump(model)


def test_saved_bytes_hold_no_time_and_no_pickle(monkeypatch):
    first = Plain().dump({"w": np.arange(4.0)})
    monkeypatch.setattr("time.time", lambda: 2e9)
    assert Plain().dump({"w": np.arange(4.0)}) == first
    with pytest.raises(ValueError, match="the model cannot be read"):
        Plain().load(_with_object_array())


def _with_object_array() -> bytes:
    """An archive like ours in which an array is a pickle, as an attacker would write it."""
    import io
    import zipfile

    member = io.BytesIO()
    np.lib.format.write_array(member, np.array([{}], dtype=object), allow_pickle=True)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("tree.json", '["array", 0]')
        file.writestr("0.npy", member.getvalue())
    return archive.getvalue()
