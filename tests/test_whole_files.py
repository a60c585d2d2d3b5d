"""Files are written whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dphypo import _files


def test_a_file_is_replaced_and_has_the_mode_asked_for(tmp_path: Path) -> None:
    target = tmp_path / "it"
    _files.write(target, b"one")
    assert _files.write(target, "zwölf".encode(), mode=0o600) == target
    assert target.read_text(encoding="utf-8") == "zwölf"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["it"]


def test_what_goes_wrong_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = _files.write(tmp_path / "it", b"one")

    def full(*arguments: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", full)
        with pytest.raises(OSError, match="no space left"):
            _files.write(target, b"two")
    assert target.read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["it"]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no folder '.*none': make it first"):
        _files.write_json(tmp_path / "none" / "it.json", {"a": 1})
