"""Federated learning with user-level privacy: FedAdagrad at the server, SGD at the clients, K settings at once.

An open stand-in for the paper's proprietary task (its section 4.2.3): Fashion-MNIST over 3 000 clients of 20 examples
each, classes skewed by a Dirichlet law; a network with one hidden layer. A round takes each client with probability q;
a client's update (new weights minus old, after one local epoch) is clipped to norm S as a whole, Gaussian noise of
standard deviation σS is added to the sum, and the server steps by Adagrad. One run is 100 Poisson-subsampled Gaussian
mechanisms with the client as the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paper.data.sets import Images
from paper.train.run import batches

HIDDEN = 32
COLUMNS = 792  # 784 pixels, one for the bias, zeros up to a multiple of 8 for the matrix units


@dataclass(frozen=True)
class Task:
    """What all runs share."""

    clients: int = 3000
    examples: int = 20
    skew: float = 0.3  # of the Dirichlet law of each client's classes
    rate: float = 0.1  # probability of a client to be in a round
    rounds: int = 100
    local_batch: int = 5
    clip: float = 1.0
    noise_multiplier: float = 1.0
    adaptivity: float = 1e-3  # Adagrad's τ

    def split(self, labels: npt.NDArray[np.uint8], seed: int = 0) -> npt.NDArray[np.intp]:
        """(clients, examples) indices: a partition of the examples, each client's classes drawn from its own law."""
        random = np.random.default_rng(seed)
        pools = [list(random.permutation(np.flatnonzero(labels == c))) for c in range(10)]
        taste = random.dirichlet([self.skew] * 10, size=self.clients)
        result = np.empty((self.clients, self.examples), dtype=np.intp)
        for client, law in enumerate(taste):
            for n in range(self.examples):
                left = law * [len(pool) > 0 for pool in pools]
                if left.sum() < 1e-12:  # its classes are used up: take what is left
                    left = np.array([len(pool) for pool in pools], dtype=float)
                result[client, n] = pools[random.choice(10, p=left / left.sum())].pop()
        return result


class Weights(NamedTuple):
    """First layer (…, COLUMNS, 32), its bias in row 784; second with its bias as last row (…, 33, 10)."""

    first: Tensor
    second: Tensor


def _outputs(x: Tensor, w: Weights) -> tuple[Tensor, Tensor]:
    hidden = (x @ w.first).relu()
    return hidden, torch.cat([hidden, torch.ones_like(hidden[..., :1])], -1) @ w.second


def _local(x: Tensor, labels: Tensor, start: Weights, rate: Tensor, batch: int) -> Weights:
    """One local epoch from ``start`` (K, …) on x (clients, n, COLUMNS): each client's update, (K, clients, …)."""
    models, clients = len(rate), len(x)
    w = Weights(*(v[:, None].repeat(1, clients, 1, 1) for v in start))
    step = rate.view(-1, 1, 1, 1) / batch
    for begin in range(0, x.shape[1], batch):
        xs = x[None, :, begin : begin + batch].expand(models, -1, -1, -1)
        hidden, logits = _outputs(xs, w)
        error = logits.softmax(-1) - torch.nn.functional.one_hot(labels[:, begin : begin + batch], 10)
        back = (error @ w.second[..., :-1, :].mT) * (hidden > 0)
        w.second.sub_(step * (torch.cat([hidden, torch.ones_like(hidden[..., :1])], -1).mT @ error))
        w.first.sub_(step * (xs.mT @ back))
    return Weights(*(v.sub_(s[:, None]) for v, s in zip(w, start, strict=True)))


@torch.no_grad()
def train(
    task: Task,
    images: Images,
    server_rate: npt.NDArray[np.float64],
    client_rate: npt.NDArray[np.float64],
    seed: int,
    device: torch.device | str = "cpu",
    evaluate_after: Sequence[int] = (),
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Train K models; return their mean test losses (nan counts as infinite) and accuracies.

    Both have a row for each of the given rounds, in order, by default for the last one.
    """
    x, labels = _vectors(images.train, images.train_labels, device)
    split = torch.from_numpy(task.split(images.train_labels)).to(device)
    generator = torch.Generator(device).manual_seed(seed)
    models = len(server_rate)
    rates = [torch.tensor(v, dtype=torch.float32, device=device) for v in (server_rate, client_rate)]
    w = Weights(_uniform(784, models, COLUMNS, HIDDEN, generator), _uniform(HIDDEN, models, HIDDEN + 1, 10, generator))
    seen = Weights(*(torch.zeros_like(v) for v in w))
    draw = batches(task.clients, task.rate, seed)
    tested, tests = [], _vectors(images.test, images.test_labels, device)
    for number in range(1, task.rounds + 1):
        rows = split[torch.from_numpy(draw()).to(device)]
        update = _local(x[rows], labels[rows], w, rates[1], task.local_batch)
        norms = sum((v.square().sum((2, 3)) for v in update), torch.zeros((), device=device)).sqrt()
        weight = (task.clip / (norms + 1e-6)).clamp_max(1.0)
        for value, total, change in zip(w, seen, update, strict=True):
            noisy = torch.einsum("km,kmio->kio", weight, change)
            noisy += (
                task.clip * task.noise_multiplier * torch.randn(noisy.shape, generator=generator, device=noisy.device)
            )
            noisy /= task.rate * task.clients
            total += noisy.square()
            value += rates[0].view(-1, 1, 1) * noisy / (total.sqrt() + task.adaptivity)
        if number in (evaluate_after or (task.rounds,)):
            tested.append(_tested(w, *tests))
    loss, accuracy = zip(*tested, strict=True)
    return np.array(loss), np.array(accuracy)


def _tested(w: Weights, x: Tensor, labels: Tensor) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    loss, right = [], []
    for first, second in zip(*w, strict=True):
        logits = _outputs(x, Weights(first, second))[1]
        loss.append(torch.nn.functional.cross_entropy(logits, labels).item())
        right.append((logits.argmax(1) == labels).float().mean().item())
    return np.nan_to_num(np.array(loss), nan=np.inf), np.array(right)


def _vectors(
    pixels: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8], device: torch.device | str
) -> tuple[Tensor, Tensor]:
    flat = (torch.tensor(pixels).to(device).float().flatten(1) / 255 - 0.2860) / 0.3530
    one = torch.ones_like(flat[:, :1])
    return torch.nn.functional.pad(torch.cat([flat, one], 1), (0, COLUMNS - 785)), torch.tensor(labels).long().to(
        device
    )


def _uniform(inputs: int, models: int, rows: int, columns: int, generator: torch.Generator) -> Tensor:
    unit = torch.rand((models, rows, columns), generator=generator, device=generator.device)
    return unit.mul(2).sub(1).div(inputs**0.5)
