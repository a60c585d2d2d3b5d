"""Real studies in lockstep, through the public interface, on a few pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from paper.data import Images
from paper.endtoend import DELTA, EPSILON, studies


@pytest.mark.slow
def test_every_study_releases_once_within_its_budget(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    labels = (np.arange(300) % 10).astype(np.uint8)
    images = Images(*(random.integers(0, 256, (300, 1, 28, 28), dtype=np.uint8), labels) * 2)
    found = studies(images, tmp_path / "study.json", "cpu", 2, steps=2, batch=32, mean=2.0)
    assert found["delta"] == DELTA
    for name in ("uniform, geometric T", "uniform, shape 8", "ours, (0.85, 1.25), shape 8"):
        assert found[name]["unfinished"] == 0
        assert len(found[name]["accuracy of the releases"]) == 2
        assert EPSILON - 0.01 < found[name]["epsilon"] <= EPSILON
