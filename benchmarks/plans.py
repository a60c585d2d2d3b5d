"""What a survey costs in noise, and how long it takes to solve for it: ``python -m benchmarks plans``.

The first table is one task with surveys of several kinds; the second, five tasks with matched short runs. The time is
CPU time on one core, of a plan with twelve settings, as a ratio to one with a single setting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from dphypo.accounting import Composition, Term, solve_noise
from dphypo.accounting.calibrate import equal_noise, run_alone
from dphypo.accounting.composition import account_published
from dphypo.accounting.events import Event
from dphypo.mechanisms import SampledGaussian

RECORDS, DELTA = 60_000, 1e-5
TASKS = ((256, 2344, 1.0), (256, 2344, 4.25), (1024, 586, 4.25), (2048, 2344, 4.25), (256, 2344, 8.0))
MATCHED = ((0.03, 20), (0.05, 20), (0.1, 10), (0.1, 20))


def run(batch: int, steps: int, noise: float = 1.0) -> SampledGaussian:
    return SampledGaussian.of(records=RECORDS, batch_size=batch, steps=steps, noise_multiplier=noise)


def solve(
    full: Sequence[SampledGaussian],
    short: Callable[[SampledGaussian], SampledGaussian] | None,
    count: int,
    epsilon: float,
    grid: float = 1e-3,
) -> list[float]:
    """The noise of the full run at every setting."""

    def noisy(one: SampledGaussian) -> Callable[[float], Event]:
        return lambda noise: one.at(noise_multiplier=noise).event

    ratios = equal_noise({index: run_alone(noisy(one)) for index, one in enumerate(full)}, epsilon=epsilon, delta=DELTA)

    def plan_at(factor: float) -> Composition:
        made = [one.at(noise_multiplier=factor * ratios[index]) for index, one in enumerate(full)]
        terms = [Term(account_published([one.event for one in made], 1, grid=grid))]
        if short is not None and count:
            terms.insert(0, Term(account_published([short(one).event for one in made], count, grid=grid)))
        return Composition(tuple(terms))

    found = solve_noise(plan_at, epsilon=epsilon, delta=DELTA, start=1.01)
    return [found.value * ratio for ratio in ratios.values()]


def surveys() -> None:
    print("256 × 2344 of 60 000, ε = 4.25 at δ = 1e-5        σ of the full run   compute")
    (alone,) = solve([run(256, 2344)], None, 0, 4.25)
    print(f"{'no survey':<49} {alone:.4f}              1")
    for count, steps, noise in ((20, 70, 3.63), (10, 234, 1.99), (20, 234, 1.99), (40, 234, 2.0), (10, 703, 1.17)):
        fixed = run(256, steps, noise)
        (found,) = solve([run(256, 2344)], lambda _, fixed=fixed: fixed, count, 4.25)  # type: ignore[misc]
        name = f"{count} runs of {steps} steps at σ = {noise}"
        print(f"{name:<49} {found:.4f}              {1 + count * steps / 2344:.1f}")


def prices() -> None:
    names = "".join(f"  f = {fraction}, k = {count}" for fraction, count in MATCHED)
    print(f"\nnoise added, per cent       σ alone {names}")
    for batch, steps, epsilon in TASKS:
        grid = 2e-4 if epsilon <= 1 else 1e-3  # at a small ε the default grid rounds noise up by 0.2 per cent
        (alone,) = solve([run(batch, steps)], None, 0, epsilon, grid)
        added = []
        for fraction, count in MATCHED:
            (tuned,) = solve(
                [run(batch, steps)],
                lambda full, fraction=fraction: full.at(fraction=fraction, match=True),  # type: ignore[misc]
                count,
                epsilon,
                grid,
            )
            added.append(100 * (tuned / alone - 1))
        cells = "".join(f"{value:>17.2f}" for value in added)
        print(f"{batch} × {steps}, ε = {epsilon:<10g}   {alone:.3f}  {cells}")


def settings() -> None:
    def short(full: SampledGaussian) -> SampledGaussian:
        return full.at(fraction=0.05, match=True)

    twelve = [run(batch, round(epochs * RECORDS / batch)) for batch in (256, 512, 1024, 2048) for epochs in (5, 10, 20)]
    times = []
    for full in (twelve[1:2], twelve):
        start = time.process_time()
        solve(full, short, 20, 4.25)
        times.append(time.process_time() - start)
    print(f"\n12 settings: {times[1]:.1f} s of one core, {times[1] / times[0]:.1f} times a plan with one setting")


def main() -> None:
    surveys()
    prices()
    settings()
