"""Records that are left out: the curator is told on a terminal, and nothing else depends on how many they are."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import dphypo
from dphypo.entropy import Seeded
from dphypo.torch import DPSGD
from dphypo.torch.data import as_records

COUNT = 40


class Photos(Dataset[Any]):
    """Pictures of one size, or none of them of that size."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return torch.full((1, self.size, self.size), index / COUNT), index % 2


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 2))


def dpsgd(size: int = 4, model: Any = linear, **changes: Any) -> DPSGD:
    made: dict[str, Any] = {"data": Photos(size), "example": (torch.zeros(1, 4, 4), 0), "score": lambda model: 0.5}
    more = {"noise_multiplier": 1.0, "epochs": 1, "batch_size": 10, "device": "cpu"}
    return DPSGD(model=model, **{**made, **more, **changes})


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def searched(
    size: int, screen: io.StringIO, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, list[str], Any]:
    monkeypatch.setattr(sys, "stderr", screen)
    space, once = dphypo.Space({"learning_rate": [0.1]}), dphypo.Pmf({1: 1.0})
    study = dphypo.Study(space, dpsgd(size), once, delta=1e-5, journal=folder / "journal.db", entropy=Seeded(1))
    release = study.run()
    files = sorted(path.name for path in folder.iterdir())
    return screen.getvalue(), files, release.certificate.document


def test_only_the_screen_of_the_curator_tells_how_many_records_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for size in (4, 5):
        for screen in (Terminal(), io.StringIO()):
            folder = tmp_path / f"{size}-{screen.isatty()}"
            folder.mkdir()
            found[size, screen.isatty()] = searched(size, screen, folder, monkeypatch)
    monkeypatch.undo()
    for size, fit in ((4, COUNT), (5, 0)):
        line = f"SECRET, for the curator alone: {fit} of the {COUNT} records given to train fit the declaration"
        assert line in found[size, True][0]
        assert "SECRET" not in found[size, False][0]  # a log, a pipe, a notebook
    assert len({str(rest[1:]) for rest in found.values()}) == 1  # the same files and the same certificate
    assert found[4, False][0] == found[5, False][0]


PROGRAM = """
import sys
from pathlib import Path

import dphypo
from dphypo.entropy import Seeded
from integrations.test_torch_lost_records import dpsgd


def broken(model):
    raise ValueError("a mistake in the score")


size, kind = int(sys.argv[1]), sys.argv[2]
train = dpsgd(size, **({"score": broken} if kind == "broken" else {}))
if kind == "private":
    train = dpsgd(size, score="accuracy").at(score_noise_multiplier=1e6)
space, once = dphypo.Space({"learning_rate": [0.1]}), dphypo.Pmf({1: 1.0})
release = dphypo.Study(space, train, once, delta=1e-5, journal="journal.db", entropy=Seeded(1)).run()
release.save("release")
Path("certificate.txt").write_text(release.certificate.statement())
print(release.params, release.ending, release.certificate.statement())
"""


def programmed(size: int, kind: str, folder: Path, *, terminal: bool) -> dict[str, Any]:
    """What anybody can see of a program but the model and its noisy score, which are released with a guarantee."""
    folder.mkdir()
    shown, screen = pty.openpty() if terminal else os.pipe()
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(size), kind]
    place = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"}
    with subprocess.Popen(command, cwd=folder, env=place, stdout=subprocess.PIPE, stderr=screen, text=True) as running:
        os.close(screen)
        said = b""
        with contextlib.suppress(OSError):  # a terminal that is closed
            while part := os.read(shown, 2**16):
                said += part
        printed = running.communicate()[0]
    os.close(shown)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\d+:\d\d:\d\d", "", said.decode())  # colours, and the time of a bar
    lines = sorted({line.strip() for line in plain.splitlines()})  # a bar is drawn again and again
    files = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    texts = {path.name: path.read_text() for path in folder.rglob("*") if path.suffix in (".txt", ".json")}
    hidden = re.compile(r'"(model_sha256|described_sha256|score)": [^,\n]*')
    texts = {name: hidden.sub("", text) for name, text in texts.items()}
    return {"code": running.returncode, "printed": printed, "lines": lines, "files": files, "texts": texts}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "terminal"), [("", False), ("", True), ("private", True), ("broken", False)])
def test_a_program_ends_alike_whether_all_records_fit_or_none(kind: str, terminal: bool, tmp_path: Path) -> None:
    all_, none = (programmed(size, kind, tmp_path / str(size), terminal=terminal) for size in (4, 5))
    secret = [[line for line in one["lines"] if "SECRET" in line] for one in (all_, none)]
    assert [len(lines) for lines in secret] == [int(terminal)] * 2
    assert (secret[0] != secret[1]) == terminal
    for one in (all_, none):
        one["lines"] = [line for line in one["lines"] if "SECRET" not in line]
    assert all_ == none
    assert all_["code"] == (1 if kind == "broken" else 0)
    assert len(all_["lines"]) > 0


def test_a_count_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: DPSGD, space: Any) -> Any:
        raise RuntimeError("a record")

    monkeypatch.setattr(DPSGD, "fitting_records", broken)
    assert "a record" not in searched(4, Terminal(), tmp_path, monkeypatch)[0]


OTHER = {"example": (torch.zeros(1, 5, 5), 0)}


@pytest.mark.parametrize(("changes", "fit"), [({}, COUNT), ({"size": 5}, 0), (OTHER, 0)])
def test_the_curator_can_ask_before_a_search(changes: Any, fit: int) -> None:
    model = nn.Linear(25, 2) if "example" in changes else nn.Linear(16, 2)
    made = dpsgd(**{"model": lambda: nn.Sequential(nn.Flatten(), model), **changes})
    assert made.fitting_records() == {"train": (fit, COUNT)}
    scored = dpsgd(score="accuracy", **{"model": lambda: nn.Sequential(nn.Flatten(), model), **changes})
    (trains, trained), (scores, given) = scored.fitting_records().values()
    assert (trains + scores, trained + given) == (fit, COUNT)
    assert given > 0


def test_lengths_that_vary_by_declaration_are_warned_of() -> None:
    datasets = pytest.importorskip("datasets")
    texts = datasets.Dataset.from_dict({"input": [[0.0, 1.0]] * 8, "labels": [0, 1] * 4})
    example = {"input": [0.0, 0.0], "labels": 0}
    changes: dict[str, Any] = {"model": lambda: nn.Linear(2, 2), "example": example, "batch_size": 4}
    with pytest.warns(UserWarning, match="declares that lengths of 'input' vary"):
        dpsgd(data=texts, **changes)
    numbers = datasets.List(datasets.Value("float32"), length=2)
    fixed = datasets.Features({"input": numbers, "labels": datasets.Value("int64")})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dpsgd(data=texts.cast(fixed), **changes)
    with pytest.warns(UserWarning, match="lengths of 'input' vary"):
        assert as_records(texts, example).fields is not None
