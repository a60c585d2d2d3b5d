"""Runs of :class:`DPSGD`, one or many: build the models, train them, score them.

Everything random in a run comes from its seed, with a separate stream of :class:`dphypo.noise.Words` for each purpose.
The engine draws batches, dither and noise from streams of its own. Here the global generators are seeded, for what
carries no guarantee: the untrained model, the trial on made-up records, and what a score itself draws.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from dphypo import _validate
from dphypo.errors import UnsupportedModelError
from dphypo.mechanisms import Outcome, SampledGaussian
from dphypo.mechanisms.fingerprint import SIZE, sum_of
from dphypo.mechanisms.mechanism import current_follower
from dphypo.search.rates import some_rows
from dphypo.torch import engine, hyperparameters, saver
from dphypo.torch.data import DigestRequest, PersonRows, TensorRecords, TorchRecords, as_records
from dphypo.torch.domain import Domain
from dphypo.torch.engine import distributed, memory
from dphypo.torch.engine.batch_rows import Batch
from dphypo.torch.engine.capture import RecordGraph
from dphypo.torch.engine.device import seeded
from dphypo.torch.engine.operators import check_constants
from dphypo.torch.engine.trainable import share_frozen
from dphypo.torch.fields import called, plain
from dphypo.torch.record_values import TorchModel, captured, classes_of, keeping, per_record
from dphypo.training import scores
from dphypo.training.base import DivergedError, Schedule, make_in_groups
from dphypo.training.poisson_draws import piece_size, shared_piece

if TYPE_CHECKING:
    from dphypo.torch.dpsgd import DPSGD

_UNTRAINED = 0  # the seed of the untrained model that all runs of an architecture share


@dataclass(frozen=True, eq=False, repr=False)
class Begun:
    """A run whose untrained model is on its device; ``untrained`` is a hash of the factory's weights."""

    program: engine.Program
    records: TorchRecords
    model: nn.Module
    run: engine.Run
    setting: engine.Setting
    untrained: bytes
    arguments: Mapping[str, Any]


@dataclass(frozen=True, eq=False, repr=False)
class TorchRun:
    """A run of a mechanism at λ, with all its randomness.

    ``fits`` keeps, for each architecture, its program and the records that it can use.
    """

    mechanism: DPSGD
    params: Mapping[str, Any]
    seed: int
    fits: dict[str, Any]

    def begin(self, cost: SampledGaussian | None = None) -> Begun:
        """Build the untrained model on its device; :class:`UnsupportedModelError` if it cannot be trained."""
        run, setting, views = self._engine_run(self.mechanism.cost.run(self.params) if cost is None else cost)
        model = self._untrained()
        built = plain(model)
        untrained = saver.fingerprint(built)
        program, records = self._fit(model, views)
        if (kept := self.mechanism.kept) is not None:
            saver.start_from(built, replace(self, seed=_UNTRAINED)._built())
        saver.start_from(built, self.mechanism.start, 1.0 if kept is None else kept)
        share_frozen(model, program.model)
        return Begun(program, records, model, run, setting, untrained, self._arguments())

    def prepare(self) -> None:
        """Refuse a model that cannot be trained, and remember how to train one that can."""
        model = self._untrained()
        self.refuse_targets(plain(model))
        self._fit(model, self.mechanism.rows_per_person or self.mechanism.views, refuse=self._refuse_larger)

    def _refuse_larger(self, program: engine.Program) -> None:
        """Refuse batches, or pieces of them, that need more memory than the device has."""
        mechanism = self.mechanism
        count, batch = cast(int, mechanism.records), mechanism.cost.batch(cast(int, mechanism.batch_size))
        rate = min(1.0, batch / count)
        memory.refuse_larger(program, piece_size(count, rate, self._at_most(count, rate), mechanism.shards or 1))

    def _at_most(self, records: int, rate: float) -> int | None:
        """How many records a piece may hold."""
        size, devices, shards = self.mechanism.physical_batch_size, self.mechanism.devices, self.mechanism.shards
        shared = size is None and devices is not None and shards is None
        return shared_piece(records, rate) if shared else size

    def refuse_targets(self, model: nn.Module) -> None:
        """Refuse targets that a score cannot use."""
        trained = TorchModel(model, self.mechanism.loss)
        trained.refuse_loss(self.mechanism.loss, self.mechanism.data)
        scores.refuse_targets(self.mechanism.score, trained)

    def classes(self) -> int | None:
        """How many classes the model distinguishes; None if its output is not one tensor."""
        return classes_of(self._built(), self.mechanism.data)

    def fitting(self) -> dict[str, tuple[int, int]]:
        """How many records the run can use, and how many were given: to train, and for each score. **Secret.**"""
        used: dict[str, tuple[TorchRecords, dict[str, Any]]] = {}
        if not self.mechanism.in_shards:  # no process reads all
            used["train"] = self.mechanism.data, {"loss": per_record(self.mechanism.loss)}
        for name, one in scores.scores_of(self.mechanism.score).items():
            name = f"score by {name}" if name else "score"
            if isinstance(one, scores.PrivateLoss):
                used[name] = as_records(one.data, one.example), {"loss": per_record(one.loss or cross_entropy)}
            elif isinstance(one, scores.PrivateAccuracy | scores.PrivateConfusion):
                used[name] = as_records(one.data, one.example), {"labelled": True, "ignored": one.ignore_index}
        model, found = self._built(), {}
        for name, (records, how) in used.items():
            domain = Domain.of(called(model, records.fields), records.example, **how)
            found[name] = records.counts(domain), records.size
        return found

    def finish(self, begun: Begun, model: nn.Module) -> Outcome:
        """Score a trained model, and check that the run left nothing behind."""
        if not all(bool(parameter.isfinite().all()) for parameter in model.parameters()):
            raise DivergedError("the weights are not finite: training diverged")
        model = copy.deepcopy(model).eval()  # the score may write to its own alone
        before = saver.fingerprint(model)
        score, metrics = self._scored(self.mechanism.score, model, begun.program)
        if saver.fingerprint(model) != before:
            raise UnsupportedModelError("the score changes the model: let it look at the weights, or at a copy of them")
        saver.refuse_other_weights(begun.untrained, self._built())
        self._remember_graph(model, begun.program)
        return Outcome(plain(model).cpu(), score, metrics=metrics)

    def rehearse(self) -> Outcome:
        """Train for two steps on made-up records, and score on them."""
        begun = self.begin(SampledGaussian(rate=1.0, steps=2, noise_multiplier=1.0))
        self.refuse_targets(begun.model)
        records = TensorRecords(*engine.synthetic_records(self._example(), 8), self._example())
        run = replace(begun.run, records=8, batch_size=8, learning_rate=1e-6)
        (model,) = train([replace(begun, run=run, records=records)])
        score = scores.on_synthetic(self.mechanism.score, lambda _: records)
        model = copy.deepcopy(model).eval()
        scored, metrics = self._scored(score, model, begun.program)  # on its device, as in a run
        return Outcome(plain(model).cpu(), scored, metrics=metrics)

    def trained(self) -> int:
        """How many arrays of weights are trained, not counting biases."""
        return sum(one.requires_grad and one.dim() > 1 for one in self._built().parameters())

    def movement(self, scale: float, noise: float) -> float:
        """How far noise in all weights moves the outputs of the layer that moves most, on made-up records."""
        model, example = self._built().eval(), self.mechanism.data.example
        with self._alone("weights"):
            inputs = hyperparameters.synthetic_inputs(example, None if self.mechanism.data.fields else scale)
            return hyperparameters.movement(model, called(model, self.mechanism.data.fields), inputs, noise)

    def input_rows(self) -> Iterator[npt.NDArray[Any]]:
        """The inputs of all rows, in tables; NaN for a row that no run uses. **Secret.**"""
        records = self.mechanism.data
        if isinstance(records, TensorRecords):
            inputs = records.inputs.detach().cpu()
            yield from some_rows((inputs.float() if inputs.dtype == torch.bfloat16 else inputs).numpy())
            return
        read: Any = self._fit(self._untrained(), self.mechanism.rows_per_person or self.mechanism.views)[1]
        for number in range(len(read)):  # one at a time: a record is read by itself
            inputs, _, usable = read.rows(torch.tensor([number]), torch.ones(1, dtype=torch.bool))
            rows = inputs.double().numpy()
            yield rows if bool(usable[0]) else np.full_like(rows, np.nan)

    def architecture(self) -> str:
        """The layers of the model, and the shapes of its weights."""
        model = self._built()
        layers = [type(layer).__name__ for layer in model.modules()]
        return repr((layers, [(name, tuple(value.shape)) for name, value in model.state_dict().items()]))

    def _scored(self, score: Any, model: nn.Module, program: engine.Program) -> tuple[float, dict[str, float]]:
        """The score that ranks the run, and all its metrics if it has several."""
        with self._alone("scoring"), torch.no_grad(), keeping(program.scores, program.model):
            return scores.scored(score, TorchModel(model), self.seed)

    def _engine_run(self, cost: SampledGaussian) -> tuple[engine.Run, engine.Setting, int]:
        """The run and the setting for the engine, and how many views of a record are averaged."""
        mechanism = self.mechanism
        given, schedule = mechanism.given_at(self.params, cost)
        more = {"optimizer": given["optimizer"], "options": hyperparameters.options(given), "schedule": schedule}
        run = mechanism.cost.engine_run(cost, given, self.seed, **more)
        at_most = self._at_most(run.records, run.rate)
        setting = engine.Setting(
            physical_batch_size=at_most,
            shards=mechanism.shards,
            threads=mechanism.threads,
            clipping=given["clipping"],
            average=given["average"],
        )
        return run, setting, mechanism.rows_per_person or _validate.integer(at_least=1, views=given["views"])

    def _alone(self, purpose: str) -> contextlib.AbstractContextManager[None]:
        """A block in which the seed alone decides what is drawn, whatever other threads of the process do."""
        return seeded(self.seed, self._device, self.mechanism.threads, purpose)

    def restored(self, task: Task) -> tuple[list[nn.Module], engine.Program, TorchRecords]:
        """The untrained models of a leader's task, on this device; their program, and the records."""
        models = [self._untrained() for _ in task.states]
        for one, state in zip(models, task.states, strict=True):
            plain(one).load_state_dict(state)
        return models, *self._fit(models[0], task.views)

    def fingerprint(self, key: bytes) -> int:
        """A fingerprint of the records that train, computed once. For records in shards, only their number."""
        kept, name = self.fits, f"records under {key.hex()}"
        if self.mechanism.in_shards:
            return len(self.mechanism.data)
        if name not in kept:
            kept[name] = sum_of(key, "train", self.mechanism.data.held())
        return cast(int, kept[name])

    def _built(self) -> nn.Module:
        with self._alone("weights"):
            return saver.build(self.mechanism.model, self._arguments())

    def _untrained(self) -> nn.Module:
        """The untrained model on its device, as the engine calls it."""
        return called(self._built().to(self._device), self.mechanism.data.fields)

    def _fit(
        self, model: nn.Module, views: int, refuse: Callable[[engine.Program], None] | None = None
    ) -> tuple[engine.Program, TorchRecords]:
        mechanism = self.mechanism
        key = repr((sorted(self._arguments().items()), views))
        if key not in self.fits:
            example, loss = self._example(), per_record(mechanism.loss)
            if self.seed != _UNTRAINED:  # a constant that the model's code draws is the same for all runs
                model = replace(self, seed=_UNTRAINED)._untrained()
            with replace(self, seed=_UNTRAINED)._alone("trial"), warnings.catch_warnings(action="ignore"):
                autocast = None if mechanism.autocast is None else torch.bfloat16
                program = captured(model, loss, example, autocast=autocast, views=views, augment=mechanism.augment)
            share_frozen(model, program.model)  # before the free memory of the device is read
            if refuse is not None:
                refuse(program)  # before private records are read
            held = {**dict(program.model.named_buffers()), **program.record.constants}
            for declared in {mechanism.records, (mechanism.whole or mechanism).records}:
                check_constants(held, cast(int, declared))
            self.fits[key] = program, mechanism.data.within(Domain.of(model, example, loss)).to(self._device)
        return cast(tuple[engine.Program, TorchRecords], self.fits[key])

    def _remember_graph(self, model: nn.Module, program: engine.Program) -> None:
        """Store the forward pass on a trained model, so that it can be loaded without the code that built it."""
        kept, key = program.scores, "forward pass"
        if key not in kept:
            try:
                kept[key] = RecordGraph.of_value(copy.deepcopy(program.model).eval(), None, self._example())
            except UnsupportedModelError:  # the model is saved without a graph
                kept[key] = None
        if kept[key] is not None:
            saver.remember_graph(model, kept[key])

    def _arguments(self) -> dict[str, Any]:
        return hyperparameters.of_factory(self.mechanism.model, {**self.mechanism.fixed, **self.params})

    def _example(self) -> Batch:
        return cast(Batch, tuple(part.to(self._device) for part in self.mechanism.data.example))

    @property
    def _device(self) -> torch.device:
        return torch.device(cast(torch.device, self.mechanism.device))


def make(runs: Sequence[TorchRun]) -> list[Outcome | Exception]:
    """Execute runs together; an exception of a run takes the place of its outcome."""

    def kind(at: int, one: Begun) -> object:
        return id(one.program), one.setting

    first: dict[str, nn.Module] = {}

    def begin(run: TorchRun) -> Begun:
        begun = run.begin()
        share_frozen(begun.model, first.setdefault("untrained", begun.model))
        return begun

    def finish(at: int, begun: Begun, model: nn.Module) -> Outcome:
        outcome = runs[at].finish(begun, model)
        share_frozen(outcome.model, first.setdefault("trained", outcome.model))
        return outcome

    mechanism = runs[0].mechanism
    mechanism.serve()
    with _team(mechanism) as team:
        share = None if team is None else Share(team, runs[0])
        return make_in_groups([partial(begin, run) for run in runs], kind, partial(train, share=share), finish)


def train(group: Sequence[Begun], share: Share | None = None) -> list[nn.Module]:
    """Train runs of one architecture and setting; they are first announced to the other processes of a team."""
    if share is not None:
        share.announce(group)
    first, models = group[0], iter([one.model for one in group])
    how: dict[str, Any] = {"follower": current_follower(), "team": None if share is None else share.team}
    rows, runs = _rows(first.records, first.program), [one.run for one in group]
    return engine.train(first.program, lambda: next(models), rows, runs, first.setting, **how)


def _rows(records: TorchRecords, program: engine.Program) -> Any:
    """The records as the engine reads them."""
    persons = records.person
    return records if persons is None else PersonRows(records, persons.grouped(program.views))


@contextlib.contextmanager
def _team(mechanism: DPSGD) -> Iterator[distributed.Team | None]:
    """The processes that execute the runs of a mechanism: those of a launcher, or new ones, one for each device."""
    world, devices = distributed.world(), cast(tuple[str, ...] | None, mechanism.devices)
    if world is not None or devices is None or len(devices) == 1:
        yield world
        return
    with distributed.started(_serve, [(_to_send(mechanism, name),) for name in devices[1:]]) as team:
        yield team


def _to_send(mechanism: DPSGD, device: str) -> DPSGD:
    """The part of a mechanism that another process needs: the model, the loss and the records."""
    sent = copy.copy(mechanism)
    vars(sent).update(
        score=scores.no_score, start=None, whole=None, _fits={}, device=torch.device(device), devices=(device,)
    )
    return sent


@dataclass(frozen=True, eq=False, repr=False)
class Task:
    """What the leader sends about runs over the network: everything but the records, which every process has.

    ``records`` is a fingerprint of the records under ``key``; ``states`` are the runs' untrained models.
    """

    key: bytes
    records: int
    arguments: Mapping[str, Any]
    views: int
    states: Sequence[Mapping[str, torch.Tensor]]
    runs: Sequence[engine.Run]
    setting: engine.Setting


_SAME_RECORDS = (
    "Every process must be given the same records in the same order: do not shuffle or divide them. With shards= "
    "each process reads its own alone"
)


@dataclass(frozen=True, eq=False, repr=False)
class Share:
    """The leader's side of runs that a team executes."""

    team: distributed.Team
    run: TorchRun

    def announce(self, group: Sequence[Begun]) -> None:
        """Announce the next runs to the other processes."""
        states = [{name: value.cpu() for name, value in plain(one.model).state_dict().items()} for one in group]
        runs = [  # the other processes have a schedule that is the user's function
            one.run if isinstance(one.run.schedule, Schedule) else replace(one.run, schedule=None) for one in group
        ]
        first, key = group[0], _key()
        found, views = self.run.fingerprint(key), first.program.views
        self.team.leaders(Task(key, found, first.arguments, views, states, runs, first.setting))
        self.team.agree(found.to_bytes(SIZE, "big"), "their records", _SAME_RECORDS)


def serve_leader(mechanisms: Sequence[DPSGD]) -> None:
    """In a launched process that does not lead: serve runs of these mechanisms, then exit."""
    world = distributed.world()
    _refuse_equal_numbers(mechanisms)
    if world is not None and world.rank > 0:
        failed = False
        try:
            _serve(world, *mechanisms)
        except Exception:  # its text would reveal a run whose outcome is secret
            failed = True
        raise SystemExit(int(failed))


def _refuse_equal_numbers(mechanisms: Sequence[DPSGD]) -> None:
    """Refuse two data sets in shards with equally many records: processes identify them by this number alone."""
    known: dict[int, Any] = {}
    for one in mechanisms:
        if one.in_shards and known.setdefault(len(one.data), one.data.read_from) is not one.data.read_from:
            raise UnsupportedModelError("a program has two data sets in shards with equally many records: use one")


def _serve(team: distributed.Team, *mechanisms: DPSGD) -> None:
    """Execute runs with the leader until there are no more."""
    task: Any = None  # a Task, or a DigestRequest
    runs = [TorchRun(one, {}, 0, {}) for one in mechanisms]
    while (task := team.leaders(task)) is not None:
        if isinstance(task, DigestRequest):
            next(one for one in mechanisms if one.in_shards and len(one.data) == task.records).data.held().answer(team)
            continue
        found = _with_records(runs, task)
        team.agree((0 if found is None else task.records).to_bytes(SIZE, "big"), "their records", _SAME_RECORDS)
        assert found is not None
        models, program, records = replace(found, params=task.arguments).restored(task)
        given = [replace(one, schedule=one.schedule or found.mechanism.schedule) for one in task.runs]
        with contextlib.suppress(distributed.RunFailedError):  # the leader has the outcome
            engine.train(program, partial(next, iter(models)), _rows(records, program), given, task.setting, team=team)


def _with_records(runs: list[TorchRun], task: Task) -> TorchRun | None:
    """A run on the records of a task: those of a declared mechanism, or of the same mechanism on all records."""
    for run in runs:
        if run.fingerprint(task.key) == task.records:
            return run
    for whole in [run.mechanism.on_all_records() for run in runs]:
        if whole is not None and (run := TorchRun(whole, {}, 0, {})).fingerprint(task.key) == task.records:
            runs.append(run)
            return run
    return None


@functools.cache
def _key() -> bytes:
    return secrets.token_bytes(32)
