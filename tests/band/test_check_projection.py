"""The suite of projections passes what is right and finds what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from support.projection_conformance import check_projection

from dphypo.band import KL, L2, Greedy, Mixed, Problem
from dphypo.band.projections import Projection, named_projection


@pytest.mark.parametrize("one", [L2(), KL(), Greedy(), Mixed(0.3)], ids=repr)
def test_every_projection_conforms(one: Projection) -> None:
    check_projection(one)


@dataclass(frozen=True)
class Wrong:
    """A projection that is changed after the fact."""

    change: Callable[[Problem, np.ndarray], np.ndarray]

    def ratios(self, problem: Problem) -> np.ndarray:
        return self.change(problem, L2().ratios(problem))


def doubled(problem: Problem, ratios: np.ndarray) -> np.ndarray:
    return np.asarray(2 * ratios)


def turned(problem: Problem, ratios: np.ndarray) -> np.ndarray:
    return np.ones_like(ratios) if np.argmax(problem.target) == 0 else ratios


def against(problem: Problem, ratios: np.ndarray) -> np.ndarray:
    return L2().ratios(problem) if problem.target.std() < 1e-9 else np.asarray(2 - np.clip(ratios, 0.76, 1.24))


@pytest.mark.parametrize(
    ("change", "message"),
    [(doubled, "left the band"), (turned, "order of the candidates"), (against, "left the band|sum to|got less")],
)
def test_the_suite_finds(change: Callable[[Problem, np.ndarray], np.ndarray], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_projection(Wrong(change))


def test_projections_are_found_by_name() -> None:
    assert [named_projection(name) for name in ("greedy", "kl", "l2")] == [Greedy(), KL(), L2()]
    with pytest.raises(ValueError, match=r"projection = 'nearest' is not valid: .* one of greedy, kl, l2, or .*Mixed"):
        named_projection("nearest")
