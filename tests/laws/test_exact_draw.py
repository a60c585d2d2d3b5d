"""Exact draws, part one: balls enclose the law's tail, and a draw follows from its bits as it must."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st

from dphypo.laws import Geometric, Logarithmic, NegativeBinomial, Poisson

LAWS: list[NegativeBinomial | Poisson] = [
    Geometric(gamma=0.25),
    NegativeBinomial(-0.9, gamma=1e-60),
    NegativeBinomial(5e-324, gamma=0.3),
    Logarithmic(gamma=0.3),
    NegativeBinomial(8, gamma=0.01),
    NegativeBinomial(50, gamma=1 - 2**-53),
    NegativeBinomial(100, gamma=0.5),
    Poisson(0.01),
    Poisson(3.7),
    Poisson(1e4),
]


class Tape:
    """A source that plays given bits, then zeros and ones in turn."""

    private = False

    def __init__(self, start: bytes) -> None:
        self.rest = start
        self.played = 0

    def bytes(self, count: int) -> bytes:
        played, self.rest = self.rest[:count], self.rest[count:]
        self.played += count
        return played + b"\x55" * (count - len(played))

    def child(self, label: str) -> Tape:
        return self


def exact(x: float) -> mp.mpf:
    return mp.mpf(x)  # a float is a rational number: mpmath holds it exactly


def mass(law: NegativeBinomial | Poisson, k: int) -> mp.mpf:
    """P[T = k] by its definition."""
    if isinstance(law, Poisson):
        return mp.exp(-exact(law.mean) + k * mp.log(exact(law.mean)) - mp.loggamma(k + 1))
    gamma, theta = exact(law.gamma), exact(law.shape)
    if abs(law.shape) < 1e-300:
        return (1 - gamma) ** k / (k * -mp.log(gamma))
    return (1 - gamma) ** k / (gamma**-theta - 1) * mp.rf(theta, k) / mp.factorial(k)


def encloses(ball: arb, value: mp.mpf) -> bool:
    """Whether the ball reaches to the reference, whose own error is far below ``slack``."""
    middle = mp.mpf(ball.mid().str(120, radius=False))
    return abs(middle - value) <= mp.mpf(ball.rad().str(10, radius=False)) * (1 + mp.mpf(10) ** -8) + mp.mpf(10) ** -90


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_the_tail_falls_by_the_mass(law: NegativeBinomial | Poisson) -> None:
    """P[T > k−1] − P[T > k] = P[T = k], by definition and with no function in common; and nothing is before first."""
    middle = law.quantile(0.5)
    with mp.workprec(1000), ctx.workprec(1000):
        for k in sorted({law.first + 1, law.first + 2, middle, middle + 1, law.quantile(0.99)}):
            if k > law.first:
                assert encloses(law.survival(k - 1) - law.survival(k), mass(law, k)), k
        assert encloses(1 - law.survival(law.first), mass(law, law.first))


@settings(max_examples=100, deadline=None)
@given(start=st.binary(min_size=16, max_size=24), gamma=st.floats(1e-12, 1 - 1e-12))
def test_geometric_draws_follow_their_bits(start: bytes, gamma: float) -> None:
    """T is the smallest k with (1−γ)^k ≤ U, by logarithms of mpmath."""
    with mp.workprec(1200):
        u = int.from_bytes(start + b"\x55" * 200, "big") * mp.mpf(2) ** (-8 * (len(start) + 200))
        expected = max(1, int(mp.ceil(mp.log(u) / mp.log(1 - mp.mpf(gamma)))))
    assert Geometric(gamma=gamma).sample(Tape(start)) == expected


@pytest.mark.parametrize("law", [Geometric(gamma=0.1), NegativeBinomial(8, mean=10), Poisson(4.5)], ids=repr)
@pytest.mark.parametrize("side", [-1, 1])
def test_undecided_draws_reveal_more_bits(law: NegativeBinomial | Poisson, side: int) -> None:
    """A U that agrees with P[T > 7] in its first 300 bits is told from it all the same."""
    with ctx.workprec(2000):
        threshold = int((law.survival(7) * arb(2) ** 320).floor().unique_fmpz()) + side * 2**20
    tape = Tape(threshold.to_bytes(40, "big"))
    assert law.sample(tape) == (7 if side > 0 else 8)
    assert tape.played > 40


def test_the_tail_is_not_lost() -> None:
    """U of about 2⁻⁶⁴⁰ leads to T of about 640 log 2/γ: no float distribution function goes there."""
    law = Geometric(gamma=1e-6)
    assert law.sample(Tape(bytes(79) + b"\x01" + b"\x00" * 80)) == pytest.approx(640 * math.log(2) * 1e6, rel=1e-2)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_bits_that_are_all_ones_give_a_small_value(law: NegativeBinomial | Poisson) -> None:
    """The float nearest to such a U is 1."""
    assert law.first <= law.sample(Tape(b"\xff" * 400)) <= law.quantile(1e-12)


def test_small_laws_are_met_exactly() -> None:
    """All first bytes once each: P[T = k] = 2^(−k) for k ≤ 8, to the last byte."""
    drawn = [Geometric(gamma=0.5).sample(Tape(bytes([value]))) for value in range(256)]
    assert [drawn.count(k) for k in range(1, 8)] == [int(256 * Fraction(1, 2**k)) for k in range(1, 8)]
