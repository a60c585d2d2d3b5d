"""How much memory a step needs is known before it is made, and what does not fit is refused before records are read."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
import torch
from support.torch_world import dpsgd
from torch import nn

from dphypo.errors import UnsupportedModelError
from dphypo.torch.engine import Program, Run, Tensors, layers, memory, train, trainable
from dphypo.torch.engine.clipped_sum import Shape
from dphypo.torch.engine.device import process_lock

EXAMPLE = torch.zeros(1, 64), torch.zeros(1, dtype=torch.int64)
TOKENS = Tensors(torch.arange(240).view(60, 4), torch.arange(60) % 3)
RUN = Run(
    seed=1, records=60, rate=0.3, steps=2, batch_size=18, noise_multiplier=1.0, max_grad_norm=0.7, learning_rate=0.2
)


def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def program(width=256):
    return Program.of(nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10)), loss, EXAMPLE)


def test_what_pieces_need_lies_below_a_line_between_two_sizes():
    made = program()
    sizes = [memory.of_piece(made, Shape(1, 32 * count)) for count in (1, 2, 3, 4)]
    steps = [after - before for before, after in itertools.pairwise(sizes)]
    assert steps == sorted(steps)
    assert sizes[0] >= 32 * 4 * (64 + 256), "the inputs and one array of activations, at the very least"


def test_an_estimate_leaves_the_program_as_it_was():
    made = program()
    before = dict(made.flat)
    memory.of_piece(made, Shape(1, 32))
    assert made.flat == before


def test_an_estimate_waits_for_a_run_of_another_thread():
    """Products of the estimate are plain ones, which the other thread's must not become."""
    made = program()
    estimate = threading.Thread(target=memory.of_piece, args=(made, Shape(1, 32)))
    before = layers._way
    with process_lock():
        estimate.start()
        estimate.join(1.0)
        assert estimate.is_alive()
        assert layers._way is before
    estimate.join()


class Adapted(nn.Module):
    """A frozen table, a frozen layer and a frozen convolution, and a layer that is trained."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.table, self.wide = nn.Embedding(500, 16), nn.Linear(16, 400)
        self.convolution, self.head = nn.Conv1d(1, 40, 10), nn.Linear(400, 3)
        for name, value in self.named_parameters():
            if not name.startswith("head"):
                value.requires_grad_(False)
                value.copy_(torch.randn(value.shape, generator=generator) / 8)
        self.register_buffer("scale", torch.rand(400, generator=generator))

    def forward(self, tokens):
        seen = self.wide(self.table(tokens).mean(1)) * self.scale
        return self.head(self.convolution(seen[:, None, :])[:, :, 0].repeat(1, 10))


def adapted():
    return Program.of(Adapted(), loss, (torch.zeros(1, 4, dtype=torch.int64), EXAMPLE[1]))


def test_a_group_holds_what_is_frozen_once():
    """What is made of it for several runs are views, and the trained models share it."""
    made, runs = adapted(), 5
    rows = made.layout.stacked([Adapted()] * runs, torch.device("cpu"))
    made.bound(rows, Shape(runs, 32))
    held = [one for part in (made.model.parameters(), made.model.buffers()) for one in part]
    with memory.Alive(rows, *held) as alive:
        made.bound(rows, Shape(runs, 32))
    assert alive.most == 0, "no copy, and no axis of runs"
    models = train(made, Adapted, TOKENS, [replace(RUN, seed=seed) for seed in range(3)])
    frozen = [trainable.frozen_of(model) for model in models]
    assert len(frozen[0]) == 6
    for name, value in frozen[0].items():
        assert {one[name].data_ptr() for one in frozen} == {value.data_ptr()}
    assert len({one.head.weight.data_ptr() for one in models}) == 3
    assert not torch.equal(models[0].head.weight, models[1].head.weight)


def test_runs_with_other_frozen_weights_keep_their_own():
    """The second and the fourth model differ in one bit of one weight."""

    def build():
        model = Adapted()
        if next(calls) % 2:
            model.wide.bias.data.view(torch.int32)[7] ^= 1
        return model

    made, runs, found = adapted(), [replace(RUN, seed=seed) for seed in range(4)], []
    calls = iter(range(4))
    among = train(made, build, TOKENS, runs)
    for place, run in enumerate(runs):
        calls = iter([place])
        found += train(made, build, TOKENS, [run])
    for one, alone in zip(among, found, strict=True):
        assert all(torch.equal(*pair) for pair in zip(one.parameters(), alone.parameters(), strict=True))
    assert not torch.equal(among[0].wide.bias, among[1].wide.bias)
    assert among[0].wide.weight.data_ptr() == among[1].wide.weight.data_ptr()


def test_a_model_that_is_given_is_copied():
    given = Adapted()
    before = {name: value.clone() for name, value in given.state_dict().items()}
    (model,) = train(adapted(), lambda: given, TOKENS, [RUN])
    assert all(torch.equal(value, before[name]) for name, value in given.state_dict().items())
    assert not {one.data_ptr() for one in model.parameters()} & {one.data_ptr() for one in given.parameters()}


MEASURED = """
import sys, torch
from pathlib import Path
from torch import nn
from dphypo.torch.engine import Program, Run, Setting, Tensors, memory, train
from dphypo.torch.engine.clipped_sum import Shape

torch.set_num_threads(1)
loss = lambda outputs, targets: nn.functional.cross_entropy(outputs, targets, reduction="none")
build = lambda: nn.Sequential(nn.Linear(64, 4000), nn.ReLU(), nn.Linear(4000, 10))
program = Program.of(build(), loss, (torch.zeros(1, 64), torch.zeros(1, dtype=torch.int64)))
data = Tensors(torch.randn(8000, 64), torch.randint(10, (8000,)))
run = Run(seed=1, records=8000, rate=0.5, steps=1, batch_size=4000, noise_multiplier=1.0, max_grad_norm=1.0,
          learning_rate=0.1)
peak = lambda: 1024 * int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])  # of no parent
before = peak()
train(program, build, data, [run], Setting(physical_batch_size=int(sys.argv[1])))
print(peak() - before, memory.needed(program, int(sys.argv[1])))
"""


def measured(piece):
    done = subprocess.run([sys.executable, "-c", MEASURED, str(piece)], capture_output=True, text=True, check=True)
    return map(int, done.stdout.split())


@pytest.mark.slow
def test_the_memory_of_a_run_is_that_of_a_piece_not_of_the_batch():
    """Twice the estimate is room for what the allocator keeps; a batch is sixteen pieces."""
    used, estimate = measured(256)
    assert estimate / 2 < used < 2 * estimate
    whole, estimate_of_whole = measured(4096)
    assert estimate_of_whole / 2 < whole < 2 * estimate_of_whole
    assert used < whole / 3


class Unread(torch.utils.data.Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, index):
        raise AssertionError("a private record is read")


@pytest.mark.parametrize(("factor", "remedy"), [(1.0, "physical_batch_size=1, "), (1e-3, "not even a single record")])
def test_what_does_not_fit_is_refused_before_records_are_read_with_what_fits(monkeypatch, factor, remedy):
    build = lambda: nn.Linear(5, 2)  # noqa: E731
    made = Program.of(build(), loss, (torch.zeros(1, 5), EXAMPLE[1]))
    room = 1.6 * memory.needed(made, 1) * factor
    monkeypatch.setattr(memory, "free", lambda device: int(room))
    with pytest.raises(UnsupportedModelError, match=remedy):
        dpsgd(model=build, data=Unread(), example=(torch.zeros(5), 0))


def test_the_proposed_piece_fits(monkeypatch):
    made = program()
    room = memory.needed(made, 640)
    fits = memory.largest_piece(made, room, 4096)
    assert 320 < fits <= 640
    assert memory.needed(made, fits) <= room
    monkeypatch.setattr(memory, "free", lambda device: int(1.5 * room))
    with pytest.raises(UnsupportedModelError, match=f"give physical_batch_size={fits}, which"):
        memory.refuse_larger(made, 4096)
    memory.refuse_larger(made, fits)


def test_free_memory_obeys_a_control_group(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_GROUP", tmp_path)
    whole = memory.free(torch.device("cpu"))
    (tmp_path / "memory.max").write_text("5000000")
    (tmp_path / "memory.current").write_text("1000000")
    assert memory.free(torch.device("cpu")) == 4_000_000 < whole
    (tmp_path / "memory.max").write_text("max")
    assert memory.free(torch.device("cpu")) > 4_000_000
