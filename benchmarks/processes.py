"""How a step of DP-SGD scales with processes of one machine: a small transformer, on CPU threads, with gloo.

    OMP_NUM_THREADS=1 python -m benchmarks.processes [--sizes 1 2] [--steps 12] [--rounds 2]

Numbers of processes are measured in turn, round by round. For each it prints the median time of a step, the processor
time of the leader in it, which other load on the machine does not change, and both as ratios to one process. Bits of
the weights are compared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

import torch
from torch import nn

from dphypo.mechanisms.mechanism import Follower
from dphypo.torch.engine import Program, Run, Setting, Tensors, distributed, train

TOKENS, WORDS, WIDTH, RECORDS, BATCH = 64, 500, 128, 4000, 160
_FIRST = 2  # steps that are not counted


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1, batch_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(WIDTH, 2)

    def forward(self, tokens: torch.Tensor) -> Any:
        return self.head(self.layers(self.words(tokens)).mean(1))


def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


class Clock(Follower):
    """Notes the time of every step, and the processor time of this process in it."""

    def __init__(self) -> None:
        self.marks: list[tuple[float, float]] = []

    def step(self, made: int, state: Callable[[IO[bytes]], object] | None = None) -> None:
        self.marks.append((time.perf_counter(), time.process_time()))

    def each(self) -> list[tuple[float, float]]:
        pairs = list(zip(self.marks[_FIRST:], self.marks[_FIRST + 1 :], strict=False))
        return [(after[0] - before[0], after[1] - before[1]) for before, after in pairs]


def trained(team: distributed.Team | None, steps: int, clock: Clock | None = None) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(WORDS, (RECORDS, TOKENS), generator=generator)
    data = Tensors(tokens, torch.randint(2, (RECORDS,), generator=generator))
    torch.manual_seed(0)
    example = torch.zeros((1, TOKENS), dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    program = Program.of(Transformer(), loss, example)
    run = Run(
        seed=1, records=RECORDS, rate=BATCH / RECORDS, steps=steps, batch_size=BATCH, noise_multiplier=1.0,
        max_grad_norm=1.0, learning_rate=0.1,
    )  # fmt: skip
    (model,) = train(program, Transformer, data, [run], Setting(physical_batch_size=32), follower=clock, team=team)
    return torch.cat([value.detach().flatten() for value in model.parameters()])


def serve(team: distributed.Team, steps: int) -> None:
    trained(team, steps)
    team.leaders()


def measured(size: int, steps: int) -> tuple[torch.Tensor, list[tuple[float, float]]]:
    clock = Clock()
    if size == 1:
        return trained(None, steps, clock), clock.each()
    with distributed.started(serve, [(steps,)] * (size - 1)) as team:
        return trained(team, steps, clock), clock.each()


def main(sizes: Sequence[int] = (1, 2), steps: int = 12, rounds: int = 2) -> None:
    found: dict[int, list[tuple[float, float]]] = {size: [] for size in sizes}
    bits = []
    for _ in range(rounds):
        for size in sizes:
            weights, times = measured(size, steps)
            bits.append(weights)
            found[size] += times
            print(f"{size} processes, load average {os.getloadavg()[0]:.1f}", flush=True)
    assert all(torch.equal(bits[0], one) for one in bits), "bits differ"
    one = [statistics.median(part) for part in zip(*found[sizes[0]], strict=True)]
    for size in sizes:
        wall, cpu = (statistics.median(part) for part in zip(*found[size], strict=True))
        ratios = f"{one[0] / wall:.2f}, {one[1] / cpu:.2f} by processor time"
        print(f"{size} processes: {1e3 * wall:.0f} ms a step, {1e3 * cpu:.0f} ms of the leader; speed {ratios}")
    print("all ended in the same bits")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=2)
    main(**vars(parser.parse_args()))
