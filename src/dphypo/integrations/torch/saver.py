"""Models as safetensors: the weights and, for a factory with arguments, what they were. Loading runs no code."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import safetensors.torch
from torch import nn

from dphypo._validate import printable
from dphypo.errors import FileError
from dphypo.errors.faults import UnsupportedModelError
from dphypo.integrations.torch.state import ARGUMENTS, build, remember

_MOST_LINES = 12  # of what PyTorch says about a model that does not fit


@dataclass(frozen=True)
class Safetensors:
    """Saves a model's state dict with safetensors, and the factory's arguments in the file's metadata.

    Args:
        factory: builds the model from its arguments, or is a model of the same kind; without it, :meth:`load` gives the
            state dict.

    >>> saver = Safetensors(lambda width: nn.Linear(2, width))
    >>> model = nn.Linear(2, 3); remember(model, {"width": 3})
    >>> saver.load(saver.dump(model))
    Linear(in_features=2, out_features=3, bias=True)
    """

    factory: Callable[..., nn.Module] | nn.Module | None = None
    format: ClassVar[str] = "safetensors"

    def dump(self, model: Any) -> bytes:
        if not isinstance(model, nn.Module):
            raise UnsupportedModelError(f"a model of type {type(model).__name__!r} is not a torch.nn.Module")
        # Copies, because safetensors refuses tensors that share memory (tied weights).
        state = {name: value.detach().cpu().contiguous().clone() for name, value in model.state_dict().items()}
        arguments = json.dumps(getattr(model, ARGUMENTS, {}), sort_keys=True)
        return safetensors.torch.save(state, {"arguments": arguments})

    def load(self, data: bytes) -> Any:
        state = safetensors.torch.load(data)
        if self.factory is None:
            return state
        # A JSON header stands after its length in eight bytes.
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        arguments = json.loads(header.get("__metadata__", {})["arguments"])
        shown, name = self.factory, getattr(self.factory, "__name__", type(self.factory).__name__)
        try:
            model = copy.deepcopy(shown) if isinstance(shown, nn.Module) else build(shown, arguments)
            model.load_state_dict(state)
        except (TypeError, RuntimeError) as error:
            differs = [f"  {printable(line.strip())}" for line in str(error).splitlines()[:_MOST_LINES]]
            raise FileError(
                f"model = {name} does not build the model that was saved, with the arguments {printable(arguments)}: "
                "give the class or the function that the search was declared with\n" + "\n".join(differs)
            ) from None
        remember(model, arguments)
        return model.eval()
