"""Runs of :class:`DPSGD` in JAX: those of one shape are one program, each with its own keys, batches and noise."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from dphypo import dpsgd, noise
from dphypo.dpsgd.draws import BatchSampler, Draws, draw, piece_and_count
from dphypo.integrations.jax import optimisers, step
from dphypo.integrations.jax.program import Program
from dphypo.integrations.jax.score import Private, PublicAccuracy
from dphypo.integrations.training import DivergedError
from dphypo.mechanisms import NoiseRehearsal, Outcome, transfer
from dphypo.mechanisms.attempt import current_follower

if TYPE_CHECKING:
    from dphypo.integrations.jax.dpsgd import DPSGD

_AHEAD = 2**16  # words of a run that are drawn at a time, about


@dataclass(frozen=True, eq=False, repr=False)
class Begun:
    """A run with its program and its initial parameters."""

    program: Program
    run: dpsgd.Run
    setting: dpsgd.Setting
    optimizer: optimisers.Optimizer
    row: npt.NDArray[Any]
    shape: tuple[int, int]
    grid: dpsgd.SumGrid

    @property
    def kind(self) -> str:
        """What runs that are made at once have in common."""
        static, numbers = optimisers.split(self.run.options)
        grid = (self.grid.deviation, self.grid.bits)
        same = (id(self.program), self.shape, self.run.steps, grid, self.setting, repr(self.optimizer))
        return repr((same, sorted(static.items()), sorted(numbers)))


def begin(made: DPSGD, params: Mapping[str, Any], seed: int) -> Begun:
    """Everything that a run is told, from λ."""
    cost, given = made.cost, made.values(params)
    program = made.program(given)
    if made.match and made.fraction < 1:
        full, deviation = cost.full_run(params, given)
        own = NoiseRehearsal(partial(optimisers.walk, schedule=made.schedule), full, deviation)
        given = transfer.apply(made.transfer_rule or own, given, made.fraction)
    setting = dpsgd.Setting(
        physical_batch_size=made.physical_batch_size, clipping=given["clipping"], average=given["average"]
    )
    options = optimisers.options(given["optimizer"], given)
    run = cost.engine_run(cost.run(params), given, seed, options=options, schedule=made.schedule)
    shape = piece_and_count(run.records, run.rate, setting.physical_batch_size)
    grid = run.grid(program.size, *shape, partial(step.terms, program.size))
    key = step.key_of(noise.Words.of_seed(seed).stream("weights"))
    row = program.row(program.built(key)) if made.start is None else program.row(made.start)
    return Begun(program, run, setting, given["optimizer"], row, shape, grid)


def train(group: Sequence[Begun]) -> list[npt.NDArray[Any]]:
    """The trained parameters of runs that are made at once, a row each."""
    first, runs, grids = group[0], [one.run for one in group], [one.grid for one in group]
    program, setting, (size, count) = first.program, first.setting, first.shape
    words = [noise.Words.of_seed(run.seed) for run in runs]
    data = program.records
    samplers = [BatchSampler(one, len(data), run.rate, run.subsample) for one, run in zip(words, runs, strict=True)]
    draws = Draws(words, program.size, grids[0].deviation, grids[0].bits)
    keys = jnp.stack([step.key_of(one.stream("masks")) for one in words])
    limits, scales = [grid.most for grid in grids], [grid.scale for grid in grids]
    units = [[grid.unit / run.batch_size] for grid, run in zip(grids, runs, strict=True)]
    public = [np.array(some) for some in (limits, scales, units, 2.0 ** -grids[0].bits)]
    with jax.enable_x64(True):
        most, scale, unit, shrink = jax.device_put(public)
        zeros = jax.device_put([np.zeros((len(runs), one)) for one in program.sizes])
    normalise = setting.clipping is dpsgd.Clipping.NORMALISE
    static, names = optimisers.split(first.run.options)
    numbers = {name: np.array([run.options[name] for run in runs], dtype=program.dtype) for name in names}
    stepper = program.stepper(first.optimizer, static)
    rows = mean = jnp.asarray(np.stack([one.row for one in group]))
    state = stepper.start(rows, numbers)
    with np.errstate(over="ignore"):
        rates = np.array([[run.rate_at(at) for run in runs] for at in range(first.run.steps)]).astype(program.dtype)
    ahead = max(1, min(32, _AHEAD // max(1, len(data))))
    if (follower := current_follower()) is not None:
        follower.begin([run.pace for run in runs])
    for start in range(0, first.run.steps, ahead):
        block, every = draw(samplers, min(ahead, first.run.steps - start), size, count)
        for number, (chosen, valid) in enumerate(zip(block.astype(np.int32), every, strict=True), start):
            sums: Any = zeros
            for piece, counts in zip(chosen, valid, strict=True):
                gradients, finite = program.gradients(rows, piece, keys, number)
                with jax.enable_x64(True):
                    sums = step.add_clipped(sums, gradients, counts, finite, most, scale, normalise=normalise)
            with jax.enable_x64(True):
                gradient = step.release(sums, draws.draw(), shrink, unit, program.dtype)
            share = program.dtype.type(setting.share(number, first.run.steps))
            rows, state, mean = stepper.step(rows, state, mean, gradient, rates[number], numbers, share)
            if follower is not None:
                follower.step(number + 1)
    return list(np.asarray(mean))


def finish(score: Any, begun: Begun, row: npt.NDArray[Any]) -> Outcome:
    """Score a trained model."""
    if not np.isfinite(row).all():
        raise DivergedError("the weights are not finite: training diverged")
    program = begun.program
    model = program.tree([np.asarray(leaf) for leaf in program.leaves(row)])
    ours = isinstance(score, PublicAccuracy | Private)
    return Outcome(model, float(score(program, row, seed=begun.run.seed) if ours else score(model)))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """On the CPU, which has true double precision, and without JAX's checks for NaN: no record may make a run fail."""
    cpu = jax.devices("cpu")[0]
    with jax.default_device(cpu), jax.debug_nans(False), jax.debug_infs(False), jax.disable_jit(False):
        yield
