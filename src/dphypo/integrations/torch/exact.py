"""``engine="dphypo"``: runs whose steps are Gaussian mechanisms to the last bit, many at once (:mod:`dphypo.dpsgd`)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from dphypo import dpsgd
from dphypo.integrations.torch.data import Records, TensorRecords
from dphypo.integrations.torch.state import unchanged
from dphypo.integrations.torch.training import Training
from dphypo.mechanisms.outcome import follower


def train(program: dpsgd.Program, trainings: Sequence[Training], records: Records) -> list[nn.Module]:
    """Train the models of all runs, those at once that have a setting in common."""
    given = dpsgd.Tensors(records.inputs, records.targets) if isinstance(records, TensorRecords) else records
    settings = [training.descent.setting for training in trainings]
    trained: dict[int, nn.Module] = {}
    for setting in dict.fromkeys(settings):
        places = [place for place, other in enumerate(settings) if other == setting]
        models = iter([trainings[place].model for place in places])
        made = dpsgd.train(
            program,
            lambda models=models: next(models),  # type: ignore[misc]
            given,
            [_run(trainings[place]) for place in places],
            setting,
            watch=lambda module: unchanged(module, program.loss),
            follower=follower(),
        )
        trained |= zip(places, made, strict=True)
    return [trained[place] for place in range(len(trainings))]


def _run(training: Training) -> dpsgd.Run:
    run, descent = training.run, training.descent
    return dpsgd.Run(
        seed=training.seed,
        records=training.records,
        rate=run.rate,
        steps=run.steps,
        batch_size=descent.batch_size,
        noise_multiplier=run.noise_multiplier,
        max_grad_norm=descent.max_grad_norm,
        learning_rate=descent.learning_rate,
        optimizer=descent.optimizer,
        options=descent.options,
        schedule=descent.schedule,
        subsample=run.subsample,
    )
