"""Many runs: groups of equal shape, made at once and cut to fit into memory."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import os
from collections.abc import Callable, Sequence

import torch
from torch import nn

from dphypo import noise
from dphypo.dpsgd import trainable
from dphypo.dpsgd.batches import Grouped, Records
from dphypo.dpsgd.device import pinned, seed_everywhere
from dphypo.dpsgd.draws import piece_and_count
from dphypo.dpsgd.program import Program
from dphypo.dpsgd.record_graph import held_names
from dphypo.dpsgd.run import Group
from dphypo.dpsgd.setting import Run, Setting
from dphypo.dpsgd.stack import Shape
from dphypo.mechanisms.attempt import Follower


def train(
    program: Program,
    build: Callable[[], nn.Module],
    records: Records | Grouped,
    runs: Sequence[Run],
    setting: Setting | None = None,
    *,
    memory: float | None = None,
    follower: Follower | None = None,
) -> list[nn.Module]:
    """Train one model for each run, and give them back in the order of the runs: new modules, in evaluation mode.

    Formal guarantee: under adding or removing one record, a run is within total variation ``slack(steps, rate)`` of
    ``steps`` Poisson-sampled Gaussian mechanisms of its rate and noise multiplier, preceded by its subsample. Weights
    that are not finite are given back as they are: they are private already.

    Args:
        program: how the model is differentiated (:meth:`Program.of`).
        build: builds an untrained model of the program's architecture, on its device. It is called once for each run,
            with PyTorch's generators seeded from the run's; what it gives is copied.
        records: the private records; inputs and targets of the example's shape and type.
        runs: one or more. Those that agree in all but numbers (seed, learning rate, σ, C, numeric options) are made at
            once. On a CPU each ends in the same bits as alone.
        setting: how they are made.
        memory: bytes that one group may use; by default half of what is free.
        follower: is told of every step, and may keep the state of a run to go on with.

    >>> from dphypo.dpsgd import Tensors
    >>> loss = lambda outputs, targets: nn.functional.cross_entropy(outputs, targets, reduction="none")
    >>> build = lambda: nn.Linear(2, 2)
    >>> program = Program.of(build(), loss, (torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64)))
    >>> run = Run(seed=1, records=100, rate=0.2, steps=3, batch_size=20, noise_multiplier=1.0, max_grad_norm=1.0,
    ...     learning_rate=0.1)
    >>> train(program, build, Tensors(torch.randn(100, 2), torch.randint(2, (100,))), [run])
    [Linear(in_features=2, out_features=2, bias=True)]
    """
    setting = Setting() if setting is None else setting
    trained: dict[int, nn.Module] = {}
    with pinned(setting.threads):
        models = [_built(build, run) for run in runs]
        waiting = _groups(program, models, runs, setting, memory)
        while waiting:
            members = waiting.pop(0)
            group = _group(program, [models[at] for at in members], records, [runs[at] for at in members], setting)
            if group is None:
                waiting = [[at] for at in members] + waiting
                continue
            rows = group.finish(follower)
            for row, at in zip(rows, members, strict=True):
                trained[at] = copy.deepcopy(models[at]).eval()
                program.layout.write(row, trained[at])
    return [trained[at] for at in range(len(runs))]


def _built(build: Callable[[], nn.Module], run: Run) -> nn.Module:
    """A new model, whose initial weights come from the run's seed."""
    seed = int(noise.Words.of_seed(run.seed).stream("weights").draw(1)[0]) >> 1
    with torch.random.fork_rng():
        seed_everywhere(seed)
        return build()


def _group(
    program: Program, models: Sequence[nn.Module], records: Records | Grouped, runs: Sequence[Run], setting: Setting
) -> Group | None:
    """The group; None if on a CPU its runs would end in other bits than alone."""
    code = dataclasses.replace(program, model=trainable.code_of(models[0]))
    rows = program.layout.stacked(models, next(models[0].parameters()).device)
    piece, _ = piece_and_count(runs[0].records, runs[0].rate, setting.physical_batch_size)
    shape = Shape(len(runs), piece, program.views)
    code = code.on(rows, shape)
    if len(runs) > 1 and not rows.is_cuda and not trainable.same_alone(code, rows, shape):
        return None
    return Group(code, rows, records, runs, setting)


def _groups(
    program: Program, models: Sequence[nn.Module], runs: Sequence[Run], setting: Setting, memory: float | None
) -> list[list[int]]:
    """The places of runs that are made at once: those that are alike, as many as fit into memory."""
    device = next(program.model.parameters()).device
    if memory is None and device.type == "cuda":
        memory = torch.cuda.mem_get_info(device)[0] / 2
    elif memory is None:
        memory = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2
    alike: dict[tuple[int, str], list[int]] = {}
    for at, (model, run) in enumerate(zip(models, runs, strict=True)):
        piece, count = piece_and_count(run.records, run.rate, setting.physical_batch_size)
        grid = run.grid(program.layout.size, piece, count, program.sum_terms)
        kinds = sorted((name, bool(value)) for name, value in run.options.items())
        rates = (run.rate, run.subsample) if device.type == "cuda" else None  # a GPU draws a group's at one rate
        rest = (count, run.steps, run.optimizer.lower(), grid.deviation, grid.bits, rates, kinds, _frozen(model))
        alike.setdefault((piece, repr(rest)), []).append(at)
    groups = []
    for (piece, _), members in alike.items():
        most = max(1, int(memory // memory_of(program, Shape(1, piece, program.views))))
        groups += [members[start : start + most] for start in range(0, len(members), most)]
    return groups


def _frozen(model: nn.Module) -> str:
    """What a model uses and does not train, as a hash: runs that differ in it are not made at once."""
    digest = hashlib.sha256()
    code = trainable.code_of(model)
    values = {**dict(code.named_parameters()), **dict(code.named_buffers())}
    for value in (values[name] for name in held_names(code)):
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def memory_of(program: Program, shape: Shape) -> int:
    """Bytes that a group needs, about: 96 for each parameter of a run, 48 for each number that a row's layers see."""
    return shape.runs * program.layout.width * 96 + shape.rows * program.elements * 48
