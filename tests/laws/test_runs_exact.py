"""Exact sampling, part one: the bounds are bounds, and the draws follow from the bits as they must."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dphypo.laws import Geometric, NegativeBinomial, Poisson
from dphypo.laws.bounds import log_bounds, log_gamma_bounds, scaled
from dphypo.laws.envelope import _height, envelope
from dphypo.laws.exact import Exponential, accept, geometric
from dphypo.laws.weights import NegativeBinomialWeights, PoissonWeights, Weights


@pytest.fixture(autouse=True)
def precision() -> Iterator[None]:
    with mp.workprec(1200):
        yield


class Tape:
    """A source that plays given bits, then zeros and ones in turn."""

    private = False

    def __init__(self, start: bytes) -> None:
        self.rest = start

    def bytes(self, count: int) -> bytes:
        played, self.rest = self.rest[:count], self.rest[count:]
        return played + b"\x55" * (count - len(played))

    def child(self, label: str) -> Tape:
        return self


def real(x: Fraction) -> mp.mpf:
    return mp.mpf(x.numerator) / x.denominator


positive = st.fractions(Fraction(1, 10**30), 10**30) | st.floats(1e-300, 1e300).map(Fraction)


@settings(max_examples=200, deadline=None)
@given(x=positive, bits=st.integers(1, 500))
def test_log_bounds(x: Fraction, bits: int) -> None:
    low, high = log_bounds(x, bits)
    assert low <= mp.log(real(x)) * mp.mpf(2) ** bits <= high
    assert high - low <= 2


@settings(max_examples=150, deadline=None)
@given(x=st.fractions(Fraction(1, 10**12), 10**15) | st.floats(1e-9, 1e60).map(Fraction), bits=st.integers(8, 300))
def test_log_gamma_bounds(x: Fraction, bits: int) -> None:
    low, high = log_gamma_bounds(x, bits)
    assert low <= (mp.loggamma(real(x)) - mp.log(2 * mp.pi) / 2) * mp.mpf(2) ** bits <= high
    assert high - low <= 2


@given(factor=st.fractions(-100, 100), low=st.integers(-1000, 1000), width=st.integers(0, 9))
def test_scaled(factor: Fraction, low: int, width: int) -> None:
    below, above = scaled(factor, (low, low + width))
    assert below <= min(factor * low, factor * (low + width))
    assert above >= max(factor * low, factor * (low + width))


def test_log_of_one_is_zero() -> None:
    low, high = log_bounds(Fraction(1), 64)
    assert low <= 0 <= high


@settings(max_examples=50, deadline=None)
@given(start=st.binary(min_size=8, max_size=24), bits=st.integers(8, 200))
def test_exponential_follows_its_bits(start: bytes, bits: int) -> None:
    low, high = Exponential(Tape(start)).bounds(bits)
    u = int.from_bytes(start + b"\x55" * 400, "big") * mp.mpf(2) ** (-8 * (len(start) + 400))
    assert low <= -mp.log(u) * mp.mpf(2) ** bits <= high
    assert high - low <= 8


@settings(max_examples=100, deadline=None)
@given(start=st.binary(min_size=8, max_size=16), ratio=st.floats(1e-12, 1 - 1e-12))
def test_geometric_follows_its_bits(start: bytes, ratio: float) -> None:
    u = int.from_bytes(start + b"\x55" * 100, "big") * mp.mpf(2) ** (-8 * (len(start) + 100))
    assert geometric(Fraction(ratio), Tape(start)) == int(mp.floor(mp.log(u) / mp.log(mp.mpf(ratio))))


@pytest.mark.parametrize("side", [-1, 1])
def test_undecided_draws_reveal_more_bits(side: int) -> None:
    """A uniform number that agrees with the threshold in its first 300 bits is told from it all the same."""
    threshold = int(mp.floor(mp.exp(-mp.mpf(1) / 3) * mp.mpf(2) ** 320)) + side * 2**20
    start = threshold.to_bytes(40, "big")

    def third(bits: int) -> tuple[int, int]:
        return 2**bits // 3, 2**bits // 3 + 1

    assert accept(third, Tape(start)) is (side < 0)
    boundary = int(mp.floor(mp.mpf(0.9) ** 7 * mp.mpf(2) ** 320)) + side * 2**20
    assert geometric(Fraction(0.9), Tape(boundary.to_bytes(40, "big"))) == (6 if side > 0 else 7)


def test_the_tail_is_not_lost() -> None:
    """U = 2⁻⁶⁴⁰ leads to T of about 640 log 2/γ: no float CDF goes there."""
    draw = geometric(1 - Fraction(1e-6), Tape(bytes(79) + b"\x01" + b"\x00" * 8))
    assert draw == pytest.approx(640 * math.log(2) * 1e6, rel=1e-5)


WEIGHTS: list[tuple[Weights, int | None]] = [
    (Geometric(gamma=0.25).weights, None),
    (Geometric(gamma=1e-6).weights, 50),
    (NegativeBinomial(-0.9, gamma=1e-60).weights, None),
    (NegativeBinomial(-0.5, gamma=0.01).weights, 37),
    (NegativeBinomial(0, gamma=0.3).weights, None),
    (NegativeBinomial(8, gamma=0.01).weights, None),
    (NegativeBinomial(50, gamma=1e-4).weights, 100),
    (NegativeBinomial(50, gamma=1 - 2**-53).weights, None),
    (Poisson(0.01).weights, None),
    (Poisson(1.0).weights, None),
    (Poisson(3.7).weights, None),
    (Poisson(1e4).weights, None),
    (Poisson(1e4).weights, 20),
]


@pytest.mark.parametrize(("weights", "limit"), WEIGHTS)
def test_the_envelope_lies_above_the_weights(weights: Weights, limit: int | None) -> None:
    """For every k, exactly one piece covers it, and its height there is not below the weight."""
    shape = envelope(weights, limit)
    reference = [weights.log_weight(shape.peak, 80)]
    near = range(max(weights.first, shape.peak - 300), shape.peak + 300)
    far = [2**i + j for i in range(1, 60, 7) for j in (-1, 0, 1)]
    for k in sorted({k for k in [*near, *far] if k >= weights.first and (limit is None or k <= limit)}):
        covering = []
        for piece in shape.pieces:
            index = (k - piece.start) * piece.step
            if index >= 0 and (not piece.length or index < piece.length):
                covering.append((piece, index))
        assert len(covering) == 1, k
        ((piece, index),) = covering
        assert shape._excess(piece, index, k, 64)[1] >= 0
        if index < 1000:
            height = mp.log(real(piece.height)) + index * mp.log(real(piece.ratio))
            weight = (weights.log_weight(k, 80)[0] - reference[0][1]) * mp.mpf(2) ** -80
            assert height >= weight - mp.mpf(2) ** -70, k


@pytest.mark.parametrize(("weights", "limit"), WEIGHTS)
def test_areas_are_the_pieces_areas(weights: Weights, limit: int | None) -> None:
    shape = envelope(weights, limit)
    total = sum(piece.area for piece in shape.pieces)
    for piece, before, after in zip(shape.pieces, (0, *shape.areas), shape.areas, strict=False):
        assert Fraction(after - before, shape.areas[-1]) == piece.area / total


def test_heights_are_certain() -> None:
    heavy = NegativeBinomialWeights(Fraction(-0.9), Fraction(1e-60))
    for weights, points in ((PoissonWeights(Fraction(1e4)), (1, 9000, 10**4, 12000)), (heavy, (1, 5, 10**20, 10**59))):
        for k in points:
            height = _height(weights, k, weights.mode)
            truth = weights.log_weight(k, 200)[0] - weights.log_weight(weights.mode, 200)[1]
            excess = mp.log(real(height)) - truth * mp.mpf(2) ** -200
            assert 0 <= excess < mp.mpf(10) ** -8


@pytest.mark.parametrize(
    ("weights", "first"),
    [(NegativeBinomialWeights(Fraction(2.5), Fraction(0.125)), 1), (PoissonWeights(Fraction(6)), 0)],
)
def test_weights_agree_with_themselves(weights: Weights, first: int) -> None:
    logs = {k: weights.log_weight(k, 100)[0] * mp.mpf(2) ** -100 for k in range(first, 60)}
    for k in range(first, 59):
        assert abs(logs[k + 1] - logs[k] - mp.log(real(weights.ratio(k)))) < mp.mpf(10) ** -25
    assert weights.mode == max(k for k in logs if abs(logs[k] - max(logs.values())) < mp.mpf(10) ** -25)
