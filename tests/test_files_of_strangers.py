"""Files of strangers are read with care; ours are written whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from dphypo import _files
from dphypo.errors import FileError


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
    with pytest.raises(FileNotFoundError, match=r"no folder .*none: create it first"):
        _files.write(tmp_path / "none" / "it.json", b"{}")


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir], ids=["a pipe", "a folder"])
def test_only_files_are_replaced(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Renaming a file over /dev/null, as a superuser may, would break the machine."""
    target = tmp_path / "it"
    make(target)
    with pytest.raises(FileExistsError, match="it is not a regular file: give another name"):
        _files.write(target, b"one")
    assert not target.is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["it"]


@pytest.mark.parametrize("name", ["x" * 256, "x" * 300])
def test_errors_name_the_file_and_not_the_temporary_one(tmp_path: Path, name: str) -> None:
    with pytest.raises(OSError, match="too long") as caught:
        _files.write(tmp_path / name, b"one")
    assert caught.value.filename == str(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def link_to_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


def with_holes(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


KINDS = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a link to an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a link to a pipe": link_to_pipe,
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link out of the folder": lambda path: path.symlink_to("/etc/hostname"),
    "too large": lambda path: path.write_bytes(b" " * 1001),
    "a large file with holes": with_holes,
    "nothing": lambda path: None,
}


@pytest.mark.parametrize("kind", KINDS)
def test_only_regular_files_of_bounded_size_are_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "it\x1b[31m"
    KINDS[kind](path)
    with pytest.raises(FileError, match=r"it\\x1b\[31m") as caught:
        _files.read(path, "key", most=1000, within=tmp_path)
    assert isinstance(caught.value, FileNotFoundError) == (kind == "nothing")
    assert "key" in str(caught.value)


def test_links_within_the_folder_and_files_that_are_named_are_read(tmp_path: Path) -> None:
    (tmp_path / "it").write_bytes(b"one")
    (tmp_path / "link").symlink_to("it")
    assert _files.read(tmp_path / "link", within=tmp_path) == b"one"
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to("../it")
    assert _files.read(tmp_path / "folder" / "link") == b"one"


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "", "it/it", "\ud800"])
def test_names_that_no_file_has_are_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "it").write_bytes(b"one")
    with pytest.raises(FileError):
        _files.read(tmp_path / name)


def test_a_folder_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b"
    with pytest.raises(OSError, match=r"nothing was written to .*/b: .*too long. Free space"):
        _files.write_folder(target, {"one": b"1", "2" * 300: b"2"})
    assert not target.exists()
    target.mkdir()
    with pytest.raises(OSError, match="nothing was written"):
        _files.write_folder(target, {"one": b"1", "2" * 300: b"2"})
    assert list(target.iterdir()) == []
    _files.write_folder(target, {"one": b"1", "two": b"2"})
    with pytest.raises(FileExistsError, match="is not empty: give a new folder"):
        _files.write_folder(target, {"three": b"3"})


def test_a_file_may_have_the_longest_name_that_the_system_allows(tmp_path: Path) -> None:
    for name in ("a" * 255, "ä" * 127):
        assert _files.write(tmp_path / name, b"content").read_bytes() == b"content"
