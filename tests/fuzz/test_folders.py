"""Release folders of strangers: read, or refused by an error that names the file; nothing hangs or fills the memory."""

from __future__ import annotations

import random
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from fuzz.folders import spoil

import dphypo
from dphypo import report as report_folder
from dphypo.accounting import Composition, PureDp
from dphypo.accounting.certificate import statement
from dphypo.accounting.composition import account_published
from dphypo.errors import FileError
from dphypo.search import Release
from dphypo.search.release import Row, SurveyTable

WITHIN_S = 20
CERTIFICATE = Composition.of(account_published(PureDp(0.5), 2)).certificate(1e-6)


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    table = SurveyTable((Row({"lr": 0.1}, 0.9), Row({"lr": 10.0}, None)))
    document = CERTIFICATE.to_dict()
    document["public"] |= {"released": [table.fingerprint()]}
    certificate = dphypo.Certificate(document | {"statement": statement(document)})
    made = Release({"lr": 0.1, "layers": (3, 4)}, {"w": [1.0, 2.0]}, 0.9, certificate, surveys=(table,))
    folder = made.save(tmp_path_factory.mktemp("good") / "release")
    assert (found := dphypo.verify(folder)), found
    return folder


def hangs(number: int, frame: object) -> None:
    raise AssertionError("it hangs")


def limited(act: Callable[[], object]) -> None:
    """At most so many seconds."""
    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(WITHIN_S)
    try:
        act()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def wrong_with(rng: random.Random, good: Path, folder: Path) -> str | None:
    """What a spoilt folder makes readers raise that is no error of ours; None if there is nothing."""
    target = folder / "spoilt"
    shutil.copytree(good, target)
    done = spoil(rng, target)
    found = None
    for act in (
        lambda: dphypo.load_release(target),
        lambda: bool(dphypo.verify(target)),
        lambda: report_folder.read_folder(target),
    ):
        try:
            limited(act)
        except FileError:
            pass
        except ValueError as error:  # the report's own: it does not verify; or a format that needs a saver
            if "does not verify" not in str(error) and "was saved in the format" not in str(error):
                found = f"{done}: {error!r}"
        except Exception as error:
            found = f"{done}: {error!r}"
    shutil.rmtree(target)
    return found


@pytest.fixture(autouse=True)
def _memory():
    """Endless files must not be read into memory."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    used = int(Path("/proc/self/status").read_text().split("VmData:")[1].split()[0]) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (used + 2**31, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, before)


def test_some_spoilt_folders_are_read_or_refused(good, tmp_path):
    rng = random.Random(1)
    assert [wrong for _ in range(8) if (wrong := wrong_with(rng, good, tmp_path)) is not None] == []


@pytest.mark.slow
def test_many_spoilt_folders_are_read_or_refused(good, tmp_path):
    rng = random.Random(2)
    assert [wrong for _ in range(500) if (wrong := wrong_with(rng, good, tmp_path)) is not None] == []
