"""Audits on a fixed grid: claimed ε, explicit attack, and what experiments prove.

    python -m benchmarks.audit [--repetitions 4000] [--processes 2] [--rows 4 5]

Three kinds of rows: worst-case searches (randomised response under laws and bands, with the policy at the edge of the
band), whole plans (stages, a survey and its last run), and DP-SGD as ``DPSGD`` runs it, with a gradient canary or an
input canary. All lower bounds together hold at a confidence of 99 %. "attack" is what an explicit attack on the same
search achieves, computed and not tried out, where there is one. Every claim is for ε ≥ 2 at δ = 1e-3. Worst cases are
repeated as often as ``--repetitions`` says on each side, the others a quarter as often. ``--rows`` runs some rows of
the grid again, numbered from 1, and keeps the results of the others; the confidence is then over all experiments.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import dp_accounting as dp
import numpy as np

import dphypo
from benchmarks.many_runs import audit, audit_mechanism, gradient_canary, input_canary
from benchmarks.worst_case import WorstCase
from dphypo.accounting import PureDp, account
from dphypo.accounting.lower_bound import epsilon_from_below
from dphypo.audit import Audit
from dphypo.band import Band
from dphypo.laws import Geometric, Law, NegativeBinomial, Pmf, Poisson
from dphypo.search import LastRun, Survey

RESULTS = Path(__file__).parent / "results" / "audit.json"
DELTA = 1e-3
RELATION = dp.NeighboringRelation.ADD_OR_REMOVE_ONE

WORST: list[tuple[float, Law, Band]] = [
    (1.4, Geometric(mean=2), Band(1, 1)),
    (1.4, NegativeBinomial(8, mean=2), Band(1, 1)),
    (1.4, Poisson(2), Band(1, 1)),
    (1.0, Geometric(mean=2), Band(0.75, 2)),
    (0.5, NegativeBinomial(8, mean=2), Band(0.5, 4)),
]
CANARIES = [(64, 1, 0.5), (64, 4, 1.0), (16, 8, 0.6)]  # batch of 64 records, steps, noise multiplier
MISLABELLED = [(64, 8, 2.0)]  # the same, with one record that has a wrong label
PLANS = ("survey of 3 runs, then one run", "stages")


def worst(index: int, repetitions: int, confidence: float) -> dict[str, Any]:
    epsilon, runs, band = WORST[index]
    attack = WorstCase(epsilon, runs, band, DELTA, repetitions)
    row = shown(f"randomised response ε = {epsilon:g}, {runs!r}, {band!r}", attack.audit(confidence), "worst case")
    return row | {"attack": attack.attack_epsilon(first_from_prior=True)}


def canary(index: int, repetitions: int, confidence: float) -> dict[str, Any]:
    batch, steps, noise = CANARIES[index]
    make, data, neighbour, observe = gradient_canary(noise_multiplier=noise, batch_size=batch, steps=steps)
    audited = partial(audit_mechanism, make, data, neighbour, {}, repetitions // 4, observe=observe)
    return _training(CANARIES[index], make(data), audited, confidence, "gradient canary")


def _training(
    run: tuple[int, int, float], mechanism: Any, audited: Callable[..., Audit], confidence: float, kind: str
) -> dict[str, Any]:
    """The row of one run of DPSGD on 64 records, beside the best attack on its event."""
    batch, steps, noise = run
    guarantee = account(mechanism.event({}), Pmf({1: 1.0}))
    result = audited(delta=DELTA, claimed=guarantee.epsilon(DELTA), confidence=confidence)
    row = shown(f"DPSGD, batch {batch} of 64, {steps} steps, σ = {noise:g}", result, kind)
    return row | {"attack": epsilon_from_below(guarantee, DELTA)}


def mislabelled(index: int, repetitions: int, confidence: float) -> dict[str, Any]:
    import torch

    from dphypo.torch import DPSGD

    batch, steps, noise = MISLABELLED[index]
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(63) % 2
    inputs = torch.randn(63, 2, generator=generator) + 2.0 * (2 * labels[:, None] - 1)
    data, neighbour, observe = input_canary((inputs, labels), (torch.tensor([4.0, 4.0]), 0))

    def untrained() -> torch.nn.Module:  # random weights would hide the record; an attacker may choose them
        layer = torch.nn.Linear(2, 2)
        for weights in layer.parameters():
            torch.nn.init.zeros_(weights)
        return layer

    def make(records: Any) -> DPSGD:
        arguments: dict[str, Any] = {"batch_size": batch, "epochs": steps * batch / 64, "learning_rate": 1.0}
        arguments |= {"score": lambda model: 0.0, "noise_multiplier": noise, "records": 64}
        return DPSGD(model=untrained, data=records, **arguments)

    audited = partial(audit_mechanism, make, data, neighbour, {}, repetitions // 4, observe=observe)
    return _training(MISLABELLED[index], make(data), audited, confidence, "input canary")


def plan(index: int, repetitions: int, confidence: float) -> dict[str, Any]:
    make = (_survey, _stages)[index]
    claimed = make(0).guarantee.epsilon(DELTA)
    result = audit(
        make,
        1,
        0,
        repetitions // 4,
        delta=DELTA,
        claimed=claimed,
        observe=(_table, _both)[index],
        confidence=confidence,
    )
    return shown(PLANS[index], result, "plan")


def _truth(bit: int, epsilon: float) -> Any:
    @dphypo.mechanism(event=PureDp(epsilon), relation=RELATION)
    def respond(params: Any, *, seed: int) -> Any:
        honest = np.random.default_rng(seed).random() < math.exp(epsilon) / (1 + math.exp(epsilon))
        told = bit if honest else 1 - bit
        return told, float(told)

    return respond


SPACE = dphypo.Space({"x": [0, 1]})


def _survey(bit: int) -> dphypo.Stages:
    parts: list[Any] = [Survey(_truth(bit, 0.5), 3), LastRun(_truth(bit, 1.0))]
    return dphypo.Stages(SPACE, parts, delta=DELTA, journal=None)


def _table(release: Any) -> int:
    return int(sum(row.score for row in release.survey.rows)) + 10 * int(release.model)


def _stages(bit: int) -> dphypo.Stages:
    parts: list[Any] = [Survey(_truth(bit, 0.5), 2), dphypo.Stage(_truth(bit, 1.0), Geometric(mean=2))]
    return dphypo.Stages(SPACE, parts, delta=DELTA, journal=None)


def _both(release: Any) -> str:
    return f"{release.certificate.document['public'].get('released')} {release.score}"


def shown(name: str, result: Audit, kind: str) -> dict[str, Any]:
    assert result.claimed is not None
    return {
        "kind": kind,
        "search": name,
        "claimed": result.claimed,
        "proven": result.epsilon,
        "share": result.epsilon / result.claimed,
        "repetitions": result.repetitions,
        "passed": result.passed,
    }


def timed(job: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    begun = time.monotonic()
    return job() | {"seconds": round(time.monotonic() - begun, 1)}


def table(rows: list[dict[str, Any]]) -> str:
    """The results in Markdown."""
    lines = [
        "| attacked | what | runs a side | claimed ε | attack ε | proven ε | share |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        attack = f"{row['attack']:.3f}" if "attack" in row else ""
        numbers = f"{row['repetitions']} | {row['claimed']:.3f} | {attack} | {row['proven']:.3f} | {row['share']:.0%}"
        lines.append(f"| {row['kind']} | {row['search']} | {numbers} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=4000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rows", type=int, nargs="*", default=[])
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    grid = ((worst, WORST), (canary, CANARIES), (mislabelled, MISLABELLED), (plan, PLANS))
    common: dict[str, Any] = {
        "repetitions": options.repetitions,
        "confidence": 1 - 0.01 / sum(len(rows) for _, rows in grid),
    }
    jobs = [partial(make, index, **common) for make, rows in grid for index in range(len(rows))]
    numbers = [number - 1 for number in options.rows] or list(range(len(jobs)))
    earlier: dict[str, Any] = {"rows": [{}] * len(jobs), "replaced": [], "experiments": 0}
    if options.rows:
        earlier |= {"experiments": len(jobs)} | json.loads(options.results.read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = list(earlier["rows"])
    begun = time.monotonic()
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        for number, future in [(number, pool.submit(timed, jobs[number])) for number in numbers]:
            row = found[number] = future.result()
            mark = "" if row["passed"] else "  THE CLAIM IS FALSE"
            print(f"{row['kind']}: {row['search']}: proven {row['proven']:.3f}, {row['seconds']} s{mark}", flush=True)
    print(f"\n{table(found)}\n\n{len(numbers)} rows in {(time.monotonic() - begun) / 60:.1f} minutes")
    # Rows that are run again were chosen after their results were seen: all experiments count.
    experiments = earlier["experiments"] + len(numbers)
    replaced = earlier["replaced"] + [earlier["rows"][number] for number in numbers if options.rows]
    summary = earlier | {"delta": DELTA, "confidence": round(1 - 0.01 * experiments / len(jobs), 4)}
    summary |= {"experiments": experiments, "rows": found, "replaced": replaced}
    options.results.parent.mkdir(exist_ok=True)
    options.results.write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    weak = [row["search"] for row in found if row["kind"] == "worst case" and row["share"] < 0.6]
    print("worst cases below 60 % of their claim:", ", ".join(weak) or "none")
    if weak or not all(row["passed"] for row in found):
        raise SystemExit("a lower bound is above its claim, or the audit has too little power")


if __name__ == "__main__":
    main()
