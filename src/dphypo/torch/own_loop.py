"""A user's own loop with Opacus, checked against its declaration: ``run.make_private`` of :class:`OwnTraining`.

There is one Poisson sample at the declared rate for each declared step. Gradients are clipped and perturbed in Opacus's
optimiser; batches and noise are drawn from the seed of the run. Each step must use the records of its batch exactly
once, and at the end Opacus's accountant must have recorded the declared event.

**The accountant** of ``PrivacyEngine(accountant="dphypo")``: Opacus's accountants count one run. A script that trains
forty models and keeps the best reports the ε of one of them. Importing this module registers an accountant that counts
every run trained with it: whichever model the script keeps, its cost is that of all runs together. ``dphypo.tune``
costs far less.

**What Opacus does**: each step includes every record independently with probability ``rate`` and perturbs the clipped
sum with Gaussian noise of standard deviation ``noise_multiplier · max_grad_norm``: one Poisson-sampled Gaussian
mechanism, if floating-point numbers are treated as real numbers and no record affects the gradients of others. Unlike
in Opacus alone, a record whose gradient is not finite contributes zero (infinity times zero is NaN, which would reveal
the record through any noise), and noise is drawn in double precision.
"""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import dp_accounting
import numpy as np
import numpy.typing as npt
import torch
from opacus.accountants import IAccountant, RDPAccountant, register_accountant
from opacus.grad_sample import AbstractGradSampleModule, prepare_module
from opacus.optimizers import DPOptimizer
from torch import nn
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader, Sampler

from dphypo import _validate, noise
from dphypo.accounting import Composition, Term
from dphypo.accounting.composition import EVERYONE, account_published
from dphypo.accounting.profiles import round_epsilon
from dphypo.errors import UnsupportedModelError
from dphypo.mechanisms.sampled_gaussian import OwnRun
from dphypo.torch import engine
from dphypo.torch.engine.device import padded_attention, words
from dphypo.training.persons import PersonKeys, Persons, words_of
from dphypo.training.split import fields_of


def poisson_batches(size: int, run: OwnRun) -> Iterator[npt.NDArray[np.int64]]:
    """The records of each step, each independently with probability ``rate``; ``size`` is private."""
    source = words(run.seed, "sampling")
    for _ in range(run.steps):
        yield noise.poisson_sample(run.rate, source, size)


def clipped_sum(grad_samples: Sequence[torch.Tensor], max_grad_norm: float) -> list[torch.Tensor]:
    """Sum over records of g·min(1, C/‖g‖), over all parameters together; a gradient that is not finite counts as zero.

    >>> clipped_sum([torch.tensor([[3.0, 4.0], [0.3, 0.4], [torch.inf, 0.0]])], 1.0)
    [tensor([0.9000, 1.2000])]
    """
    grad_samples = [g.to(torch.promote_types(g.dtype, torch.float32)) for g in grad_samples]
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in grad_samples]).norm(dim=0)
    finite = norms.isfinite()
    factors = (max_grad_norm / (norms + 1e-6)).clamp(max=1.0)

    def beside(values: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return values.view(-1, *[1] * (g.dim() - 1))

    if not finite.all():
        factors = torch.where(finite, factors, 0.0)
        grad_samples = [torch.where(beside(finite, g), g, 0.0) for g in grad_samples]
    # No matrix product: its precision is a setting of the process.
    return [(beside(factors, g) * g).sum(0) for g in grad_samples]


# Layout of a CPU generator's state: seed, (left, seeded), next, the twister's 624 words, then cached normals.
_STATE_BYTES, _FIRST_WORD, _WORDS = 5056, 3, 624


def noise_generator(seed: int, device: torch.device) -> torch.Generator:
    """The generator of a run's Gaussian noise, on the device where the noise is drawn.

    PyTorch's generator on the CPU is a Mersenne twister that ``manual_seed`` fills from only the low 32 bits of the
    seed: four billion noise streams, few enough to try them all. Here its whole state is filled with words, so that all
    bits of the seed count.

    >>> cpu = torch.device("cpu")
    >>> one, other = (torch.rand(3, generator=noise_generator(seed, cpu)) for seed in (7, 7 + 2**32))
    >>> torch.equal(one, other)
    False
    """
    generator = torch.Generator(device)
    source = words(seed, "noise")
    generator.manual_seed(int(source.draw(1)[0]) >> 1)
    if device.type != "cpu":
        return generator  # CUDA's Philox takes all 64 bits of its seed
    state = np.frombuffer(generator.get_state().numpy().tobytes(), dtype="<u8").copy()
    if state.nbytes != _STATE_BYTES:
        raise RuntimeError(
            f"PyTorch {torch.__version__} keeps {state.nbytes} bytes of generator state where {_STATE_BYTES} were "
            f"expected: this version of dphypo cannot seed it with more than 32 bits, and refuses to use fewer"
        )
    state[_FIRST_WORD : _FIRST_WORD + _WORDS] = source.draw(_WORDS // 2).view(np.uint32)
    generator.set_state(torch.from_numpy(state.view(np.uint8)))
    return generator


def gaussian(std: float, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Normal draws in double precision, from uniforms of 53 bits: values beyond 8.57σ have probability 1e-17.

    In single precision on the CPU, uniforms have 24 bits and draws end at 5.77σ: a larger value would reveal a record.
    """
    return torch.normal(0.0, std, like.shape, dtype=torch.float64, device=like.device, generator=generator)


@dataclass
class GradientCanaries:
    """The canaries that an audit adds to a loop: each is only a long gradient, along a weight of its own.

    They are sampled, averaged, clipped and perturbed with the others. Their weights are one more parameter, next to the
    model's.

    Args:
        size: how many weights there are.
        included: which of them have a record.
    """

    size: int
    included: npt.NDArray[np.int64]
    moves: list[npt.NDArray[np.float64]] = field(default_factory=list)
    """The noisy gradient of every step, along each weight."""

    def beside(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Add the weights to the optimiser."""
        like = next(model.parameters())
        self.weights: Any = nn.Parameter(torch.zeros(self.size, device=like.device, dtype=like.dtype))
        optimizer.add_param_group({"params": [self.weights]})

    def insert(self, parameters: Sequence[Any], drawn: npt.NDArray[np.int64], rows: int) -> int:
        """Append the gradients of the drawn canaries to those of the batch, as many rows for each as a person has.

        Return the number of rows added.
        """
        which = np.repeat(self.included[drawn], rows)
        for one in parameters:
            if one is not self.weights:
                batch = len(one.grad_sample)
                one.grad_sample = torch.cat([one.grad_sample, one.new_zeros((len(which), *one.shape))])
        found = self.weights.new_zeros((batch + len(which), self.size))
        found[torch.arange(batch, len(found)), torch.as_tensor(which)] = _LONG
        self.weights.grad_sample = found
        return len(which)


_LONG = 1e3  # of a canary's gradient, before it is clipped
CANARIES: ContextVar[GradientCanaries | None] = ContextVar("canaries", default=None)
"""The canaries of the audit in progress, if there is one."""


def leave_plain(module: AbstractGradSampleModule, optimizer: Optimizer) -> None:
    """Restore a plain model: no hooks, nothing that they stored about a batch, and no gradient."""
    module.cleanup()
    for layer in module.modules():
        for name in ("activations", "max_batch_len"):
            layer.__dict__.pop(name, None)
    for parameter in optimizer.params:
        parameter.grad = None
        parameter.__dict__.pop("summed_grad", None)


Parts = tuple[AbstractGradSampleModule, DPOptimizer, DataLoader[Any]]


@contextlib.contextmanager
def make_private(
    run: OwnRun,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: DataLoader[Any],
    *,
    max_grad_norm: float,
) -> Iterator[Parts]:
    """The model, the optimiser and exactly ``run.steps`` batches for a loop that takes one step with each.

    Whether the loss is a mean over the batch cannot be checked here: gradients are multiplied by the batch's size.
    """
    if loader.batch_size is None:
        raise _validate.fail("data_loader", loader, "give a loader with a batch_size, which gradients are divided by")
    engine.refuse_layers(model)
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if left := [name for name, one in model.named_parameters() if one.requires_grad and id(one) not in held]:
        remedy = f"it lacks the trained parameters {', '.join(left)}: add them, or freeze them"
        raise _validate.fail("optimizer", type(optimizer).__name__, remedy)
    sampler, canaries = _Poisson(run, loader.dataset), CANARIES.get()
    if canaries is not None:
        canaries.beside(model, optimizer)
    module = prepare_module(model, "hooks", loss_reduction="mean", strict=False)
    private = Optimizer(
        optimizer,
        sizes=sampler.sizes,
        canaries=canaries,
        noise_multiplier=run.noise_multiplier,
        max_grad_norm=_validate.positive(max_grad_norm=max_grad_norm),
        expected_batch_size=loader.batch_size,
        generator=noise_generator(run.seed, next(model.parameters()).device),
    )
    accountant = RDPAccountant()
    private.attach_step_hook(accountant.get_optimizer_hook_fn(sample_rate=run.rate))
    batches: DataLoader[Any] = DataLoader(
        loader.dataset,
        batch_sampler=sampler,
        collate_fn=partial(_collate, loader.dataset, loader.collate_fn),
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory,
        worker_init_fn=loader.worker_init_fn,
    )
    try:
        with _no_writes_in_forward(model), padded_attention(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Full backward hook is firing")  # of Opacus's hooks, on every model
            yield module, private, batches
    finally:
        leave_plain(module, private)
    if accountant.history != [(run.noise_multiplier, run.rate, run.steps)]:
        raise UnsupportedModelError(
            f"the loop did not train as declared: {run.steps} steps at rate {run.rate:g} with noise multiplier "
            f"{run.noise_multiplier:g}. Call optimizer.step() once for each batch of the loader, to its end, and leave "
            "the optimiser's noise alone: a run that stops early, or takes further steps, has another event"
        )


@contextlib.contextmanager
def _no_writes_in_forward(model: nn.Module) -> Iterator[None]:
    """Detect a forward pass that writes to a parameter or a buffer in place, on any records."""
    before: list[tuple[int, torch.Tensor]] = []

    def held() -> Iterator[tuple[int, torch.Tensor]]:
        """Versions, and also bits: a write to ``.data`` does not change the version."""
        for tensor in (*model.parameters(), *model.buffers()):
            yield tensor._version, tensor.detach().to_dense().flatten().view(torch.uint8)

    def enter(module: nn.Module, inputs: object) -> None:
        before[:] = [(version, value.clone()) for version, value in held()]

    def leave(module: nn.Module, inputs: object, outputs: object) -> None:
        pairs = zip(before, held(), strict=True)
        if not all(this[0] == that[0] and torch.equal(this[1], that[1]) for this, that in pairs):
            raise UnsupportedModelError(
                "the model's forward pass writes to its own parameters or buffers: what it learns there from records "
                "gets no noise. Make the forward pass a function of the parameters and one batch"
            )

    hooks = model.register_forward_pre_hook(enter), model.register_forward_hook(leave)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class Optimizer(DPOptimizer):  # type: ignore[misc]
    """Opacus's optimiser, which takes a step only with the records of the batch that the loader returned for it.

    Gradients that are not finite count as zero, and noise is drawn in double precision.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, *, sizes: deque[_Size], canaries: GradientCanaries | None, **more: Any
    ) -> None:
        super().__init__(optimizer, **more)
        self._sizes, self._rows, self._canaries, self._added = sizes, 0, canaries, 0
        self._norms: set[float] = set()

    def clip_and_accumulate(self) -> None:
        self._rows += len(self.grad_samples[0]) - self._added
        self._norms.add(float(self.max_grad_norm))
        if self._sizes and self._sizes[0].persons is not None:
            self._average(self._sizes[0])
        for parameter, total in zip(self.params, clipped_sum(self.grad_samples, self.max_grad_norm), strict=True):
            parameter.summed_grad = total if parameter.summed_grad is None else parameter.summed_grad + total

    def _average(self, size: _Size) -> None:
        """Replace the gradients of each person's rows by their average, leaving out rows that are not finite."""
        if self._rows != size.rows:
            raise UnsupportedModelError(
                "with person= the rows of a batch are averaged by person, so they cannot be cut into pieces: leave "
                "BatchMemoryManager out, and lower batch_size or rows_per_person to save memory"
            )
        samples = self.grad_samples
        finite = torch.stack([one.flatten(1).isfinite().all(1) for one in samples]).all(0)
        of = torch.tensor(size.persons, dtype=torch.int64, device=finite.device)
        people = max(size.persons or [-1]) + 1
        counts = torch.zeros(people, device=finite.device).index_add_(0, of, finite.float()).clamp_(min=1)
        for parameter, one in zip(self.params, samples, strict=True):
            clean = torch.where(finite.view(-1, *[1] * (one.dim() - 1)), one, 0.0)
            totals = clean.new_zeros((people, *one.shape[1:])).index_add_(0, of, clean)
            parameter.grad_sample = totals / counts.view(-1, *[1] * (one.dim() - 1)).to(totals.dtype)

    def add_noise(self) -> None:
        if not self._sizes or self._rows != self._sizes.popleft().rows:
            raise UnsupportedModelError(
                "a step does not use exactly the records of its batch. Compute the loss on each batch of the loader "
                "that make_private gives, all of its records, once, and call optimizer.step() once for it"
            )
        if self._norms - {float(self.max_grad_norm)}:
            raise UnsupportedModelError(
                "max_grad_norm changed within a step: a record that was clipped to a larger norm gets the noise of a "
                "smaller one. Change it between steps: with BatchMemoryManager, only after the last piece of a batch"
            )
        self._rows, self._norms = 0, set()
        std = self.noise_multiplier * self.max_grad_norm
        for parameter in self.params:
            total = parameter.summed_grad
            parameter.grad = (total + gaussian(std, total, self.generator)).to(parameter.dtype).view_as(parameter)
        if self._canaries is not None:
            self._canaries.moves.append(self._canaries.weights.grad.double().cpu().numpy())

    def pre_step(self, closure: Callable[[], float] | None = None) -> bool | None:
        if self._canaries is not None and self._sizes:
            size = self._sizes[0]  # all canaries of a batch are with its first piece
            drawn = size.canaries if self._rows == 0 else size.canaries[:0]
            self._added = self._canaries.insert(self.params, drawn, size.rows_of_canaries)
        # What a step has used is cleared here: model.zero_grad() leaves the sums.
        ready: bool | None = super().pre_step(closure)
        for parameter in self.params:
            parameter.grad_sample = None
            if ready:
                parameter.summed_grad = None
        return ready


class _Size(NamedTuple):
    """The number of rows of a batch and, if records are persons, the position of each row's person in it.

    In an audit, the canaries drawn with it are not counted as rows; they come last in ``persons``.
    """

    rows: int
    persons: list[int] | None = None
    canaries: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    rows_of_canaries: int = 1


class _Poisson(Sampler[list[int]]):
    """The batches of a run: a second pass over them is empty. ``sizes`` are the sizes of batches not used yet."""

    def __init__(self, run: OwnRun, dataset: Any) -> None:
        self._persons: Persons | None = None
        if run.person is not None:
            person = run.person
            if isinstance(person, str):
                person = lambda record: (fields_of(record) or {})[run.person]  # noqa: E731
            self._persons = PersonKeys.of(person, len(dataset), dataset.__getitem__).grouped(run.rows_per_person or 1)
        count = len(dataset if self._persons is None else self._persons)
        canaries = CANARIES.get()
        self._count, total = count, count + (0 if canaries is None else len(canaries.included))
        self._steps, self._left = run.steps, enumerate(poisson_batches(total, run))
        self._word = words(run.seed, "rows").draw(1).view(np.int64)
        self.sizes: deque[_Size] = deque()

    def __iter__(self) -> Iterator[list[int]]:
        for step, drawn in self._left:
            batch, canaries = drawn[drawn < self._count], drawn[drawn >= self._count] - self._count
            if self._persons is None:
                self.sizes.append(_Size(len(batch), canaries=canaries))
                yield batch.tolist()
                continue
            rows, held = self._persons.drawn(batch, words_of(self._word, step, batch)[0])
            persons, each = np.nonzero(held)[0].tolist(), held.shape[1]
            persons += np.repeat(len(batch) + np.arange(len(canaries)), each).tolist()
            self.sizes.append(_Size(int(held.sum()), persons, canaries, each))
            yield rows[held].tolist()

    def __len__(self) -> int:
        return self._steps


def _collate(dataset: Any, collate: Callable[[list[Any]], Any], records: list[Any]) -> Any:
    """The loader's collation; for a batch without records, an empty batch of the same structure."""
    if records:
        return collate(records)
    return tree_map(lambda part: part[:0] if isinstance(part, torch.Tensor) else part, collate([dataset[0]]))


Step = tuple[float, float, int]  # noise multiplier, sampling rate, steps


class SearchAccountant(IAccountant):  # type: ignore[misc]
    """The ε of every run that was trained with this accountant in this process, together."""

    trained: ClassVar[list[SearchAccountant]] = []
    """The accountants of all runs that have taken a step."""

    def __init__(self) -> None:
        super().__init__()

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        if self not in self.trained:  # the solver of make_private_with_epsilon makes none
            self.trained.append(self)
        last = self.history[-1] if self.history else None
        if last is not None and last[:2] == (noise_multiplier, sample_rate):
            self.history[-1] = (noise_multiplier, sample_rate, last[2] + 1)
        else:
            self.history.append((noise_multiplier, sample_rate, 1))

    def get_epsilon(self, delta: float, **_: Any) -> float:
        """An upper bound for all runs so far, rounded up; Poisson sampling and adding or removing one record."""
        runs: Counter[tuple[Step, ...]] = Counter()
        for one in {*self.trained, self}:
            if one.history:
                runs[tuple(one.history)] += 1
        terms = []
        for history, count in runs.items():
            steps = [
                dp_accounting.SelfComposedDpEvent(
                    dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise)), number
                )
                for noise, rate, number in history
            ]
            event = steps[0] if len(steps) == 1 else dp_accounting.ComposedDpEvent(steps)
            terms.append(Term(account_published(event, count), EVERYONE))
        return round_epsilon(Composition(tuple(terms)).epsilon(delta)) if terms else 0.0

    def __len__(self) -> int:
        return len(self.history)

    @classmethod
    def mechanism(cls) -> str:
        return "dphypo"


register_accountant("dphypo", SearchAccountant, force=True)
