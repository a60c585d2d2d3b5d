"""Rivals that choose their own learning rate: one run each at a total (ε, δ), with all that they read charged.

Any network of :mod:`paper.rates.tasks` trains on any of its tasks. Draws are seeded: this measures utility. A record
may have several rows, such as those of a person: inputs [records, rows, ...] and labels [records, rows]; rows with the
label -100 do not exist. Its loss is the mean over its rows, and so is what it adds to a score.

**Linear scaling** (Panda, Tang, Mahloujifar, Sehwag and Mittal, ICML 2024, arXiv 2212.04486), as their paper and
``linear_scaling.py`` of their repository do it: all records in every step, momentum 0.9, gradients clipped to 1, linear
layers from zero on records of length 100; three trials at each of two small budgets, r = η·steps of the best trial of
each, a line through both in ε, and the last run at what the line says. The smaller budgets are ε/20 and ε/10, as theirs
at ε = 1. They look at the test set for free: here trials train on eleven twelfths of the records, the others score,
with noise, and the last run trains on all. They draw r from whole numbers, which leaves none below 2 500 records: here
it is uniform over the same range, and η is r over a random number of steps from their list.

**HyFreeDP** (Liu and Bu, ICLR 2025, arXiv 2503.00703): no search. Gradients are normalised and have one per cent more
noise than a run alone; every five steps three private losses along Adam's direction set the step size, as in
:mod:`paper.anchors.probes`. The losses have a batch of their own. Batch size and epochs are those of the other ways.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from paper.anchors.charges import DELTA, Part, cost, solve
from paper.anchors.plans import RIVAL_SHARE
from paper.anchors.probes import FIRST_RATE, next_rate
from paper.rates.tasks import Task, network
from paper.train.descent import Descent, Memories

TRIALS, BUDGETS = 3, (1 / 20, 1 / 10)  # trials at each of two budgets, as shares of the whole
LENGTHS = list(range(5, 150, 5))
RATES = (1e-5, 10**-0.2)  # at 50 000 records; proportional to their number
LENGTH_OF_INPUTS = 100.0
EVERY, RAISED = 5, 1.01
CHUNK = 4096  # records at a time

Network = str | Callable[[], nn.Module]
"""The name of a network of the rates, or what makes one."""


def gradient_sum(model: nn.Module, inputs: Tensor, labels: Tensor, clip: float | None) -> list[Tensor]:
    """The sum of the records' gradients, each clipped to a norm, or of norm 1 if that is None."""
    layers = [one for one in model.modules() if next(one.parameters(recurse=False), None) is not None]
    linear = all(isinstance(one, nn.Linear) for one in layers) and all(one.requires_grad for one in model.parameters())
    simple = linear and inputs.dtype.is_floating_point and labels.dim() == 1
    summed = _of_linear_layers if simple else _of_any
    parts = [
        summed(model, layers, *part, clip)
        for part in zip(torch.split(inputs, CHUNK), torch.split(labels, CHUNK), strict=True)
        if len(part[0])
    ]
    return [sum(found, torch.zeros_like(shape)) for shape, *found in zip(_trained(model), *parts, strict=True)]


def _factors(squares: Tensor, clip: float | None) -> Tensor:
    norms = squares.sqrt().clamp_min(1e-12)
    return 1 / norms if clip is None else (clip / norms).clamp_max(1.0)


def _of_linear_layers(
    model: nn.Module, layers: Sequence[nn.Module], inputs: Tensor, labels: Tensor, clip: float | None
) -> list[Tensor]:
    """Norms from the inputs of each layer and the gradients of its outputs, without a gradient for each record."""
    seen: list[tuple[Tensor, Tensor]] = []
    hooks = [one.register_forward_hook(lambda _, given, made: seen.append((given[0], made))) for one in layers]
    loss = nn.functional.cross_entropy(model(inputs), labels, reduction="sum")
    for hook in hooks:
        hook.remove()
    below = [given.detach() for given, _ in seen]
    above = torch.autograd.grad(loss, [made for _, made in seen])
    bias = [float(one.bias is not None) for one in layers]
    squares = sum(
        one.square().sum(1) * (given.square().sum(1) + more)
        for one, given, more in zip(above, below, bias, strict=True)
    )
    factors = _factors(torch.as_tensor(squares), clip)[:, None]
    found = []
    for one, given, more in zip(above, below, bias, strict=True):
        found.append((factors * one).mT @ given)
        if more:
            found.append((factors * one).sum(0))
    return found


def _of_any(
    model: nn.Module, layers: Sequence[nn.Module], inputs: Tensor, labels: Tensor, clip: float | None
) -> list[Tensor]:
    """A gradient for each record."""
    trained = {name: one.detach() for name, one in model.named_parameters() if one.requires_grad}

    def loss(weights: dict[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
        return nn.functional.cross_entropy(torch.func.functional_call(model, weights, (one[None],)), label[None])

    totals = [torch.zeros_like(one) for one in trained.values()]
    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    for part in zip(torch.split(inputs, 256), torch.split(labels, 256), strict=True):
        found = list(each(trained, *part).values())
        factors = _factors(torch.as_tensor(sum(one.flatten(1).square().sum(1) for one in found)), clip)
        for total, one in zip(totals, found, strict=True):
            total += torch.tensordot(factors, one, 1)
    return totals


@torch.no_grad()
def right(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """How many records the model gets right; of a record with rows, the share of its rows."""
    pairs = zip(torch.split(inputs, CHUNK), torch.split(labels, CHUNK), strict=True)
    return float(sum(_means((model(part).argmax(1) == wanted).float(), wanted).sum() for part, wanted in pairs))


def _means(values: Tensor, labels: Tensor) -> Tensor:
    """Of each record over its rows."""
    if labels.dim() == 1:
        return values
    there = (labels >= 0).float()
    return (values * there).sum(1) / there.sum(1).clamp_min(1)


def _tensors(task: Task, records: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    arrays = task.inputs[:records], task.labels[:records], task.test_inputs, task.test_labels
    a, b, c, d = (torch.from_numpy(one) for one in arrays)
    return a, b, c, d


def noises(epsilon: float, delta: float = DELTA) -> dict[str, Any]:
    """Of linear scaling, each run as one Gaussian: its trials, their scores and the last run cost ε together."""
    trials = [solve(lambda one: [Part(one, "training")], 20.0, share * epsilon, delta) for share in BUDGETS]
    shorts = [Part(noise, "training", TRIALS) for noise in trials]
    last = solve(lambda one: [*shorts, Part(one, "both")], 2.0, epsilon, delta)
    scores = solve(lambda one: [Part(one, "scoring", 2 * TRIALS), Part(last, "both")], 20.0, epsilon, delta)
    parts = [*shorts, Part(last, "both"), Part(scores, "scoring", 2 * TRIALS)]
    return {"trials": trials, "last": last, "scores": scores, "parts": parts}


def linear_scaling(
    task: Task, net: Network, records: int, epsilon: float, seeds: Sequence[int], *, delta: float = DELTA
) -> dict[str, Any]:
    """Test accuracies of what Panda's rule releases, one for each seed."""
    paid = _noises(epsilon, delta)
    inputs, labels, tests, wanted = _tensors(task, records)
    if net == "linear" or labels.dim() == 2:  # rows of persons have linear models
        inputs, tests = (
            LENGTH_OF_INPUTS * nn.functional.normalize(one.flatten(labels.dim()), dim=-1) for one in (inputs, tests)
        )
    low, high = (rate * records / 50_000 * steps for rate, steps in zip(RATES, (LENGTHS[0], 150), strict=True))
    budget = cost([Part(paid["last"], "both")], delta)
    found, picked = [], []
    for seed in seeds:
        random = np.random.default_rng(seed)
        score = torch.from_numpy(random.random(records) < RIVAL_SHARE)

        def train(reach: float, noise: float, use: Tensor, steps: int, seed: int) -> nn.Module:
            torch.manual_seed(seed)
            model = _from_zero(net, task)
            weights, descent = _trained(model), Descent(Memories(0.9))
            size, spread = int(use.sum()), noise * math.sqrt(steps)
            for _ in range(steps):
                sums = gradient_sum(model, inputs[use], labels[use], 1.0)
                noisy = [(one + spread * torch.randn_like(one)) / size for one in sums]
                with torch.no_grad():
                    for weight, step in zip(weights, descent.directions(noisy), strict=True):
                        weight.sub_(reach / steps * step)
            return model

        best: list[float] = []
        for noise, part in zip(paid["trials"], (1 / 10, 1 / 5), strict=True):
            tried = []
            for _ in range(TRIALS):
                least = best[0] if best else low
                reach, steps = random.uniform(least, max(part * high, least)), int(random.choice(LENGTHS))
                model = train(reach, noise, ~score, steps, int(random.integers(2**31)))
                counted = right(model, inputs[score], labels[score]) + paid["scores"] * random.standard_normal()
                tried.append((counted, reach))
            best.append(max(tried)[1])
        slope = (best[1] - best[0]) / ((BUDGETS[1] - BUDGETS[0]) * epsilon)
        reach = best[1] + slope * (budget - BUDGETS[1] * epsilon)
        steps = LENGTHS[-1] if reach >= high else int(random.choice(LENGTHS))
        reach = min(max(reach, low), high)
        model = train(reach, paid["last"], torch.ones_like(score), steps, int(random.integers(2**31)))
        found.append(round(right(model, tests, wanted) / len(wanted), 4))
        picked.append([reach, steps])
    return {"accuracies": found, "picked": picked}


_noises = functools.cache(noises)


def made(net: Network, task: Task) -> nn.Module:
    """The untrained model."""
    return network(net, task) if isinstance(net, str) else net()


def _trained(model: nn.Module) -> list[Tensor]:
    return [one for one in model.parameters() if one.requires_grad]


def _from_zero(net: Network, task: Task) -> nn.Module:
    model = made(net, task)
    if net == "linear":
        for one in model.parameters():
            nn.init.zeros_(one)
    return model


@functools.cache
def probe_noises(rate: float, steps: int, epsilon: float, delta: float = DELTA) -> tuple[float, float]:
    """Of HyFreeDP's gradients and losses; the three losses of a step are one Gaussian with √3 times the sensitivity."""
    alone = solve(lambda one: [Part(one, "both", rate=rate, steps=steps)], 1.0, epsilon, delta)
    run, probes = Part(RAISED * alone, "both", rate=rate, steps=steps), math.ceil(steps / EVERY)
    level = solve(lambda one: [run, Part(one, "both", rate=rate, steps=probes)], 10.0, epsilon, delta)
    return run.noise, math.sqrt(3) * level


def hyfree(
    task: Task,
    net: Network,
    records: int,
    epsilon: float,
    seeds: Sequence[int],
    *,
    batch: int,
    steps: int,
    delta: float = DELTA,
) -> dict[str, Any]:
    """Test accuracies of what HyFreeDP releases, one for each seed."""
    rate = batch / records
    noise, loss_noise = probe_noises(rate, steps, epsilon, delta)
    inputs, labels, tests, wanted = _tensors(task, records)
    found, picked = [], []
    for seed in seeds:
        torch.manual_seed(seed)
        model = made(net, task)
        weights, descent = _trained(model), Descent(Memories(0.9, 0.999))
        eta, bound = torch.tensor([FIRST_RATE]), torch.tensor([math.log(task.classes)])
        for step in range(steps):
            drawn = torch.rand(records) < rate
            sums = gradient_sum(model, inputs[drawn], labels[drawn], None)
            noisy = [(one + noise * torch.randn_like(one)) / batch for one in sums]
            moves = descent.directions(noisy)
            with torch.no_grad():
                if step % EVERY == 0:
                    drawn = torch.rand(records) < rate
                    told = []
                    for sign in (0.0, -1.0, 2.0):  # where it is, ahead, and behind from there
                        for weight, move in zip(weights, moves, strict=True):
                            weight.add_(sign * eta * move)
                        each = nn.functional.cross_entropy(model(inputs[drawn]), labels[drawn], reduction="none")
                        losses = _means(each, labels[drawn])
                        told.append((losses.minimum(bound).sum() + loss_noise * bound * torch.randn(1)) / batch)
                    for weight, move in zip(weights, moves, strict=True):
                        weight.sub_(eta * move)
                    eta, bound = next_rate(eta, *told), told[0].clamp(0.05, 10.0)
                for weight, move in zip(weights, moves, strict=True):
                    weight.sub_(eta * move)
        found.append(round(right(model, tests, wanted) / len(wanted), 4))
        picked.append(float(eta))
    return {"accuracies": found, "picked": picked}
