"""The arguments of :class:`DPSGD`, checked where it is made: what is wrong is named before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from dphypo import _validate, dpsgd
from dphypo.integrations import cost
from dphypo.integrations.defaults import batch_size
from dphypo.integrations.torch import defaults, hyperparameters
from dphypo.integrations.torch.data import as_records
from dphypo.integrations.torch.metrics import Metrics
from dphypo.integrations.torch.runs import Engine
from dphypo.space import Space
from dphypo.space.dimension import Finite

if TYPE_CHECKING:
    from dphypo.integrations.torch.dpsgd import DPSGD

_OURS = {"clipping": "clip", "average": None, "augment": None, "views": 1, "autocast": None}


def read(given: DPSGD) -> dict[str, Any]:
    """The values of the fields that are not kept as they were given; an error names what is not valid."""
    hyperparameters.refuse_model(given.model)
    reading: dict[str, Any] = {"target": given.target, "collate": given.collate, "workers": given.workers}
    records = as_records(given.data, given.example, **reading)
    hyperparameters.refuse_optimizer(given.optimizer)
    engine = _validate.choice(Engine, engine=given.engine)
    _validate.positive(learning_rate=given.learning_rate)
    _validate.positive(max_grad_norm=given.max_grad_norm)
    _validate.integer(at_least=1, views=given.views)
    _validate.within(0.0, 1.0, closed="right", fraction=given.fraction)
    if given.autocast not in (None, "bfloat16"):
        raise _validate.fail("autocast", given.autocast, 'give "bfloat16", or None')
    dpsgd.Setting(
        physical_batch_size=given.physical_batch_size,
        clipping=given.clipping,
        average=given.average,
        threads=given.threads,
    )
    if engine is Engine.OPACUS:
        refuse_what_opacus_lacks(name for name, default in _OURS.items() if getattr(given, name) != default)
    if own := sorted(set(hyperparameters.OWN) & set(given.fixed)):
        raise ValueError(f"fixed holds {own[0]!r}, which is an argument of its own: write {own[0]}=...")
    size = declared = _validate.integer(at_least=1, records=len(records) if given.records is None else given.records)
    score: Any = given.score
    whole = given.whole
    if isinstance(score, str | tuple | list):
        whole = defaults.Whole(records, size)
        words = [score] if isinstance(score, str) else list(score)
        records, size, score = defaults.set_apart(given, words, whole)
    elif isinstance(score, Mapping):
        score = Metrics(dict(score))
    elif not callable(score):
        raise _validate.fail("score", score, 'give a function of the model, a PrivateAccuracy, or "accuracy"')
    hyperparameters.refuse_unknown(given.model, given.fixed)
    return {
        "data": records,
        "records": size,
        "batch_size": batch_size(declared) if given.batch_size is None else given.batch_size,
        "score": score,
        "whole": whole,
        "fixed": dict(given.fixed),
        "device": torch.device(given.device or ("cuda" if torch.cuda.is_available() else "cpu")),
        "engine": engine,
        "noise_multiplier": cost.read(given.noise_multiplier),
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
