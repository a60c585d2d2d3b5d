"""The arguments of :class:`DPSGD`, checked where it is made, and what it decides by itself from public numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from dphypo import _validate, dpsgd
from dphypo.integrations.cost import batch_size, learning_rates
from dphypo.integrations.measures import scoring_share
from dphypo.integrations.split import Origin, split_by_hash
from dphypo.integrations.torch import hyperparameters
from dphypo.integrations.torch.data import DatasetRecords, Records, as_records
from dphypo.integrations.torch.metrics import Metrics
from dphypo.integrations.torch.runs import Engine
from dphypo.integrations.torch.score import PrivateAccuracy, PrivateConfusion, PrivateLoss, RecordScore
from dphypo.integrations.training import Whole
from dphypo.space import Space
from dphypo.space.dimension import Finite

if TYPE_CHECKING:
    from dphypo.integrations.torch.dpsgd import DPSGD

_OURS = {"clipping": "clip", "average": None, "augment": None, "views": 1, "autocast": None}
_SCORES: Mapping[str, Callable[..., RecordScore]] = {
    "accuracy": PrivateAccuracy,
    "loss": PrivateLoss,
    "f1": PrivateConfusion,
    "balanced_accuracy": PrivateConfusion,
    "auc": PrivateConfusion,
    "perplexity": PrivateLoss,
}


def read(given: DPSGD) -> dict[str, Any]:
    """The values of the fields that are not kept as they were given; an error names what is not valid."""
    hyperparameters.refuse_model(given.model)
    records = as_records(given.data, given.example, target=given.target, collate=given.collate, workers=given.workers)
    hyperparameters.refuse_optimizer(given.optimizer)
    engine = _validate.choice(Engine, engine=given.engine)
    _validate.integer(at_least=1, views=given.views)
    _validate.integer(at_least=1, threads=given.threads)
    if given.autocast not in (None, "bfloat16"):
        raise _validate.fail("autocast", given.autocast, 'give "bfloat16", or None')
    if engine is Engine.OPACUS:
        refuse_what_opacus_lacks(name for name, default in _OURS.items() if getattr(given, name) != default)
    size = _validate.integer(at_least=1, records=len(records) if given.records is None else given.records)
    changes: dict[str, Any] = {"data": records, "records": size}
    if isinstance(given.score, str | tuple | list):
        changes = _set_apart(given, Whole(records, size))
    elif isinstance(given.score, Mapping):
        changes["score"] = Metrics(dict(given.score))
    elif not callable(given.score):
        raise _validate.fail("score", given.score, 'give a function of the model, a PrivateAccuracy, or "accuracy"')
    hyperparameters.refuse_unknown(given.model, given.fixed)
    return {
        **changes,
        "batch_size": batch_size(size) if given.batch_size is None else given.batch_size,
        "device": torch.device(given.device or ("cuda" if torch.cuda.is_available() else "cpu")),
        "engine": engine,
    }


def refuse_what_opacus_lacks(names: Iterable[str]) -> None:
    """An error for what our own engine alone can do."""
    for name in names:
        if name in _OURS:
            raise ValueError(f"engine = 'opacus' takes no {name}: leave it out, or use engine='dphypo'")


def refuse_values(space: Space) -> None:
    """An error for a choice in a space that no run can take: a search would find it out in one of its runs."""
    hyperparameters.refuse_optimizers(space)
    for parameter in space.parameters:
        choices: tuple[Any, ...] = parameter.dimension.choices if isinstance(parameter.dimension, Finite) else ()
        for value in choices:
            if parameter.name in ("clipping", "average"):
                dpsgd.Setting(**{parameter.name: value})
            elif parameter.name == "views":
                _validate.integer(at_least=1, views=value)


def _set_apart(given: DPSGD, whole: Whole) -> dict[str, Any]:
    """The records that train, how many they are taken to be, and the named scores on the others.

    A hash of each record decides. The declared sizes are shares of the declared number of all records.
    """
    words = [given.score] if isinstance(given.score, str) else list(given.score)
    for name in words or [""]:
        if name not in _SCORES:
            raise _validate.fail("score", name, f"give one of {', '.join(_SCORES)}, or a function of the model")
    share, scoring = scoring_share(whole.records)
    training, held_out = _parts(given, whole.data, share)
    options: dict[str, Any] = {
        "data": held_out,
        "noise_multiplier": "calibrate",
        "records": scoring,
        "example": given.example if isinstance(held_out, tuple) else None,
    }
    scores = {}
    for name in words:
        # Accuracy is of the same matrix, where there is one.
        of_matrix = name == "accuracy" and not {"f1", "balanced_accuracy"}.isdisjoint(words)
        kind: Callable[..., RecordScore] = PrivateConfusion if of_matrix else _SCORES[name]
        own: dict[str, Any] = {} if kind is PrivateAccuracy else {"measure": name}
        if kind is PrivateLoss:
            own["loss"] = given.loss
        scores[name] = kind(**options, **own)
    score = scores[words[0]] if isinstance(given.score, str) else Metrics(scores)
    return {"data": training, "records": max(1, whole.records - scoring), "score": score, "whole": whole}


def _parts(given: DPSGD, records: Records, share: float) -> tuple[Records, Any]:
    """The records that train, and those that score."""
    if isinstance(records, DatasetRecords):
        parts = split_by_hash(records.dataset, share=share, workers=records.workers)
        training, held_out = (replace(records, dataset=part, origin=part.origin) for part in parts)
        return training, held_out
    if records.fields is not None:
        pairs = split_by_hash(records.inputs, records.targets, share=share)
        trains, scores = (replace(records, inputs=x, targets=y, origin=Origin.of((x, y))) for x, y in pairs)
        return trains, scores
    pair = getattr(given.data, "tensors", given.data)  # of a TensorDataset
    pair = pair if isinstance(pair, tuple | list) else (records.inputs, records.targets)
    first, second = split_by_hash(*pair, share=share)
    return as_records(first, given.example), second


def space(given: DPSGD) -> Space:
    """The learning rate, on the scale of the optimiser, with normalised gradients: one dimension.

    Where nearly every gradient is clipped, the clipping norm and the learning rate act through their product. So
    gradients are normalised, and the learning rate is searched alone, in units of one over the norm where the optimiser
    follows the size of gradients.
    """
    if not hyperparameters.complete(given.model, given.fixed):
        raise _validate.fail(
            "space",
            None,
            'the model takes hyperparameters: give a space that has them, such as Space({"learning_rate": '
            'loguniform(0.1, 30), "width": [32, 64]}), or fix them, fixed={"width": 64}',
        )
    searched = {"learning_rate": learning_rates(given.optimizer.lower(), given.fixed, given.max_grad_norm)}
    return Space(searched if given.engine is Engine.OPACUS else {**searched, "clipping": ["normalise"]})
