"""Rounds: which of the waiting runs are trained next, in one program with a number of models it was compiled for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from dphypo.mechanisms import Outcome
from paper.experiments.study.search import Run, Search

Train = Callable[[Sequence[Run], int, int], list[Outcome]]  # runs, size and number of the round


def chosen(waiting: Sequence[Run], sizes: Sequence[int]) -> tuple[list[Run], int]:
    """The runs of the next round and its size, which may be larger: a program is compiled for a number of models.

    All have one number of steps, the smallest that waits, since stages go on after it; those of adaptive searches come
    first, which wait for no more than one. The size is the smallest that holds all that could come along.
    """
    steps = min(run.training.steps for run in waiting)
    alike = sorted((run for run in waiting if run.training.steps == steps), key=lambda run: not run.adaptive)
    size = min((size for size in sizes if size >= len(alike)), default=max(sizes))
    return alike[:size], size


def run_all(searches: Sequence[Search], train: Train, sizes: Sequence[int], deadline: float) -> int:
    """Train until every search is finished, or until the next round would not end by ``deadline``; count the rounds.

    T is secret in a real search. Here data are public, and the program may see who is finished.
    """
    took: dict[tuple[int, int], float] = {}  # by size and steps
    number = 0
    while True:
        for search in searches:
            search.ask()
        waiting = [run for search in searches for run in search.waiting]
        if not waiting:
            return number
        runs, size = chosen(waiting, sizes)
        steps, begun = runs[0].training.steps, time.time()
        if begun + 1.05 * took.get((size, steps), 0.0) > deadline:
            print(f"stopping before round {number + 1}: not enough time", flush=True)
            return number
        outcomes = train(runs, size, number)
        for run, outcome in zip(runs, outcomes, strict=True):
            run.search.tell(run, outcome)
        took[size, steps] = time.time() - begun
        number += 1
        unfinished = sum(not search.finished for search in searches)
        print(
            f"round {number}: {len(runs)} runs in {size} models, {steps} steps, {took[size, steps]:.1f} s; "
            f"{len(waiting) - len(runs)} runs waiting, {unfinished} searches unfinished",
            flush=True,
        )
