"""One run of :class:`DPSGD`: build the model, train it, score it."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from dphypo import _validate
from dphypo.integrations.torch import check, factory, hyperparameters, seeds
from dphypo.integrations.torch.clipping import GradSampleMode
from dphypo.integrations.torch.cost import Cost
from dphypo.integrations.torch.data import Records, TensorRecords, made_up
from dphypo.integrations.torch.domain import Batch, Domain
from dphypo.integrations.torch.loss import per_record
from dphypo.integrations.torch.optimiser import TorchOptimiser
from dphypo.integrations.torch.score import PrivateAccuracy, PrivateLoss, is_private
from dphypo.integrations.torch.state import Snapshot
from dphypo.integrations.torch.train import Descent, fit
from dphypo.mechanisms import DpSgd, Outcome, transfer

if TYPE_CHECKING:
    from dphypo.integrations.torch.dpsgd import DPSGD


@dataclass(frozen=True)
class Fit:
    """What is found once for each architecture: the mode to train it in, and the records it can use."""

    mode: GradSampleMode
    records: Records


@dataclass(frozen=True, eq=False, repr=False)
class OneRun:
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

    def make(self, run: DpSgd) -> Outcome:
        """Train and score."""
        made = self.mechanism
        with self._alone():
            model, found = self._prepared()
            untrained = factory.fingerprint(model)
            factory.start_from(model, made.start)
            records = found.records.to(self._device)
            fit(model, records, per_record(made.loss), run, self._descent(found.mode), seed=self.seed)
            kept = Snapshot.of(model)
            score = self._scored(made.score, model)
            kept.refuse_changes(model)
            with self._alone():
                factory.refuse_changes(untrained, self._built())
        return Outcome(model.cpu(), score)

    def rehearse(self) -> Outcome:
        """Make two steps on made-up records, and score on them."""
        made = self.mechanism
        with self._alone():
            model, found = self._prepared()
            records = TensorRecords(*made_up(self._example(), 8))
            descent = dataclasses.replace(self._descent(found.mode), batch_size=8, learning_rate=1e-6)
            run = DpSgd(rate=1.0, steps=2, noise_multiplier=1.0)
            fit(model, records, per_record(made.loss), run, descent, seed=self.seed)
            score: Any = made.score
            if isinstance(score, PrivateAccuracy | PrivateLoss):
                score = dataclasses.replace(score, data=records, example=None, records=10**6, noise_multiplier=1.0)
            value = self._scored(score, model)
        return Outcome(model.cpu(), value)

    def prepare(self) -> None:
        """Refuse a model that is unfit, and remember how to train one that is fit."""
        with self._alone():
            self._prepared()

    def architecture(self) -> str:
        """The layers of the model, and the shapes of its weights."""
        with self._alone():
            model = self._built()
        layers = [type(layer).__name__ for layer in model.modules()]
        return repr((layers, [(name, tuple(value.shape)) for name, value in model.state_dict().items()]))

    def _scored(self, score: Any, model: nn.Module) -> float:
        with torch.no_grad():
            return float(score(model, seed=self.seed) if is_private(score) else score(model))

    def _descent(self, mode: GradSampleMode) -> Descent:
        made = self.mechanism
        given = {
            "learning_rate": made.learning_rate,
            "max_grad_norm": made.max_grad_norm,
            "optimizer": made.optimizer,
            **made.fixed,
            **self.params,
        }
        if made.matched and made.fraction < 1:
            given = transfer.apply(made.transfer_rule or self._rehearsal(given), given, made.fraction)
        return Descent(
            batch_size=self.cost.batch(given.get("batch_size", made.batch_size)),
            max_grad_norm=_validate.positive(max_grad_norm=given["max_grad_norm"]),
            learning_rate=_validate.positive(learning_rate=given["learning_rate"]),
            optimizer=given["optimizer"],
            options={name: value for name, value in given.items() if name in hyperparameters.option_names()},
            mode=mode,
            physical_batch_size=made.physical_batch_size,
            schedule=made.schedule,
        )

    def _rehearsal(self, given: Mapping[str, Any]) -> transfer.NoiseRehearsal:
        """The rule for an optimiser with these hyperparameters: it compares this run with the full one."""
        short = self.cost.run(self.params)
        noise = short.noise_multiplier * math.sqrt(self.cost.fraction)
        full = dataclasses.replace(self.cost, fraction=1.0).run_of(self.cost.setting(self.params), noise)
        batch_size = given.get("batch_size", self.mechanism.batch_size)
        deviation = noise * _validate.positive(max_grad_norm=given["max_grad_norm"]) / batch_size
        return transfer.NoiseRehearsal(TorchOptimiser(self.mechanism.schedule), full, deviation)

    def _alone(self) -> contextlib.AbstractContextManager[None]:
        """Nothing but the seed decides what happens inside, whatever other threads of the process do."""
        return seeds.everything_else(self.seed, self._device, self.mechanism.threads)

    def _prepared(self) -> tuple[nn.Module, Fit]:
        """The untrained model on its device, and how to train it."""
        made, model = self.mechanism, self._built().to(self._device)
        key = repr(sorted(self._arguments().items()))
        if key not in self.fits:
            example, loss = self._example(), per_record(made.loss)
            mode = check.resolve(model, loss, example, made.grad_sample_mode)
            domain = Domain.of(model, example, loss)
            self.fits[key] = Fit(mode, made.data.within(domain))
        return model, self.fits[key]

    def _built(self) -> nn.Module:
        return factory.build(self.mechanism.model, self._arguments())

    def _arguments(self) -> dict[str, Any]:
        return hyperparameters.of_factory(self.mechanism.model, {**self.mechanism.fixed, **self.params})

    def _example(self) -> Batch:
        return cast(Batch, tuple(part.to(self._device) for part in self.mechanism.data.example()))

    @property
    def _device(self) -> torch.device:
        return torch.device(cast(torch.device, self.mechanism.device))
