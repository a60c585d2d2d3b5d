"""Files. Readers return the content or raise a ``FileError``, whatever a file holds; writers are atomic."""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from dphypo._validate import printable
from dphypo.errors import FileError

T = TypeVar("T")
Json: TypeAlias = Mapping[str, Any]
"""A JSON object."""
MOST_BYTES, MOST_MODEL_BYTES, MOST_TABLE_BYTES = 4_000_000, 2**34, 2**28
"""Of a document, of a saved model, and of the tables of surveys."""
_MOST_DIGITS = 25  # of a whole number


class _MissingFileError(FileError, FileNotFoundError):
    """A ``FileError`` that ``except FileNotFoundError`` catches too."""


def read(
    path: str | os.PathLike[str], what: str = "file", *, most: int = MOST_BYTES, within: Path | None = None
) -> bytes:
    """Return the bytes of a regular file, or raise a ``FileError`` that names it and ``what`` it should be.

    It may have at most ``most`` bytes. A link may lead to another regular file, but not out of the folder ``within``.
    """
    shown, found = printable(path), Path(path)
    try:
        if within is not None and not Path(os.path.realpath(found)).is_relative_to(os.path.realpath(within)):
            raise FileError(f"{shown}: the {what} is a link to a file outside of its folder")
        if not stat.S_ISREG(os.stat(found).st_mode):  # checked before opening, which may block or start a device
            raise FileError(f"{shown}: the {what} is not a regular file")
        descriptor = os.open(found, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            opened = os.fstat(descriptor)
            if not stat.S_ISREG(opened.st_mode):
                raise FileError(f"{shown}: the {what} is not a regular file")
            content = b"" if opened.st_size > most else file.read(opened.st_size + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise _MissingFileError(f"there is no {what} at {shown}") from None
    except OSError as error:
        raise FileError(f"{shown}: the {what} cannot be read ({error.strerror})") from None
    except ValueError as error:  # a name with a null character, or one that no file can have
        raise error if isinstance(error, FileError) else FileError(f"{shown}: no file can have this name") from None
    if opened.st_size > most or len(content) > opened.st_size:
        raise FileError(f"{shown}: the {what} is larger than {most} bytes, or grows")
    return content


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Whether there is a folder of this name. A name that no file can have is not one."""
    try:
        return Path(path).is_dir()
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def parsing(path: str | os.PathLike[str], wrong: str) -> Iterator[None]:
    """Convert whatever a parser raises in this block to a ``FileError``, except for a missing package.

    Parsers raise their own errors, such as ``zlib.error`` and ``SafetensorError``.
    """
    try:
        yield
    except (FileError, ImportError):
        raise
    except Exception as error:
        problem = f"{wrong} ({type(error).__name__}: {printable(error, 200)})"
    else:
        return
    raise FileError(f"{printable(path)}: {problem}")


def parsed(
    parse: Callable[[bytes], T],
    path: str | os.PathLike[str],
    what: str,
    *,
    wrong: str,
    most: int = MOST_BYTES,
    within: Path | None = None,
) -> T:
    """Parse the bytes of a file, read as by :func:`read`; raise a ``FileError`` if ``parse`` raises anything.

    ``wrong`` says what the file is not, such as "it is not JSON".
    """
    content = read(path, what, most=most, within=within)
    with parsing(path, wrong):
        return parse(content)
    raise AssertionError  # parsing raises, or the block returns


def read_json(path: Path, what: str, *, most: int = MOST_BYTES, within: Path | None = None) -> Any:
    """The JSON value in a file of at most ``most`` bytes; no link leads out of the folder ``within``."""
    return parsed(_from_json, path, what, wrong="it is not JSON", most=most, within=within)


def _from_json(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_once, parse_int=_integer, parse_constant=_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object without repeated names: other readers might use the first of two values, and we the second."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise FileError(f"{printable(repr(name))} is stated twice")
        found[name] = value
    return found


def _integer(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise FileError(f"the number {printable(text, 20)} is too long")
    return int(text)


def _constant(text: str) -> float:
    raise FileError(f"{text} is not JSON")


def read_array(archive: zipfile.ZipFile, name: str, *, limit: int) -> npt.NDArray[Any]:
    """Read the array ``name`` of an archive; a ValueError if it is damaged, or needs more than ``limit`` bytes.

    numpy allocates what a header asks for before it reads a byte, so the header is compared with the bytes first.
    """
    try:
        found = archive.getinfo(f"{name}.npy")
        if found.file_size > limit:
            problem = f"it needs {found.file_size} bytes, and at most {limit} are allowed"
        else:
            with archive.open(found) as member:
                _check_header(member, found.file_size)
            with archive.open(found) as member:
                return np.asarray(np.lib.format.read_array(member, allow_pickle=False))
    except KeyError:
        problem = "it is missing"
    except Exception as error:  # numpy, zipfile and zlib raise many kinds on damaged bytes
        problem = f"it cannot be read ({type(error).__name__}: {error!s:.100})"
    raise ValueError(f"the array {name!r} of the archive is not valid: {problem}")


def _check_header(member: IO[bytes], size: int) -> None:
    version = np.lib.format.read_magic(member)
    if version not in ((1, 0), (2, 0)):
        raise ValueError("an unknown version")
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = header(member)
    if dtype.hasobject or any(length < 0 for length in shape):
        raise ValueError("it holds objects, which are pickles, or a negative length")
    if math.prod(shape) * dtype.itemsize != size - member.tell():
        raise ValueError("the header does not match the bytes")


@contextlib.contextmanager
def writing(path: str | os.PathLike[str], mode: int = 0o644) -> Iterator[IO[bytes]]:
    """Yield a file for the new content of ``path``, which replaces the old content when the block ends without error.

    A link is replaced by a file. A folder, a device or a pipe is not replaced. Errors name ``path``, and not the
    temporary file.

    Raises:
        FileNotFoundError: there is no such folder.
        FileExistsError: the path is a folder, a device or a pipe.
    """
    target, name = Path(path), None
    if not is_folder(target.parent):
        raise FileNotFoundError(f"there is no folder {printable(target.parent)}: create it first")
    try:
        if target.exists() and not target.is_file():
            raise FileExistsError(f"{printable(target)} is not a regular file: give another name")
        short = target.name if len(os.fsencode(target.name)) <= 240 else target.name[:40]  # it must fit into 255 bytes
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{short}.")
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(name, mode)
        os.replace(name, target)
    except BaseException as error:
        if name is not None:
            Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.strerror is not None:
            raise OSError(error.errno, error.strerror, str(target)) from None
        raise


def write(path: str | os.PathLike[str], content: bytes, mode: int = 0o644) -> Path:
    """Write or replace a file. If anything goes wrong, the old content stays."""
    with writing(path, mode) as file:
        file.write(content)
    return Path(path)


def refuse_inside_a_release(path: Path) -> None:
    """Refuse to add a file to the folder of a saved release: its certificate covers the folder as it is."""
    if (path.parent / "release.json").exists():
        raise ValueError(
            f"{printable(path)} lies in the folder of a saved release, and with one more file the release does not "
            "verify: give a name outside it"
        )


def to_json(document: Any) -> bytes:
    """A document as indented JSON."""
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def _holds(path: Path, content: bytes) -> bool:
    return path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content


def write_folder(folder: str | os.PathLike[str], files: Mapping[str, bytes]) -> Path:
    """Write files into a new or empty folder, in order; if anything goes wrong, remove them all.

    A folder that holds exactly these files is left as it is.
    """
    target = Path(folder)
    made = not target.exists()
    target.mkdir(parents=True, exist_ok=True)
    if found := list(target.iterdir()):
        if {one.name for one in found} == files.keys() and all(_holds(one, files[one.name]) for one in found):
            return target
        raise FileExistsError(f"{printable(target)} is not empty: give a new folder")
    written: list[Path] = []
    try:
        for name, content in files.items():
            written.append(write(target / name, content))
    except BaseException as error:
        with contextlib.suppress(OSError):
            for one in written:
                one.unlink()
            if made:
                target.rmdir()
        if isinstance(error, OSError):
            raise OSError(
                error.errno, f"nothing was written to {printable(target)}: {error.strerror}. Free space and try again"
            ) from None
        raise
    return target
