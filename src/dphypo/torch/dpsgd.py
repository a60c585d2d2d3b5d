"""DP-SGD as a mechanism that a study can search over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy.typing as npt
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from dphypo import _validate
from dphypo.entropy import Seeded
from dphypo.mechanisms import Mechanism, Outcome, SampledGaussian, sampled_gaussian
from dphypo.space import Space
from dphypo.space.dimension import Finite
from dphypo.torch import hyperparameters, runs
from dphypo.torch.columns import taken_by
from dphypo.torch.data import DatasetRecords, TorchRecords, as_records
from dphypo.torch.engine import distributed
from dphypo.torch.engine.device import seeded, with_settings_kept
from dphypo.torch.record_values import TorchModel, is_regression, per_record
from dphypo.torch.runs import TorchRun
from dphypo.torch.saver import Safetensors, build
from dphypo.training.base import GradientTraining
from dphypo.training.scores import Metrics, PrivateLoss, TrainedModel
from dphypo.training.split import Origin, split_within

_AVERAGE = 0.97  # decay of the mean of SGD's iterates if no space is given


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class DPSGD(GradientTraining):
    """Training with DP-SGD: a mechanism for :class:`dphypo.Study` and :func:`dphypo.tune`.

    A search may tune any of ``batch_size``, ``epochs`` or ``steps``, ``learning_rate`` or ``drift``, ``max_grad_norm``
    (the clipping norm), ``optimizer``, ``clipping``, ``average`` and ``views``; anything an optimiser takes
    (``momentum``, ``weight_decay``, ...); and anything the model's factory takes. What the space does not name comes
    from the fields below.

    Formal guarantee: one run is ``steps`` Poisson-sampled Gaussian mechanisms under adding or removing one record, with
    ``rate = batch_size / records``, ``steps = ceil(fraction · epochs · records / batch_size)`` (or λ's own, times the
    fraction) and the noise multiplier of the run's λ, then the score's own event if it has one. The rate, the number of
    steps and the divisor of the gradient are functions of the declared ``records``, never of the actual number. This
    holds to the last bit, up to the slack that the event states (``training/sum_on_grid.py``), assuming an ideal random
    generator and a deterministic device. Training executes a graph of PyTorch's operators that is captured once from
    the model, the loss and the augmentation, for one record of made-up numbers (``engine/capture.py``). No record
    can make a run fail: those outside the domain of the model and the loss (``domain.py``) are left out.

    Args:
        model: builds the untrained model: a function of the hyperparameters that it names, and of nothing private. A
            run trains a copy of the model that it returns, which may therefore contain a public backbone that is loaded
            once.
        data: the private records: a pair (inputs, targets) of arrays or tensors, a mapping of fields (``input_ids``,
            ``attention_mask``, ``labels``, which is the target), a ``TensorDataset``, or any data set that is read by
            index; :func:`as_records` lists all forms. One record must be all that a person contributes, unless
            ``person`` assigns rows to persons.
        score: what to maximise. "accuracy", "loss", "f1", "balanced_accuracy", "auc" or "perplexity": a hash of each
            record decides whether it trains or scores, and :func:`dphypo.tune` finds the noise of the scores. A
            :class:`PrivateAccuracy` or similar uses private records that you set apart. A function of the model must
            read public records only. With several names, or a mapping of names to such scores, the first ranks, and a
            survey publishes all.
        noise_multiplier: standard deviation of the noise over the clipping norm; "calibrate" leaves it to
            :func:`dphypo.tune` or :meth:`calibrated`.
        epochs, batch_size: how long to train; the expected size of a Poisson batch, by default near 4·√records.
        learning_rate: the learning rate itself; if it is left out, ``drift`` determines it.
        drift: the learning rate of SGD or Adam in units of noise: the standard deviation that noise alone gives every
            weight by the end of the run. η follows from it, the batch size, the noise and the steps of the run
            (:func:`dphypo.mechanisms.sampled_gaussian.rate_of_drift`). By default it follows from public values
            (:mod:`dphypo.search.rates`).
        input_scale: how large inputs are, as a public constant: the typical norm of a record's input about the mean.
            By default :func:`dphypo.tune` buys it, and a single run assumes 0.3 times the root of the number of inputs.
        max_grad_norm, optimizer: the clipping norm, and the name of one of PyTorch's optimisers.
        fixed: further hyperparameters, for the optimiser or the factory, that are not tuned.
        loss: one of PyTorch's losses, or a function that returns one value per record.
        records: the number of records, as a public constant. By default the length of ``data``, which declares that
            length public; if it is not, give a round number near it.
        person: the person of each row of ``data``, if a person has several: an array of keys, the name of a field, or a
            function of a record. A record is then a person: steps sample persons, and the gradients of a person's rows
            are averaged before clipping. Keys are integers or strings; a row without one is left out.
        rows_per_person: at most this many rows of a person, drawn afresh, are used at a time; 8 by default.
        persons: the number of persons, as a public constant, in place of ``records``. ``batch_size`` and ``epochs``
            count persons, too.
        example, target, collate, workers: how records are read, as for :func:`as_records`. A data set that is read by
            index needs an example: what its records look like is private.
        rarest: the share of the rarest class, a public constant, for "f1", "balanced_accuracy" and "auc": their noise
            depends on it, and is stated. By default a fifth of an even share is assumed.
        device: where to train; a GPU if there is one.
        devices: train one run on several of this machine's devices: "all" GPUs, a number of them (of processes, where
            there is none), or a list such as ["cuda:0", "cuda:1"]. A run gives the same bits on any number of them,
            including one (``devices=1``); the network between the processes is trusted with sums before noise. Leave it
            out under ``torchrun``, whose processes are used (docs/clusters.md).
        clipping: "clip", or "normalise", which uses only the direction of each gradient, so ``max_grad_norm`` matters
            little.
        average: which mean of the iterates is the model: "last half", a decay below 1 for an exponential mean, or None
            for the last iterate.
        augment, views: ``augment(inputs, uniforms)`` returns a random view of each record (``uniforms(n)`` returns n
            numbers in [0, 1) per record); the gradients of this many views are averaged before clipping.
        autocast: "bfloat16" for forward and backward passes; sums stay in double precision.
        physical_batch_size: process batches in pieces of at most this size, to save memory; below 32, records are
            differentiated one by one, which is much slower, especially on a GPU: use 32 if it fits.
        shards: the number of ranges, a public value, into which the records are divided. Each process of ``torchrun``
            has whole ranges and reads no record of another's. ``data`` is read by index, the same in every process. The
            release has the same bits on any number of processes, but depends on ``shards``: choose as many as the
            processes that you may ever use (docs/clusters.md).
        fraction: the fraction of its steps that a run executes, however their number is given.
        match: whether ``transfer_rule`` maps λ to the hyperparameters of a short run; ``at(match=True)`` sets it.
        transfer_rule: that map, a function of (hyperparameters, fraction); by default a rehearsal of the optimiser on
            pure noise (:class:`dphypo.mechanisms.NoiseRehearsal`).
        schedule: of the learning rate: "constant", "linear" or "cosine"; ("cosine", 0.1) with a warm-up over a tenth of
            the steps; or a function of the share of the steps made so far, in [0, 1), that returns a factor.
        threads: CPU threads of one run. One is fastest for small models; more pay off for large ones.
        start: a model from whose weights a run starts, where shapes agree; it must be public, or paid for like the
            models of a survey.
        kept: how much of ``start`` is kept (see :meth:`continued`); by default all of it.
        whole: all records, if ``score`` is a name and some were set apart; it is filled in automatically.

    >>> mechanism = DPSGD(
    ...     model=lambda width: nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 2)),
    ...     data=(torch.randn(100, 2), torch.randint(2, (100,))),
    ...     score=lambda model: 0.5,
    ...     noise_multiplier=1.0, epochs=2, batch_size=25, device="cpu",
    ... )
    >>> import dp_accounting
    >>> mechanism.event({"width": 8, "batch_size": 50}).event == dp_accounting.SelfComposedDpEvent(
    ...     dp_accounting.PoissonSampledDpEvent(0.5, dp_accounting.GaussianDpEvent(1.0)), 4)
    True
    >>> mechanism({"width": 8, "learning_rate": 0.5}, seed=1).model[0]
    Linear(in_features=2, out_features=8, bias=True)
    """

    model: Callable[..., nn.Module]
    loss: Callable[..., Any] = cross_entropy
    example: Any = None
    target: str | None = None
    collate: Callable[[list[Any]], Any] | None = None
    workers: int = 0
    device: str | torch.device | None = None
    devices: int | str | Sequence[str] | None = None
    augment: Callable[..., torch.Tensor] | None = None
    views: int = 1
    autocast: str | None = None
    shards: int | None = None
    threads: int = 1
    start: nn.Module | None = None
    kept: float | None = None  # type: ignore[misc]

    library: ClassVar[type[TrainedModel]] = TorchModel
    read: ClassVar[tuple[str, ...]] = hyperparameters.READ
    same_fits: ClassVar[frozenset[str]] = frozenset(
        {"model", "data", "example", "target", "collate", "loss", "device", "autocast", "augment", "person"}
    )

    def __post_init__(self) -> None:
        hyperparameters.refuse_model(self.model)
        reading: dict[str, Any] = {"target": self.target, "collate": self.collate, "workers": self.workers}
        reading["taken"] = self._columns()
        records = self._divided(as_records(self.data, self.example, **reading, person=self.person))
        hyperparameters.refuse_optimizer(self.optimizer)
        hyperparameters.refuse_loss(self.loss)
        super().__post_init__()
        _validate.integer(at_least=1, threads=self.threads)
        if self.autocast not in (None, "bfloat16"):
            raise _validate.fail("autocast", self.autocast, 'give "bfloat16", or None')
        devices = self._devices()
        device = _device(self.device if devices is None else devices[0])
        self.set_records(records)
        vars(self).update(devices=devices, device=device)
        self._check_views(self.views)
        hyperparameters.refuse_unknown(self.model, self.fixed)
        _ = self.cost
        if not self._fits and hyperparameters.complete(self.model, self.fixed):
            self._run({}).prepare()  # refuses a model that is unfit before anything runs

    def _divided(self, records: TorchRecords) -> TorchRecords:
        """The records, of which a process reads only its shards; refused if it would have to read all of them."""
        if self.shards is None:
            return records
        _validate.integer(at_least=1, shards=self.shards)
        if not isinstance(records, DatasetRecords):
            remedy = "every process holds all of these records: leave it out, or give a data set that is read by index"
            raise _validate.fail("shards", self.shards, remedy)
        if isinstance(self.score, str | tuple | list):
            remedy = (
                "a hash of each record would decide whether it trains or scores, and every process would read all: "
                "give a function of the model, or a PrivateAccuracy on other records, which process 0 reads"
            )
            raise _validate.fail("score", self.score, remedy)
        if callable(self.person):
            raise _validate.fail("person", self.person, "every process would read all records: give an array of keys")
        return replace(records, shards=self.shards)

    @property
    def in_shards(self) -> bool:
        """Whether processes have shards of the records, and read no others."""
        return isinstance(self.data, DatasetRecords) and self.data.shards is not None

    @property
    def wants_scale(self) -> bool:  # type: ignore[override]
        """Whether the scale of the inputs is to be bought: not for records in shards, all of which no process reads."""
        return not self.in_shards and super().wants_scale

    def _columns(self) -> frozenset[str] | None:
        """The columns that the model takes, if records have columns; None if that is unknown, or it takes any."""
        named = (
            isinstance(self.example, Mapping) or isinstance(self.data, Mapping) or hasattr(self.data, "column_names")
        )
        if not named or not hyperparameters.complete(self.model, self.fixed):
            return None
        with seeded(0, torch.device("cpu"), self.threads, "weights"):
            model = build(self.model, hyperparameters.of_factory(self.model, self.fixed))
        return taken_by(model, self.target)

    def of_named(self, held_out: Any) -> dict[str, Any]:
        """Further arguments of scores that are given by name, for these records."""
        example = self.example if isinstance(held_out, tuple) else None
        return {"loss": self.loss, "ignored": per_record(self.loss).ignored, "example": example}

    def _read_score(self, cap: int | None) -> Any:
        """As given; a loss on private records is that of the training, unless it states another."""
        score = super()._read_score(cap)
        if isinstance(score, Metrics):
            return Metrics({name: self._of_training(one) for name, one in score.scores.items()})
        return self._of_training(score)

    def _of_training(self, score: Any) -> Any:
        if isinstance(score, PrivateLoss) and score.loss is None and self.loss is not cross_entropy:
            return replace(score, loss=self.loss)
        return score

    def parts(self, records: TorchRecords, share: float) -> tuple[TorchRecords, Any]:
        """The records that train, and those that score: about this share of them, by a hash of each."""
        side = records.origin.side
        if isinstance(records, DatasetRecords):
            how: dict[str, Any] = {"share": share, "workers": records.workers, "person": records.person}
            parts = with_settings_kept(partial(split_within, side, records.dataset, **how))
            training, held_out = (
                replace(records, dataset=part, origin=Origin.of(part), person=part.person) for part in parts
            )
            return training, held_out
        if records.fields is not None or records.person is not None:
            pairs = split_within(side, records.inputs, records.targets, share=share, person=records.person)
            trains, scores = (
                replace(records, inputs=one[0], targets=one[1], origin=Origin.of(one), person=one.person)
                for one in pairs
            )
            return trains, scores
        pair = getattr(self.data, "tensors", self.data)  # of a TensorDataset
        pair = pair if isinstance(pair, tuple | list) else (records.inputs, records.targets)
        first, second = split_within(side, *pair, share=share)
        return as_records(first, self.example), second

    def refuse_unknown(self, names: Iterable[str]) -> None:
        """Refuse hyperparameters that nothing uses."""
        hyperparameters.refuse_unknown(self.model, list(names))

    @property
    def classes(self) -> int | None:
        """How many classes the model distinguishes; None while the model takes hyperparameters that are not fixed."""
        return self._run({}).classes() if hyperparameters.complete(self.model, self.fixed) else None

    @property
    def seeded(self) -> bool:
        """Whether the same λ and seed give the same result, whichever runs are executed together: not on a GPU.

        There the size of a product decides how it is computed. A group that is repeated as a whole gives the same bits.
        """
        return torch.device(self.device).type == "cpu"  # type: ignore[arg-type]

    same_alone = seeded

    @property
    def saver(self) -> Safetensors:
        """Models are saved with safetensors."""
        return Safetensors(self.model)

    def continued(self, kept: float, model: nn.Module | None = None) -> DPSGD | None:
        """Training that begins from an earlier model, if the learning rate is in units of noise; else None.

        None also if a model was given as ``start``: runs keep starting from that one.
        """
        if self.learning_rate is not None or self.known() is None or (self.start is not None and self.kept is None):
            return None
        return self.at(start=model, kept=kept)

    def all_devices(self) -> list[str]:
        """The GPUs of this machine; the CPU if there is none."""
        return _gpus() or ["cpu"]

    def _devices(self) -> tuple[str, ...] | None:
        """The devices that a run shares; in a launched process its own device; None if runs are not shared."""
        given, remedy = self.devices, 'give "all", a number of devices, or a list such as ["cuda:0", "cuda:1"]'
        if distributed.launched():
            here = f"cuda:{distributed.local_rank()}" if _gpus() else "cpu"
            own = (here if self.device is None else str(self.device),)
            if given not in (None, own):
                raise _validate.fail(
                    "devices", given, "leave it out: a launcher has started a process for every device"
                )
            return own
        if given is None:
            return None
        if isinstance(given, int):
            count = _validate.integer(at_least=1, devices=given)
            if _gpus() and count > len(_gpus()):
                raise _validate.fail("devices", given, f"this machine has {len(_gpus())} GPUs")
            names: Any = _gpus()[:count] or ["cpu"] * count
        else:
            names = self.all_devices() if given == "all" else given
        if isinstance(names, str) or not names or not all(isinstance(name, str) for name in names):
            raise _validate.fail("devices", given, remedy)
        if self.device is not None and str(torch.device(self.device)) != str(torch.device(names[0])):
            raise _validate.fail("device", self.device, "leave it out: devices= says where runs are executed")
        return tuple(names)

    @property
    def processes(self) -> int:
        """The number of launched processes that execute a run together."""
        team = distributed.world()
        return 1 if team is None else team.size

    def serve(self, mechanisms: Sequence[Mechanism] = ()) -> None:
        """In a launched process that does not lead: serve the runs of the one that does, then exit."""
        runs.serve_leader([one for one in mechanisms or [self] if isinstance(one, DPSGD)])

    def default_space(self) -> Space:
        """The space that is searched if none is given: the learning rate, with a prior from public values.

        Gradients are normalised, so the clipping norm does not matter; SGD's model is an exponential mean of its
        iterates (docs/benchmarks.md).
        """
        if not self.complete:
            remedy = 'such as Space({"drift": loguniform(0.05, 5), "width": [32, 64]}), or fixed={"width": 64}'
            raise _validate.fail("space", None, f"the model takes hyperparameters: give or fix them, {remedy}")
        searched: dict[str, Any] = {"clipping": [self.searched_clipping]}
        if self.optimizer_name == "sgd" and self.average is None:
            searched["average"] = [_AVERAGE]
        return self.known_space(searched)

    @property
    def complete(self) -> bool:
        """Whether the model can be built without further hyperparameters."""
        return hyperparameters.complete(self.model, self.fixed)

    def shape_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The hyperparameters that the model's factory takes."""
        return hyperparameters.of_factory(self.model, {**self.fixed, **params})

    def hidden(self, params: Mapping[str, Any]) -> bool:
        """Whether more than one array of weights is trained."""
        key = repr(("hidden", sorted(self.shape_params(params).items())))
        if key not in self._fits:
            self._fits[key] = self._run(params).trained() > 1
        return bool(self._fits[key])

    def movement(self, params: Mapping[str, Any], scale: float, noise: float) -> float:
        """How far noise in all weights moves the outputs of the layer that moves most, on made-up records."""
        return self._run(params).movement(scale, noise)

    @property
    def regression(self) -> bool:
        """Whether the loss is one of PyTorch's for regression."""
        return is_regression(self.loss)

    @property
    def input_size(self) -> int | None:
        """How many numbers the input of one record has; None for several fields, or tokens, which have no scale."""
        inputs = self.data.example[0]
        plain = self.data.fields is None and inputs.dtype.is_floating_point
        return int(inputs[0].numel()) if plain else None

    def input_rows(self) -> Iterator[npt.NDArray[Any]]:
        """The inputs of all rows, in tables; NaN for a row that no run uses. **Secret.**"""
        return self._run({}).input_rows()

    def refuse_optimizer(self, optimizer: Any, argument: str) -> None:
        """Refuse anything that is not the name of one of PyTorch's optimisers."""
        hyperparameters.refuse_optimizer(optimizer, argument)

    def rehearsal(self, full: SampledGaussian, deviation: float, schedule: Any) -> sampled_gaussian.Transfer:
        """How λ becomes the hyperparameters of a short run, by rehearsing the full run's optimiser on pure noise."""
        return partial(hyperparameters.rehearsal, run=full, deviation=deviation, schedule=schedule)

    def check_space(self, space: Space) -> None:
        """Refuse choices that no run can take, and a space without a hyperparameter that the model requires."""
        super().check_space(space)
        hyperparameters.refuse_missing(self.model, {*self.fixed, *space.names})
        for one in space.parameters:
            if one.name == "views" and isinstance(one.dimension, Finite):
                choices: tuple[Any, ...] = one.dimension.choices
                for value in choices:
                    self._check_views(value)

    def _check_views(self, views: Any) -> None:
        if _validate.integer(at_least=1, views=views) > 1 and self.rows_per_person is not None:
            raise _validate.fail("views", views, "the rows of a person are its views: leave views at 1")

    def make(self, params: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> list[Outcome | Exception]:
        """Execute runs, together where possible; an exception of a run takes the place of its outcome."""
        return runs.make([self._run(one, seed) for one, seed in zip(params, seeds, strict=True)])

    def rehearse(self, params: Mapping[str, Any], *, seed: int) -> Outcome:
        """Train for two steps on a few made-up records, to find errors in the model, the loss or the score."""
        return self._run(params, seed).rehearse()

    def architecture(self, space: Space) -> str:
        """The layers and weights of a model of the space; a search resumes only with the same ones."""
        return self._run(space.sample(Seeded(0))).architecture()

    def fitting_records(self, space: Space | None = None) -> dict[str, tuple[int, int]]:
        """How many records fit, and how many were given: to train, and to score. **Secret**: for the curator alone."""
        return self._run({} if space is None else space.sample(Seeded(0))).fitting()

    def __repr__(self) -> str:
        return f"<mechanism DPSGD of {getattr(self.model, '__qualname__', 'a model')}>"

    def _run(self, params: Mapping[str, Any], seed: int = 0) -> TorchRun:
        return TorchRun(self, params, seed, self._fits)


def _gpus() -> list[str]:
    return [f"cuda:{number}" for number in range(torch.cuda.device_count())]


def _device(given: object) -> torch.device:
    """The requested device; refused if this machine does not have it."""
    if given is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found = " and ".join(["cpu", *_gpus()])
    usable = f"PyTorch can use {found} here: give a device that it can use, or None to let it choose"
    try:
        device = torch.device(given)  # type: ignore[call-overload]
        torch.empty(1, device=device)
    except (AssertionError, RuntimeError, TypeError, ValueError, NotImplementedError):
        raise _validate.fail("device", given, usable) from None
    if device.type == "meta":
        raise _validate.fail("device", given, usable)
    return device  # type: ignore[no-any-return]
