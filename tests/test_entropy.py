"""Where randomness comes from: exact draws, reproducible children, nothing lost to threads."""

from __future__ import annotations

import contextlib
import math
import pickle
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from dphypo.entropy import SYSTEM, Entropy, Seeded, below, bernoulli, bits, uniforms, words


class Tape:
    """A source that plays given bytes and records how many were asked for."""

    private = False

    def __init__(self, *played: int) -> None:
        self.rest = list(played)

    def bytes(self, count: int) -> bytes:
        played, self.rest = self.rest[:count], self.rest[count:]
        if len(played) < count:
            raise EOFError
        return bytes(played)

    def child(self, label: str) -> Tape:
        return self


def test_protocol() -> None:
    for source in (SYSTEM, Seeded(1), Tape()):
        assert isinstance(source, Entropy)


def test_system_is_private_and_fresh() -> None:
    assert SYSTEM.private
    assert SYSTEM.child("anything") is SYSTEM
    assert SYSTEM.bytes(32) != SYSTEM.bytes(32)
    assert len(SYSTEM.bytes(5)) == 5
    assert repr(SYSTEM) == "System()"


def test_seeded_repeats_itself_and_says_it_is_not_private() -> None:
    assert not Seeded(3).private
    one, two = Seeded(3), Seeded(3)
    assert [one.bytes(7) for _ in range(5)] == [two.bytes(7) for _ in range(5)]
    assert Seeded(3).bytes(16) != Seeded(4).bytes(16)
    assert Seeded(-3).bytes(16) != Seeded(3).bytes(16)
    assert len(Seeded(3).bytes(0)) == 0


def test_children_are_independent_of_each_other_and_of_what_was_drawn() -> None:
    root = Seeded(3)
    before = root.child("T").bytes(16)
    root.bytes(100)
    assert root.child("T").bytes(16) == before
    streams = {
        root.child("T").bytes(16),
        root.child("λ").bytes(16),
        root.child("T").child("λ").bytes(16),
        root.child("λ").child("T").bytes(16),
        root.child("Tλ").bytes(16),
        Seeded(3).bytes(16),
        Seeded(4).child("T").bytes(16),
    }
    assert len(streams) == 7
    assert not root.child("T").private


def test_a_seeded_source_shows_that_it_is_a_child_and_not_which() -> None:
    assert repr(Seeded(3)) == "Seeded(3)"
    assert repr(Seeded(3).child("run 17")) == "Seeded(3).child(...)"


def test_a_pickled_source_goes_on_where_it_was() -> None:
    root = Seeded(3).child("T")
    root.bytes(8)
    again = pickle.loads(pickle.dumps(root))
    assert again.bytes(8) == root.bytes(8)


def test_threads_never_share_a_block() -> None:
    root = Seeded(5)
    with ThreadPoolExecutor(8) as pool:
        blocks = list(pool.map(lambda _: root.bytes(16), range(2000)))
    assert len(set(blocks)) == 2000


@pytest.mark.parametrize("seed", [1.5, "a", None, True])
def test_seeds_are_whole_numbers(seed: object) -> None:
    with pytest.raises(ValueError, match="seed"):
        Seeded(seed)  # type: ignore[arg-type]


def test_bits_takes_the_leading_bits() -> None:
    assert bits(0, Tape()) == 0
    assert bits(1, Tape(0b1000_0000)) == 1
    assert bits(12, Tape(0xAB, 0xCD)) == 0xABC
    assert bits(16, Tape(0xAB, 0xCD)) == 0xABCD
    with pytest.raises(ValueError, match="count = -1"):
        bits(-1, SYSTEM)


@pytest.mark.parametrize("bound", [1, 2, 3, 5, 16, 100, 255, 256])
def test_below_is_exactly_uniform(bound: int) -> None:
    """Each single byte once: those that are rejected ask for another byte, the rest are equally often each value."""
    drawn: Counter[int] = Counter()
    for value in range(256):
        with contextlib.suppress(EOFError):
            drawn[below(bound, Tape(value))] += 1
    expected = 256 // 2 ** (bound - 1).bit_length()
    assert drawn == dict.fromkeys(range(bound), expected)


def test_below_rejects_and_draws_again() -> None:
    assert below(200, Tape(255, 250, 199)) == 199
    with pytest.raises(ValueError, match="bound = 0"):
        below(0, SYSTEM)


@given(bound=st.integers(1, 2**200), seed=st.integers())
def test_below_stays_below(bound: int, seed: int) -> None:
    assert 0 <= below(bound, Seeded(seed)) < bound


@pytest.mark.parametrize("probability", [Fraction(0), Fraction(1, 3), Fraction(5, 7), 0.25, 0.875, 1, Fraction(1)])
def test_bernoulli_is_exact(probability: Fraction | float) -> None:
    exact = Fraction(probability)
    outcomes: Counter[bool] = Counter()
    for value in range(256):
        with contextlib.suppress(EOFError):
            outcomes[bernoulli(probability, Tape(value))] += 1
    assert Fraction(outcomes[True], outcomes.total()) == exact


@pytest.mark.parametrize("probability", [-0.1, Fraction(3, 2), math.nan])
def test_bernoulli_needs_a_probability(probability: float) -> None:
    with pytest.raises(ValueError, match="probability"):
        bernoulli(probability, SYSTEM)


def test_words_and_uniforms() -> None:
    assert words(2, Tape(1, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255)).tolist() == [1, 2**64 - 1]
    assert uniforms(2, Tape(*[0] * 8, *[255] * 8)).tolist() == [0.0, 1 - 2.0**-53]
    assert words(0, SYSTEM).shape == (0,)
    drawn = uniforms(10_000, Seeded(1))
    assert drawn.dtype == np.float64
    assert ((drawn * 2**53) % 1 == 0).all()
    assert ((drawn >= 0) & (drawn < 1)).all()
    # Dvoretzky, Kiefer and Wolfowitz: P[sup |F_n − F| > t] ≤ 2 exp(−2nt²) = 1e-6.
    gap = np.abs(np.sort(drawn) - np.arange(10_000) / 10_000).max()
    assert gap <= math.sqrt(math.log(2e6) / 20_000) + 1e-4


def test_seeded_bytes_look_uniform() -> None:
    """Pearson's test on bytes and on neighbouring bits, each with a false-alarm rate of 1e-7 over the seeds."""
    data = np.frombuffer(b"".join(Seeded(seed).child("x").bytes(64) for seed in range(400)), dtype=np.uint8)
    counts = np.bincount(data, minlength=256)
    expected = len(data) / 256
    assert special.chdtrc(255, ((counts - expected) ** 2 / expected).sum()) > 1e-7
    pairs = Counter(zip(np.unpackbits(data)[::2].tolist(), np.unpackbits(data)[1::2].tolist(), strict=True))
    each = len(data)  # four pairs a byte, of four kinds
    statistic = sum((pairs[pair] - each) ** 2 / each for pair in product((0, 1), repeat=2))
    assert special.chdtrc(3, statistic) > 1e-7
