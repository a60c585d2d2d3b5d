"""What a run costs beyond its training: ask and tell, journal included, against Optuna's on its SQLite storage.

Both keep every run on the disk, both draw three parameters at random, both write to the same disk, in turns. A run of
ours is two commits, each on the disk before it returns (write-ahead log, full synchronous).
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import optuna
from dp_accounting import NeighboringRelation
from scipy.stats import loguniform

import dphypo
from dphypo.accounting import PureDp
from dphypo.band import Band
from dphypo.laws import Pmf
from dphypo.search import Study
from dphypo.space import Space

RUNS = 100
ROUNDS = 3
SPACE = Space({"lr": loguniform(1e-4, 1.0), "layers": list(range(1, 9)), "optimizer": ["sgd", "adam"]})


@dphypo.mechanism(event=PureDp(1.0), relation=NeighboringRelation.ADD_OR_REMOVE_ONE)
def train(params: dict[str, Any], *, seed: int) -> tuple[None, float]:
    """Takes no time: what is measured is everything else."""
    return None, -abs(float(params["lr"]) - 0.1)


def main() -> None:
    """Print the ratios."""
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    print(f"study: one run's overhead, {RUNS} runs, median of {ROUNDS} rounds in turns")
    arms = {
        "random search": Band(1, 1),
        "adaptive, 8192 candidates": Band(0.75, 2),
    }
    with tempfile.TemporaryDirectory() as folder:
        times: dict[str, list[float]] = {"optuna": [], **{name: [] for name in arms}}
        for number in range(ROUNDS):
            times["optuna"].append(_optuna(Path(folder) / f"optuna{number}.db"))
            for name, band in arms.items():
                times[name].append(_ours(Path(folder) / f"{name}{number}.db", band))
    peer = statistics.median(times["optuna"])
    for name in arms:
        ours = statistics.median(times[name])
        goal = "  (target: at most 1)" if name == "random search" else ""
        print(f"  {name}: {ours * 1e3:.2f} ms a run, Optuna {peer * 1e3:.2f} ms: ratio {ours / peer:.3f}{goal}")


def _ours(path: Path, band: Band) -> float:
    with Study(SPACE, train, Pmf({RUNS: 1.0}), band, delta=1e-6, journal=path) as study:
        trial = study.ask()  # opens the journal
        start = time.perf_counter()
        while trial is not None:
            study.tell(trial, train(trial.params, seed=trial.seed))
            trial = study.ask()
        return (time.perf_counter() - start) / RUNS


def _optuna(path: Path) -> float:
    study = optuna.create_study(storage=f"sqlite:///{path}", sampler=optuna.samplers.RandomSampler(seed=0))
    start = time.perf_counter()
    for _ in range(RUNS):
        trial = study.ask()
        rate = trial.suggest_float("lr", 1e-4, 1.0, log=True)
        trial.suggest_int("layers", 1, 8)
        trial.suggest_categorical("optimizer", ["sgd", "adam"])
        study.tell(trial, -abs(rate - 0.1))
    return (time.perf_counter() - start) / RUNS
