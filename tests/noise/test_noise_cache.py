"""A kept table is believed only if its digest says so."""

from __future__ import annotations

import os

import numpy as np
import pytest

from dphypo.noise import Table, table

SIGMA = 600.0


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DPHYPO_CACHE", str(tmp_path / "kept"))
    table.cache_clear()
    yield tmp_path / "kept"
    table.cache_clear()


def same(this: Table, that: Table) -> bool:
    return bool(np.array_equal(this.high, that.high) and np.array_equal(this.low, that.low))


def test_a_table_is_kept_and_read_again(folder, monkeypatch):
    built = table(SIGMA)
    (file,) = folder.iterdir()
    table.cache_clear()
    monkeypatch.setattr(Table, "build", None)  # reading needs no FLINT
    assert same(table(SIGMA), built)
    assert file.stat().st_size == 32 + 16 * len(built.high)


@pytest.mark.parametrize("damage", ["bit", "cut", "empty", "other"])
def test_a_damaged_file_is_built_again(folder, damage):
    built = table(SIGMA)
    (file,) = folder.iterdir()
    whole = bytearray(file.read_bytes())
    if damage == "bit":
        whole[5000] ^= 1
    elif damage == "cut":
        whole = whole[:-16]
    elif damage == "empty":
        whole = bytearray()
    else:  # the whole and undamaged file of another sigma
        table(SIGMA + 1)
        other = next(path for path in folder.iterdir() if path != file)
        whole = bytearray(other.read_bytes())
    file.write_bytes(whole)
    table.cache_clear()
    assert same(table(SIGMA), built)
    assert file.read_bytes()[:32] != bytes(whole[:32]) or damage in ("bit", "cut")
    table.cache_clear()
    assert same(table(SIGMA), built)


def test_where_nothing_can_be_written_tables_stay_in_memory(tmp_path, monkeypatch):
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("DPHYPO_CACHE", str(tmp_path / "a file"))
    table.cache_clear()
    assert table(SIGMA) is table(SIGMA)
    table.cache_clear()


def test_old_files_are_removed(folder):
    folder.mkdir()
    for number in range(12):
        path = folder / f"gaussian-old{number}"
        path.write_text("")
        os.utime(path, (number, number))
    table(SIGMA)
    assert len(list(folder.iterdir())) == 8
    assert (folder / "gaussian-old11").exists()
