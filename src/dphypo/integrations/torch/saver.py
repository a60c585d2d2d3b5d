"""Models: built anew for every run, and saved as safetensors, which run no code when they are loaded.

Factories often return, or build upon, a model that was loaded once. Trained in place, its weights would carry what one
run has learnt into the next, unaccounted for. So a run trains a copy whose tensors are its own, and after the run the
factory must still give what it gave before.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import safetensors.torch
import torch
from torch import nn

from dphypo._validate import printable
from dphypo.errors import FileError, UnsupportedModelError
from dphypo.integrations.torch import seeds

ARGUMENTS = "dphypo_arguments"
GRAPH = "dphypo_graph"
ABOUT = "about"
CONSTANT = "graph constant "  # begins the names of a graph's constants among the saved tensors
_REMEDY = "Build the model from its arguments alone, and copy what was loaded: model=lambda: copy.deepcopy(backbone)"
_MOST_LINES = 12  # of what PyTorch says about a model that does not fit


@dataclass(frozen=True)
class Safetensors:
    """Saves a model's state dict with safetensors, and the factory's arguments and the graph in the file's metadata.

    Weights that are not trained and that the factory gives anyway, such as a pretrained backbone under an adapter, are
    left out: the file has their hash, and :meth:`load` refuses a factory that gives others.

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
        arguments = getattr(model, ARGUMENTS, {})
        given, frozen = self._given(model, arguments), hashlib.sha256()
        state = {}
        for name, value in model.state_dict().items():
            if name in given and torch.equal(_bits(value), _bits(given[name])):
                _hash(frozen, name, value)
            else:  # copies, because safetensors refuses tensors that share memory (tied weights)
                state[name] = value.detach().cpu().contiguous().clone()
        about = {"arguments": json.dumps(arguments, sort_keys=True)}
        if given:
            about["frozen"] = frozen.hexdigest()
        elif self.factory is not None and hasattr(model, GRAPH):  # a graph without its weights is of no use
            about[GRAPH], held = getattr(model, GRAPH)
            state |= held
        # One entry: safetensors writes several in any order, and equal models are equal bytes.
        return safetensors.torch.save(state, about if len(about) == 1 else {ABOUT: json.dumps(about, sort_keys=True)})

    def _given(self, model: nn.Module, arguments: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """What the factory gives of the weights that are not trained, whatever its random numbers."""
        trained = {name for name, one in model.named_parameters(remove_duplicate=False) if one.requires_grad}
        if self.factory is None or trained >= {name for name, _ in model.named_parameters()}:
            return {}
        with seeds.everything_else(0, torch.device("cpu"), torch.get_num_threads(), "frozen weights"):
            state = self._untrained(arguments).state_dict()
        own = model.state_dict()
        return {
            name: value
            for name, value in state.items()
            if name not in trained and name in own and (value.shape, value.dtype) == (own[name].shape, own[name].dtype)
        }

    def _untrained(self, arguments: Mapping[str, Any]) -> nn.Module:
        shown = self.factory
        assert shown is not None
        return copy.deepcopy(shown) if isinstance(shown, nn.Module) else build(shown, arguments)

    def load(self, data: bytes) -> Any:
        state = safetensors.torch.load(data)
        held = {name: state.pop(name) for name in list(state) if name.startswith(CONSTANT)}
        if self.factory is None:
            return state
        about = metadata(data)
        arguments = json.loads(about["arguments"])
        name = getattr(self.factory, "__name__", type(self.factory).__name__)
        try:
            model = self._untrained(arguments)
            found = hashlib.sha256()
            for key, value in model.state_dict().items() if "frozen" in about else ():
                if key not in state:
                    _hash(found, key, value)
                    state[key] = value
            if found.hexdigest() != about.get("frozen", found.hexdigest()):
                raise RuntimeError("weights that were not trained, such as a pretrained backbone, are others")
            model.load_state_dict(state)
        except (TypeError, RuntimeError) as error:
            differs = [f"  {printable(line.strip())}" for line in str(error).splitlines()[:_MOST_LINES]]
            raise FileError(
                f"model = {name} does not build the model that was saved, with the arguments {printable(arguments)}: "
                "give the class or the function that the search was declared with\n" + "\n".join(differs)
            ) from None
        remember(model, arguments)
        if GRAPH in about:  # so that it is saved again with the model
            object.__setattr__(model, GRAPH, (about[GRAPH], held))
        return model.eval()


def metadata(data: bytes) -> dict[str, str]:
    """What a file says besides its tensors: strings in its header, which stands after its length in eight bytes."""
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    found = header.get("__metadata__", {})
    return dict(json.loads(found[ABOUT]) if ABOUT in found else found)


def build(factory: Callable[..., nn.Module], arguments: Mapping[str, Any]) -> nn.Module:
    """The model of a factory, in tensors that nothing else has.

    >>> net = nn.Linear(2, 1)
    >>> model = build(lambda: net, {})
    >>> torch.equal(model.weight, net.weight), model.weight is net.weight
    (True, False)
    """
    given = factory(**arguments)
    if not isinstance(given, nn.Module):
        raise TypeError(f"the model's factory returns a {type(given).__name__}: it must return a torch.nn.Module")
    try:
        model = copy.deepcopy(given)
    except Exception as error:
        raise UnsupportedModelError(
            f"the model cannot be copied ({type(error).__name__}: {error}): keep in it only what copy.deepcopy can "
            "copy, and detach() tensors that were computed"
        ) from error
    theirs = {tensor.untyped_storage().data_ptr() for _, tensor in _tensors(given)}
    for name, tensor in _tensors(model):
        if tensor.untyped_storage().data_ptr() in theirs:
            raise UnsupportedModelError(
                f"{name!r} of the model is still shared after copy.deepcopy, so runs would continue from each other's "
                f"weights. {_REMEDY}, and do not share tensors in __deepcopy__"
            )
    remember(model, arguments)
    return model


def remember(model: nn.Module, arguments: Mapping[str, Any]) -> None:
    """Note on a model the arguments its factory was called with."""
    object.__setattr__(model, ARGUMENTS, dict(arguments))


def fingerprint(model: nn.Module) -> bytes:
    """A hash of all weights and buffers."""
    found = hashlib.sha256()
    for name, tensor in _tensors(model):
        _hash(found, name, tensor)
    return found.digest()


def _hash(found: Any, name: str, tensor: torch.Tensor) -> None:
    found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
    found.update(_bits(tensor).numpy().tobytes())


def refuse_other_weights(before: bytes, model: nn.Module) -> None:
    """:class:`UnsupportedModelError` if a factory does not give the weights any more that it gave before a run."""
    if fingerprint(model) != before:
        raise UnsupportedModelError(
            f"the model's factory gives other weights after the run than before it, from the same seed: the run or its "
            f"score wrote to what the factory reads, or the factory has a random generator of its own. {_REMEDY}"
        )


def start_from(model: nn.Module, start: nn.Module | None) -> None:
    """Give a model the weights of another, if there is one and they fit: names and shapes are public."""
    given, own = {} if start is None else start.state_dict(), model.state_dict()
    if [(name, value.shape) for name, value in given.items()] == [(name, value.shape) for name, value in own.items()]:
        model.load_state_dict(given)


def _tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Weights and buffers that have memory of their own."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if not nn.parameter.is_lazy(tensor) and tensor.layout is torch.strided and tensor.numel():
            yield name, tensor


def _bits(value: torch.Tensor) -> torch.Tensor:
    plain = value.detach().to_dense() if value.layout is not torch.strided else value.detach()
    return plain.cpu().contiguous().flatten().view(torch.uint8)
