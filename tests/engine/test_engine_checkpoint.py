"""A run that goes on from its state after any step ends in the bits of one that was not disturbed."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import dphypo
from dphypo.torch.engine import Program, Run, Setting, Tensors, train
from dphypo.torch.engine import run as engine

STEPS = 40  # more than are drawn ahead
KEPT = (1, 19, 33, STEPS - 1)


class Kept:
    """Keeps the state after some steps, and gives back one of them."""

    def __init__(self, given=None):
        self.given, self.states, self.made, self.paces = given, {}, [], []

    def begin(self, runs):
        self.paces = list(runs)
        return None if self.given is None else io.BytesIO(self.given)

    def step(self, made, state=None):
        self.made.append(made)
        if made in KEPT:
            file = io.BytesIO()
            state(file)
            self.states[made] = file.getvalue()

    def end(self):
        pass


def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def build():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, 3))


class Pairs:
    """Persons with two rows each."""

    def __init__(self, rows):
        self._rows = rows

    def __len__(self):
        return len(self._rows) // 2

    def views(self, numbers, valid, words):
        both = torch.stack([2 * numbers, 2 * numbers + 1], 1)
        inputs, targets, _ = self._rows.rows(both.flatten(), valid.repeat_interleave(2))
        return inputs, targets, valid[:, None].expand(-1, 2)


def trained(kept, *, setting=None, autocast=None, records=70, persons=False, **options):
    generator = torch.Generator().manual_seed(1)
    data = Tensors(torch.randn(records, 4, generator=generator), torch.randint(3, (records,), generator=generator))
    how = {"autocast": autocast, "views": 2 if persons else 1}
    program = Program.of(build(), loss, (torch.zeros(1, 4), torch.zeros(1, dtype=torch.int64)), **how)
    data = Pairs(data) if persons else data
    values = {"seed": 7, "learning_rate": 0.1, **options}
    run = Run(records=70, rate=0.3, steps=STEPS, batch_size=21, noise_multiplier=1.0, max_grad_norm=1.0, **values)
    (model,) = train(program, build, data, [run], setting, follower=kept)
    return torch.cat([value.detach().flatten() for value in model.parameters()])


OPTIONS = {
    "sgd": {},
    "momentum": {"options": {"momentum": 0.9, "nesterov": True}},
    "adam": {"optimizer": "adam", "learning_rate": 0.01, "options": {"amsgrad": True}},
    "adamw": {"optimizer": "adamw", "learning_rate": 0.01},
    "rmsprop": {"optimizer": "rmsprop", "learning_rate": 0.01, "options": {"centered": True, "momentum": 0.5}},
    "adagrad": {"optimizer": "adagrad", "options": {"lr_decay": 0.1}},
    "foreign": {"optimizer": "adamax", "learning_rate": 0.01},
    "last half": {"setting": Setting(average="last half")},
    "decay, physical batches": {"setting": Setting(average=0.9, physical_batch_size=32, clipping="normalise")},
    "schedule": {"schedule": lambda share: 1 - share, "options": {"momentum": 0.9}},
    "persons": {"persons": True},
    "autocast": {"autocast": torch.bfloat16, "options": {"momentum": 0.9}},
}


FAST = ("momentum", "adam", "foreign", "decay, physical batches", "persons", "autocast")


@pytest.mark.parametrize("name", [one if one in FAST else pytest.param(one, marks=pytest.mark.slow) for one in OPTIONS])
def test_a_run_that_goes_on_ends_in_the_same_bits(name):
    whole = Kept()
    expected = trained(whole, **OPTIONS[name])
    assert torch.equal(trained(None, **OPTIONS[name]), expected), "following changes nothing"
    for step in KEPT:
        resumed = Kept(whole.states[step])
        assert torch.equal(trained(resumed, **OPTIONS[name]), expected), step
        assert resumed.made == list(range(step + 1, STEPS + 1)), "it goes on at its step"


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 8},
        *[
            pytest.param(one, marks=pytest.mark.slow)
            for one in ({"learning_rate": 0.2}, {"schedule": lambda share: 1 - share}, {"records": 69})
        ],
    ],
)
def test_state_of_another_run_is_not_used(other):
    kept = Kept()
    trained(kept)
    again = Kept(kept.states[19])
    result = trained(again, **other)
    assert again.made == list(range(1, STEPS + 1))
    assert torch.equal(result, trained(None, **other))


def saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("foreign", [b"no state", saved({"x": 1}), saved([1, 2]), saved(torch.zeros(3))])
def test_state_that_cannot_be_read_is_not_used(foreign):
    again = Kept(foreign)
    assert torch.equal(trained(again), trained(None))
    assert len(again.made) == STEPS


@pytest.mark.parametrize("what", ["version", "draws"])
def test_state_of_another_version_or_other_draws_is_not_used(monkeypatch, what):
    """A GPU draws other batches and other noise from the same seed."""
    kept = Kept()
    expected = trained(kept)
    if what == "version":
        monkeypatch.setattr(dphypo, "__version__", "0.0")
    else:
        monkeypatch.setattr(engine, "Draws", type("OtherDraws", (engine.Draws,), {}))
    again = Kept(kept.states[19])
    assert torch.equal(trained(again), expected)
    assert again.made == list(range(1, STEPS + 1))


MEASURED = """
import os, pathlib, sys, torch
from torch import nn
from dphypo.search.progress import CheckpointFile
from dphypo.torch.engine import Program, Run, Setting, Tensors, train

def kept(name):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])

class Keeps:
    file = CheckpointFile(pathlib.Path(sys.argv[1]))
    def begin(self, runs): pass
    def step(self, made, state):
        before = kept("VmRSS")
        pathlib.Path("/proc/self/clear_refs").write_text("5")
        self.file.write(made, state)
        print((kept("VmHWM") - before) / os.path.getsize(self.file.path), os.path.getsize(self.file.path))

torch.set_num_threads(1)
loss = lambda outputs, targets: nn.functional.cross_entropy(outputs, targets, reduction="none")
build = lambda: nn.Sequential(nn.Linear(500, 12_000), nn.ReLU(), nn.Linear(12_000, 10))
program = Program.of(build(), loss, (torch.zeros(1, 500), torch.zeros(1, dtype=torch.int64)))
run = Run(seed=1, records=100, rate=0.2, steps=2, batch_size=20, noise_multiplier=1.0, max_grad_norm=1.0,
          learning_rate=0.1, optimizer="adam")
train(program, build, Tensors(torch.randn(100, 500), torch.randint(10, (100,))), [run],
      Setting(average=0.9, physical_batch_size=32), follower=Keeps())
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peaks are read from Linux")
def test_a_state_is_written_without_a_copy_of_it(tmp_path):
    """Weights, their average and two numbers of the optimiser. The first state also has a hash of what is computed."""
    given = [sys.executable, "-c", MEASURED, str(tmp_path / "state")]
    lines = subprocess.run(given, capture_output=True, text=True, check=True).stdout.splitlines()
    (first, size), (second, _) = (map(float, line.split()) for line in lines)
    assert size > 95e6
    assert second < 0.1
    assert first < 1.2


def test_what_is_public_of_a_run_is_told_first():
    kept = Kept()
    trained(kept)
    (pace,) = kept.paces
    assert (pace.noise_multiplier, pace.rate, pace.steps, pace.batch_size) == (1.0, 0.3, STEPS, 21)
