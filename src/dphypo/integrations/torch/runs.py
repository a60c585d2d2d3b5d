"""Runs of :class:`DPSGD`, one or many: build the models, train them, score them."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from dphypo import _validate, dpsgd
from dphypo.integrations import groups
from dphypo.integrations.cost import Cost
from dphypo.integrations.torch import check, exact, factory, hyperparameters, lost_records, seeds
from dphypo.integrations.torch.data import Records, TensorRecords, as_records
from dphypo.integrations.torch.domain import Batch, Domain
from dphypo.integrations.torch.fields import called, plain
from dphypo.integrations.torch.loss import per_record
from dphypo.integrations.torch.metrics import Metrics
from dphypo.integrations.torch.optimiser import rehearsal
from dphypo.integrations.torch.score import PrivateLoss, RecordScore, is_private
from dphypo.integrations.torch.state import Snapshot
from dphypo.integrations.torch.training import Descent, Engine, Training
from dphypo.integrations.training import DivergedError
from dphypo.mechanisms import DpSgd, Outcome, transfer

if TYPE_CHECKING:
    from dphypo.integrations.torch.dpsgd import DPSGD

Way = dpsgd.Program | str
"""How our engine trains an architecture; or the mode in which Opacus computes its gradients."""


@dataclass(frozen=True)
class Fit:
    """What is found once for each architecture: how it is trained, and the records it can use."""

    way: Way
    records: Records


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A run with given hyperparameters.

    Args:
        mechanism: what is run.
        params: λ, as the search drew it.
        seed: all randomness of the run.
        cost: what runs of the mechanism cost, and how large their batches are.
        fits: what was found for each architecture; the run adds its own.
    """

    mechanism: DPSGD
    params: Mapping[str, Any]
    seed: int
    cost: Cost
    fits: dict[str, Fit]

    def begin(self, run: DpSgd | None = None) -> Begun:
        """Build the untrained model on its device; :class:`UnfitModelError` if it cannot be trained."""
        run = self.cost.run(self.params) if run is None else run
        descent, views = self._descent()
        built = self._built()
        untrained = factory.fingerprint(built)
        model = called(built.to(self._device), self.mechanism.data.fields)
        fit = self._fit(model, views)
        factory.start_from(built, self.mechanism.start)
        records = math.ceil(self.cost.records * run.subsample)
        return Begun(self, fit, Training(model, run, descent, records, self.seed), untrained)

    def prepare(self) -> None:
        """Refuse a model that is unfit, and remember how to train one that is fit."""
        built = called(self._built().to(self._device), self.mechanism.data.fields)
        self._fit(built, self.mechanism.views)
        lost_records.warn(built, self.mechanism.data)

    def fitting(self) -> dict[str, tuple[int, int]]:
        """How many records the run can use, and how many were given: to train, and for each score. **Secret.**"""
        score: Any = self.mechanism.score
        scores: dict[str, Any] = {"score": score}
        if isinstance(score, Metrics):
            scores = {f"score by {name}": one for name, one in score.scores.items()}
        used: dict[str, tuple[Records, Any]] = {"train": (self.mechanism.data, self.mechanism.loss)}
        for name, one in scores.items():
            if isinstance(one, RecordScore):
                used[name] = as_records(one.data, one.example), one.loss if isinstance(one, PrivateLoss) else None
        model = self._built()
        return {name: (_count(model, *how), len(how[0])) for name, how in used.items()}

    def finish(self, begun: Begun, model: nn.Module) -> Outcome:
        """Score a trained model, and check that the run left nothing behind."""
        if not all(bool(parameter.isfinite().all()) for parameter in model.parameters()):
            raise DivergedError("the weights are not finite: training diverged")
        model.eval()
        kept = Snapshot.of(model)
        score, metrics = self._scored(self.mechanism.score, model)
        kept.refuse_changes(model)
        factory.refuse_changes(begun.untrained, self._built())
        return Outcome(plain(model).cpu(), score, metrics=metrics)

    def rehearse(self) -> Outcome:
        """Make two steps on made-up records, and score on them."""
        begun = self.begin(DpSgd(rate=1.0, steps=2, noise_multiplier=1.0))
        records = TensorRecords(*dpsgd.made_up(self._example(), 8), self._example())
        descent = dataclasses.replace(begun.training.descent, batch_size=8, learning_rate=1e-6)
        training = dataclasses.replace(begun.training, descent=descent, records=8)
        (model,) = self.trained(Fit(begun.fit.way, records), [training])
        score: Any = self.mechanism.score
        made_up: dict[str, Any] = {"data": records, "example": None, "records": 10**6, "noise_multiplier": 1.0}
        if isinstance(score, Metrics):
            score = score.on_made_up(**made_up)
        elif isinstance(score, RecordScore):
            score = dataclasses.replace(score, **made_up)
        scored, metrics = self._scored(score, model.eval())  # on its device, as in a run
        return Outcome(plain(model).cpu(), scored, metrics=metrics)

    def architecture(self) -> str:
        """The layers of the model, and the shapes of its weights."""
        model = self._built()
        layers = [type(layer).__name__ for layer in model.modules()]
        return repr((layers, [(name, tuple(value.shape)) for name, value in model.state_dict().items()]))

    def trained(self, fit: Fit, trainings: Sequence[Training]) -> list[nn.Module]:
        """Train by an engine, all in one way."""
        if isinstance(fit.way, dpsgd.Program):
            return exact.train(fit.way, trainings, fit.records)
        from dphypo.integrations.torch import opacus  # a second that our own engine need not wait

        for training in trainings:
            with self._alone("training"):
                opacus.train(fit.way, training, fit.records, per_record(self.mechanism.loss))
        return [training.model for training in trainings]

    def _scored(self, score: Any, model: nn.Module) -> tuple[float, dict[str, float]]:
        """What ranks the run, and all its metrics where it has several."""
        with self._alone("scoring"), torch.no_grad():
            if isinstance(score, Metrics):
                metrics = score(model, seed=self.seed)
                return next(iter(metrics.values())), metrics
            return float(score(model, seed=self.seed) if is_private(score) else score(plain(model))), {}

    def _descent(self) -> tuple[Descent, int]:
        """How λ uses noisy gradients, and how many views of a record are averaged."""
        made = self.mechanism
        names = ("learning_rate", "max_grad_norm", "optimizer", "clipping", "average", "views")
        given = {**{name: getattr(made, name) for name in names}, **made.fixed, **self.params}
        if made.matched and made.fraction < 1:
            full, deviation = self.cost.full_run(self.params, given)
            own = partial(rehearsal, run=full, deviation=deviation, schedule=made.schedule)
            given = transfer.apply(made.transfer_rule or own, given, made.fraction)
        descent = Descent(
            batch_size=self.cost.batch(given.get("batch_size", self.cost.batch_size)),
            max_grad_norm=_validate.positive(max_grad_norm=given["max_grad_norm"]),
            learning_rate=_validate.positive(learning_rate=given["learning_rate"]),
            optimizer=given["optimizer"],
            options={name: value for name, value in given.items() if name in hyperparameters.option_names()},
            schedule=made.schedule,
            setting=dpsgd.Setting(
                physical_batch_size=made.physical_batch_size,
                clipping=given["clipping"],
                average=given["average"],
                threads=made.threads,
            ),
        )
        return descent, _validate.integer(at_least=1, views=given["views"])

    def _alone(self, purpose: str) -> contextlib.AbstractContextManager[None]:
        """Nothing but the seed decides what happens inside, whatever other threads of the process do."""
        return seeds.everything_else(self.seed, self._device, self.mechanism.threads, purpose)

    def _built(self) -> nn.Module:
        with self._alone("weights"):
            return factory.build(self.mechanism.model, self._arguments())

    def _fit(self, model: nn.Module, views: int) -> Fit:
        """How to train an architecture, found once."""
        made = self.mechanism
        key = repr((sorted(self._arguments().items()), views))
        if key not in self.fits:
            example, loss = self._example(), per_record(made.loss)
            with self._alone("trial"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check.try_out(model, loss, example)
                way: Way
                if made.engine is Engine.OPACUS:
                    from dphypo.integrations.torch import opacus

                    way = opacus.fit(model, loss, example)
                else:
                    casts = None if made.autocast is None else torch.bfloat16
                    way = dpsgd.Program.of(model, loss, example, autocast=casts, views=views, augment=made.augment)
            self.fits[key] = Fit(way, made.data.within(Domain.of(model, example, loss)).to(self._device))
        return self.fits[key]

    def _arguments(self) -> dict[str, Any]:
        return hyperparameters.of_factory(self.mechanism.model, {**self.mechanism.fixed, **self.params})

    def _example(self) -> Batch:
        return cast(Batch, tuple(part.to(self._device) for part in self.mechanism.data.example()))

    @property
    def _device(self) -> torch.device:
        return torch.device(cast(torch.device, self.mechanism.device))


@dataclass(frozen=True, eq=False, repr=False)
class Begun:
    """A run whose model is built: what is trained and how, and a hash of the weights that the factory gave."""

    run: Run
    fit: Fit
    training: Training
    untrained: bytes


def _count(model: nn.Module, records: Records, loss: Any) -> int:
    """How many of the records are in the domain of the model and the loss. **Secret.**"""
    values = None if loss is None else per_record(loss)
    return records.counts(Domain.of(called(model, records.fields), records.example(), values))


def make(runs: Sequence[Run]) -> list[Outcome | Exception]:
    """Make runs, at once where the engine can; what a run raises takes the place of its outcome."""

    def kind(at: int, one: Begun) -> int:
        return -at if isinstance(one.fit.way, str) else id(one.fit)  # Opacus trains one run at a time, in place

    def train(group: Sequence[Begun]) -> list[nn.Module]:
        return group[0].run.trained(group[0].fit, [one.training for one in group])

    return groups.make([run.begin for run in runs], kind, train, lambda at, one, model: runs[at].finish(one, model))
