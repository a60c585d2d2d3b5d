"""Ladders by calculation: what the design of one costs on made-up accuracy curves, and what no valid test can do.

    python -m paper.ladder design    print how designs compare on made-up curves
    python -m paper.ladder limits    print, for measured tasks, the ratio that no valid test is below

A *made-up curve* gains ``gain`` of accuracy at the first doubling of ε and ``shrinks`` times as much at every further
one. Rungs are as good as one run that spends the same total on the records that train. No data are read.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import binom, norm

from dphypo.training.scores import scoring_share

Floats = npt.NDArray[np.float64]
DELTA, WRONG, FACTOR = 1e-5, 0.05, 8  # of the last total to the first
SIZES = ((3000, 8.0), (10_000, 2.0), (20_000, 1.0), (20_000, 0.25), (40_000, 0.5), (160_000, 0.125))
TOPS, GAINS, SHRINKS = (0.95, 0.7), (0.06, 0.03), (0.5, 0.75)
PLACES = np.linspace(-0.5, 1.5, 9)  # log₂ of the smallest ε in hindsight over the first total
SHARED = 0.7  # correlation of two rungs' errors on the same records
DRAWS, MISSED = 400, 1.6  # a target that is not reached counts as so many times the last total


@dataclass(frozen=True)
class Design:
    """A ladder: how many rungs, which share of the records scores, and what differs from ``tune(until=...)``."""

    called: str
    rungs: int = 7
    share: float | None = None  # by default as ``DPSGD(score="accuracy")`` sets records apart
    split: str = "even"  # of the probability to be wrong, over rungs: "even", "first" (more to low ones), "one test"
    score: str = "two counts"  # "one sum" of what exceeds the target; "alone": of no cost to later scores


DESIGNS = (
    Design("as it is"),
    *(Design(f"{rungs} rungs", rungs=rungs) for rungs in (4, 5, 9, 13)),
    *(Design(f"{share:g} of the records score", share=share) for share in (0.1, 0.15, 0.2, 0.25, 0.3, 0.4)),
    Design("each rung is wrong 0.8 times as often as the one before", split="first"),
    Design("one noisy sum in place of two counts", score="one sum"),
    Design("scores do not compose (not private)", score="alone"),
    Design("one test in place of seven (not valid)", split="one test"),
)


def mu(epsilon: float) -> float:
    """μ of Gaussian DP that costs ε at δ."""

    def excess(value: float) -> float:
        above, below = -epsilon / value + value / 2, -epsilon / value - value / 2
        return float(ndtr(above) - math.exp(epsilon) * ndtr(below)) - DELTA

    return float(brentq(excess, 1e-4, 50.0))


def ratios(design: Design, records: int, last: float, curve: tuple[float, float, float]) -> Floats:
    """The realised total over the smallest ε in hindsight, over targets and draws."""
    random, (top, gain, shrinks) = np.random.default_rng(48), curve
    totals = last * FACTOR ** (np.arange(design.rungs) / (design.rungs - 1) - 1)
    spent = np.array([mu(total) for total in totals]) ** 2
    sigma = spent**-0.5 if design.score == "alone" else np.diff(spent, prepend=0.0) ** -0.5
    share = scoring_share(records)[0] if design.share is None else design.share
    size, found = share * records, []

    def height(place: Floats) -> Floats:
        return np.asarray(top - gain * shrinks**place / (1 - shrinks))

    accuracies = height(np.log2(totals / totals[0]) + math.log2(1 - share))
    weights = 0.8 ** np.arange(design.rungs) if design.split == "first" else np.ones(design.rungs)
    levels = WRONG * (weights if design.split == "one test" else weights / weights.sum())
    for place, target in zip(PLACES, height(PLACES), strict=True):
        sampling = math.sqrt(target * (1 - target) / size)
        most = max(target, 1 - target) if design.score == "one sum" else math.hypot(target, 1 - target)
        noise = sigma * most / size
        starts = target + norm.isf(levels) * np.hypot(sampling, noise)
        own, common = random.normal(size=(2, DRAWS, design.rungs)), random.normal(size=(DRAWS, 1))
        error = sampling * (math.sqrt(SHARED) * common + math.sqrt(1 - SHARED) * own[0])
        reached = accuracies + error + noise * own[1] >= starts
        stops = np.where(reached.any(axis=1), reached.argmax(axis=1), design.rungs)
        found.append(np.append(totals, MISSED * last)[stops] / (totals[0] * 2**place))
    return np.concatenate(found)


def compared(designs: Sequence[Design] = DESIGNS) -> str:
    """A table of designs: the geometric mean of their ratios over all made-up curves, and by number of records."""
    curves = list(itertools.product(TOPS, GAINS, SHRINKS))
    heads = [f"{records} records, ε = {last:g}" for records, last in SIZES]
    lines = [f"| design | all | {' | '.join(heads)} |", "|---" * (2 + len(SIZES)) + "|"]
    for design in designs:
        means = [float(np.mean([np.log(ratios(design, *size, one)).mean() for one in curves])) for size in SIZES]
        cells = " | ".join(f"{math.exp(mean):.2f}" for mean in (float(np.mean(means)), *means))
        lines.append(f"| {design.called} | {cells} |")
    return "\n".join(lines)


def shown_at(target: float, records: int, wrong: float) -> float:
    """The accuracy from which on some valid test says "reached" with probability 1/2 or more.

    The test is the best there is, of one model on records without noise: Neyman and Pearson's, which says "reached" of
    a model whose accuracy is ``target`` with probability ``wrong``, at random where the count is at its limit.

    >>> round(shown_at(0.85, 600, 0.05), 4), round(shown_at(0.85, 4000, 0.05), 4)
    (0.8735, 0.8592)
    """
    limit = int(binom.isf(wrong, records, target))
    above = float(binom.sf(limit, records, target))
    chance = (wrong - above) / float(binom.pmf(limit, records, target))

    def power(accuracy: float) -> float:
        return float(binom.sf(limit, records, accuracy) + chance * binom.pmf(limit, records, accuracy))

    return 1.0 if power(1.0) < 0.5 else float(brentq(lambda one: power(one) - 0.5, target, 1.0))


def limit(epsilons: Floats, heights: Floats, smallest: float, shown: float) -> float:
    """The smallest ε at which the curve is ``shown`` high, over the smallest in hindsight; infinite if it never is."""
    high = heights >= shown
    return float(epsilons[np.argmax(high)] / smallest) if high.any() else math.inf
