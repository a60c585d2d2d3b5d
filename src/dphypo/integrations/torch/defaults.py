"""What :class:`DPSGD` decides by itself, from public numbers alone: which records score, the batch size, the space."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dphypo import _validate
from dphypo.integrations.defaults import learning_rates, scoring_share
from dphypo.integrations.split import Origin, split_by_hash
from dphypo.integrations.torch import hyperparameters
from dphypo.integrations.torch.data import DatasetRecords, Records, as_records
from dphypo.integrations.torch.metrics import Metrics
from dphypo.integrations.torch.runs import Engine
from dphypo.integrations.torch.score import PrivateAccuracy, PrivateConfusion, PrivateLoss, RecordScore
from dphypo.space import Space

if TYPE_CHECKING:
    from dphypo.integrations.torch.dpsgd import DPSGD
    from dphypo.integrations.torch.runs import Fit

_SCORES: Mapping[str, Callable[..., RecordScore]] = {
    "accuracy": PrivateAccuracy,
    "loss": PrivateLoss,
    "f1": PrivateConfusion,
    "balanced_accuracy": PrivateConfusion,
    "auc": PrivateConfusion,
    "perplexity": PrivateLoss,
}


@dataclass(frozen=True)
class Whole:
    """All records, before some were set apart for scoring, and their declared number: for a last run on all of them."""

    data: Records
    records: int
    fits: dict[str, Fit] = field(default_factory=dict)


def set_apart(given: DPSGD, words: Sequence[str], whole: Whole) -> tuple[Records, int, RecordScore | Metrics]:
    """The records that train, how many they are taken to be, and the named scores on the others.

    A hash of each record decides. The declared sizes are shares of the declared number of all records.
    """
    for name in words or [""]:
        if name not in _SCORES:
            raise _validate.fail("score", name, f"give one of {', '.join(_SCORES)}, or a function of the model")
    share, scoring = scoring_share(whole.records)
    records, example = whole.data, given.example
    training: Records
    held_out: Any
    if isinstance(records, DatasetRecords):
        parts = split_by_hash(records.dataset, share=share, workers=records.workers)
        training, held_out = (replace(records, dataset=part, origin=part.origin) for part in parts)
    elif records.fields is not None:
        pairs = split_by_hash(records.inputs, records.targets, share=share)
        training, held_out = (replace(records, inputs=x, targets=y, origin=Origin.of((x, y))) for x, y in pairs)
    else:
        pair = getattr(given.data, "tensors", given.data)  # of a TensorDataset
        pair = pair if isinstance(pair, tuple | list) else (records.inputs, records.targets)
        trains, held_out = split_by_hash(*pair, share=share)
        training = as_records(trains, example)
    example = example if isinstance(held_out, tuple) else None
    options: dict[str, Any] = {
        "data": held_out,
        "noise_multiplier": "calibrate",
        "records": scoring,
        "example": example,
    }
    kinds = dict(_SCORES)
    if not {"f1", "balanced_accuracy"}.isdisjoint(words):
        kinds["accuracy"] = PrivateConfusion  # of the same matrix
    scores = {name: _named(name, kinds[name], given, options) for name in words}
    score = scores[words[0]] if isinstance(given.score, str) else Metrics(scores)
    return training, max(1, whole.records - scoring), score


def _named(name: str, kind: Callable[..., RecordScore], given: DPSGD, options: Mapping[str, Any]) -> RecordScore:
    """The score that a word means."""
    measure = {} if kind is PrivateAccuracy else {"measure": name}
    loss = {"loss": given.loss} if kind is PrivateLoss else {}
    return kind(**options, **measure, **loss)


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
