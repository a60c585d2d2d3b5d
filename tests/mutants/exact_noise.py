"""Noise that is not the Gaussian of its event."""

from __future__ import annotations

from mutants.mutant import Mutant

_TABLE = "noise/test_noise_table.py"
_DRAWS = "noise/test_noise_draws.py"
_VECTORS = "noise/test_noise_vectors.py"

MUTANTS = (
    Mutant(
        "noise ends at six deviations",
        "every value has its probability, in the farthest tail too",
        "noise/tables.py",
        "        found = found[: found.index(0) + 1]",
        "        found = [*found[: math.ceil(6 * sigma)], 0]",
        (
            f"{_TABLE}::test_every_threshold_is_the_exact_one_rounded",
            f"{_TABLE}::test_the_far_tail_has_the_exact_probabilities",
        ),
    ),
    Mutant(
        "one word decides a draw",
        "draws compare 128 bits",
        "noise/tables.py",
        "np.count_nonzero(low[place] < self.low[above[place] : ends])",
        "(ends - above[place]) // 2",
        (f"{_TABLE}::test_the_search_is_lexicographic_at_every_threshold",),
    ),
    Mutant(
        "a tie of the first bits is taken as decided",
        "draws compare 128 bits",
        "noise/tables.py",
        "np.flatnonzero(((moved & mask) == mask) | (moved < 0))",
        "np.flatnonzero(moved < 0)",
        (f"{_TABLE}::test_the_search_is_lexicographic_at_every_threshold",),
    ),
    Mutant(
        "noise is rounded towards zero",
        "noise is a Gaussian rounded to the nearest integer",
        "noise/tables.py",
        "range(2 * first + 1, 2 * (first + count) + 1, 2)",
        "range(2 * first + 2, 2 * (first + count) + 2, 2)",
        (f"{_TABLE}::test_draws_have_the_exact_probabilities",),
    ),
    Mutant(
        "a cell of the guide with two thresholds is searched once",
        "every value has its probability",
        "noise/tables.py",
        "np.where(inside <= 1, (above << shift) | next_bits, _SEARCHED)",
        "np.where(inside <= 2, (above << shift) | next_bits, _SEARCHED)",
        (f"{_TABLE}::test_the_search_is_lexicographic_at_every_threshold",),
    ),
    Mutant(
        "words are given again",
        "no word is used twice",
        "noise/words.py",
        "        return np.asarray(self._source.random_raw(count), dtype=np.uint64)\n",
        "        again = np.random.Philox(key=int.from_bytes(self.key, 'little'))\n"
        "        return np.asarray(again.random_raw(count), dtype=np.uint64)\n",
        (f"{_DRAWS}::test_words_are_numpys_philox_and_are_never_given_twice",),
    ),
    Mutant(
        "streams of one run share a key",
        "the streams of a run are independent",
        "noise/words.py",
        '_hash(b"stream", self._root, name.encode())',
        '_hash(b"stream", self._root)',
        (f"{_DRAWS}::test_streams_of_other_names_runs_and_depths_share_no_key",),
    ),
    Mutant(
        "the rate of coins is rounded up",
        "a record is in with at most the declared probability",
        "noise/words.py",
        'closed="both", rate=rate)) * 2**64)',
        'closed="both", rate=rate)) * 2**64) + 1',
        (f"{_DRAWS}::test_the_rate_is_rounded_down_to_a_multiple_of_a_words_unit",),
    ),
    Mutant(
        "a term of a sum is not cut off",
        "one record moves a sum by at most the bound",
        "noise/gaussian.py",
        "    terms = np.nan_to_num(np.clip(given, -bound, bound), nan=0.0)\n"
        "    whole = np.clip(np.rint(terms / unit), -most, most).astype(np.int64)\n",
        "    terms = np.nan_to_num(np.clip(given, -2 * bound, 2 * bound), nan=0.0)\n"
        "    whole = np.rint(terms / unit).astype(np.int64)\n",
        (f"{_DRAWS}::test_one_term_moves_a_sum_by_at_most_the_bound",),
    ),
    Mutant(
        "a kept table is believed",
        "a damaged table is built again",
        "noise/tables.py",
        "    if digest != _digest(sigma, content) or len(content) % 16:\n",
        "    if not digest or len(content) % 16:\n",
        ("noise/test_noise_cache.py::test_a_damaged_file_is_built_again",),
    ),
    Mutant(
        "a single number is added to every sum",
        "one record moves a noisy sum of vectors by at most 1",
        "noise/vectors.py",
        "        if np.shape(some)[1:] != (size,):",
        "        if size < 0:",
        (f"{_VECTORS}::test_a_record_of_another_length_is_refused",),
    ),
    Mutant(
        "a sum of vectors has no noise",
        "a sum of vectors has the noise that its event states",
        "noise/vectors.py",
        '    noisy += rounded_gaussian(_deviation(size, sigma), words.stream("noise"), size)\n',
        "",
        (f"{_VECTORS}::test_the_sum_has_the_noise_that_is_stated",),
    ),
    Mutant(
        "half of the numbers of a sum of vectors have no noise",
        "a sum of vectors has the noise that its event states",
        "noise/vectors.py",
        '    noisy += rounded_gaussian(_deviation(size, sigma), words.stream("noise"), size)\n',
        '    noisy += rounded_gaussian(_deviation(size, sigma), words.stream("noise"), size) * (np.arange(size) % 2)\n',
        (f"{_VECTORS}::test_the_sum_has_the_noise_that_is_stated",),
    ),
    Mutant(
        "a vector may be longer than 1",
        "a record adds a vector of norm at most 1",
        "noise/vectors.py",
        "    found[(found * found).sum(axis=1) > most * most] = 0\n",
        "",
        (f"{_VECTORS}::test_a_vector_in_whole_numbers_is_never_longer_than_is_paid_for",),
    ),
    Mutant(
        "each number of a vector is rounded up",
        "a record adds a vector of norm at most 1",
        "noise/vectors.py",
        "    found = np.trunc(cut * (most * (1 - 2.0**-20))).astype(np.int64)\n"
        "    found[(found * found).sum(axis=1) > most * most] = 0\n",
        "    found = (np.sign(cut) * np.ceil(np.abs(cut) * most)).astype(np.int64)\n"
        "    found[(cut * cut).sum(axis=1) > 1] = 0\n",
        (f"{_VECTORS}::test_a_vector_in_whole_numbers_is_never_longer_than_is_paid_for",),
    ),
    Mutant(
        "a sum of vectors is rounded without a dither",
        "rounding moves a sum by no more than is paid for",
        "noise/vectors.py",
        "    return (total + low.astype(np.int64)) >> bits",
        "    return (total + 0 * low.astype(np.int64)) >> bits",
        (f"{_VECTORS}::test_a_record_that_rounds_up_everywhere_moves_the_sum_by_no_more_than_is_paid_for",),
    ),
    Mutant(
        "rounding a sum of vectors costs nothing",
        "the radius of vectors leaves room for rounding",
        "noise/vectors.py",
        "    within = (_deviation(size, sigma) / sigma - _TURN) ** 2 - size / 4\n",
        "    within = (_deviation(size, sigma) / sigma) ** 2\n",
        (f"{_VECTORS}::test_the_radius_leaves_room_for_rounding",),
    ),
)
