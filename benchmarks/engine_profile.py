"""Where time goes: on a device by kernel, on the host by function."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch.profiler import ProfilerActivity

from dphypo.torch.engine import run

_SHOWN = 45


def kernels_of(call: Callable[[], object], device: torch.device, steps: int) -> None:
    """Print the device's time of each kernel, in microseconds a step, and how often a step calls it."""
    with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        call()
        torch.cuda.synchronize(device)
    events = [event for event in found.key_averages() if event.self_device_time_total > 0 and not event.cpu_time_total]
    events.sort(key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in events)
    print(f"  kernels: {total / steps:.1f} microseconds a step")
    for event in events[:_SHOWN]:
        print(f"    {event.self_device_time_total / steps:8.1f} {event.count / steps:6.1f}x {event.key[:150]}")


def functions_of(call: Callable[[], object]) -> None:
    """Print the time of each function of ours and of what it waits for; a group waits for its device."""
    finish, made = run.Group.finish, run._group

    def finished(self: run.Group, *given: Any) -> torch.Tensor:
        rows = finish(self, *given)
        torch.cuda.synchronize()
        return rows

    def grouped(*given: Any) -> object:
        group = made(*given)
        torch.cuda.synchronize()
        return group

    profiler = cProfile.Profile()
    with mock.patch.object(run.Group, "finish", finished), mock.patch.object(run, "_group", grouped):
        profiler.runcall(call)
    for order, some in (("cumulative", ("dphypo|engine_|graphs|triton|torch/random", 90)), ("tottime", (40,))):
        pstats.Stats(profiler).sort_stats(order).print_stats(*some)
