"""Several processes drive one Optuna study at once, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.optuna_attack import Attack
from support.slow import mostly_slow

pytestmark = pytest.mark.filterwarnings("ignore:fraction = ")  # short runs are quick


@pytest.fixture
def attack(tmp_path: Path) -> Iterator[Callable[[str, int], Attack]]:
    started: list[Attack] = []

    def start(storage: str, count: int) -> Attack:
        started.append(Attack.start(storage, tmp_path, count))
        return started[-1]

    yield start
    for one in started:
        one.stop()


def url(kind: str, folder: Path, request: pytest.FixtureRequest) -> str:
    if kind == "sqlite":
        return f"sqlite:///{folder}/optuna.db"
    return str(request.getfixturevalue("postgres")).replace("postgresql://", "postgresql+psycopg://")


@pytest.mark.parametrize("kind", mostly_slow(["sqlite", "postgresql"]))
def test_of_several_processes_none_makes_a_run_that_is_not_paid_for(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, attack: Callable[[str, int], Attack]
) -> None:
    attacked = attack(url(kind, tmp_path, request), 2)
    for number in range(3):
        attacked.round(f"short {number}")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_hundred_rounds_of_several_processes(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, attack: Callable[[str, int], Attack]
) -> None:
    attacked = attack(url(kind, tmp_path, request), 3)
    for number in range(100):
        attacked.round(f"long {number}")
