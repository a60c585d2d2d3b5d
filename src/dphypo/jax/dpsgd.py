"""DP-SGD in JAX as a mechanism that can be tuned, and its runs."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from dphypo import _validate, noise
from dphypo.entropy import Seeded
from dphypo.jax import step
from dphypo.jax.program import JaxModel, Program, TreeRecords, Trees, as_records, named
from dphypo.mechanisms import NoiseRehearsal, Outcome, SampledGaussian, sampled_gaussian
from dphypo.mechanisms.mechanism import current_follower
from dphypo.search import rates
from dphypo.space import Space
from dphypo.training import scores
from dphypo.training.base import COSTS, READ, DivergedError, GradientTraining, make_in_groups
from dphypo.training.poisson_draws import BatchSampler, Draws, draw, filled
from dphypo.training.setting import Clipping, Run, Setting
from dphypo.training.split import split_within
from dphypo.training.sum_on_grid import SumGrid

OWN = frozenset({*READ, *COSTS})
"""Hyperparameters that DPSGD reads itself."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class DPSGD(GradientTraining):
    """Training in JAX with DP-SGD: a mechanism for :class:`dphypo.Study` and :func:`dphypo.tune`.

    A search may tune ``batch_size``, ``epochs`` or ``steps``, ``learning_rate`` or ``drift``, ``max_grad_norm``,
    ``optimizer``, ``clipping`` and ``average``; what an optimiser of optax takes; and what ``init``, ``loss`` and
    ``predict`` name.

    **Guarantee.** That of :class:`dphypo.torch.DPSGD` with our own engine: with an ideal random generator,
    a step is a Gaussian mechanism to the last bit, up to the slack that the event states. A record whose loss or
    gradient is not finite adds nothing. Runs are executed on the CPU. In a group, a run may end in other last bits than
    alone, so studies execute one run at a time; surveys execute many at once.

    Args:
        init: ``init(key) -> params``, the untrained parameters: a tree of arrays, such as ``net.init(key, x)`` of
            flax; or a module of equinox, whose arrays are trained.
        loss: ``loss(params, record) -> scalar``, of one record. With a third argument ``key`` it gets a new key
            for each run, step and record, for dropout and augmentation. By default the cross entropy of ``predict``,
            where a record is (input, label).
        predict: ``predict(params, input) -> outputs``, of one record, for our scores; such as ``net.apply`` of flax.
        data: the private records: arrays with one row per record, in tuples, lists or dicts.
        score: what to maximise. "accuracy", "loss", "f1", "balanced_accuracy", "auc" or "perplexity" on records that a
            hash sets apart; a :class:`PrivateAccuracy` or similar on records that you set apart; or a function of the
            trained parameters, which must read public records only. Several names, or a mapping of names to such
            scores: the first ranks, and a survey publishes all.
        optimizer: the name of an optimiser of optax, or a function of ``learning_rate`` that returns one.
        start: the parameters that runs start from, which must be public or paid for.
        person: the person of each row, if a person has several: an array of keys, the name of an entry if ``data`` is a
            dict, or a function of a record. This, ``rows_per_person`` and ``persons`` are as in PyTorch's ``DPSGD``.
        rarest: the share of the rarest class, a public constant, for "f1", "balanced_accuracy" and "auc": their noise
            depends on it, and is stated. By default a fifth of an even share is assumed.
        noise_multiplier: this and the following are as in :class:`dphypo.torch.DPSGD`.

    >>> import jax, numpy as np
    >>> mechanism = DPSGD(
    ...     init=lambda key: {"weights": 0.1 * jax.random.normal(key, (2, 3))},
    ...     predict=lambda params, inputs: inputs @ params["weights"],
    ...     data=(np.random.default_rng(0).normal(size=(100, 2)), np.arange(100) % 3),
    ...     score=lambda params: 0.5, noise_multiplier=1.0, epochs=1, batch_size=25,
    ... )
    >>> mechanism({"learning_rate": 0.5}, seed=1).model["weights"].shape
    (2, 3)
    """

    init: Callable[..., Any]
    loss: Callable[..., Any] | None = None
    predict: Callable[..., Any] | None = None
    start: Any = None

    library: ClassVar[type[scores.TrainedModel]] = JaxModel
    saver: ClassVar[Trees] = Trees()
    same_fits: ClassVar[frozenset[str]] = frozenset({"init", "data", "loss", "predict", "person", "rows_per_person"})
    seeded: ClassVar[bool] = True
    same_alone: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not callable(self.init):
            raise _validate.fail("init", self.init, "give a function, such as init=lambda key: net.init(key, x)")
        if self.predict is None and not callable(self.loss):
            remedy = "give a function, loss(params, record) -> scalar, or predict(params, input) -> outputs"
            raise _validate.fail("loss", self.loss, remedy)
        step.read_optimizer(self.optimizer)
        super().__post_init__()
        self.set_records(as_records(self.data, self.person))
        self.refuse_unknown(self.fixed)
        _ = self.cost
        if self.complete:
            scores.refuse_targets(self.score, JaxModel(self.program(self.values({}))))

    def parts(self, data: TreeRecords, share: float) -> tuple[TreeRecords, TreeRecords]:
        """The records that train, and those that score: about this share of them, by a hash of each."""
        if not isinstance(data.tree, tuple) or len(data.tree) != 2:
            raise TypeError(
                f"score = {scores.names_in(self.score)[0]!r} sets records apart by a hash, which takes pairs: "
                "data=(inputs, targets)"
            )
        pair = self.data.tree if isinstance(self.data, TreeRecords) else self.data
        training, held_out = split_within(data.origin.side, *pair, share=share, person=data.person)
        return as_records(training), as_records(held_out)

    @property
    def classes(self) -> int | None:
        """The number of classes of the model; None while it takes hyperparameters that are not fixed."""
        return self.program(self.values({})).classes if self.complete else None

    def refuse_unknown(self, names: Iterable[str]) -> None:
        """Refuse hyperparameters that nothing uses."""
        own = () if isinstance(self.optimizer, str) else step.names_of(self.optimizer)
        taken = OWN.union(self._named, step.option_names(), own)
        for name in names:
            if name not in taken:
                raise ValueError(
                    f"hyperparameter {name!r} is used neither by DPSGD ({', '.join(sorted(OWN))}), nor by the "
                    f"optimiser, nor by init, loss or predict ({', '.join(sorted(self._named)) or 'they name none'})"
                )

    def refuse_optimizer(self, optimizer: Any, argument: str) -> None:
        """Refuse anything that is neither an optimiser of optax by name nor a function that returns one."""
        step.read_optimizer(optimizer, argument)

    def rehearsal(self, full: SampledGaussian, deviation: float, schedule: Any) -> sampled_gaussian.Transfer:
        """The rule for the hyperparameters of a short run, which rehearses the full run's optimiser on pure noise."""
        return NoiseRehearsal(partial(step.walk, schedule=schedule), full, deviation)

    def default_space(self) -> Space:
        """The space that is searched if none is given: the learning rate, with a prior from public values."""
        if not self.complete:
            raise _validate.fail(
                "space", None, "init takes hyperparameters: give a space that has them, or fix them with fixed="
            )
        return self.known_space({"clipping": [self.searched_clipping]})

    @property
    def complete(self) -> bool:
        """Whether everything that init, loss and predict need is fixed."""
        return all(name in self.fixed for name, needed in self._named.items() if needed)

    def shape_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The hyperparameters that init, loss and predict name."""
        given = {**self.fixed, **params}
        return {name: given[name] for name in self._named.keys() & given.keys()}

    def hidden(self, params: Mapping[str, Any]) -> bool:
        """Whether more than one array of weights is trained."""
        return self.program(self.values(params)).matrices > 1

    def movement(self, params: Mapping[str, Any], scale: float, noise: float) -> float:
        """The distance by which noise in all weights moves the outputs of ``predict``, on made-up records.

        A function has no layers to examine one by one. Without ``predict``, the result is that for a linear model.
        """
        if self.predict is None or self.input_size is None:
            return noise * scale
        with quiet():
            return self.program(self.values(params)).movement(scale, noise, self.data.tree[0].shape[1:])

    @property
    def regression(self) -> bool:
        """Whether targets are not whole numbers, with a user's loss."""
        tree = self.data.tree
        pair = isinstance(tree, tuple) and len(tree) == 2 and isinstance(tree[1], np.ndarray)
        return self.loss is not None and pair and tree[1].dtype.kind == "f"

    @property
    def input_size(self) -> int | None:
        """The size of one record's input; None unless records are pairs and inputs are floating-point arrays."""
        tree = self.data.tree
        pair = isinstance(tree, tuple) and len(tree) == 2 and isinstance(tree[0], np.ndarray)
        return math.prod(tree[0].shape[1:]) if pair and tree[0].dtype.kind == "f" else None

    def input_rows(self) -> Iterator[npt.NDArray[Any]]:
        """The inputs of all rows, some at a time. **Secret.**"""
        return rates.some_rows(self.data.tree[0])

    def make(self, params: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> list[Outcome | Exception]:
        """Execute runs, those of one shape together; an exception of a run takes the place of its outcome."""
        with quiet():
            begun = [partial(begin, self, one, seed) for one, seed in zip(params, seeds, strict=True)]
            ended = partial(finish, self.score)
            return make_in_groups(begun, lambda _, one: one.kind, train, lambda _, one, row: ended(one, row))

    def program(self, given: Mapping[str, Any]) -> Program:
        """The program of an architecture, found once."""
        arguments = {name: given[name] for name in self._named.keys() & given.keys()}
        key = repr(sorted(arguments.items()))
        if key not in self._fits:
            with quiet():
                self._fits[key] = Program(
                    self.init, self.loss, self.predict, arguments, self.data, self.rows_per_person
                )
        found: Program = self._fits[key]
        return found

    def rehearse(self, params: Mapping[str, Any], *, seed: int) -> Outcome:
        """Build and score a model without training it, to find errors before anything is drawn."""
        with quiet():
            begun = begin(self, params, seed)
            scores.refuse_targets(self.score, JaxModel(begun.program))
            score = scores.on_synthetic(self.score, lambda one: TreeRecords(as_records(one.data).synthetic_rows(8)))
            return finish(score, begun, begun.row)

    def architecture(self, space: Space) -> str:
        """The arrays of a model of the space; a search resumes only with the same ones."""
        return self.program(self.values(space.sample(Seeded(0)))).description

    def fitting_records(self, space: Space | None = None) -> dict[str, tuple[int, int]]:
        """The number of records that fit, and of all, to train and to score. **Secret**: for the curator alone."""
        program = self.program(self.values({} if space is None else space.sample(Seeded(0))))
        used = {"train": self.data}
        for name, score in scores.scores_of(self.score).items():
            if isinstance(score, scores.RecordScore):
                used[f"score by {name}" if name else "score"] = as_records(score.data)
        return {use: (program.usable(records).size, records.size) for use, records in used.items()}

    def __repr__(self) -> str:
        return f"<mechanism DPSGD of {getattr(self.init, '__qualname__', 'a model')}>"

    @property
    def _named(self) -> dict[str, bool]:
        """Hyperparameters that the model and its loss name, and whether each must be given."""
        found: dict[str, bool] = {}
        for function, leading in ((self.init, 1), (self.loss, 2), (self.predict, 2)):
            for name, needed in named(function, leading).items():
                found[name] = needed or found.get(name, False)
        return found


# Runs: those of one shape are one program, each with its own keys, batches and noise.

_AHEAD = 2**16  # words of a run that are drawn at a time, about
SHOW_GRADIENTS: ContextVar[Callable[[Any], None] | None] = ContextVar("show_gradients", default=None)
"""Called with the noisy gradients of every step, one row for each run, where an audit asks for them."""


@dataclass(frozen=True, eq=False, repr=False)
class Begun:
    """A run with its program and its initial parameters."""

    program: Program
    run: Run
    setting: Setting
    optimizer: step.Optimizer
    row: npt.NDArray[Any]
    piece: int
    grid: SumGrid

    @property
    def kind(self) -> str:
        """A key that the runs of one group share."""
        static, numbers = step.split_options(self.run.options)
        grid = (self.grid.deviation, self.grid.bits)
        same = (id(self.program), self.piece, self.run.steps, grid, self.setting, repr(self.optimizer))
        return repr((same, sorted(static.items()), sorted(numbers)))


def begin(made: DPSGD, params: Mapping[str, Any], seed: int) -> Begun:
    """A run at λ: its program, its steps and its initial parameters."""
    cost, program = made.cost, made.program(made.values(params))
    given, schedule = made.given_at(params, cost.run(params))
    setting = Setting(
        physical_batch_size=made.physical_batch_size, clipping=given["clipping"], average=given["average"]
    )
    options = step.options_of(given["optimizer"], given)
    run = cost.engine_run(cost.run(params), given, seed, options=options, schedule=schedule)
    grid = run.grid(program.size, partial(step.terms, program.size), setting)
    key = step.key_of(noise.Words.of_seed(seed).stream("weights"))
    row = program.row(program.built(key)) if made.start is None else program.row(made.start)
    return Begun(program, run, setting, given["optimizer"], row, setting.piece(run), grid)


def train(group: Sequence[Begun]) -> list[npt.NDArray[Any]]:
    """The trained parameters of a group of runs, one row each."""
    first, runs, grids = group[0], [one.run for one in group], [one.grid for one in group]
    program, setting = first.program, first.setting
    words = [noise.Words.of_seed(run.seed) for run in runs]
    total = program.count
    samplers = [BatchSampler(one, total, run.rate) for one, run in zip(words, runs, strict=True)]
    drawn_by = np.concatenate([one.stream("rows").draw(1) for one in words]).view(np.int64)
    draws = Draws(words, program.size, grids[0].deviation, grids[0].bits)
    keys = jnp.stack([step.key_of(one.stream("masks")) for one in words])
    limits, scales = [grid.most for grid in grids], [grid.scale for grid in grids]
    units = [[grid.unit / run.batch_size] for grid, run in zip(grids, runs, strict=True)]
    public = [np.array(some) for some in (limits, scales, units, 2.0 ** -grids[0].bits)]
    with jax.enable_x64(True):
        most, scale, unit, shrink = jax.device_put(public)
        zeros = jax.device_put([np.zeros((len(runs), one)) for one in program.sizes])
    normalise = setting.clipping is Clipping.NORMALISE
    static, names = step.split_options(first.run.options)
    numbers = {name: np.array([run.options[name] for run in runs], dtype=program.dtype) for name in names}
    stepper = program.stepper(first.optimizer, static)
    rows = mean = jnp.asarray(np.stack([one.row for one in group]))
    state = stepper.start(rows, numbers)
    with np.errstate(over="ignore"):
        rates = np.array([[run.rate_at(at) for run in runs] for at in range(first.run.steps)]).astype(program.dtype)
    ahead = max(1, min(32, _AHEAD // max(1, total)))
    show = SHOW_GRADIENTS.get()
    if (follower := current_follower()) is not None:
        follower.begin([run.pace for run in runs])
    for start in range(0, first.run.steps, ahead):
        block, every = draw(samplers, min(ahead, first.run.steps - start), first.piece)
        for number, (chosen, valid) in enumerate(zip(block.astype(np.int32), every, strict=True), start):
            sums: Any = zeros
            for piece, counts in zip(chosen[filled(valid)], valid[filled(valid)], strict=True):
                gradients, finite = program.gradients(rows, piece, keys, number, drawn_by)
                with jax.enable_x64(True):
                    sums = step.add_clipped(sums, gradients, counts, finite, most, scale, normalise=normalise)
            with jax.enable_x64(True):
                gradient = step.release(sums, draws.draw(), shrink, unit, program.dtype)
            if show is not None:
                show(gradient)
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
    score, metrics = scores.scored(score, JaxModel(program, row, model), begun.run.seed)
    return Outcome(model, score, metrics=metrics)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """On the CPU, which has true double precision, and without JAX's checks for NaN: no record may make a run fail."""
    cpu = jax.devices("cpu")[0]
    with jax.default_device(cpu), jax.debug_nans(False), jax.debug_infs(False), jax.disable_jit(False):
        yield
