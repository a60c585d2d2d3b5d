"""How much memory a step needs is known before it is made, and what does not fit is refused before records are read."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading

import pytest
import torch
from support.torch_world import dpsgd
from torch import nn

from dphypo.errors import UnsupportedModelError
from dphypo.torch.engine import Program, layers, memory
from dphypo.torch.engine.clipped_sum import Shape
from dphypo.torch.engine.device import one_run

EXAMPLE = torch.zeros(1, 64), torch.zeros(1, dtype=torch.int64)


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
    with one_run():
        estimate.start()
        estimate.join(1.0)
        assert estimate.is_alive()
        assert layers._way is before
    estimate.join()


MEASURED = """
import resource, sys, torch
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
peak = lambda: 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
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
