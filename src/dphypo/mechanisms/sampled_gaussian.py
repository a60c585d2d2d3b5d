"""The event of DP-SGD, a number of Poisson-sampled Gaussian mechanisms, and shorter runs; no other file builds it.

:class:`OwnTraining` turns your own training loop into a mechanism.

λ always means the full run's hyperparameters. A run with the fraction f of the steps has noise σ/√f
(:func:`match_noise`): what accumulates in the weights of plain SGD is then the same, and its best learning rate stays.
A transfer rule changes the other hyperparameters: :class:`NoiseRehearsal` requires the same of any optimiser, and
:class:`SmallerBatches` also reduces the batch. :func:`rate_of_drift` converts a learning rate given in units of noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import dp_accounting
import numpy as np

from dphypo import _validate
from dphypo._validate import Floats as Floats
from dphypo._validate import full_name
from dphypo.accounting.composition import Sides, read_sides
from dphypo.errors import UnsupportedModelError
from dphypo.mechanisms.fingerprint import held
from dphypo.mechanisms.mechanism import Mechanism, check_signature, ignores, read_cap
from dphypo.mechanisms.procedure import code_of, text_of
from dphypo.mechanisms.savers import Plain, Saver


@dataclass(frozen=True, kw_only=True)
class SampledGaussian:
    """The cost of a run of DP-SGD, from public numbers only: the number of steps, the sampling rate and the noise.

    Args:
        rate: the probability that a step samples a record.
        steps: how many steps.
        noise_multiplier: standard deviation of the noise over the clipping norm.

    >>> run = SampledGaussian.of(records=60_000, batch_size=256, epochs=10, noise_multiplier=0.63)
    >>> run.steps
    2344
    >>> short = run.at(fraction=0.1, match=True)
    >>> short.steps, round(short.noise_multiplier, 2)
    (235, 1.99)
    """

    rate: float
    steps: int
    noise_multiplier: float

    def __post_init__(self) -> None:
        vars(self).update(
            rate=_validate.within(0.0, 1.0, closed="right", rate=self.rate),
            steps=_validate.integer(at_least=1, steps=self.steps),
            noise_multiplier=_validate.positive(noise_multiplier=self.noise_multiplier),
        )

    @classmethod
    def of(
        cls,
        *,
        records: int,
        batch_size: int,
        noise_multiplier: float,
        epochs: float | None = None,
        steps: int | None = None,
        fraction: float = 1.0,
    ) -> SampledGaussian:
        """A run over a declared number of records; its length in epochs or in steps.

        Args:
            records: the number of records, a public constant.
            batch_size: the expected size of a Poisson batch.
            noise_multiplier: as above.
            epochs, steps: the length of the full run, in one of the two.
            fraction: the fraction of the full run's steps to execute; a partial step counts as one.
        """
        batch_size = _validate.integer(at_least=1, batch_size=batch_size)
        records = _validate.integer(at_least=1, records=records)
        if batch_size > records:
            raise _validate.fail(
                "batch_size", batch_size, f"it must be at most the declared {records} records that train"
            )
        fraction = _validate.within(0.0, 1.0, closed="right", fraction=fraction)
        if (epochs is None) == (steps is None):
            raise _validate.fail("steps", steps, "give either epochs or steps")
        if steps is not None:
            made = math.ceil(_validate.integer(at_least=1, steps=steps) * fraction)
        else:
            length = _validate.within(0.0, 1e12, epochs=epochs)  # type: ignore[arg-type]
            made = math.ceil(length * fraction * records / batch_size)
        return cls(rate=batch_size / records, steps=made, noise_multiplier=noise_multiplier)

    @property
    def event(self) -> dp_accounting.DpEvent:
        """The event of the run, under adding or removing one record."""
        step = dp_accounting.PoissonSampledDpEvent(self.rate, dp_accounting.GaussianDpEvent(self.noise_multiplier))
        return dp_accounting.SelfComposedDpEvent(step, self.steps)

    def at(
        self, *, fraction: float = 1.0, match: bool = False, noise_multiplier: float | None = None
    ) -> SampledGaussian:
        """A shorter run, or one with other noise.

        Args:
            fraction: the fraction of the steps to execute.
            match: raise the noise so that what accumulates in the weights stays the same (:func:`match_noise`).
            noise_multiplier: of the full run; by default this one's.
        """
        noise = self.noise_multiplier if noise_multiplier is None else noise_multiplier
        fraction = _validate.within(0.0, 1.0, closed="right", fraction=fraction)
        noise = match_noise(noise, fraction) if match else noise
        return replace(self, steps=math.ceil(self.steps * fraction), noise_multiplier=noise)


def match_noise(noise_multiplier: float, fraction: float) -> float:
    """The noise of a short run whose best learning rate and clipping norm are those of the full run: σ/√f.

    The noise that accumulates in the weights is about η·R·σ·√steps / batch size; this keeps it the same.
    """
    return noise_multiplier / math.sqrt(fraction)


@dataclass(frozen=True, kw_only=True)
class OwnRun(SampledGaussian):
    """The run that ``train`` must execute: its cost, and a loop of Opacus that costs exactly that."""

    seed: int = field(repr=False, compare=False)
    person: Any = field(default=None, repr=False, compare=False)
    rows_per_person: int | None = field(default=None, compare=False)
    _made: list[bool] = field(default_factory=list, init=False, repr=False, compare=False)

    def make_private(
        self, module: Any, optimizer: Any, data_loader: Any, *, max_grad_norm: float
    ) -> AbstractContextManager[Any]:
        """Use it in place of Opacus's ``PrivacyEngine().make_private``: ``with ... as (model, optimizer, loader)``.

        The loader yields ``steps`` Poisson batches at ``rate``, and ``BatchMemoryManager`` may cut them. Noise and
        batches are drawn from the seed. Each step is checked against its batch and, at the end, the history of Opacus's
        accountant against the declared event. A difference raises an error, which is not an outcome of the run. Use one
        block per run: a second one would cost as much again, with the same noise.

        The loss must be the mean over the batch of one value per record, as PyTorch's losses are by default. This is
        not checked: with a sum, or a mean over tokens of all records, a record would rescale the others' gradients.

        Args:
            module, optimizer: an ordinary model, whose layers act on each record by itself, and an ordinary optimiser
                of its parameters.
            data_loader: a ``DataLoader`` of the private records. Gradients are divided by its ``batch_size``. If the
                training was declared with ``person``, a batch holds the drawn rows of the sampled persons, whose
                gradients are averaged before clipping; ``batch_size`` counts persons, and batches cannot be cut.
            max_grad_norm: the clipping norm.
        """
        from dphypo.torch.own_loop import make_private  # the only place here that knows PyTorch

        if self._made:
            raise UnsupportedModelError(
                "run.make_private was called before in this run: the run is declared to train once. To train k models, "
                "declare k times the steps, and use one block"
            )
        self._made.append(True)
        return make_private(self, module, optimizer, data_loader, max_grad_norm=max_grad_norm)


PUBLIC = "public"
_no_code = (lambda: None).__code__
DECLARED_PUBLIC = "public records alone, as whoever declared the training states"


@dataclass(frozen=True, repr=False)
class OwnTraining(Mechanism):
    """Your own training loop, with Opacus or any other library, that :func:`dphypo.tune` can cut short.

    **Guarantee.** One run costs ``run.event``, if ``train`` takes ``run.steps`` steps, each on a Poisson sample at
    ``run.rate``, with gradients clipped for each record and Gaussian noise of ``run.noise_multiplier`` times the
    clipping norm on their sum, looks at the private records in no other way, and draws all noise from ``seed``.

    Args:
        train: ``train(params, *, seed, run) -> (model, score)``; ``run`` is an :class:`OwnRun`, whose ``make_private``
            checks a loop of Opacus against the declaration.
        run: the privacy parameters of the full run: ``SampledGaussian.of(records=..., batch_size=..., epochs=...,
            ...)``.
        scores: "public" declares that scores look at public records alone, so that they cost nothing; the certificate
            says so. Otherwise state what a score costs as ``score_event``.
        score_event: the event of one score, if it looks at private records.
        split: the rule that sets records that score apart from those that train: ``train.split`` of a part of
            ``split_by_hash``, or a :class:`dphypo.Split`. Without one, a record may train and score: the two compose.
        transfer_rule: how the hyperparameters of the full run become those of a short one; by default they are
            unchanged, which is right for SGD. For another optimiser give a :class:`dphypo.mechanisms.NoiseRehearsal` of
            it.
        saver: how the model becomes bytes; by default arrays and plain values. For a model of PyTorch give
            ``Safetensors(model)`` of ``dphypo.torch.saver``.
        data: the private records, if you want a resumed search to refuse others: arrays with one row per record (a
            tuple or a mapping of them), or a data set read by index. Training does not read them from here.
        person: the person of each record of the data loader, if a person has several: an array of keys, the name of a
            field, or a function of a record. The guarantee is then for persons, ``run.rate`` is that of sampling a
            person, and the gradients of a person's rows are averaged before clipping, as ``make_private`` does.
        rows_per_person: at most this many rows of a person, drawn afresh, are used in a step; 8 by default.
        rehearsal: the same loop on a few made-up records, called as ``train`` is, for two steps, before
            anything is drawn or spent: what is wrong with the loop, the model or the score is shown in full.

    >>> def train(params, *, seed, run):
    ...     return {"lr": params["lr"], "steps": run.steps}, 0.5  # a stand-in for run.steps steps
    >>> run = SampledGaussian.of(records=60_000, batch_size=256, epochs=10, noise_multiplier=0.63)
    >>> full = OwnTraining(train, run, scores="public")
    >>> short = full.at(fraction=0.1, match=True)
    >>> short({"lr": 0.1}, seed=1)[0], round(short.run.noise_multiplier, 2)
    ({'lr': 0.1, 'steps': 235}, 1.99)
    """

    train: Callable[..., Any]
    run: SampledGaussian
    score_event: Any = None
    split: Sides | None = None
    transfer_rule: Transfer | None = None
    saver: Saver = field(default_factory=Plain)
    fraction: float = 1.0
    rehearsal: Callable[..., Any] | None = None
    data: Any = None
    scores: str | None = None
    person: Any = None
    rows_per_person: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows_per_person", read_cap(self.person, self.rows_per_person))
        if not callable(self.train):
            raise _validate.fail("train", self.train, "give a function train(params, *, seed, run) -> (model, score)")
        check_signature(self.train, "seed", "run")
        if self.rehearsal is not None:
            check_signature(self.rehearsal, "seed", "run")
        given: object = self.run
        if not isinstance(given, SampledGaussian):
            raise _validate.fail("run", given, "give SampledGaussian.of(records=..., batch_size=..., epochs=...)")
        if isinstance(self.score_event, (list, tuple)) and not self.score_event:
            raise _validate.fail("score_event", self.score_event, "give None if the score looks at no private record")
        if self.data is not None:
            held(self.data)
        object.__setattr__(self, "split", read_sides(self.split))
        if (rule := self.transfer_rule) is not None and batch_exponent(rule):
            raise _validate.fail("transfer_rule", rule, "OwnTraining keeps its batch size: leave the rule out")
        if self.scores not in (None, PUBLIC):
            raise _validate.fail("scores", self.scores, 'give "public", or state what a score costs as score_event')
        if (self.scores is None) == (self.score_event is None):
            remedy = 'say on which records train computes its score: scores="public" if they are public, or what one '
            remedy += "score costs as score_event=, such as dp_accounting.GaussianDpEvent(sigma) (not both)"
            raise _validate.fail("scores", self.scores, remedy)

    @property
    def unit(self) -> str:
        """Who is protected: a record, or a person with all their rows."""
        return "record" if self.person is None else "person"

    @property
    def scored_on(self) -> str:
        """On which records its scores are taken, in words for a certificate."""
        return super().scored_on if self.scores is None else DECLARED_PUBLIC

    @property
    def relation(self) -> dp_accounting.NeighboringRelation:
        return dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE

    @property
    def event(self) -> dp_accounting.DpEvent:
        return self.run.event

    @property
    def transfer(self) -> dict[str, Any] | None:
        """How hyperparameters of a full run become those of this short one, in plain values; None if unchanged."""
        return None if self.fraction == 1 else describe_transfer(self.transfer_rule, self.fraction)

    @property
    def procedure(self) -> str:
        return text_of((code_of(self.train), self.transfer_rule, self.fraction, self.rows_per_person))

    def held_records(self) -> dict[str, Any]:
        """The records that were given as ``data``: for the fingerprint of a search."""
        return {} if self.data is None else {"train": held(self.data)}

    def at(
        self, *, noise_multiplier: float | None = None, fraction: float = 1.0, match: bool = False, **changes: Any
    ) -> OwnTraining:
        """The same training with other noise, or cut short; ``match`` divides the noise by the root of the fraction."""
        run = self.run.at(noise_multiplier=noise_multiplier, fraction=fraction, match=match)
        return replace(self, run=run, fraction=self.fraction * fraction, **changes)

    def __call__(self, params: Mapping[str, Any], *, seed: int) -> Any:
        return self.train(self._transferred(params), seed=seed, run=self._own(self.run, seed))

    def rehearse(self, params: Mapping[str, Any], *, seed: int) -> Any:
        """Try the transfer rule and, if there is one, the rehearsal, whose model is saved once."""
        if ignores(self.train, "run"):
            raise UnsupportedModelError(
                "train does not use its argument run, which holds the noise, the sampling rate and the steps that are "
                "certified. Train in the block of run.make_private(model, optimizer, loader, max_grad_norm=...); "
                "without Opacus, with run.noise_multiplier, run.rate and run.steps"
            )
        given, run = self._transferred(params), replace(self.run, steps=min(2, self.run.steps))
        if self.rehearsal is not None:
            made = self.rehearsal(given, seed=seed, run=self._own(run, seed))
            self.saver.dump(made[0] if isinstance(made, tuple) else made)
            return made
        if isinstance(self.saver, Plain) and "make_private" in getattr(self.train, "__code__", _no_code).co_names:
            _validate.warn(
                "saver = Plain() saves arrays and plain values, and train seems to return a model of PyTorch: the last "
                "run would fail after everything is spent. Give OwnTraining(saver=Safetensors(net)) of "
                "dphypo.torch.saver, or a rehearsal=, whose model is saved before anything is spent"
            )
        return None

    def _own(self, run: SampledGaussian, seed: int) -> OwnRun:
        return OwnRun(**vars(run), seed=seed, person=self.person, rows_per_person=self.rows_per_person)

    def _transferred(self, params: Mapping[str, Any]) -> dict[str, Any]:
        if self.transfer_rule is None or self.fraction == 1:
            return dict(params)
        return apply_transfer(self.transfer_rule, dict(params), self.fraction)

    def __repr__(self) -> str:
        return f"<mechanism {getattr(self.train, '__qualname__', 'train')}>"


def describe_transfer(rule: Any, fraction: float) -> dict[str, Any]:
    """How λ of a full run becomes that of a short one, in values for a certificate; a user's rule by its name."""
    said: Mapping[str, Any] = {} if rule is None else {"rule": full_name(rule)}
    said = rule.describe() if hasattr(rule, "describe") else said
    return {"fraction": fraction, "noise_multiplier": "full / sqrt(fraction)", **said}


COSTS = frozenset({"batch_size", "lot_size", "sampling_rate", "sample_rate", "subsample", "noise_multiplier"})
COSTS |= {"epochs", "num_epochs", "steps", "num_steps", "iterations", "fraction"}
"""Usual names of hyperparameters that change what a run costs."""

Transfer = Callable[[Mapping[str, Any], float], Mapping[str, Any]]
"""A rule: from the hyperparameters of the full run and the fraction to those of the short run."""

Walk = Callable[[Mapping[str, Any], Iterable[Floats], int], Floats]
"""An optimiser: from hyperparameters, gradients and their number to the weights after them, starting at zero.

It has the schedule of a run of that many steps, and averages weights if the run does.
"""


CAP = 5.0
"""The largest learning rate of a network with hidden layers, for gradients of norm one and without momentum."""


def rate_of_drift(
    drift: float,
    run: SampledGaussian,
    *,
    batch_size: float,
    max_grad_norm: float = 1.0,
    momentum: float = 0.0,
    schedule: Callable[[float], float] | None = None,
    hidden: bool = False,
    adam: bool = False,
) -> float:
    """The learning rate with which noise alone gives every weight this standard deviation by the end of a run.

    A step adds noise of deviation η·σ·C/B to a weight, momentum μ makes it 1/(1 − μ) times as large, and T steps add up
    to √T times that: η = drift·B·(1 − μ)/(σ·C·√T). With a schedule √T is the root of the sum of its squares. A step in
    a network with hidden layers must not be too large, however little noise there is: η is at most 5·(1 − μ)/C.

    Adam divides a gradient by its size, so that noise takes a weight as far as √T steps of length η: η = drift/√T.

    >>> from dphypo.mechanisms import SampledGaussian
    >>> run = SampledGaussian(rate=0.1, steps=400, noise_multiplier=2.0)
    >>> [round(rate_of_drift(c, run, batch_size=256, hidden=True), 6) for c in (0.2, 2.0)]
    [1.28, 5.0]
    """
    _validate.positive(drift=drift)
    squares = run.steps if schedule is None else sum(schedule(at / run.steps) ** 2 for at in range(run.steps))
    if adam:
        return drift / math.sqrt(max(squares, 1e-12))
    kept = 1.0 - _validate.within(0.0, 1.0, closed="left", momentum=momentum)
    rate = drift * batch_size * kept / (run.noise_multiplier * max_grad_norm * math.sqrt(max(squares, 1e-12)))
    return min(rate, CAP * kept / max_grad_norm) if hidden else rate


@dataclass(frozen=True)
class SmallerBatches:
    """Short runs of plain SGD with smaller batches, for spaces with batch sizes.

    A run of the fraction f has the batch B·f^b, f^(1-b) of the steps, noise σ/√(f^(1-b)) and the learning rate η·f^b:
    what accumulates in the weights and the number of examples processed do not change. If short runs kept the full
    batch, those with a large batch would take too few steps to learn anything, and surveys would favour small batches.
    0.3 was chosen on MNIST; on CIFAR-10, where it was judged, it gained 0.012 (paper/RESULTS.md).

    Args:
        exponent: b, at least 0 and below 1.

    >>> short = SmallerBatches()({"learning_rate": 0.5}, 0.1)  # DPSGD takes the batch of a short run from the rule
    >>> round(short["learning_rate"], 3)
    0.251
    """

    exponent: float = 0.3

    def __post_init__(self) -> None:
        _validate.within(0.0, 1.0, closed="left", exponent=self.exponent)

    def __call__(self, params: Mapping[str, Any], fraction: float) -> Mapping[str, Any]:
        name = str(params.get("optimizer", "sgd")).lower()
        if name != "sgd" or params.get("momentum"):
            _validate.warn(f"smaller batches were measured for plain SGD alone, not for {name}: leave the rule out")
        return {**params, "learning_rate": params["learning_rate"] * fraction**self.exponent}

    def describe(self) -> dict[str, Any]:
        """The rule in values that a certificate can hold."""
        return {
            "rule": "learning_rate * fraction ** batch_exponent",
            "batch_exponent": self.exponent,
            "noise_multiplier": "full / sqrt(fraction ** (1 - batch_exponent))",
        }


_WEIGHTS = 1024
_CLOSE = 1e-3
_TRIES = 20


@dataclass(frozen=True)
class NoiseRehearsal:
    """Finds the learning rate of a short run by rehearsing the optimiser on pure noise; it needs no data.

    η_short is the learning rate with which noise alone moves the weights as far as in the full run. Both runs are
    simulated, each with its noise, on made-up weights. For plain SGD η does not change. The rule is public and takes
    milliseconds; paper/ANCHORS.md names the tasks on which it was judged.

    Args:
        walk: the optimiser.
        run: the full run.
        deviation: the standard deviation of the noise on a weight's mean gradient in the full run, σ·C/batch size. It
            matters only relative to the small number that optimisers add to a root.

    >>> from dphypo.mechanisms import SampledGaussian
    >>> def momentum(params, gradients, steps):
    ...     weights = velocity = 0.0
    ...     for gradient in gradients:
    ...         velocity = params["momentum"] * velocity + gradient
    ...         weights = weights - params["learning_rate"] * velocity
    ...     return weights
    >>> rule = NoiseRehearsal(momentum, SampledGaussian(rate=0.1, steps=180, noise_multiplier=1.0))
    >>> round(rule({"learning_rate": 0.1, "momentum": 0.9}, 0.15)["learning_rate"], 2)
    0.13
    """

    walk: Walk
    run: SampledGaussian
    deviation: float = 1.0

    def __post_init__(self) -> None:
        _validate.positive(deviation=self.deviation)

    def __call__(self, params: Mapping[str, Any], fraction: float) -> Mapping[str, Any]:
        short = self.run.at(fraction=fraction, match=True)
        target = self._drift(params, self.run)
        mapped = dict(params)
        for _ in range(_TRIES):  # one suffices unless the step is not proportional to the learning rate
            drift = self._drift(mapped, short)
            if not (0 < drift < math.inf and 0 < target < math.inf):
                break
            if abs(drift / target - 1) < _CLOSE:
                return mapped
            mapped["learning_rate"] *= target / drift
        remedy = (
            f"no learning rate lets noise move the weights as far in {short.steps} steps as in {self.run.steps}. "
            "Give your own rule with transfer_rule=..., a function of (hyperparameters, fraction)"
        )
        raise _validate.fail("learning_rate", params["learning_rate"], remedy)

    @staticmethod
    def describe() -> dict[str, Any]:
        """The rule in values that a certificate can hold."""
        return {"rule": "noise alone takes the weights as far as in the full run"}

    def _drift(self, params: Mapping[str, Any], run: SampledGaussian) -> float:
        """How far noise takes the weights, relative to the sum of the noise, which is known: few weights suffice."""
        noise = self.deviation * run.noise_multiplier / self.run.noise_multiplier
        total = np.zeros(_WEIGHTS)

        def gradients() -> Iterator[Floats]:
            random = np.random.default_rng(0)  # the same in every rehearsal
            for _ in range(run.steps):
                gradient = noise * random.standard_normal(_WEIGHTS)
                np.add(total, gradient, out=total)
                yield gradient

        end = self.walk(params, gradients(), run.steps)
        return float(noise * np.sqrt(run.steps * np.mean(np.square(end)) / np.mean(np.square(total))))


def batch_exponent(rule: Transfer | None) -> float:
    """The power of the fraction by which a rule scales the batch of short runs; 0 if it does not."""
    return rule.exponent if isinstance(rule, SmallerBatches) else 0.0


def apply_transfer(rule: Transfer, params: Mapping[str, Any], fraction: float) -> dict[str, Any]:
    """The hyperparameters of a short run; an error if the rule changes what the run costs."""
    mapped = dict(rule(dict(params), fraction))
    for name in COSTS & (params.keys() | mapped.keys()):
        if (value := mapped.get(name)) != params.get(name):
            raise _validate.fail(name, value, "a transfer rule may not change it: the event of a run depends on it")
    return mapped
