"""Runs of DP-SGD, one or several together: pure functions of the model's code, the records and the runs' values.

A step of every run, in :meth:`Group.step`::

    pieces   = rows of a Poisson batch               batch_rows.py
    parts    = per-record gradients of a piece       program.py
    total    = clipped sum over all pieces           clipped_sum.py
    gradient = total, rounded with dither, + noise   training/poisson_draws.py
    rows     = rows − rate · gradient                optimisers.py

All randomness of a run comes from its seed, with separate streams for initial weights, batches, dither, noise and
masks. Its parameters are a row of numbers, and modules keep nothing. Runs that are executed together share their
instructions and nothing else: no sum, no random number and no decision of one run affects another.

The state of a run between two steps is its parameters, their average, the optimiser's state and the number of the
step: what is drawn is a function of the seed and the step. A state of other runs, or of the same run with other values,
is ignored: the run then starts from its seed again, and ends in the same bits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import IO

import torch
from torch import nn

import dphypo
from dphypo import noise
from dphypo.errors import UnsupportedModelError
from dphypo.mechanisms.mechanism import Follower
from dphypo.torch.engine import batch_rows, operators, optimisers, trainable
from dphypo.torch.engine.batch_rows import Batches, Grouped, Piece, Records
from dphypo.torch.engine.clipped_sum import RecordGradients, Shape, Sums, Weights, add_clipped, drop
from dphypo.torch.engine.cuda_graph import DeviceBatches, DeviceDraws, keys_of, on_device, replay
from dphypo.torch.engine.device import pinned, seed_everywhere
from dphypo.torch.engine.distributed import Team
from dphypo.torch.engine.memory import free, rough
from dphypo.torch.engine.program import Program
from dphypo.training.poisson_draws import BatchSampler, Draws, largest_batch
from dphypo.training.setting import Clipping, Run, Setting

_HASHED = 2**20  # numbers of a tensor to hash at a time
_OTHER_BITS = (
    "the checkpoint of this run was written where a made-up piece of records gives other bits: with another kind of "
    "processor or GPU, or other threads. Sums would differ under the same noise, which a difference removes. Resume "
    "where the run began, or on the same hardware; or start a new search, which is paid for again"
)


class Group:
    """Runs that are executed together: they share an architecture, a batch shape, a number of steps and an optimiser.

    ``rows``, [runs, width], are their initial parameters, which training changes in place. The program's module holds
    what they do not train. With a ``team``, this process differentiates only its own pieces.
    """

    def __init__(
        self,
        program: Program,
        rows: torch.Tensor,
        records: Records | Grouped,
        runs: Sequence[Run],
        setting: Setting,
        team: Team | None = None,
    ) -> None:
        self.program, self.rows, self._records = program, rows, records
        self._runs, self._setting, self._team = runs, setting, team
        first, device, layout = runs[0], rows.device, program.layout
        self._steps = first.steps
        size, shards = setting.piece(first), setting.shards or 1
        self.shape = Shape(len(runs), size, program.views)
        self._pass = program.bound(rows, self.shape)
        operators.check_kernels(self._pass.graph)
        grids = [run.grid(layout.size, program.sum_terms, setting) for run in runs]
        deviation, bits = grids[0].deviation, grids[0].bits
        words = [noise.Words.of_seed(run.seed) for run in runs]
        self._cursor = torch.zeros(1, dtype=torch.int64, device=device)  # the number of the step
        mine = range if team is None else partial(team.mine, shards=setting.shards)
        self._batches: Batches | DeviceBatches
        self._draws: Draws | DeviceDraws
        if rows.is_cuda and shards == 1 and on_device(rows, records, runs):
            keys, largest = keys_of(words, "batches", device), largest_batch(first.records, first.rate)
            self._batches = DeviceBatches(records, keys, first.rate, size, largest, self._cursor, mine)
            self._draws = DeviceDraws(words, deviation, bits, self._cursor)
        else:
            samplers = [BatchSampler(one, len(records), run.rate) for one, run in zip(words, runs, strict=True)]
            keys = batch_rows.keys_of_runs(words, "rows", device)
            self._batches = Batches(records, samplers, size, program.example, self._steps, keys, mine, shards)
            self._draws = Draws(words, layout.width, deviation, bits)
        self._mask_keys = batch_rows.keys_of_runs(words, "masks", device)
        self._weights = Weights(grids, normalise=setting.clipping is Clipping.NORMALISE, device=device)
        units = [grid.unit / run.batch_size for grid, run in zip(grids, runs, strict=True)]
        self._units = torch.tensor(units, dtype=torch.float64, device=device)[:, None]
        self._optimiser = optimisers.build(first.optimizer, rows, [run.options for run in runs], layout)
        rates = [[run.rate_at(step) for run in runs] for step in range(self._steps)]
        self._rates = torch.tensor(rates, dtype=rows.dtype, device=device)[..., None]
        shares = [setting.share(step, self._steps) for step in range(self._steps)]
        self._shares = None if setting.average is None else torch.tensor(shares, dtype=rows.dtype, device=device)
        self._mean = rows if setting.average is None else rows.clone()
        self._sums = Sums(rows)
        self._totals: torch.Tensor | None = None  # of several pieces

    def finish(self, follower: Follower | None = None) -> torch.Tensor:
        """Execute all steps, or those that a checkpoint leaves; the trained parameters, [runs, width]."""
        team = self._team
        if team is not None:
            team.agree(self._identity, "their runs or versions", "Run the same program everywhere")
            team.agree(self._arithmetic, "the bits that they compute")
        checkpoint = None if follower is None else follower.begin([run.pace for run in self._runs])
        if team is not None:  # that of the leader, which alone has a follower
            with contextlib.nullcontext() if checkpoint is None else checkpoint as file:
                content = team.leaders(None if file is None else file.read())
            checkpoint = None if content is None else io.BytesIO(content)
        steps = range(self._load(checkpoint), self._steps)

        def on_step(made: int) -> None:
            if follower is not None:
                follower.step(made, partial(self._dump, made))

        if isinstance(self._batches, DeviceBatches):
            capture = team is None and not self.program.alone and not isinstance(self._optimiser, optimisers.Foreign)
            replay(self._batches, self.step, steps, capture=capture, on_step=on_step)
        else:
            for step in steps:
                self.step(step)
                on_step(step + 1)
        if team is not None:
            team.agree(_digest(self.rows), "their weights after the last step")
        return self._mean

    def _dump(self, made: int, file: IO[bytes]) -> None:
        """Write the state after this many steps to a file, without a second copy in memory."""
        mean = None if self._mean is self.rows else self._mean
        state = {"rows": self.rows, "mean": mean, "optimiser": optimisers.state(self._optimiser)}
        hashes = {"identity": self._identity, "arithmetic": self._arithmetic}
        torch.save({**hashes, "step": made, "state": state}, file)

    def _load(self, checkpoint: IO[bytes] | None) -> int:
        """Resume from a checkpoint; return how many steps it contains, 0 if it is not one of these runs."""
        mine = self._identity  # computed now, from the initial parameters
        if checkpoint is None:
            return 0
        try:
            with checkpoint:
                found = torch.load(checkpoint, map_location=self.rows.device, weights_only=True)
            if found["identity"] != mine:
                return 0
            state, step, arithmetic = dict(found["state"]), int(found["step"]), bytes(found["arithmetic"])
        except Exception:  # written by another version of PyTorch, or of this library
            return 0
        if arithmetic != self._arithmetic:
            raise UnsupportedModelError(_OTHER_BITS)
        self.rows.copy_(state["rows"])
        if self._mean is not self.rows:
            self._mean.copy_(state["mean"])
        optimisers.restore(self._optimiser, state["optimiser"])
        self._cursor.fill_(step)
        self._batches.skip(step)  # these draws are repeated, and discarded
        self._draws.skip(step)
        return step

    @cached_property
    def _identity(self) -> bytes:
        """A hash of the runs, their initial parameters and the versions; to be computed before the first step."""
        values = [{**vars(run), "schedule": None, "options": sorted(run.options.items())} for run in self._runs]
        program, draws = self.program, (self.rows.device.type, type(self._batches).__name__, type(self._draws).__name__)
        parts = (values, draws, self._setting, program.autocast, program.views, len(self._records))
        return _digest(torch.__version__, dphypo.__version__, *map(repr, parts), self._rates, self.rows)

    @cached_property
    def _arithmetic(self) -> bytes:
        """A hash of the bits that this device computes in a step on a made-up piece, at random weights."""
        program, shape, first = self.program, self.shape, self._runs[0]
        rows = trainable.random_weights(program.layout, self.rows, 0)
        batch = trainable.synthetic_records(program.example, shape.runs * shape.records)
        numbers = torch.arange(shape.runs * shape.records, device=rows.device).view(shape.runs, -1)
        keys = batch_rows.keys_of_rows(numbers[:, :1], 0, numbers, shape.views)
        with torch.inference_mode():
            parts, outside = program.bound(rows, shape).parts(*batch, keys)
            self._sums.rows.zero_()  # they hold nothing between two steps
            add_clipped(parts, ~outside, self._weights, self._sums)
            whole = _digest(self._sums.rows.round_().add_(0.0))  # −0 is 0
            foreign = isinstance(self._optimiser, optimisers.Foreign)
            some = slice(None) if foreign else next(optimisers.ranges(rows))  # all ranges are processed alike
            rows, gradient = rows[:, some], self._sums.rows.mul_(self._units)[:, some]
            optimiser = optimisers.build(first.optimizer, rows, [run.options for run in self._runs], program.layout)
            optimiser.step(rows, gradient, self._rates[0])
        return _digest(repr(shape), repr(program.alone), whole.hex(), rows)

    def step(self, number: int | None = None) -> None:
        """One step of every run; without ``number``, the cursor on the device holds the number of the step."""
        with torch.inference_mode():
            total = self._sum(self._batches.pieces())
            gradient = self._draws.release(total).mul_(self._units)
            self._optimiser.step(self.rows, gradient, self._now(self._rates, number))
            if self._shares is not None:
                share = self._now(self._shares, number)
                for some in optimisers.ranges(self.rows):
                    mean = self._mean[:, some]
                    mean.add_((self.rows[:, some] - mean) * share)
            if number is None or self.program.random:
                self._cursor.add_(1)

    def _sum(self, pieces: Sequence[Piece]) -> torch.Tensor:
        """The clipped sum over the pieces of all processes, in units of h·2^−bits.

        The sums of pieces are rounded and added as whole numbers, so their order changes no bit.
        """
        if self._team is None and len(pieces) < 2:  # nothing to add: rounded together with the noise
            return self._clipped(pieces[0]) if pieces else self._sums.rows.zero_()
        if self._totals is None:
            self._totals = torch.empty_like(self._sums.rows, dtype=torch.int64)
        self._totals.zero_()
        for piece in pieces:
            clipped = self._clipped(piece)
            for some in optimisers.ranges(clipped):
                self._totals[:, some].add_(clipped[:, some].round_().long())
        if self._team is not None:
            self._team.add(self._totals)
        return self._sums.rows.copy_(self._totals)

    def _clipped(self, piece: Piece) -> torch.Tensor:
        """The clipped sum over the records of a piece."""
        self._sums.rows.zero_()
        parts, valid = self._parts(piece)
        add_clipped(parts, valid, self._weights, self._sums)
        return self._sums.rows

    def _now(self, table: torch.Tensor, number: int | None) -> torch.Tensor:
        return table.index_select(0, self._cursor)[0] if number is None else table[number]

    def _parts(self, piece: Piece) -> tuple[list[RecordGradients], torch.Tensor]:
        """The gradients of a piece, and which of its rows count."""
        keys = self._mask_keys
        if self.program.random:
            keys = batch_rows.keys_of_rows(self._mask_keys, self._cursor, piece.numbers, self.shape.views)
        parts, outside = self._pass.parts(piece.inputs, piece.targets, keys, piece.weights)
        return parts, piece.valid & ~outside


def _digest(*parts: str | torch.Tensor) -> bytes:
    """A hash of texts and numbers."""
    digest = hashlib.sha256()
    for part in parts:
        own = hashlib.sha256(part.encode() if isinstance(part, str) else b"")
        for some in () if isinstance(part, str) else torch.split(part.detach().flatten(), _HASHED):
            own.update(some.cpu().numpy().data)
        digest.update(own.digest())
    return digest.digest()


def train(
    program: Program,
    build: Callable[[], nn.Module],
    records: Records | Grouped,
    runs: Sequence[Run],
    setting: Setting | None = None,
    *,
    memory: float | None = None,
    follower: Follower | None = None,
    team: Team | None = None,
) -> list[nn.Module]:
    """Train one model for each run; return new modules in evaluation mode, in the order of the runs.

    Formal guarantee: under adding or removing one record, a run is within total variation ``slack(steps, rate)`` of
    ``steps`` Poisson-sampled Gaussian mechanisms of its rate and noise multiplier. Weights that are not finite are
    returned as they are: they are private already.

    Args:
        program: how the model is differentiated (:meth:`Program.of`).
        build: builds an untrained model of the program's architecture, on its device. It is called once for each run,
            with PyTorch's generators seeded from the run's seed, and its model is copied. Frozen weights and buffers
            that several models have in common are held once, also by the models that are returned.
        records: the private records; inputs and targets of the example's shape and type.
        runs: one or more. Runs that differ only in numbers (seed, learning rate, σ, C, numeric options) are executed
            together, in groups that fit into memory. On a CPU each ends in the same bits as alone.
        setting: how they are executed.
        memory: the bytes that one group may use; by default half of the free memory.
        follower: is called after every step, and may store the state of a run so that it can resume.
        team: the processes that execute these runs together. Each calls this function with the same arguments; only
            the leader gives a follower. Runs end in the same bits as in one process.

    >>> from dphypo.torch.engine import Tensors
    >>> loss = lambda outputs, targets: nn.functional.cross_entropy(outputs, targets, reduction="none")
    >>> build = lambda: nn.Linear(2, 2)
    >>> program = Program.of(build(), loss, (torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64)))
    >>> run = Run(seed=1, records=100, rate=0.2, steps=3, batch_size=20, noise_multiplier=1.0, max_grad_norm=1.0,
    ...     learning_rate=0.1)
    >>> train(program, build, Tensors(torch.randn(100, 2), torch.randint(2, (100,))), [run])
    [Linear(in_features=2, out_features=2, bias=True)]
    """
    setting = Setting() if setting is None else setting
    trained: dict[int, nn.Module] = {}  # by the place of their run
    with pinned(setting.threads), contextlib.nullcontext() if team is None else team.in_step():
        models: list[nn.Module] = []
        for run in runs:
            models.append(trainable.copied(_built(build, run), program.model, *models[:1]))
        made = (lambda make: make()) if team is None else team.made
        waiting = made(lambda: _groups(program, models, runs, setting, memory))
        waiting = waiting if team is None else team.leaders(waiting)  # free memory may differ
        while waiting:
            members = waiting.pop(0)
            untrained = [models[at] for at in members]
            group = made(partial(_group, program, untrained, records, [runs[at] for at in members], setting, team))
            if team is not None:
                team.agree(bytes([group is None]), "the bits that they compute")
            if group is None:
                waiting = [[at] for at in members] + waiting
                continue
            for model in untrained:
                drop(model)
            rows = group.finish(follower)
            del group
            for row, at in zip(rows, members, strict=True):
                trained[at] = models[at].eval()
                program.layout.write(row, trained[at])
    return [trained[at] for at in range(len(runs))]


def _built(build: Callable[[], nn.Module], run: Run) -> nn.Module:
    """A new model, whose initial weights come from the run's seed."""
    with torch.random.fork_rng():
        seed_everywhere(int(noise.Words.of_seed(run.seed).stream("weights").draw(1)[0]) >> 1)
        return build()


def _group(
    program: Program,
    models: Sequence[nn.Module],
    records: Records | Grouped,
    runs: Sequence[Run],
    setting: Setting,
    team: Team | None,
) -> Group | None:
    """The group; None if on a CPU its runs would end in other bits than alone."""
    rows = program.layout.stacked(models, next(models[0].parameters()).device)
    shape = Shape(len(runs), setting.piece(runs[0]), program.views)
    program = dataclasses.replace(program, model=models[0]).on(rows, shape)
    if not rows.is_cuda and len(runs) > 1 and not program.alike(rows, shape):
        return None
    return Group(program, rows, records, runs, setting, team)


def _groups(
    program: Program, models: Sequence[nn.Module], runs: Sequence[Run], setting: Setting, memory: float | None
) -> list[list[int]]:
    """The places of runs that are executed together: those that are alike, as many as fit into memory."""
    device = next(program.model.parameters()).device
    memory = free(device) / 2 if memory is None else memory
    alike: dict[tuple[int, str], list[int]] = {}
    for at, (model, run) in enumerate(zip(models, runs, strict=True)):
        grid = run.grid(program.layout.size, program.sum_terms, setting)
        kinds = sorted((name, bool(value)) for name, value in run.options.items())
        rate = run.rate if device.type == "cuda" else None  # a GPU draws the batches of a group at one rate
        frozen = [value.data_ptr() for value in trainable.frozen_of(model).values()]  # a group shares these tensors
        rest = (run.steps, run.optimizer.lower(), grid.deviation, grid.bits, rate, kinds, frozen)
        alike.setdefault((setting.piece(run), repr(rest)), []).append(at)
    groups = []
    for (piece, _), members in alike.items():
        most = max(1, int(memory // rough(program, Shape(1, piece, program.views))))
        groups += [members[start : start + most] for start in range(0, len(members), most)]
    return groups
