"""Several processes drive one Optuna study: each makes trials and tries to make the last run, at moments of its own.

``Attack`` starts the processes once and lets them race for many rounds, each round on a study of its own. A process
says what it did; the main process compares that with the storage and the ledger.
"""

from __future__ import annotations

import multiprocessing
import random
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import optuna
from support.plain_run import PlainRun

import dphypo
from dphypo.errors import Refusal
from dphypo.optuna import OptunaSurvey

RUNS = 4
SURVEY = OptunaSurvey(PlainRun(), 2.0, 1e-7, durations="public", scores="public", runs=RUNS, progress=False)
KINDS = ("patient", "hasty", "late")


def with_ledger(ledger: str) -> OptunaSurvey:
    """The survey with a ledger; its noise was solved for before."""
    made = replace(SURVEY, ledger=ledger)
    made.__dict__["full"] = SURVEY.full
    return made


def expect(refusal: Refusal, words: str) -> None:
    """Raise a refusal again that is not the expected one."""
    if words not in str(refusal):
        raise refusal


def take_part(survey: OptunaSurvey, study: optuna.Study, rng: random.Random) -> list[Any]:
    """One process in one round: what it made and what it was refused."""
    said: list[Any] = []
    kind = rng.choice(KINDS)

    def objective(trial: optuna.Trial) -> float:
        said.append(["trial", trial.number])
        time.sleep(rng.random() * 0.004)
        return float(-abs(trial.suggest_float("x", 0.0, 1.0) - 0.3))

    def optimize() -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "No trial is left")
            survey.optimize(study, objective)

    def last() -> None:
        for _ in range(200):
            try:
                _, _, certificate = survey.last_run(study, lambda **params: said.append(["last"]), {"x": 0.5})
                said.append(["certificate", certificate.to_dict()["public"]["released"][0]["sha256"]])
            except Refusal as refusal:
                expect(refusal, "started before")
                said.append(["refused", "last run"])
            except ValueError:  # trials are still running
                time.sleep(0.01)
                continue
            return

    time.sleep(rng.random() * 0.01)
    if kind != "hasty":
        optimize()
    last()
    if kind == "late":
        optimize()
    return said


def serve(pipe: Connection, storage: str, ledger: str, seed: int) -> None:
    """What a process does: a study after the other, by name."""
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    survey, rng = with_ledger(ledger), random.Random(seed)
    opened = optuna.storages.RDBStorage(storage)
    pipe.send("ready")
    while (name := pipe.recv()) is not None:
        try:
            pipe.send(take_part(survey, optuna.load_study(study_name=name, storage=opened), rng))
        except Refusal as refusal:
            expect(refusal, "not started by this survey")
            pipe.send([["foreign"]])


@dataclass
class Attack:
    """The processes, and what a round comes to."""

    storage: optuna.storages.RDBStorage
    ledger: Path
    processes: Sequence[tuple[BaseProcess, Connection]]

    @classmethod
    def start(cls, storage: str, folder: Path, count: int) -> Attack:
        """Start the processes; each has its noise before the first round."""
        opened = optuna.storages.RDBStorage(storage)  # makes Optuna's tables, which two processes cannot at once
        ledger = folder / "ledger.db"
        dphypo.Ledger.open(ledger, epsilon=1e6, delta=1e-5)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["support.optuna_attack"])
        processes: list[tuple[BaseProcess, Connection]] = []
        for seed in range(count):
            mine, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs, storage, str(ledger), seed), daemon=True)
            process.start()
            processes.append((process, mine))
        for _, pipe in processes:
            assert pipe.recv() == "ready"
        return cls(opened, ledger, processes)

    def round(self, name: str) -> None:
        """One study: all processes begin at once; then nothing may have been made twice, lost or paid for twice."""
        optuna.logging.set_verbosity(optuna.logging.CRITICAL)
        study = optuna.create_study(study_name=name, storage=self.storage, direction="maximize")
        for _, pipe in self.processes:
            pipe.send(name)
        said: list[Any] = [one for _, pipe in self.processes for one in pipe.recv()]
        trials = [one[1] for one in said if one[0] == "trial"]
        table = SURVEY.table(study)
        assert ["foreign"] not in said
        assert len(trials) == len(set(trials)) == len(table) <= RUNS, "a trial was made that is no row, or twice"
        assert sum(one == ["last"] for one in said) == 1, "not one last run"
        (certified,) = [one[1] for one in said if one[0] == "certificate"]
        assert certified == table.hash, "the table has changed after it was certified"
        names = [entry.name for entry in dphypo.Ledger(self.ledger).entries]
        assert names.count(name) == 1, "the ledger was not charged once"

    def stop(self) -> None:
        """End the processes."""
        for process, pipe in self.processes:
            pipe.send(None)
            process.join(timeout=60)
            pipe.close()
            process.close()
        self.storage.remove_session()
        self.storage.engine.dispose()
