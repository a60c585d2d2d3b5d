"""Which part uses which hyperparameter: DP-SGD itself, one of PyTorch's optimisers, or the model's factory.

Two rehearsals on made-up values show how large a learning rate may be. The first runs an optimiser on made-up
gradients, for a transfer rule. The second adds noise to the weights and measures how far the outputs of layers move on
made-up records: noise of standard deviation c in every weight moves the outputs of a linear layer by c·‖inputs − their
mean‖. The layer that moves most bounds the learning rate (:mod:`dphypo.search.rates`). The scale of a network's inputs
is declared or bought; the inputs of its other layers follow from it, from the untrained weights and from the noise
itself.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from dphypo import _validate
from dphypo.mechanisms import NoiseRehearsal, SampledGaussian
from dphypo.mechanisms.sampled_gaussian import Floats
from dphypo.torch.engine import Setting, optimisers, synthetic_records
from dphypo.torch.engine.batch_rows import Batch
from dphypo.torch.engine.clipped_sum import Layout
from dphypo.torch.engine.optimisers import known
from dphypo.training import base

READ = (*base.READ, "views")
OWN = (*READ, *base.COSTS)
"""Hyperparameters that DPSGD reads itself."""


def of_factory(factory: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The factory's arguments: those it names, and those that nothing else takes.

    >>> of_factory(lambda width: None, {"width": 8, "learning_rate": 0.1, "momentum": 0.9})
    {'width': 8}
    """
    names, elsewhere = _named(factory)[0], option_names().union(OWN)
    return {name: value for name, value in given.items() if name in names or name not in elsewhere}


def complete(factory: Callable[..., Any], given: Mapping[str, Any]) -> bool:
    """Whether the factory can be called with what is given."""
    try:
        inspect.signature(factory).bind(**of_factory(factory, given))
    except TypeError:
        return False
    return True


def refuse_model(factory: object) -> None:
    """Raise an error for a model, or anything else, in place of a function that builds one."""
    if isinstance(factory, nn.Module) or not callable(factory):
        kind = type(factory).__name__
        raise TypeError(
            f"model is a {kind}: every run starts from a new one, so give a function that builds the untrained model, "
            f"such as model=lambda: {kind if isinstance(factory, nn.Module) else 'MLP'}(...)"
        )


def refuse_loss(loss: object) -> None:
    """Raise an error for a loss by name, or for a class of losses."""
    if isinstance(loss, type):
        raise _validate.fail("loss", loss.__name__, f"it is a class: give {loss.__name__}()")
    if not callable(loss):
        remedy = "give one of PyTorch's losses, such as torch.nn.MSELoss(), or a function of (outputs, targets)"
        raise _validate.fail("loss", loss, remedy)


def refuse_unknown(factory: Callable[..., Any], names: Iterable[str]) -> None:
    """Raise an error for a hyperparameter that nothing uses."""
    known, takes_any = _named(factory)
    for name in () if takes_any else names:
        if name not in known | option_names() and name not in OWN:
            close = "learning_rate" if name == "lr" else "".join(difflib.get_close_matches(name, [*OWN, *known], 1))
            meant = f". Did you mean {close!r}?" if close else ""
            raise ValueError(
                f"hyperparameter {name!r} is used neither by DPSGD ({', '.join(OWN)}), nor by any optimiser, nor by "
                f"the model's factory ({', '.join(sorted(known)) or 'which has no arguments'}){meant}"
            )


def refuse_missing(factory: Callable[..., Any], names: Iterable[str]) -> None:
    """Raise an error for an argument that the factory requires, and that neither the space nor ``fixed`` gives.

    >>> refuse_missing(lambda width, depth=2: None, {"learning_rate"})
    Traceback (most recent call last):
    ValueError: the model's factory requires 'width': add it to the space, or give fixed={'width': ...}
    """
    given = set(names)
    for one in inspect.signature(factory).parameters.values():
        required = one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY) and one.default is one.empty
        if required and one.name not in given:
            remedy = f"add it to the space, or give fixed={{{one.name!r}: ...}}"
            raise ValueError(f"the model's factory requires {one.name!r}: {remedy}")


def refuse_optimizer(name: object, argument: str = "optimizer") -> None:
    """Raise an error for anything that is not the name of an optimiser, such as its class, given as ``argument``.

    >>> refuse_optimizer(torch.optim.SGD)
    Traceback (most recent call last):
    ValueError: optimizer = SGD is not valid: it is a class; give its name, optimizer='sgd', and what it takes in fixed=
    """
    names = known()
    if isinstance(name, str) and name.lower() in names:
        return
    kind = name if inspect.isclass(name) else type(name)
    if issubclass(kind, torch.optim.Optimizer):
        sort = "a class" if inspect.isclass(name) else "an optimiser of some parameters, and every run builds a new one"
        remedy = f"give its name, optimizer={kind.__name__.lower()!r}, and what it takes in fixed="
        if kind.__name__.lower() not in names:
            remedy = f"give one of {', '.join(sorted(names))}"
        raise ValueError(f"optimizer = {kind.__name__} is not valid: it is {sort}; {remedy}")
    raise _validate.fail(argument, name, f"give one of {', '.join(sorted(names))}")


def _named(factory: Callable[..., Any]) -> tuple[set[str], bool]:
    """The names of a factory's arguments, and whether it takes any other."""
    parameters = inspect.signature(factory).parameters.values()
    names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return names, any(p.kind is p.VAR_KEYWORD for p in parameters)


@functools.cache
def option_names() -> frozenset[str]:
    """Hyperparameters that some optimiser takes: "momentum", "weight_decay", "betas" and so on."""
    every = (inspect.signature(optimizer).parameters for optimizer in known().values())
    return frozenset(name for names in every for name in names) - {"params", "lr"}


Schedule = Callable[[float], float]
_PROPORTIONAL = ("sgd", "adam", "rmsprop", "adagrad")  # steps are, to the learning rate, without weight decay


def walk(
    params: Mapping[str, Any],
    gradients: Iterable[Floats],
    steps: int,
    schedule: Schedule | None = None,
) -> Floats:
    """The weights after ``steps`` gradients, with the optimiser and the averaging that the hyperparameters name.

    >>> import numpy as np
    >>> walk({"optimizer": "sgd", "learning_rate": 0.5}, [np.ones(2), np.ones(2)], 2)
    array([-1., -1.])
    """
    weights = mean = rates = torch.zeros(1, 0, dtype=torch.float64)
    setting = Setting(average=params.get("average"))
    for number, gradient in enumerate(gradients):
        given = torch.from_numpy(gradient)[None]
        if number == 0:
            weights, rates = torch.zeros_like(given), torch.full((1, 1), params["learning_rate"], dtype=given.dtype)
            layout = Layout(("weights",), (given[0].shape,), given.dtype)
            optimiser = optimisers.build(params["optimizer"], weights, [options(params)], layout)
            mean = weights if setting.average is None else weights.clone()
        factor = 1.0 if schedule is None else schedule(number / steps)
        optimiser.step(weights, given, rates * factor)
        if setting.average is not None:
            mean.lerp_(weights, setting.share(number, steps))
    return mean[0].numpy()


def rehearsal(
    params: Mapping[str, Any],
    fraction: float,
    *,
    run: SampledGaussian,
    deviation: float,
    schedule: Schedule | None = None,
) -> Mapping[str, Any]:
    """The hyperparameters of a short run by a :class:`NoiseRehearsal` of the full run.

    If steps are proportional to the learning rate, so is the learning rate of the short run, and one rehearsal serves
    all learning rates.
    """
    name, taken = str(params["optimizer"]).lower(), options(params)
    if name not in _PROPORTIONAL or taken.get("weight_decay"):
        rule = NoiseRehearsal(functools.partial(walk, schedule=schedule), run, deviation)
        return rule(params, fraction)
    kept = {key: tuple(value) if isinstance(value, list) else value for key, value in taken.items()}
    given = (("optimizer", name), ("average", params.get("average")), *sorted(kept.items()))
    ratio = _ratio(given, fraction, run, 1.0 if name == "sgd" else deviation, schedule)
    return {**params, "learning_rate": params["learning_rate"] * ratio}


@functools.lru_cache(maxsize=256)
def _ratio(
    given: tuple[tuple[str, Any], ...], fraction: float, run: SampledGaussian, deviation: float, schedule: Any
) -> float:
    """The learning rate of the short run, divided by that of the full run."""
    rule = NoiseRehearsal(functools.partial(walk, schedule=schedule), run, deviation)
    return float(rule({**dict(given), "learning_rate": 1.0}, fraction)["learning_rate"])


def options(params: Mapping[str, Any]) -> dict[str, Any]:
    """The hyperparameters that some optimiser takes."""
    return {name: value for name, value in params.items() if name in option_names()}


_RECORDS, _STEP = 32, 1e-3  # made-up records, and the noise for which a layer's movement is measured


def synthetic_inputs(example: Batch, scale: float | None) -> torch.Tensor:
    """Made-up inputs, normal around zero with this scale; unscaled if there is no scale, or for tokens."""
    inputs = synthetic_records(example, _RECORDS)[0]
    if scale is None or not inputs.dtype.is_floating_point:
        return inputs
    return torch.randn_like(inputs) * (scale / math.sqrt(max(1, math.prod(inputs.shape[1:]))))


@torch.no_grad()
def movement(model: nn.Module, call: Callable[[torch.Tensor], Any], inputs: torch.Tensor, noise: float) -> float:
    """How far ``noise`` in all trained weights moves the outputs of the layer that moves most.

    >>> one = nn.Linear(100, 5)
    >>> records = 3 * nn.functional.normalize(torch.randn(4096, 100))
    >>> 1.3 < movement(one, one, records, noise=0.5) < 1.7
    True
    """
    found = [0.0]

    def measure(layer: nn.Module, given: tuple[Any, ...], outputs: Any) -> None:
        weights = _matrices(layer)
        if not weights or not isinstance(outputs, torch.Tensor) or not outputs.dtype.is_floating_point:
            return
        with contextlib.suppress(TypeError), _shaken(weights, _STEP):  # a layer may take more than these arguments
            moved = (type(layer).forward(layer, *given) - outputs).double()
            found.append(noise / _STEP * float((moved - moved.mean(0)).square().mean().sqrt()))

    every = [weight for layer in model.modules() for weight in _matrices(layer)]
    handles = [layer.register_forward_hook(measure) for layer in model.modules()]
    try:
        with _shaken(every, noise):
            call(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return max(found) if all(map(math.isfinite, found)) else math.inf


def _matrices(layer: nn.Module) -> list[nn.Parameter]:
    return [one for one in layer.parameters(recurse=False) if one.requires_grad and one.dim() > 1]


@contextlib.contextmanager
def _shaken(weights: list[nn.Parameter], noise: float) -> Iterator[None]:
    """A block in which the weights have noise."""
    kept = [one.clone() for one in weights]
    try:
        for one in weights:
            one.add_(torch.randn_like(one), alpha=noise)
        yield
    finally:
        for one, before in zip(weights, kept, strict=True):
            one.copy_(before)
