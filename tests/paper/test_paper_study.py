"""Real searches in rounds, through the public interface, on a few pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from dphypo.band import Band
from dphypo.laws import Pmf
from dphypo.mechanisms import Outcome
from dphypo.search import Stage
from paper.data.points import MNIST
from paper.data.sets import Images
from paper.experiments.study.compare import compare
from paper.experiments.study.designs import DELTA, Adaptive, Arm
from paper.experiments.study.rounds import chosen, run_all
from paper.experiments.study.search import Run, Search, searches
from paper.experiments.study.space import SPACE
from paper.experiments.study.training import Training

UNIFORM = ["uniform, geometric T", "uniform, shape 8"]
ADAPTIVE = Adaptive(mean=2.0, epochs=0.2)  # of 20 records in batches of 2: two steps
FULL = Training(records=60_000, batch_size=60, epochs=0.005, noise_multiplier=50.0)


def pictures() -> Images:
    random = np.random.default_rng(0)
    labels = (np.arange(20) % 10).astype(np.uint8)
    return Images(*(random.integers(0, 256, (20, 1, 28, 28), dtype=np.uint8), labels) * 2)


@pytest.mark.slow  # four calibrations
def test_every_search_releases_once_within_its_budget(tmp_path: Path) -> None:
    design, names = ADAPTIVE, [*UNIFORM, "ours, (0.85, 1.25), shape 8", "paper's GP, (0.75, 2), shape 8"]
    found = compare(design, pictures(), tmp_path / "study.json", "cpu", 2, sizes=(4, 2), batch=2)
    assert found == json.loads((tmp_path / "study.json").read_text())
    assert (found["epsilon"], found["delta"]) == (design.epsilon, DELTA)
    assert "share their Poisson batches" in found["note"]
    assert list(found["arms"]) == names
    assert 0 <= found["best cell"]["mean"] <= 1
    for row in found["arms"].values():
        assert row["unfinished"] == 0
        assert len(row["accuracy of the releases"]) == 2
        assert all(0 <= accuracy <= 1 for accuracy in row["accuracy of the releases"])
        assert row["mean"] == pytest.approx(np.mean(row["accuracy of the releases"]), abs=1e-5)
        assert row["mean compute in full runs"] >= 1
        assert design.epsilon - 0.01 < row["epsilon"] <= design.epsilon


@pytest.mark.slow
def test_what_time_leaves_unfinished_is_counted(tmp_path: Path) -> None:
    found = compare(ADAPTIVE, pictures(), tmp_path / "study.json", "cpu", 2, seconds=0, sizes=(4,), batch=2)
    row = found["arms"]["uniform, shape 8"]
    assert (row["unfinished"], row["accuracy of the releases"], row["mean"]) == (2, [None, None], None)


def test_the_space_is_the_papers_grid() -> None:
    grid = SPACE.grid()
    cells = [(grid.params(i)["learning_rate"], grid.params(i)["clip"]) for i in range(len(MNIST))]
    np.testing.assert_array_equal(cells, MNIST.pairs)
    assert grid.features.shape == (320, 2), "levels are ordered: one column for each parameter"


# Rounds, with a stand-in for training


def law(count: int) -> Pmf:
    return Pmf({count: 1.0})


def in_rounds(made: Sequence[Search], sizes: Sequence[int]) -> list[tuple[int, list[str], int]]:
    """Size, arms and steps of each round."""
    seen: list[tuple[int, list[str], int]] = []

    def train(runs: Sequence[Run], size: int, number: int) -> list[Outcome]:
        assert number == len(seen)
        (steps,) = {run.training.steps for run in runs}
        seen.append((size, [run.search.arm.name for run in runs], steps))
        return [Outcome({"held_out": 0.5}, run.trial.params["clip"]) for run in runs]

    assert run_all(made, train, sizes, float("inf")) == len(seen)
    assert all(search.finished for search in made)
    assert all(search.held_out() == 0.5 for search in made)
    return seen


@pytest.mark.slow
def test_adaptive_searches_make_one_run_a_round_and_others_fill_it_up() -> None:
    adaptive = Arm("adaptive", Stage(FULL, law(4), Band(0.75, 2)))
    plain = Arm("plain", Stage(FULL, law(5)))
    made = [*searches(plain, 1, 0), *searches(adaptive, 2, 0)]
    assert in_rounds(made, (4, 2)) == [
        (4, ["adaptive", "adaptive", "plain", "plain"], 5),
        (4, ["adaptive", "adaptive", "plain", "plain"], 5),
        (4, ["adaptive", "adaptive", "plain"], 5),
        (2, ["adaptive", "adaptive"], 5),
    ]
    assert [search.steps for search in made] == [25, 20, 20]


def test_a_round_has_the_smallest_size_that_holds_all() -> None:
    (search,) = searches(Arm("plain", Stage(FULL, law(5))), 1, 0)
    search.ask()
    assert [chosen(search.waiting[:n], (8, 2, 4))[1] for n in range(1, 6)] == [2, 2, 4, 4, 8]
    runs, size = chosen(search.waiting, (4, 2))
    assert (len(runs), size) == (4, 4)


def test_repetitions_are_paired_across_arms() -> None:
    params = []
    for name in ("one", "other"):
        made = searches(Arm(name, Stage(FULL, law(3))), 2, 7)
        for search in made:
            search.ask()
        params.append([[run.trial.params for run in search.waiting] for search in made])
    assert params[0] == params[1]
    assert params[0][0] != params[0][1]
