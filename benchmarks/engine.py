"""The engine against Opacus, exactness included: ``python -m benchmarks.engine``.

    python -m benchmarks engine                        the CPU rows, and the rows of a GPU where there is one
    python -m benchmarks.engine prepare                what is done before the first step, on a CPU
    python -m benchmarks.engine checks speed tune      rows of a GPU: what must hold there, times, a whole search
    python -m benchmarks.engine tf32                   checks and times again, where passes round to TF32
    python -m benchmarks.engine accuracy free          accuracies on MNIST, which lies in data/packed
    python -m benchmarks.engine profile                where the time of a step and of a whole search goes

``--out FILE`` adds a line of JSON for every row, ``--quick`` makes every path once. The tables of exact noise are read
from ``$DPHYPO_CACHE``, or built.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from scipy.stats import loguniform

from benchmarks.engine_accuracy import accuracy, free, share
from benchmarks.engine_models import CNN, MODELS, Opacus, Show, Task, losses, value
from benchmarks.engine_profile import functions_of, kernels_of
from dphypo import Space, Stages, SurveyPlan
from dphypo.search.tune import plan_tuning
from dphypo.torch import DPSGD
from dphypo.torch.engine import Program, Setting, Tensors, layers, run, trainable
from dphypo.torch.engine.clipped_sum import Shape, Sums, Weights
from dphypo.torch.engine.device import pinned
from dphypo.torch.engine.run import Group

GPU = torch.device("cuda")
DIGITS = ("digits, batch 64, width 64", "digits, batch 256, width 128")
STEPS = 2344  # ten epochs of MNIST
AIMS = {
    **dict.fromkeys((f"one CPU thread, {name}" for name in DIGITS), "times_one ≥ 3, times_of_ten ≥ 6"),
    f"{CNN}, one run": "times ≥ 10",
    f"{CNN}, 20 at once, a run": "times ≥ 40, memory_gib ≤ 1.2",
    f"{CNN}, 20 at once: exact over float32 sums and float noise": "ratio ≤ 1.5",
    "transformer, one run": "times ≥ 1",
    "WRN-16-4, one run": "times ≥ 1",
    "tune over one run of Opacus": "ratio ≤ 0.25",
}


def now(device: torch.device) -> float:
    """Seconds: of this process's own on a CPU, where others may be at work, and of the clock on a GPU."""
    if device.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def milliseconds(step: Callable[[], object], device: torch.device, repeats: int, rounds: int = 5) -> float:
    """Of one call, after some to warm up: the best of several rounds."""
    for _ in range(max(3, repeats // 10)):
        step()
    times = []
    for _ in range(rounds):
        start = now(device)
        for _ in range(repeats):
            step()
        times.append((now(device) - start) / repeats * 1e3)
    return min(times)


def group_of(task: Task, records: Tensors, runs: int, steps: int) -> Group:
    device = records.inputs.device
    torch.manual_seed(0)
    program = Program.of(task.build().to(device), losses, task.example(device))
    rows = program.layout.stacked([task.build() for _ in range(runs)], device)
    return Group(program, rows, records, [value(task, len(records), seed, steps) for seed in range(runs)], Setting())


def in_turns(theirs: Callable[[], float], ours: Callable[[], float], rounds: int = 3) -> tuple[float, float]:
    """Both times, of the round whose ratio is the median."""
    pairs = sorted([(theirs(), ours()) for _ in range(rounds)], key=lambda pair: pair[0] / pair[1])
    return pairs[rounds // 2]


def ours(task: Task, records: Tensors, runs: int, repeats: int, rounds: int = 3) -> float:
    """Milliseconds of a step of so many runs at once on a GPU: of whole groups, as graphs, with all they draw."""
    device, times = records.inputs.device, []
    with pinned(1):
        for _ in range(rounds):
            group = group_of(task, records, runs, repeats)
            start = now(device)
            group.finish()
            times.append((now(device) - start) / repeats * 1e3)
    return min(times)


@contextmanager
def in_single_precision() -> Iterator[None]:
    """The same engine with sums in float32 and PyTorch's noise: what exactness is compared with."""
    wide = vars(layers)["wide"]
    names = {name: vars(run)[name] for name in ("Sums", "Weights", "DeviceDraws")}

    class SingleSums(Sums):
        def __init__(self, rows: torch.Tensor) -> None:
            super().__init__(rows)
            self.rows = self.rows.float()

    class SingleWeights(Weights):
        def of(self, *given: Any) -> torch.Tensor:
            return super().of(*given).float()

    class Draws:
        def __init__(self, words: Any, deviation: float, bits: int, cursor: torch.Tensor) -> None:
            self._deviation, self._scale = deviation, 2.0**-bits

        def release(self, values: torch.Tensor) -> torch.Tensor:
            return values * self._scale + self._deviation * torch.randn_like(values)

    vars(layers)["wide"] = lambda values: values.to(torch.float32, copy=True)
    vars(run).update(Sums=SingleSums, Weights=SingleWeights, DeviceDraws=Draws)
    try:
        yield
    finally:
        vars(layers)["wide"] = wide
        vars(run).update(names)


def made_up(task: Task, device: torch.device) -> Tensors:
    return Tensors(*(part.to(device) for part in task.records()))


def cpu(show: Show, quick: bool) -> None:
    """One thread, digits: Opacus's time over ours."""
    torch.set_num_threads(1)
    device = torch.device("cpu")
    for name in DIGITS[: 1 if quick else 2]:
        task, repeats = MODELS[name], 4 if quick else 40
        records = made_up(task, device)
        opacus, groups = Opacus(task, records), [group_of(task, records, runs, 10**5) for runs in (1, 10)]
        wait = partial(milliseconds, opacus.step, device, repeats, 1)
        (theirs, one), (others, ten) = (in_turns(wait, partial(_stepping, group, repeats), 7) for group in groups)
        figures = {"opacus": theirs, "one": one, "of_ten": ten / 10}
        show(f"one CPU thread, {name}", **figures, times_one=theirs / one, times_of_ten=10 * others / ten)


def _stepping(group: Group, repeats: int) -> float:
    with pinned(1):
        return milliseconds(lambda: group.step(0), group.rows.device, 2 * repeats, 1)


def prepare(show: Show, quick: bool) -> None:
    """One CPU thread: seconds to capture the paper's CNN, to make the graphs of four groups, and to compare places."""
    torch.set_num_threads(1)
    device, task = torch.device("cpu"), MODELS[CNN]
    Program.of(task.build(), losses, task.example(device))  # imports
    start = now(device)
    program = Program.of(task.build(), losses, task.example(device))
    captured = now(device) - start
    groups = [(program.layout.stacked([task.build()] * runs, device), Shape(runs, 384)) for runs in (1, 4, 10, 20)]
    start = now(device)
    for rows, shape in groups:
        program.bound(rows, shape)
    graphs, start = now(device) - start, now(device)
    with pinned(1):
        for rows, shape in groups[: 1 if quick else 4]:
            program.on(rows, shape)
    show("to prepare, s", capture=captured, graphs=graphs, places=now(device) - start)


def checks(show: Show, quick: bool) -> None:
    """Places change no bit; a group made again ends in the same bits; steps draw afresh; runs differ."""
    device = GPU
    for name, task in MODELS.items():
        program = Program.of(task.build().to(device), losses, task.example(device))
        for runs in (1, 3):
            rows = program.layout.stacked([task.build() for _ in range(runs)], device)
            with pinned(1):
                same = trainable.same_places(program, rows, Shape(runs, 64))
            show(f"places change no bit: {name}", runs=runs, same=same)
    task = MODELS[CNN]
    records = made_up(task, device)
    with pinned(1):
        ends = [group_of(task, records, 3, steps).finish().clone() for steps in (50, 50, 51)]
    again, moved = torch.equal(ends[0], ends[1]), float((ends[2] - ends[0]).norm())
    show("made again", same=again, last_step_moves=moved, runs_differ=float((ends[0][0] - ends[0][1]).norm()))


def tf32(show: Show, quick: bool) -> None:
    """Checks and times where products and convolutions of passes round to TF32; norms and sums never do."""
    kept = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        for make in (checks, speed):
            make(lambda row, **figures: show(row, tf32=True, **figures), quick)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = kept


def speed(show: Show, quick: bool) -> None:
    """Times of a step on a GPU: Opacus after its first hundreds, ours of whole groups with all they draw."""
    device, steps = GPU, 40 if quick else 1000
    for name in (CNN, "transformer", "WRN-16-4"):
        task = MODELS[name]
        records = made_up(task, device)
        opacus = Opacus(task, records)
        milliseconds(opacus.step, device, 5 if quick else 100, 3)  # its allocator must have seen many sizes of batches
        repeats, made = (5, max(20, steps // 10)) if quick or name != CNN else (300, steps)
        wait = partial(milliseconds, opacus.step, device, repeats, 1)
        theirs, one = in_turns(wait, partial(ours, task, records, 1, made, 1))
        show(f"{name}, one run", opacus=theirs, one=one, times=theirs / one)
        if name != CNN:
            continue
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        ours(task, records, 20, 20, 1)
        memory = (torch.cuda.max_memory_allocated() - before) / 2**30
        theirs, twenty = in_turns(wait, partial(ours, task, records, 20, steps // 2, 1))
        with in_single_precision():
            single = ours(task, records, 20, steps // 2)
        figures = {"opacus": theirs, "ms": twenty / 20, "times": 20 * theirs / twenty}
        show(f"{name}, 20 at once, a run", **figures, memory_gib=memory)
        show(f"{name}, 20 at once: exact over float32 sums and float noise", ratio=twenty / single, single=single)


def search(records: Tensors, quick: bool) -> Stages:
    """20 runs of a tenth, then one, whose noise is known."""
    task = MODELS[CNN]
    shown = (records.inputs[:5000], records.targets[:5000])
    mechanism = DPSGD(
        model=task.build,
        data=(records.inputs.cpu(), records.targets.cpu()),
        score=partial(share, inputs=shown[0], labels=shown[1]),
        noise_multiplier=1.0,
        epochs=0.2 if quick else 10,
        batch_size=task.batch,
        device=GPU,
    )
    space = Space({"learning_rate": loguniform(0.01, 1.0)})
    plan = SurveyPlan(runs=20, fraction=0.1)
    tuning = plan_tuning(space, mechanism, epsilon=3.0, delta=1e-6, survey=plan)
    return Stages.of(tuning.declare(space, 1e-6), journal=None)


def tune(show: Show, quick: bool) -> None:
    """A whole search, 20 runs of a tenth and then one, over one run of Opacus that is not tuned."""
    device, task, steps = GPU, MODELS[CNN], 47 if quick else STEPS
    records = made_up(task, device)
    opacus = Opacus(task, records)
    with pinned(1):
        group_of(task, records, 2, 5).finish()  # kernels are compiled once
    milliseconds(opacus.step, device, 300, 1)
    start = now(device)
    for _ in range(steps):
        opacus.step()
    theirs, stages = now(device) - start, search(records, quick)
    start = now(device)
    stages.run(progress=False)
    spent = now(device) - start
    show("tune over one run of Opacus", tune=spent, opacus=theirs, ratio=spent / theirs)


def profile(show: Show, quick: bool) -> None:
    """Time of the host by function, of a whole search; device time by kernel, of one run and of 20 at once."""
    task = MODELS[CNN]
    records = made_up(task, GPU)
    with pinned(1):
        group_of(task, records, 2, 5).finish()
    stages = search(records, quick)
    functions_of(lambda: stages.run(progress=False))
    for runs in (1, 20):
        with pinned(1):
            group = group_of(task, records, runs, 100)
            kernels_of(group.finish, GPU, 100)


ROWS = {
    "cpu": cpu,
    "prepare": prepare,
    "checks": checks,
    "speed": speed,
    "tf32": tf32,
    "tune": tune,
    "profile": profile,
    "accuracy": accuracy,
    "free": free,
}


def main(names: list[str] | None = None, out: str | None = None, quick: bool = False) -> None:
    """Make rows; one that fails is shown as its error, and the others are made."""
    warnings.simplefilter("ignore")

    def show(row: str, **figures: Any) -> None:
        aim = f" (aim: {AIMS[row]})" if row in AIMS else ""
        print(
            f"  {row}: " + ", ".join(f"{name} {_short(figure)}" for name, figure in figures.items()) + aim, flush=True
        )
        if out is not None:
            with Path(out).open("a") as file:
                file.write(json.dumps({"row": row, **figures}) + "\n")

    print(f"{_device()}, PyTorch {torch.__version__}; milliseconds a step, exact, batches included", flush=True)
    for name in names or (["cpu", "checks", "speed", "tune"] if torch.cuda.is_available() else ["cpu"]):
        try:
            ROWS[name](show, quick)
        except Exception:
            show(f"{name} failed", error=traceback.format_exc())


def _short(figure: Any) -> str:
    return f"{figure:.4g}" if isinstance(figure, float) else str(figure)


def _device() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU, one thread"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine")
    parser.add_argument("names", nargs="*", choices=[*ROWS, []])
    parser.add_argument("--out")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    main(given.names, given.out, given.quick)
