"""What public values say about the learning rate before the data are used, and whether a search would do better.

**The law.** A *drift* of c is the learning rate with which noise alone gives every weight the standard deviation c by
the end of a run (:func:`dphypo.mechanisms.sampled_gaussian.rate_of_drift`); it moves the outputs of a layer by c times
the norm of its centred inputs. The best c is where the layer that moves most moves by about ``MOVEMENT``, whatever the
number of records, ε, the batch size and the number of steps are, for SGD and for Adam. ``python -m paper rates-fit``
finds the measured constants of this file (a test compares them), and paper/RATES.md judges them on other tasks.

**The scale of the inputs.** The rehearsal that finds c needs one number about the records: how large their inputs are.
It is declared, or known because the network normalises its inputs, or bought (:class:`InputScale`).

**Whether to search** follows from public values alone: the spread of the prior, the number of records, the noise, the
length of runs. What was bought moves c and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import dp_accounting
import numpy as np
import numpy.typing as npt
from scipy.stats import loguniform

from dphypo import _validate, noise
from dphypo.accounting import Certificate, RoundedDp, Term
from dphypo.entropy import SEED_BITS
from dphypo.journal.journal import Record
from dphypo.mechanisms import Mechanism, Outcome
from dphypo.noise.vectors import noise_of_vectors
from dphypo.search.declaration import PartSetting, total_in_gaussians
from dphypo.search.proposer import middle
from dphypo.search.release import table_of
from dphypo.search.survey import DeclaredRuns, Survey
from dphypo.space import Space
from dphypo.space.dimension import Finite

DRIFT = "drift"
MOVEMENT = {"normalise": (2.3, 1.4), "clip": (1.2, 0.9), "adam": (2.0, 1.2)}
"""How far noise at the best drift moves the layer that moves most: for a linear model, and for a network with hidden
layers. For SGD with either clipping, and for Adam."""
SPREAD = {"normalise": 0.35, "clip": 0.51, "adam": 0.56}
"""The standard deviation of the logarithm of the best drift about the predicted one."""
LITTLE_NOISE = 20.0
"""The learning rate of drift 1, B·(1 − μ)/(σ·√T), from which on that of a linear model decreases during a run: there
stability limits it, not noise."""
END, FURTHER = 0.25, 1.25
"""There it ends at this part of what it begins with, and the drift is this many times as large
(``python -m paper rates-shapes``)."""
LIKE_ADAM = frozenset({"adam", "adamw", "nadam", "radam"})
_DRIFTS = (1e-3, 1e2)
_DIGITS = 2  # significant ones: the same on every machine


@dataclass(frozen=True)
class Known:
    """A hyperparameter whose best value is nearly determined by public values.

    Args:
        name: "drift", with the prefix of a pipeline's step if there is one.
        value: the median of its prior.
        spread: the standard deviation of its logarithm.
    """

    name: str
    value: float
    spread: float

    @property
    def prior(self) -> Any:
        """A log-uniform distribution with this median and spread."""
        width = math.exp(math.sqrt(3) * self.spread)
        return loguniform(self.value / width, self.value * width)

    def at(self, signal: float) -> Known:
        """The same, with the spread for runs with this signal."""
        return replace(self, spread=spread_at(self.spread, signal))


def known(optimizer: str, clipping: str, *, hidden: bool, movement: Callable[[float], float]) -> Known | None:
    """What is known about the learning rate of an optimiser; None if it was not measured.

    ``movement`` rehearses the network on made-up records: it returns how far noise of a given size in all weights moves
    the outputs of the layer that moves most.

    >>> linear = known("sgd", "normalise", hidden=False, movement=lambda noise: 5.0 * noise)
    >>> linear.name, linear.value
    ('drift', 0.46)
    >>> known("adagrad", "normalise", hidden=False, movement=lambda noise: noise) is None
    True
    """
    if not measured(optimizer):
        return None
    way = "adam" if optimizer in LIKE_ADAM else clipping
    return Known(DRIFT, drift_of(movement, MOVEMENT[way][hidden]), SPREAD[way])


def measured(optimizer: str) -> bool:
    """Whether the drift of this optimiser is known: that of SGD, of Adam and of its variants."""
    return optimizer == "sgd" or optimizer in LIKE_ADAM


def drift_of(movement: Callable[[float], float], target: float) -> float:
    """The noise in the weights that moves the outputs of some layer by ``target``, to two digits."""
    low, high = map(math.log, _DRIFTS)
    for _ in range(12):
        trial = (low + high) / 2
        low, high = (low, trial) if movement(math.exp(trial)) > target else (trial, high)
    return float(f"{math.exp((low + high) / 2):.{_DIGITS}g}")


def widened(space: Space, known: Known, found: Known) -> Space:
    """The space with the wider prior of ``found`` where it has that of ``known``; a range that was given stays."""
    declared = next(one.dimension for one in space.parameters if one.name == known.name)
    own = not isinstance(declared, Finite) and tuple(declared.prior.support()) == tuple(known.prior.support())
    return space.with_priors({found.name: found.prior}) if own else space


def around(found: Known, space: Space) -> Space:
    """The space with the prior of what is known, as far as its declared range goes."""
    declared = next(one.dimension for one in space.parameters if one.name == found.name)
    if isinstance(declared, Finite):
        return space
    low, high = (float(end) for end in declared.prior.support())
    ends = [min(max(float(end), low), high) for end in found.prior.support()]
    return space.with_priors({found.name: loguniform(*ends)}) if ends[0] < ends[1] else space


_SMALL_INPUTS, _LARGE_INPUTS = 0.1, 3.0
"""Scales that call for a remark: below the first, or above the second times the root of how many numbers there are."""
OPEN = loguniform(*_DRIFTS)
"""The declared range of drifts if the scale of the inputs is to be bought."""


def left_open(space: Space) -> bool:
    """Whether the space leaves the range of the drift open."""
    found = [one.dimension for one in space.parameters if one.name == DRIFT]
    return bool(found) and not isinstance(found[0], Finite) and tuple(found[0].prior.support()) == _DRIFTS


# The scale of the inputs.

CENTRE, REACH = 3.0, math.log(300.0)
"""Terms are logarithms of norms over the centre, cut off at ±ln 300: norms from 0.01 to 900."""
ABOUT_THE_MEAN, SPREAD_ABOUT = 0.73, 0.41
"""The scale about the mean over the typical norm, on the fitted tasks, and how far its logarithm is off on others."""
SPREAD_CENTRED = 0.015
"""The same spread if the part of the norm that the mean takes is bought, too."""
ALONG = math.sqrt(0.7 / 0.3)
"""The noise multiplier of the unit vectors over that of the norms, which have 0.7 of the squared budget."""
MOST_TAKEN = 0.95
"""The largest part of the squared norm that the mean may be found to take."""
MOST_SHARE = 0.03
"""The largest share of the squared total, in units of a Gaussian mechanism, that a scale may cost: 1.5 % more noise."""
_RANGES, _CATEGORIES = 0.15, 0.6
_ROWS = 4096


@dataclass(frozen=True)
class ScaleNoise:
    """The noise with which a scale is bought from a number of declared records.

    Args:
        records: n, the declared number.
        norms: σ, the noise multiplier of the sum of logarithms of norms.
        size: d, how many numbers an input has, if the sum of unit vectors is bought, too; else None.
    """

    records: int
    norms: float
    size: int | None = None

    @property
    def along(self) -> float:
        """The noise multiplier of the sum of unit vectors; infinite if it is not bought."""
        return math.inf if self.size is None else self.norms * ALONG

    @property
    def both(self) -> float:
        """The noise multiplier of both sums together: squares of the inverse multipliers add up. Rounded down."""
        found = 1 / math.sqrt(self.norms**-2 + self.along**-2)
        return self.norms if self.size is None else found * (1 - 2.0**-40)

    @property
    def deviation(self) -> float:
        """The standard deviation of the logarithm of the scale about the mean.

        Of the noise of the norms, and of the part R² of the squared norm that the mean takes. That part has a noise of
        about 2Rs + √(2d)·s² with s the noise of the mean vector. R² is assumed to be usual. Without unit vectors, it is
        not bought, and differs between tasks.
        """
        off = self.norms * REACH / self.records
        if self.size is None:
            return math.hypot(SPREAD_ABOUT, off)
        noisy, left = noise_of_vectors(self.size, self.along) / self.records, ABOUT_THE_MEAN**2
        taken = math.hypot(math.sqrt(1 - left) * noisy, math.sqrt(self.size / 2) * noisy**2) / left
        return math.hypot(SPREAD_CENTRED, off, taken)

    def lost(self, total: float) -> float:
        """What is lost by the error of the scale, and by the noise that its price adds, out of μ = ``total``."""
        return CURVATURE[0] * self.deviation**2 + SLOPE[0] / (self.both * total) ** 2 / 2


def noise_of_scale(records: int, total: float, size: int | None = None) -> ScaleNoise:
    """The noise of a bought scale that loses least accuracy, out of a total of μ = ``total``.

    With a multiplier σ the logarithm of the scale is off by σR/n, with R = ``REACH``, and the regret is ``CURVATURE``
    times the square of that. The scale takes the share s = 1/(σμ)² of the squared total, which makes noise larger by
    s/2 and loses ``SLOPE`` times that. The sum is least at s = √(2·CURVATURE/SLOPE)·R/(nμ), here for a signal of 1 000.

    For inputs of ``size`` numbers, unit vectors are bought if that is expected to lose less. They have 0.3 of the
    share, and their noise adds to R.

    >>> [noise_of_scale(records, 0.7).both for records in (1_000, 60_000)]
    [16.0, 124.0]
    >>> [noise_of_scale(1_000, 0.7, size).size for size in (784, 500_000)]
    [784, None]
    """
    alone = ScaleNoise(records, _least_lost(REACH, records, total))
    if size is None:
        return alone
    left, part = ABOUT_THE_MEAN**2, ALONG**2 / (1 + ALONG**2)
    reach = math.hypot(REACH, math.sqrt(1 - left) / left * ALONG) / math.sqrt(part)
    centred = ScaleNoise(records, float(f"{_least_lost(reach, records, total) / math.sqrt(part):.3g}"), size)
    return centred if centred.lost(total) < alone.lost(total) else alone


def _least_lost(reach: float, records: int, total: float) -> float:
    share = math.sqrt(2 * CURVATURE[0] / SLOPE[0]) * reach / (records * total)
    return float(f"{1 / (total * math.sqrt(min(share, MOST_SHARE))):.3g}")


def scale_of_columns(ranges: int, categories: int) -> float:
    """The scale of a table from its columns alone: numbers mapped from a range to [-1, 1], and one-hot categories.

    >>> round(scale_of_columns(ranges=5, categories=8), 2)
    2.36
    """
    return math.sqrt(_RANGES * ranges + _CATEGORIES * categories)


def scale_of_shape(size: int) -> float:
    """The scale assumed for inputs of this many numbers if none is known: pixels in [0, 1], columns in [-1, 1]."""
    return 0.3 * math.sqrt(size)


def remark_on_scale(scale: float, size: int) -> str | None:
    """A remark on inputs of this scale and of this many numbers; None if a network learns well from them.

    >>> remark_on_scale(8.0, 64), remark_on_scale(0.7, 10_000)
    (None, None)
    >>> remark_on_scale(630.0, 20)[:72]
    'The inputs are large: their typical distance from the mean is about 630;'
    """
    usual = math.sqrt(size)
    if _SMALL_INPUTS <= scale <= _LARGE_INPUTS * usual:
        return None
    which = "small" if scale < _SMALL_INPUTS else "large"
    found, others, factor = (f"{float(f'{one:.2g}'):g}" for one in (scale, usual, usual / scale))
    return (
        f"The inputs are {which}: their typical distance from the mean is about {found}; of {size} numbers, {others} "
        f"is usual, and training learns more from it. Multiply them by a public constant, such as {factor}. A new "
        f"search pays again."
    )


def norm_terms(rows: npt.NDArray[Any]) -> list[float]:
    """ln(‖row‖ / 3) of each record, NaN if that is not finite; a function of that record alone, to the last bit."""
    return [math.log(one) / 2 - math.log(CENTRE) if 0 < one < math.inf else math.nan for one in _squares(rows).tolist()]


def unit_vectors(rows: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """x/‖x‖ of each record, NaN where :func:`norm_terms` has one; a function of that record alone, to the last bit."""
    squares = _squares(rows)
    norms = np.sqrt(np.where((squares > 0) & (squares < math.inf), squares, math.nan))
    with np.errstate(all="ignore"):
        return _flat(rows).astype(np.float64) / norms[:, None]


def _squares(rows: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """‖row‖² of each record. Squares are added one column at a time, in double precision.

    A reduction of the library would add them in an order that may depend on how many records there are.
    """
    flat = _flat(rows)
    squares = np.zeros(len(flat))
    with np.errstate(over="ignore", invalid="ignore"):
        for column in flat.T:
            wide = column.astype(np.float64)
            squares += wide * wide
    return squares


def _flat(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    given = np.asarray(rows)
    return given.reshape(len(given), math.prod(given.shape[1:]))  # also of no rows: none may decide whether it fails


def some_rows(table: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """A table, some rows at a time."""
    for start in range(0, len(table), _ROWS):
        yield np.asarray(table[start : start + _ROWS])


def taken_by_mean(total: npt.NDArray[np.float64], noise_of_each: float, records: int) -> float:
    """The part of the squared norm that the mean takes: ‖noisy mean of the unit vectors‖² without its noise's share.

    >>> taken_by_mean(np.array([300.0, 900.0]), 0.1, 1500)
    0.4
    """
    found = (float(total @ total) - len(total) * noise_of_each**2) / records**2
    return round(min(max(found, 0.0), MOST_TAKEN), 6)


@dataclass(frozen=True, repr=False)
class ScaleOfInputs(Mechanism):
    """The scale of a training's inputs, with noise, from one or two sums over the records.

    The first is of ln(‖x‖/3), each cut off at ±ln 300, and the second of x/‖x‖. The result is the logarithm of the
    scale about the mean over 3.

    Formal guarantee: under adding or removing one record, one call is a ``GaussianDpEvent`` with the noise multiplier
    of both sums together, and the slacks of noisy sums. Terms are whole numbers on a grid, each a function of one
    record; the cut-off and the divisor, the declared number of records, are public. What is not finite counts 0.
    """

    training: Mechanism
    scale_noise: ScaleNoise

    seeded, seed_bits = True, SEED_BITS

    @classmethod
    def of(cls, training: Mechanism, *, epsilon: float, delta: float) -> ScaleOfInputs | None:
        """With noise for a total (ε, δ); None if the scale is known, or nothing bounds what one record adds."""
        if not training.wants_scale or training.relation is not dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE:
            return None
        records = _validate.integer(at_least=1, records=training.records)
        return cls(training, noise_of_scale(records, total_in_gaussians(epsilon, delta), training.input_size))

    @property
    def event(self) -> RoundedDp:
        bought = self.scale_noise
        slack = noise.slack_of_sum(bought.norms)
        if bought.size is not None:
            slack = math.nextafter(slack + noise.slack_of_vector_sum(bought.size, bought.along), math.inf)
        return RoundedDp(dp_accounting.GaussianDpEvent(bought.both), slack)

    @property
    def relation(self) -> Any:
        return self.training.relation

    @property
    def split(self) -> Any:
        return self.training.split

    @property
    def records(self) -> Any:
        return self.training.records

    @property
    def unit(self) -> str:
        return self.training.unit

    @property
    def rows_per_person(self) -> int | None:
        return self.training.rows_per_person

    def fitting_records(self, space: Space) -> Mapping[str, tuple[int, int]]:
        return self.training.fitting_records(space)

    def held_records(self) -> Mapping[str, Any]:
        return self.training.held_records()

    def architecture(self, space: Space) -> str | None:
        return self.training.architecture(space)

    def __call__(self, params: Mapping[str, Any], *, seed: int) -> Outcome:
        bought, words = self.scale_noise, noise.Words.of_seed(seed)
        total = noise.noisy_sum(self.training.input_terms(), REACH, bought.norms, words.stream("scale of the inputs"))
        left = ABOUT_THE_MEAN**2
        if bought.size is not None:
            given = (bought.size, bought.along)
            vectors = self.training.input_vectors()
            sums = noise.noisy_vector_sum(vectors, *given, words.stream("unit vectors of the inputs"))
            left = 1 - taken_by_mean(sums, noise_of_vectors(*given), self.training.records)
        return Outcome({}, total / self.training.records + math.log(left) / 2)

    def __repr__(self) -> str:
        return f"<the scale of the inputs of {self.training!r}>"


@dataclass(frozen=True)
class InputScale(Survey):
    """Buys the scale of the inputs: a part whose result moves the prior of the drift, and nothing else.

    ``spread`` is that of the prior, if it differs from the one that the training states.
    """

    runs: int = 1
    spread: float | None = None

    def terms(self, space: Space, *, last: bool, alone: bool = False) -> tuple[Term, ...]:
        return tuple(replace(term, counts=True) for term in super().terms(space, last=last, alone=alone))

    def __str__(self) -> str:
        return repr(self.mechanism)

    def publishes(self) -> dict[str, Any]:
        bounds = {"of": "ln(norm / centre)", "centre": CENTRE, "cut off at": REACH, "divisor": self.mechanism.records}
        assert isinstance(self.mechanism, ScaleOfInputs)
        bought = self.mechanism.scale_noise
        noises = {"norms": bought.norms} | ({} if bought.size is None else {"unit vectors": bought.along})
        return {"part": "input scale", "releases": ["input_scale"], "mean": bounds, "noise": noises}

    def compute(self) -> str:
        return "The scale of the inputs is measured first, with noise."

    @staticmethod
    def read(record: Record) -> float | None:  # type: ignore[override]
        """The scale that was bought; None if the run that measures it was lost."""
        (row,) = table_of(record).rows
        if row.score is None:
            return None
        reached = min(max(row.score, -REACH), REACH)
        return float(f"{CENTRE * math.exp(reached):.{_DIGITS}g}")

    def state(self, published: float | None) -> dict[str, Any]:  # type: ignore[override]
        return {"input_scale": published}

    def remark(self, certificate: Certificate) -> str | None:
        """A remark on the published scale, if inputs of another size train better; otherwise None."""
        assert isinstance(self.mechanism, ScaleOfInputs)
        published = certificate.document["public"]["released"][0]["input_scale"]
        size = self.mechanism.training.input_size
        return None if published is None or size is None else remark_on_scale(published, size)

    def next_prior(self, published: float | None, space: Space) -> Space | None:  # type: ignore[override]
        assert isinstance(self.mechanism, ScaleOfInputs)
        found = self.mechanism.training.known(published)
        if found is None:
            return None
        return around(found if self.spread is None else replace(found, spread=self.spread), space)

    def begin(self, setting: PartSetting) -> DeclaredRuns:
        """One run, which has no hyperparameters: the middle of the prior is recorded for it."""
        return DeclaredRuns.once(setting.prior, lambda: middle(setting.prior))


# Whether to search.

CURVATURE, SLOPE, RUN_NOISE = (0.01, 0.78), (0.021, 0.99), (0.0044, 0.5)
"""In accuracy: the loss at a distance of 1 from the logarithm of the best rate, the loss from e times the noise, and
the deviation of one run. Each is a·(S/1000)^−b, where S = B·√T/σ is the signal of a run."""
MEASURED = (200.0, 5000.0)
"""The signals between which these laws were measured; beyond them, the values at the ends are used."""
GAIN = 0.002
"""The least expected gain for which a search is worthwhile: it takes compute, too."""
BEYOND = (0.0053, 0.54)
"""The curvature and the spread of the prior with signals beyond those, where constants were not fitted."""
TRANSFER = 0.66
"""The deviation of the logarithm of the best drift of full runs about that of short ones."""
RUNS_OF_KNOWN = 4
"""How many short runs correct a rate that is nearly known."""
MOST_COMPUTE = 1.2
"""The most compute, in full runs, of a search that was not explicitly requested."""


def spread_at(spread: float, signal: float) -> float:
    """The spread of a prior for runs with this signal."""
    return max(spread, BEYOND[1]) if signal > MEASURED[1] else spread


@dataclass(frozen=True)
class Prospect:
    """The expected loss of accuracy of training at a nearly known rate, with and without a search, from public numbers.

    Args:
        signal: B·√T/σ of one run with the whole total.
        spread: of the prior, with that of a bought scale.
        total: μ of the Gaussian mechanism that costs the total.
        fraction: the length of a short run, as a fraction of a full one.
        score_records: how many private records score the runs of a search; None if scores have no noise.
        share: the part of the records that a search sets apart.
    """

    signal: float
    spread: float
    total: float
    fraction: float
    score_records: int | None = None
    share: float = 0.0

    @property
    def regret(self) -> float:
        """The average loss of accuracy of one run at the known rate, compared with the best rate."""
        return self._curvature * self.spread**2

    def searched(self, runs: int = RUNS_OF_KNOWN, price: float | None = None) -> float:
        """The same after a search of short runs, plus the loss from its noise: ``price``, or an estimate."""
        extra = runs * self.fraction**2  # of the squared total, in units of the last run
        noisy = self._of(SLOPE) * (math.log1p(extra) / 2 if price is None else math.log1p(price))
        if self.score_records is None:
            return noisy + self._after(runs, 0.0)
        apart = math.sqrt(runs) / (self.total * self.score_records)  # scores have all of the total
        shared = apart * math.sqrt(1 + 1 / extra)  # or what the short runs cost: then the last run trains on all
        fewer = -self._of(SLOPE) * math.log1p(-self.share)
        return noisy + min(self._after(runs, apart) + fewer, self._after(runs, shared))

    def _after(self, runs: int, score: float) -> float:
        """The regret that remains after seeing the scores of runs spread over the prior."""
        curvature = self._curvature
        seen = runs * (2 * curvature * self.spread) ** 2 / (score**2 + self._of(RUN_NOISE) ** 2)
        return curvature / (1 / self.spread**2 + 1 / (TRANSFER**2 + 1 / seen))

    @property
    def _curvature(self) -> float:
        return BEYOND[0] if self.signal > MEASURED[1] else self._of(CURVATURE)

    def _of(self, law: tuple[float, float]) -> float:
        return float(law[0] * (min(max(self.signal, MEASURED[0]), MEASURED[1]) / 1000) ** -law[1])
