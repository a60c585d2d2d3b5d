"""Arrays from an ``.npz`` archive that nobody vouches for: clear errors, no code, and no more memory than stated."""

from __future__ import annotations

import math
import zipfile
from typing import IO, Any

import numpy as np
import numpy.typing as npt


def read(archive: zipfile.ZipFile, name: str, *, limit: int) -> npt.NDArray[Any]:
    """The array ``name`` of an archive, if it needs at most ``limit`` bytes; ValueError if it is not what it says.

    numpy allocates what a header asks for before it reads a byte, so the header is compared with the bytes first.
    """
    problem = None
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
    except (ValueError, TypeError, OverflowError, EOFError, OSError, zipfile.BadZipFile, NotImplementedError) as error:
        problem = f"it cannot be read ({type(error).__name__}: {error!s:.100})"
    except (MemoryError, RecursionError, SyntaxError, RuntimeError) as error:
        problem = f"it is damaged ({type(error).__name__})"
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
