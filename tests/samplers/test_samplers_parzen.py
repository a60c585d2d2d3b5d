"""The Parzen rule against densities by scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import truncnorm, uniform

from dphypo.entropy import Seeded
from dphypo.samplers import History, Parzen
from dphypo.samplers.parzen import _good
from dphypo.samplers.sampler import scales
from dphypo.space import Space

LINE = Space({"x": uniform()})
MIXED = Space({"x": uniform(), "kind": ["a", "b", "c"]})


def history(space: Space, params: list, scores: list) -> History:
    values = np.array(scores, dtype=float)
    return History(space.encode(params), space.to_unit(params), values, np.isnan(values), tuple(params))


def test_on_a_line_the_weights_are_a_ratio_of_truncated_normal_mixtures():
    grid = LINE.grid(x=2000)
    x = grid.features[:, 0]
    rule = Parzen(quantile=0.4, width=0.8)
    runs = history(LINE, [{"x": v} for v in (0.05, 0.3, 0.35, 0.6, 0.9)], [0.1, 3.0, 2.0, 0.5, -1.0])

    def mixture(centres: list[float]) -> np.ndarray:
        width = 0.8 * len(centres) ** (-1 / 5) / np.sqrt(12)
        kernels = [truncnorm((0 - m) / width, (1 - m) / width, m, width).pdf(x) for m in centres]
        return (1 + np.sum(kernels, axis=0)) / (1 + len(centres))

    expected = mixture([0.3, 0.35]) / mixture([0.05, 0.6, 0.9]) / 2000
    np.testing.assert_allclose(rule.weights(grid, runs), expected, rtol=2e-5)


def test_equal_scores_prefer_nothing_but_what_was_not_tried():
    grid = LINE.grid(x=50)
    tried = [{"x": v} for v in (0.1, 0.2, 0.7)]
    weights = Parzen(quantile=0.5).weights(grid, history(LINE, tried, [1.0, 1.0, 1.0]))
    assert weights.max() / weights.min() < 1.6
    assert _good(np.ones(4), 0.5).tolist() == [0.5] * 4
    assert _good(np.array([3.0, 1.0, 2.0, 2.0, 2.0]), 0.4) == pytest.approx([1, 0, 1 / 3, 1 / 3, 1 / 3])


def test_a_failure_repels():
    grid = LINE.grid(x=10)
    runs = history(LINE, [{"x": 0.15}, {"x": 0.85}], [np.nan, 0.0])
    weights = Parzen().weights(grid, runs)
    assert weights[8] > weights[1]


def test_a_category_is_a_neighbour_of_no_other_in_particular():
    grid = MIXED.grid(x=5)
    runs = history(MIXED, [{"x": 0.5, "kind": "b"}, {"x": 0.5, "kind": "a"}], [1.0, 0.0])
    weights = dict(
        zip([tuple(grid.params(i).values()) for i in range(len(grid))], Parzen().weights(grid, runs), strict=True)
    )
    middle = sorted({value for value, _ in weights})[2]
    assert weights[middle, "b"] > weights[middle, "c"] > weights[middle, "a"]


def test_one_parameter_more_adds_two_to_the_mean_squared_distance():
    space = Space({"x": uniform(), "level": list(range(200)), "kind": list("abcde")})
    points = space.candidates(4096, Seeded(0)).features * scales(space)
    differences = (points[:2048] - points[np.random.default_rng(0).permutation(4096)[:2048]]) ** 2
    assert differences[:, 0].mean() == pytest.approx(2, abs=0.15)
    assert differences[:, 1].mean() == pytest.approx(2, abs=0.15)
    assert differences[:, 2:].sum(axis=1).mean() == pytest.approx(2, abs=0.15)


def test_very_many_runs_are_thinned_and_still_lead():
    runs = history(LINE, LINE.from_unit(LINE.candidates(4096, Seeded(0)).unit), [0.0] * 4096)
    scores = -np.abs(runs.features[:, 0] - 0.3)
    weights = Parzen().weights(LINE.grid(x=10), History(runs.features, runs.unit, scores, runs.failed, runs.params))
    assert weights.argmax() in (2, 3)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match=r"quantile = 1 is not valid"):
        Parzen(quantile=1)
    with pytest.raises(ValueError, match="width = 0 is not valid"):
        Parzen(width=0)
