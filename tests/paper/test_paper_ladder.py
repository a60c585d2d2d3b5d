"""What no valid test of a ladder can do, against every test of a small world; and what the designs are compared by."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

from paper.ladder_design import DELTA, Design, limit, mu, ratios, shown_at


def most_likely(alternative: np.ndarray, null: np.ndarray, level: float) -> float:
    """The largest probability of "reached" over all tests, random ones too, that are wrong with this probability."""
    found = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):  # outcomes that underflow in both worlds
        order = np.argsort(-np.nan_to_num(alternative / null))
    for at in order:
        part = min(1.0, level / null[at]) if null[at] > 0 else 1.0
        found, level = found + part * alternative[at], level - part * null[at]
    return found


@pytest.mark.parametrize(("below", "above", "target", "level"), [(0.5, 0.9, 0.6, 0.05), (0.75, 0.8, 0.7, 0.2)])
def test_no_test_of_nested_models_does_better_than_one_of_the_best_model(below, above, target, level) -> None:
    """Every outcome of four records and two models, where the better one is right wherever the worse one is."""
    records = 4
    world = {(0, 0): 1 - above, (0, 1): above - below, (1, 1): below}
    spoilt = 1 - target / above  # a record that the better model gets right is then wrong for both
    other = {(0, 0): world[0, 0] + spoilt * above, (0, 1): (1 - spoilt) * world[0, 1], (1, 1): (1 - spoilt) * below}
    assert other[1, 1] + other[0, 1] == pytest.approx(target)
    assert other[1, 1] <= target, "no model reaches the target there"
    laws = np.array(
        [
            [math.prod(law[one] for one in outcome) for law in (world, other)]
            for outcome in itertools.product(world, repeat=records)
        ]
    )
    counts = np.arange(records + 1)
    best = most_likely(binom.pmf(counts, records, above), binom.pmf(counts, records, target), level)
    assert most_likely(laws[:, 0], laws[:, 1], level) == pytest.approx(best)


@pytest.mark.parametrize(("target", "records", "wrong"), [(0.6, 30, 0.05), (0.85, 600, 0.05), (0.8, 200, 0.01)])
def test_half_of_the_best_tests_say_reached_from_there_on(target: float, records: int, wrong: float) -> None:
    counts, shown = np.arange(records + 1), shown_at(target, records, wrong)
    null = binom.pmf(counts, records, target)
    for accuracy, more in ((shown - 1e-3, False), (shown + 1e-3, True)):
        assert (most_likely(binom.pmf(counts, records, accuracy), null, wrong) > 0.5) == more
    assert shown_at(target, records, 0.5) == pytest.approx(target)


def test_a_limit_is_where_the_curve_is_high_enough() -> None:
    epsilons, heights = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.6, 0.7])
    assert limit(epsilons, heights, 0.5, 0.55) == 4.0
    assert limit(epsilons, heights, 0.5, 0.75) == math.inf


def test_made_up_ladders_stop_no_earlier_than_valid_ones_can() -> None:
    """A ladder that may be wrong at every rung with the whole probability stops earlier; fewer records, later."""
    curve = (0.95, 0.06, 0.5)
    found = {one: float(np.log(ratios(one, 10_000, 2.0, curve)).mean()) for one in _designs()}
    first, invalid, few = found.values()
    assert invalid < first < few
    sigma = 1 / mu(1.0)
    assert 3.7 < sigma < 3.74, "ε = 1 at δ = 1e-5 takes a noise of 3.73 (Balle and Wang 2018)"
    assert DELTA == 1e-5


def _designs() -> list[Design]:
    return [Design("as it is"), Design("not valid", split="one test"), Design("few records", share=0.05)]
