"""Steps with a fixed number of pieces, of which some hold no record: what training must give the bits of."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest


def pad(monkeypatch: pytest.MonkeyPatch, module: ModuleType, pieces: int = 2) -> None:
    """Let every step that ``module`` draws have so many pieces more of each shard, and compute all of them."""
    draw = vars(module)["draw"]

    def padded(samplers: Any, steps: int, size: int, shards: int = 1) -> Any:
        drawn = draw(samplers, steps, size, shards)
        empty = [np.zeros((steps, pieces * shards, *part.shape[2:]), part.dtype) for part in drawn]
        return [np.concatenate([part, more], 1) for part, more in zip(drawn, empty, strict=True)]

    monkeypatch.setattr(module, "draw", padded)
    monkeypatch.setattr(module, "filled", lambda valid: np.ones(valid.shape[:-2], bool))
