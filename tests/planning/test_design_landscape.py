"""Landscapes: interpolation in the noise, the priors of the library's own rule, and the files that come with it."""

from __future__ import annotations

import numpy as np
import pytest

from dphypo import PriorAround, Space
from dphypo.planning import Landscape

TOY = {1.0: {1.0: [0.0, 1.0, 2.0]}}


@pytest.mark.parametrize("shape", [(5,), (4, 6), (2, 3, 4)])
@pytest.mark.parametrize(("spread", "floor"), [(0.05, 0.1), (0.3, 0.4)])
def test_priors_are_those_of_the_rule_between_stages(shape: tuple[int, ...], spread: float, floor: float) -> None:
    cells = int(np.prod(shape))
    landscape = Landscape(shape, {1.0: {1.0: np.zeros(cells)}}, 0.1)
    space = Space({f"axis {k}": [float(10**-i) for i in reversed(range(count))] for k, count in enumerate(shape)})
    grid = space.grid()
    rule = PriorAround(spread=spread, floor=floor)
    expected = [rule(grid.params(cell), space).grid().masses for cell in range(cells)]
    assert landscape.priors(spread, floor) == pytest.approx(np.array(expected), abs=1e-12)


def test_interpolation_is_exact_for_a_quadratic_in_log_noise() -> None:
    levels = np.geomspace(0.5, 4, 9)

    def truth(level: float) -> np.ndarray:
        x = np.log(level)
        return np.array([1.0, 2 - x, x + 0.3 * x**2])

    landscape = Landscape((3,), {1.0: {level: truth(level) for level in levels}}, 0.1)
    for level in (0.5, 0.9, 2.2, 4.1):
        assert landscape.mean(1.0, level) == pytest.approx(truth(level), abs=1e-9)


@pytest.mark.parametrize("levels", [[1.0], [0.1, 10.0], [0.1, 1.0, 10.0], [0.01, 0.1, 1.0, 10.0, 11.0]])
def test_a_few_levels_far_apart_will_do(levels: list[float]) -> None:
    landscape = Landscape((2,), {1.0: {level: [0.0, 5.0] for level in levels}}, 0.1)
    for level in np.geomspace(levels[0], levels[-1], 7):
        assert landscape.mean(1.0, float(level)) == pytest.approx([0.0, 5.0], abs=1e-9)


def test_levels_trained_more_often_count_more() -> None:
    levels = dict(zip([0.9, 1.0, 1.1, 1.2, 1.3], [0.0, 1.0, 0.0, 0.0, 0.0], strict=True))
    scores = {1.0: {level: [value] for level, value in levels.items()}}
    plain = Landscape((1,), scores, 0.1).mean(1.0, 1.0)
    often = Landscape((1,), scores, 0.1, {1.0: {1.0: 50}}).mean(1.0, 1.0)
    assert plain is not None
    assert often is not None
    assert 0.9 < often[0] < 1.0
    assert plain[0] < 0.7


def test_limits_hold() -> None:
    landscape = Landscape((1,), {1.0: {1.0: [0.9], 1.1: [0.95], 1.2: [0.999]}}, 0.1, limits=(0.0, 1.0))
    assert landscape.mean(1.0, 1.25) == pytest.approx([1.0])


def test_unknown_noise_gives_none_and_unknown_fractions_an_error() -> None:
    landscape = Landscape((3,), TOY, 0.1)
    assert landscape.mean(1.0, 1.04) is not None
    assert landscape.mean(1.0, 1.06) is None
    assert landscape.mean(1.0, 0.9) is None
    with pytest.raises(ValueError, match="at the fractions 1"):
        landscape.mean(0.1, 1.0)


@pytest.mark.parametrize("name", ["mnist", "cifar10", "federated"])
def test_those_that_come_with_the_library(name: str) -> None:
    landscape = Landscape.load(name)
    assert landscape.fractions[-1] == 1.0
    assert 0.1 in landscape.fractions
    full, cheap = landscape.mean(1.0, 1.5), landscape.mean(0.1, 1.5)
    assert full is not None
    assert cheap is not None
    facts = {"mnist": ("256 of 60 000", "2 344"), "cifar10": ("256 of 50 000", "1 954"), "federated": ("3 000", "loss")}
    assert all(fact in landscape.about for fact in facts[name])
    low, high = landscape.limits
    assert len(full) == len(landscape) == np.prod(landscape.shape)
    assert low <= cheap.min() <= cheap.max() < full.max() <= high


def test_refusals() -> None:
    with pytest.raises(ValueError, match="length 3: give 4 numbers"):
        Landscape((4,), TOY, 0.1)
    with pytest.raises(ValueError, match="full runs"):
        Landscape((3,), {0.5: TOY[1.0]}, 0.1)
    with pytest.raises(ValueError, match="at least one noise multiplier"):
        Landscape((3,), {0.5: {}, **TOY}, 0.1)
    with pytest.raises(ValueError, match="fraction"):
        Landscape((3,), {2.0: TOY[1.0], **TOY}, 0.1)
    with pytest.raises(ValueError, match="score_noise"):
        Landscape((3,), TOY, 0.0)
    with pytest.raises(ValueError, match=r"such as \(16, 20\)"):
        Landscape(3, TOY, 0.1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one noise multiplier"):
        Landscape((3,), {1.0: [0.0, 1.0, 2.0]}, 0.1)  # type: ignore[dict-item]
    for count in (0, -3):
        with pytest.raises(ValueError, match=r"repetitions\[1\]\[1\]"):
            Landscape((3,), TOY, 0.1, {1.0: {1.0: count}})
    with pytest.raises(ValueError, match="about = 5 is not valid: say in a few public words"):
        Landscape((3,), TOY, 0.1, about=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="limits"):
        Landscape((3,), TOY, 0.1, limits=(1.0, 0.0))
    with pytest.raises(ValueError, match="mnist, cifar10, federated"):
        Landscape.load("imagenet")
