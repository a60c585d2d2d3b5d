"""Every kind of file that the library reads, spoilt: its reader returns, or raises an error that names the file.

Parsers raise errors of their own on damaged bytes, such as ``zlib.error`` and ``SafetensorError``. No reader lets one
through, and none takes long.
"""

from __future__ import annotations

import io
import pickle
import random
import signal
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.report_world import study, surveyed_release

import dphypo
from dphypo.noise import tables
from dphypo.search.progress import CheckpointFile, LiveFile

WITHIN_S = 20
CHOICES = ("is not valid: give one of", "was saved in the format")  # of an argument that goes with the file
FLIPS = 25  # in each file; the slow test has more


def model() -> Any:
    import torch

    return torch.nn.Linear(3, 2)


def release(folder: Path) -> Path:
    return surveyed_release().save(folder / "release")


def torch_release(folder: Path) -> Path:
    torch_side = pytest.importorskip("dphypo.torch.saver", reason="needs PyTorch")
    made = surveyed_release()
    saver = torch_side.Safetensors(model)
    return dphypo.Release(made.params, model(), made.score, made.certificate, saver=saver).save(folder / "release")


def key(folder: Path) -> Path:
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization", reason="needs cryptography")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    path = folder / "private.pem"
    path.write_bytes(
        Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return path


def journal(folder: Path) -> Path:
    with study(1, folder / "study.db") as one:
        one.run(progress=False)
    return folder / "study.db"


def ledger(folder: Path) -> Path:
    book = dphypo.Ledger.open(folder / "ledger.db", epsilon=4.0, delta=1e-6)
    book.reserve(dphypo.account(dphypo.accounting.PureDp(0.1), dphypo.Geometric(mean=3)), name="one")
    return folder / "ledger.db"


def live(folder: Path) -> Path:
    LiveFile(folder / "tune.db-watch").update(cost="ε = 1", table={"rows": [], "maximize": True})
    return folder / "tune.db-watch"


def checkpoint(folder: Path) -> Path:
    CheckpointFile(folder / "point", 10).write(5, lambda file: file.write(b"state" * 100))
    return folder / "point"


def read_journal(path: Path) -> None:
    with dphypo.open_journal(path) as opened:
        assert opened.certificate is None or opened.certificate.epsilon > 0
        opened.curator().trials()


MADE: dict[str, tuple[Callable[[Path], Path], str, Callable[[Path], object]]] = {  # makes it, which file, reads it
    "certificate": (release, "certificate.json", dphypo.Certificate.load),
    "certificate in its folder": (release, "certificate.json", lambda path: bool(dphypo.verify(path.parent))),
    "description of a release": (release, "release.json", lambda path: dphypo.load_release(path.parent)),
    "tables": (release, "surveys.json", lambda path: dphypo.load_release(path.parent)),
    "model as npz": (release, "model.npz", lambda path: dphypo.load_release(path.parent)),
    "model as safetensors": (
        torch_release,
        "model.safetensors",
        lambda path: dphypo.load_release(path.parent, model=model),
    ),
    "key": (key, "", lambda path: surveyed_release_certificate().signed(path)),
    "journal": (journal, "", read_journal),
    "ledger": (ledger, "", lambda path: str(dphypo.Ledger(path))),
    "watched search": (live, "", lambda path: LiveFile(path).read()),
    "checkpoint": (checkpoint, "", lambda path: CheckpointFile(path, 10).steps),
}


def surveyed_release_certificate() -> dphypo.Certificate:
    return dphypo.account(dphypo.accounting.PureDp(0.1), dphypo.Geometric(mean=3)).certificate(1e-6)


def spoilt(good: bytes, flips: int) -> Iterator[tuple[str, bytes]]:
    """A file's content, spoilt in each way."""
    rng = random.Random(1)
    yield "empty", b""
    for part in (1, 8, len(good) // 2, len(good) - 1):
        yield f"its first {part} bytes", good[:part]
    for _ in range(flips):
        place, bit = rng.randrange(len(good)), rng.randrange(8)
        yield f"bit {bit} of byte {place}", good[:place] + bytes([good[place] ^ 1 << bit]) + good[place + 1 :]
    yield "a pickle", pickle.dumps({"weights": [1.0]})
    yield "more at its end", good + b"\0" * 100
    yield "random bytes", rng.randbytes(len(good))
    for text in ("null", "[]", "{}", '{"a": 1e999}', "[" * 100_000, '{"orders": [2], "epsilons": "x"}', "\ud800"):
        yield text[:20], text.encode("utf-8", "surrogatepass")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("tree.json", b" " * 10_000_000)
    yield "a zip archive of spaces", archive.getvalue()


def hangs(number: int, frame: object) -> None:
    raise AssertionError("it hangs")


def wrong(kind: str, folder: Path, flips: int) -> list[str]:
    """What a reader raises that is no error of ours, or does not name the file."""
    make, name, read = MADE[kind]
    path = make(folder) / name if name else make(folder)
    good, found = path.read_bytes(), []
    read(path)
    before = signal.signal(signal.SIGALRM, hangs)
    for how, content in spoilt(good, flips):
        path.write_bytes(content)
        signal.alarm(WITHIN_S)
        try:
            read(path)
        except Exception as error:
            ours = type(error).__module__.startswith("dphypo.errors") or any(words in str(error) for words in CHOICES)
            named = isinstance(error, dphypo.errors.JournalError) or path.name in str(error) or "release" in str(error)
            if not ours or not named:
                found.append(f"{how}: {error!r}")
        finally:
            signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    return found


@pytest.mark.parametrize("kind", MADE)
def test_a_spoilt_file_is_read_or_refused(kind: str, tmp_path: Path) -> None:
    assert wrong(kind, tmp_path, FLIPS) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", MADE)
def test_many_spoilt_files_are_read_or_refused(kind: str, tmp_path: Path) -> None:
    assert wrong(kind, tmp_path, 200) == []


def test_a_model_that_was_changed_in_one_bit_is_not_loaded(tmp_path: Path) -> None:
    """Weights parse whatever their bits are: the certificate has their hash."""
    folder = release(tmp_path)
    content = bytearray((folder / "model.npz").read_bytes())
    content[content.index(b"NUMPY") + 130] ^= 1
    (folder / "model.npz").write_bytes(content)
    with pytest.raises(dphypo.errors.FileError, match=r"model\.npz was damaged or replaced"):
        dphypo.load_release(folder)


def test_a_damaged_table_of_noise_is_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPHYPO_CACHE", str(tmp_path))
    tables.table.cache_clear()
    first = tables.table(300.0)
    for path in tmp_path.iterdir():
        for _, content in spoilt(path.read_bytes(), 3):
            path.write_bytes(content)
            tables.table.cache_clear()
            assert np.array_equal(tables.table(300.0).high, first.high)
