"""From which noisy accuracy on a target counts as reached: against the exact law of two rounded noisy counts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

from dphypo.errors import UnreachableError
from dphypo.training.scores import reaching


def exact(accuracy: float, shown: float, noise: float, records: int, of: int | None) -> float:
    """The probability that a model of this accuracy shows at least ``shown``, by summing over everything."""
    reach = math.ceil(9 * noise)
    error = np.arange(-reach, reach + 1)
    mass = ndtr((error + 0.5) / noise) - ndtr((error - 0.5) / noise)  # of noise rounded to whole numbers
    total = 0.0
    sizes = [records] if of is None else range(of + 1)
    for size in sizes:
        weight = 1.0 if of is None else binom.pmf(size, of, records / of)
        if weight < 1e-15:
            continue
        for right in range(size + 1):
            chance = weight * binom.pmf(right, size, accuracy)
            if chance < 1e-15:
                continue
            correct = np.maximum(right + error, 0)[:, None]
            wrong = np.maximum(size - right + error, 0)[None, :]
            score = correct / np.maximum(correct + wrong, 1)
            total += chance * float(mass @ (score >= shown - 1e-12) @ mass)
    return total


@pytest.mark.parametrize(
    ("target", "wrong", "noise", "records", "of"),
    [(0.8, 0.05, 1.5, 60, None), (0.6, 0.01, 3.0, 80, None), (0.8, 0.0125, 2.0, 60, 120), (0.7, 0.1, 0.8, 40, 60)],
)
def test_reached_is_wrong_no_more_often_than_stated(target, wrong, noise, records, of) -> None:
    shown = reaching(target, wrong, noise_multiplier=noise, records=records, of=of)
    assert target < shown <= 1.0
    found = [exact(accuracy, shown, noise, records, of) for accuracy in (target, target - 0.03, target - 0.2)]
    assert found == sorted(found, reverse=True)
    assert found[0] <= wrong
    assert exact(target, shown - 0.02, noise, records, of) > wrong / 1.5, "the margin is not much too large"


def test_the_margin_covers_noise_and_sampling() -> None:
    """Either alone is too small: with no noise it is that of a binomial, with no sampling that of a Gaussian."""
    shown = reaching(0.9, 0.01, noise_multiplier=20.0, records=2000)
    sampling = binom.isf(0.01, 2000, 0.9) / 2000
    noise = 0.9 + 2.326 * 20.0 * math.hypot(0.1, 0.9) / 2000
    assert shown > max(sampling, noise) + 0.001
    assert shown < 0.9 + math.hypot(sampling - 0.9, noise - 0.9) + 0.002


def test_a_hash_that_sets_records_apart_makes_little_difference() -> None:
    """The published ratio does not depend on how many records score, as a count over a constant would."""
    fixed, drawn = (reaching(0.9, 0.0125, noise_multiplier=5.0, records=2000, of=of) for of in (None, 10_000))
    assert 0 <= drawn - fixed < 0.001


def test_what_no_score_can_show_is_refused() -> None:
    with pytest.raises(UnreachableError, match=r"no accuracy on about 20 records .* shows that 0\.95 is reached"):
        reaching(0.95, 0.01, noise_multiplier=5.0, records=20)
    with pytest.raises(ValueError, match="until"):
        reaching(1.2, 0.01, noise_multiplier=5.0, records=20)
