"""The landscapes that come with the library are those of the committed trainings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dphypo.planning import Landscape
from paper.experiments.proxies import SOURCES, TARGET, make
from paper.simulate import worlds


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_the_files_are_what_the_command_makes(name: str, tmp_path: Path) -> None:
    with np.load(make(name, tmp_path)) as made, np.load(TARGET / f"{name}.npz") as kept:
        assert sorted(made) == sorted(kept)
        for key in made:
            assert np.array_equal(made[key], kept[key]), key


def test_full_runs_read_alike() -> None:
    for sigma in (0.6, 0.8, 1.2, 2.0):
        for name, world in (("mnist", worlds.mnist), ("cifar10", worlds.cifar_coarse)):
            assert Landscape.load(name).mean(1.0, sigma) == pytest.approx(world(sigma).mean, abs=2e-5)
    assert Landscape.load("federated").mean(1.0, 2.4) == pytest.approx(worlds.federated_at(2.4).mean, abs=5e-5)


def test_all_of_them_together_are_small() -> None:
    assert sum(path.stat().st_size for path in TARGET.glob("*.npz")) < 120_000
