"""Records that are left out: what public declarations say of them is warned of before anything runs.

How many records of a data set fit is secret (``Run.fitting``). That they may not fit can be public: a model that takes
images of any size beside an example of one size; a data set that declares that lengths vary.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from torch import nn

from dphypo.integrations.torch.data import Records, TensorRecords

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def warn(model: nn.Module, records: Records) -> None:
    """Warn where records of another shape than the example's are to be expected: they are left out."""
    if isinstance(records, TensorRecords) or records.collate is not None:
        return
    if names := _varying(records.dataset) & set(records.fields.shapes if records.fields is not None else ()):
        _say(f"the data set declares that lengths of {', '.join(sorted(names))!r} vary")
    elif records.fields is None and _takes_other_sizes(model, records.example()[0]):
        _say("the model takes inputs of any size")


def _say(why: str) -> None:
    warnings.warn(
        f"{why}, and records of another size than the example are left out, in training and in scoring, without a word "
        f"in anything that is released. Bring all to one public size, by collate= or before; fitting_records says how "
        f"many fit, to the curator alone",
        stacklevel=6,
    )


def _varying(dataset: Any) -> set[str]:
    """Columns of a data set of Hugging Face that it declares to be lists of any length."""
    features = getattr(dataset, "features", getattr(getattr(dataset, "dataset", None), "features", None))
    found = features.items() if isinstance(features, dict) else ()
    return {name for name, feature in found if getattr(feature, "length", None) == -1}


@torch.no_grad()
def _takes_other_sizes(model: nn.Module, example: torch.Tensor) -> bool:
    """Whether a convolutional model takes a made-up input whose last dimensions are larger."""
    if not any(isinstance(layer, _CONVOLUTIONS) for layer in model.modules()) or example.dim() < 3:
        return False
    shapes = [(2, *example.shape[1:]), (2, example.shape[1], *(size + 8 for size in example.shape[2:]))]
    tried = copy.deepcopy(model).eval()
    device = next(tried.parameters()).device
    try:
        outputs = [tried(torch.zeros(shape, dtype=example.dtype, device=device)) for shape in shapes]
    except Exception:
        return False
    return bool(outputs[0].shape == outputs[1].shape)
