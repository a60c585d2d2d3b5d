"""Archives that nobody vouches for: a clear error, and no memory that they ask for without holding it."""

from __future__ import annotations

import io
import json
import random
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest

from dphypo.mechanisms import Plain

MODEL = Plain().dump({"weights": np.arange(100.0), "name": ["a", ("b", 3)]})


def archive(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name.replace("_", "."), content)
    return buffer.getvalue()


def npy(header: str, content: bytes = b"") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content


TREE = json.dumps(["array", 0]).encode()
HOSTILE = {
    "no archive": b"PK" + b"\0" * 50,
    "nothing": b"",
    "no tree": archive(**{"0_npy": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (0,), }")}),
    "no array": archive(tree_json=TREE),
    "no JSON": archive(tree_json=b"{"),
    "a deep tree": archive(tree_json=b"[" * 100_000),
    "another kind": archive(tree_json=b'["array", "x"]'),
    "an empty list": archive(tree_json=b"[]"),
    "a huge shape": archive(
        tree_json=TREE, **{"0_npy": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (4000000000,), }")}
    ),
    "a negative shape": archive(
        tree_json=TREE, **{"0_npy": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }", b"\0" * 8)}
    ),
    "objects": archive(tree_json=TREE, **{"0_npy": npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }")}),
    "code": archive(tree_json=TREE, **{"0_npy": npy("__import__('os').system('true')")}),
    "compressed zeros": archive(tree_json=TREE, **{"0_npy": b"\0" * 50_000_000}),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_model_is_a_clear_error_and_costs_no_memory(kind):
    tracemalloc.start()
    with pytest.raises(ValueError, match="the model cannot be read"):
        Plain().load(HOSTILE[kind])
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()


def test_a_model_with_damage_anywhere_is_read_or_refused():
    rng = random.Random(3)
    for _ in range(500):
        data = bytearray(MODEL)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            Plain().load(bytes(data[: rng.randint(1, len(data))]) if rng.random() < 0.3 else bytes(data))
        except ValueError as error:
            assert "the model cannot be read" in str(error)  # noqa: PT017
