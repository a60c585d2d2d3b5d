"""dphypo audit: a training from a file, the verdict, the picture, and wrong names."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dphypo.cli import app

RUN = CliRunner()
SURE = ("--confidence", "0.999999")  # false alarms: 1e-6
TRAINING = """
import torch
from dphypo.torch import DPSGD

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
    done = RUN.invoke(
        app, ["audit", f"{file}:declare", "--canaries", "100", "--delta", "1e-3", *SURE, "--out", str(picture)]
    )
    assert done.exit_code == 0, done.output
    assert "the claim stands" in done.output
    assert "proven of any mechanism" in picture.read_text(encoding="utf-8")


LOOP = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from dphypo.mechanisms import OwnTraining, SampledGaussian

def train(params, *, seed, run):
    torch.manual_seed(0)
    net, data = torch.nn.Linear(4, 2), TensorDataset(torch.randn(300, 4), torch.randint(2, (300,)))
    optimizer = torch.optim.SGD(net.parameters(), lr=params["lr"])
    with run.make_private(net, optimizer, DataLoader(data, batch_size=30), max_grad_norm=1.0) as (model, step, loader):
        for inputs, labels in loader:
            step.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            step.step()
    return net, 0.0

run = SampledGaussian.of(records=300, batch_size=30, epochs=2, noise_multiplier=2.0)
training = OwnTraining(train, run, scores="public")
"""
JAX = """
import jax.numpy as jnp, numpy as np
from dphypo.jax import DPSGD

data = np.random.default_rng(0).normal(size=(300, 4)), np.arange(300) % 2
training = DPSGD(init=lambda key: jnp.zeros((4, 2)), predict=lambda weights, inputs: inputs @ weights, data=data,
                 score=lambda model: 0.0, epochs=2, batch_size=30, learning_rate=0.5, noise_multiplier=2.0)
"""


@pytest.mark.parametrize(
    ("text", "more"), [(LOOP, ["--public", "--param", "lr=0.5"]), (JAX, [])], ids=["own loop", "jax"]
)
@pytest.mark.filterwarnings("ignore:.*backward hook:UserWarning", "ignore::FutureWarning")
def test_loops_of_ones_own_and_jax_are_audited(text: str, more: list[str], tmp_path: Path) -> None:
    pytest.importorskip("opacus" if text is LOOP else "jax")
    (tmp_path / "other_training.py").write_text(text)
    name = f"{tmp_path / 'other_training.py'}:training"
    done = RUN.invoke(app, ["audit", name, "--canaries", "100", "--delta", "1e-3", *SURE, *more])
    assert done.exit_code == 0, done.output
    assert "the claim stands" in done.output
    asked = ["--param", "steps"] if text is LOOP else ["--canaries", "301"]
    wrong = RUN.invoke(app, ["audit", name, "--canaries", "100", *asked])
    assert wrong.exit_code == 2
    said = " ".join(wrong.output.replace("│", " ").split())
    assert ("give NAME=VALUE" in said) if text is LOOP else ("300 records are declared" in said)


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
