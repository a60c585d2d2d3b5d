"""What scores on private records have in common: how they are declared, and a value for each record.

What a record adds depends on that record and the model alone, to the bit: records go through the model in batches of
one size, the last one filled up. Some products of matrices round a row by its place in the batch. This is tried out on
made-up records, and where it is so, each record goes through the model alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Subset

from dphypo import _validate
from dphypo.accounting.sides import read_sides
from dphypo.dpsgd import made_up
from dphypo.errors import UnfitModelError
from dphypo.integrations import cost
from dphypo.integrations.measures import Floats
from dphypo.integrations.torch.data import Records, as_records
from dphypo.integrations.torch.domain import FATAL, Batch, Domain
from dphypo.integrations.torch.fields import called
from dphypo.integrations.torch.loss import Loss

_CHUNK = 1024


def noise_of(score: Any) -> float:
    """The noise multiplier of a score; an error if it is yet to be found."""
    if isinstance(score.noise_multiplier, str):
        raise ValueError(
            'noise_multiplier = "calibrate" of a score needs a plan that solves for it: use dphypo.tune(mechanism, '
            "epsilon=..., delta=...), or score=PrivateAccuracy(records, noise_multiplier=5.0)"
        )
    return float(score.noise_multiplier)


def declare(score: Any) -> None:
    """Check what a score was given, and fill in the number of its records."""
    object.__setattr__(score, "noise_multiplier", cost.read(score.noise_multiplier))
    given: object = score.split
    object.__setattr__(score, "split", read_sides(score.split))
    if isinstance(score.data, Subset) and given != "same":
        raise TypeError(
            "data is a Subset (random_split), which sets records apart by their positions: adding one record moves "
            "others from training to scoring, and the two then cost their sum. Split by the records themselves with "
            "split_by_hash(inputs, targets), or declare split='same'"
        )
    records = as_records(score.data, score.example)
    size = len(records) if score.records is None else score.records
    object.__setattr__(score, "records", _validate.integer(at_least=1, records=size))
    if not isinstance(score.noise_multiplier, str):
        _validate.warn_of_score_noise(score.noise_multiplier / size, stacklevel=5)


def correct(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """1 for each record classified correctly."""
    single = outputs.dim() == 1 or outputs.shape[1] == 1
    return (predicted(outputs, targets) == (targets.reshape(len(targets)) > 0.5 if single else targets)).double()


def predicted(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The class of each record: that of the largest output, or by the sign of a single one."""
    single = outputs.dim() == 1 or outputs.shape[1] == 1
    return outputs.reshape(len(targets)) > 0 if single else outputs.argmax(1)


@torch.no_grad()
def classes_of(model: nn.Module, records: Records) -> int:
    """How many classes the model tells apart, from its output on made-up records."""
    device = next(model.parameters()).device
    example = records.example()[0]
    outputs = called(model, records.fields)(torch.zeros((2, *example.shape[1:]), dtype=example.dtype, device=device))
    return int(max(outputs.shape[1] if outputs.dim() > 1 else 2, 2))


def values(
    model: nn.Module,
    records: Records,
    value: Callable[..., torch.Tensor],
    declared: int = _CHUNK,
    loss: Loss | None = None,
    *,
    beside: bool = False,
) -> Floats:
    """``value(outputs, targets)`` for each record in the model's domain; with ``beside``, of the inputs too."""
    model = called(model, records.fields)
    device = next(model.parameters()).device
    records = records.within(Domain.of(model, records.example(), loss))
    was_training = model.training
    model.eval()
    with torch.no_grad():
        size = min(_CHUNK, declared)
        size = size if _same_everywhere(model, made_up(records.example(), size + 1), device) else 1
        batches = (np.arange(start, min(start + size, len(records))) for start in range(0, len(records), size))
        found = [_of_batch(model, value, records.batch(batch, device), size, beside) for batch in batches]
    model.train(was_training)
    return np.concatenate(found) if found else np.zeros(0)


def _same_everywhere(model: nn.Module, batch: Batch, device: torch.device) -> bool:
    """Whether a record has the same outputs, bit by bit, in other places and beside other records."""
    records = batch[0].to(device)
    size = len(records) - 1
    first = model(records[:-1].clone())
    for moved in {1, size // 3 + 1}:
        turned = records[:-1].roll(-moved, 0)
        kept = torch.arange(size, device=device) % 2 == 0
        turned[~kept] = records[-1]
        if not torch.equal(first.roll(-moved, 0)[kept].nan_to_num(), model(turned)[kept].nan_to_num()):
            return False
    return True


def _of_batch(model: nn.Module, value: Callable[..., torch.Tensor], batch: Batch, size: int, beside: bool) -> Floats:
    """The values of a batch; a record on which the model or the value raises by itself is left out, as in training."""
    inputs, targets = batch

    def at(places: list[int]) -> torch.Tensor:
        filled = places + [places[-1]] * (size - len(places))
        more = [inputs[filled]] if beside else []
        found = value(model(inputs[filled]), targets[filled], *more)
        if found.shape != (size,):
            raise UnfitModelError("the score is not one value a record")
        return found[: len(places)].double().cpu()

    def each(place: int) -> torch.Tensor:
        try:
            return at([place])
        except FATAL:
            raise
        except Exception:
            return torch.zeros(0)

    everywhere = list(range(len(inputs)))
    if not everywhere:
        return np.zeros(0)
    try:
        return at(everywhere).numpy()
    except FATAL:
        raise
    except Exception:
        return torch.cat([each(place) for place in everywhere]).double().numpy()
