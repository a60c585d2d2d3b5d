"""Several processes drive one Optuna study: each makes trials and tries to make the last run, at moments of its own.

``Attack`` starts the processes once and lets them race for many rounds, each round on a study of its own. A process
says what it did, line by line; the main process compares that with the storage and the ledger.

    python -m support.optuna_attack STORAGE LEDGER SEED
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import optuna

import dphypo
from dphypo.errors import NotThisStudy, TooManyTrials
from dphypo.integrations.optuna import OptunaSurvey
from dphypo.mechanisms import DpSgd

RUNS = 6
RUN = DpSgd.of(records=5_000, batch_size=250, epochs=20, noise_multiplier=1.0)
SURVEY = OptunaSurvey(RUN, 2.0, 1e-7, durations="public", scores="public", runs=RUNS, progress=False)
KINDS = ("patient", "hasty", "late")


def with_ledger(ledger: str) -> OptunaSurvey:
    """The survey with a ledger; its noise was solved for before."""
    made = replace(SURVEY, ledger=ledger)
    made.__dict__["full"] = SURVEY.full
    return made


def take_part(survey: OptunaSurvey, study: optuna.Study, rng: random.Random) -> list[Any]:
    """One process in one round: what it made and what it was refused."""
    said: list[Any] = []
    kind = rng.choice(KINDS)

    def objective(trial: optuna.Trial) -> float:
        said.append(["trial", trial.number])
        time.sleep(rng.random() * 0.004)
        return float(-abs(trial.suggest_float("x", 0.0, 1.0) - 0.3))

    def optimize() -> None:
        try:
            survey.optimize(study, objective)
        except TooManyTrials:
            said.append(["refused", "trials"])

    def last() -> None:
        for _ in range(200):
            try:
                _, _, certificate = survey.last_run(study, lambda **params: said.append(["last"]), {"x": 0.5})
                said.append(["certificate", certificate.to_dict()["public"]["released"][0]["sha256"]])
            except TooManyTrials:
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


def main(storage: str, ledger: str, seed: str) -> None:
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    survey, rng = with_ledger(ledger), random.Random(int(seed))
    opened = optuna.storages.RDBStorage(storage)
    print("ready", flush=True)
    for line in sys.stdin:
        study = optuna.load_study(study_name=line.strip(), storage=opened)
        try:
            said = take_part(survey, study, rng)
        except NotThisStudy:
            said = [["foreign"]]
        print(json.dumps(said), flush=True)


@dataclass
class Attack:
    """The processes, and what a round comes to."""

    storage: optuna.storages.RDBStorage
    ledger: Path
    processes: Sequence[subprocess.Popen[str]]

    @classmethod
    def start(cls, storage: str, folder: Path, count: int) -> Attack:
        """Start the processes; each has its noise before the first round."""
        opened = optuna.storages.RDBStorage(storage)  # makes Optuna's tables, which two processes cannot at once
        ledger = folder / "ledger.db"
        dphypo.Ledger.open(ledger, epsilon=1e6, delta=1e-5)
        command = [sys.executable, "-m", "support.optuna_attack", storage, str(ledger)]
        processes = [
            subprocess.Popen([*command, str(seed)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for seed in range(count)
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        return cls(opened, ledger, processes)

    def round(self, name: str) -> None:
        """One study: all processes begin at once; then nothing may have been made twice, lost or paid for twice."""
        optuna.logging.set_verbosity(optuna.logging.CRITICAL)
        study = optuna.create_study(study_name=name, storage=self.storage, direction="maximize")
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(name + "\n")
            process.stdin.flush()
        said: list[Any] = []
        for process in self.processes:
            assert process.stdout is not None
            said += json.loads(process.stdout.readline())
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
        for process in self.processes:
            process.communicate(timeout=60)
        self.storage.remove_session()
        self.storage.engine.dispose()


if __name__ == "__main__":
    main(*sys.argv[1:])
