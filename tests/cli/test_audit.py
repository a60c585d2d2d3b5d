"""dphypo audit: a training from a file, the verdict, the picture, and wrong names."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dphypo.cli.app import app

RUN = CliRunner()
TRAINING = """
import torch
from dphypo.integrations.torch import DPSGD

def declare():
    data = torch.randn(300, 4), torch.randint(2, (300,))
    return DPSGD(model=lambda: torch.nn.Linear(4, 2), data=data, score=lambda model: 0.0, epochs=2, batch_size=30,
                 learning_rate=0.5, noise_multiplier=2.0, device="cpu"), "and something else"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "my_training.py").write_text(TRAINING)
    return tmp_path / "my_training.py"


def test_a_training_is_audited_and_the_bound_is_drawn(file: Path, tmp_path: Path) -> None:
    picture = tmp_path / "bound.svg"
    done = RUN.invoke(app, ["audit", f"{file}:declare", "--canaries", "100", "--delta", "1e-3", "--out", str(picture)])
    assert done.exit_code == 0, done.output
    assert "the claim stands" in done.output
    assert "proven of any mechanism" in picture.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("declare", "give FILE.py:NAME"),
        ("nowhere.py:declare", "there is no file"),
        ("no_such_module_at_all:declare", "there is no module"),
        ("math:pi", "is not a DPSGD"),
    ],
)
def test_wrong_names_are_answered(name: str, words: str) -> None:
    done = RUN.invoke(app, ["audit", name])
    assert done.exit_code == 2
    assert words in " ".join(done.output.replace("│", " ").split())
