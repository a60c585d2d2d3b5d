"""A training step that is not the Gaussian mechanism of its event."""

from __future__ import annotations

from mutants.mutant import Mutant

_STEP = "dpsgd/test_dpsgd_step.py"
_BITS = "dpsgd/test_dpsgd_bits.py"
_PLACES = "dpsgd/test_dpsgd_places.py"
_MOVES = f"{_STEP}::test_one_record_moves_a_step_by_at_most_the_clipping_norm"

MUTANTS = (
    Mutant(
        "a run that goes on uses its first noise again",
        "a run that was killed ends in the same bits, with fresh noise at each step",
        "dpsgd/run.py",
        "        self._draws.skip(step)\n",
        "",
        ("dpsgd/test_dpsgd_checkpoint.py::test_a_run_that_goes_on_ends_in_the_same_bits[momentum]",),
    ),
    Mutant(
        "records keep the parity of their place",
        "a contribution does not depend on the place of its record",
        "dpsgd/check.py",
        "for distance in {shape.records // 3 + 1, 1}:",
        "for distance in {shape.records // 3 + 1}:",
        ("dpsgd/test_dpsgd_bits.py::test_places_are_moved_by_an_odd_number_too",),
    ),
    Mutant(
        "records of small pieces go together",
        "a contribution does not depend on the address of its record",
        "dpsgd/program.py",
        "            if shape.records % MULTIPLE and not way.alone:\n                continue\n",
        "",
        (f"{_PLACES}::test_a_record_in_a_small_piece_has_the_same_bits_at_every_address",),
    ),
    Mutant(
        "places are compared at the initial weights",
        "a contribution does not depend on the place of its record",
        "dpsgd/program.py",
        "check.random_weights(self.layout, rows, seed)",
        "rows",
        (f"{_PLACES}::test_places_are_compared_at_weights_that_are_not_zero",),
    ),
    Mutant(
        "rows are used again after a pass that raised",
        "a record that raises changes no other contribution",
        "dpsgd/run.py",
        "gathered(self._records, piece.numbers, piece.valid.clone())",
        "Piece(piece.inputs.clone(), piece.targets.clone(), piece.numbers, piece.valid.clone())",
        (f"{_PLACES}::test_a_record_that_raises_does_not_change_what_the_others_add",),
    ),
    Mutant(
        "state of another run is used",
        "a run goes on from its own state alone",
        "dpsgd/run.py",
        '            if found["identity"] != mine:\n                return 0\n',
        "",
        ("dpsgd/test_dpsgd_checkpoint.py::test_state_of_another_run_is_not_used[other0]",),
    ),
    Mutant(
        "the dither is left out",
        "rounding adds little to what one record moves",
        "dpsgd/draws.py",
        "            row += dither.draw(-(-size // 4)).view(np.uint16)[:size] >> np.uint16(16 - self._bits)\n",
        "            row += 2.0 ** (self._bits - 1)\n",
        (f"{_STEP}::test_the_dither_keeps_many_small_moves_together",),
    ),
    Mutant(
        "records are clipped to the whole clipping norm",
        "what a record moves on the grid is at most the clipping norm",
        "dpsgd/sum_on_grid.py",
        "    return max(0.0, ratio * (1 - 2.0**-40))",
        "    return min(1.0, max(0.0, ratio) * 1e9)",
        (f"{_STEP}::test_records_are_clipped_to_what_leaves_room_for_rounding",),
    ),
    Mutant(
        "a ghost norm is not an upper bound",
        "norms are upper bounds in floating point",
        "dpsgd/layers/linear.py",
        "added(one.mul_(two).flatten(2)).clamp_min(0) + terms / (1 - terms) * spread.square()",
        "added(one.mul_(two).flatten(2)).clamp_min(0)",
        (f"{_STEP}::test_norms_are_upper_bounds_in_exact_arithmetic[positions-ghost]",),
    ),
    Mutant(
        "the norm in a perceptron is rounded to the nearest",
        "norms are upper bounds in floating point",
        "dpsgd/perceptron.py",
        ", squares).mul_(self._margin)",
        ", squares)",
        (f"{_STEP}::test_norms_are_upper_bounds_in_exact_arithmetic[linear]",),
    ),
    Mutant(
        "the norm of a held gradient is rounded to the nearest",
        "norms are upper bounds in floating point",
        "dpsgd/layers/products.py",
        " * (1 + (size + 8) * UNIT)",
        "",
        (f"{_STEP}::test_norms_are_upper_bounds_in_exact_arithmetic[positions-held]",),
    ),
    Mutant(
        "weights are not capped where terms cancel",
        "the error of a sum is bounded",
        "dpsgd/step.py",
        "made if spreads is None else torch.minimum(made, SPREAD * self.most / spreads)",
        "made",
        (f"{_STEP}::test_weights_keep_both_bounds",),
    ),
    Mutant(
        "noise and dither are used twice",
        "every step has fresh noise",
        "dpsgd/draws.py",
        "        return self._waiting.pop(0)\n",
        "        return self._waiting[0]\n",
        (f"{_STEP}::test_dither_and_noise_have_their_laws",),
    ),
    Mutant(
        "a batch that is too large is cut off",
        "every record of a batch counts",
        "dpsgd/draws.py",
        "    shape = (steps, max(count, -(-longest // size)), len(drawn), size)\n",
        "    shape = (steps, count, len(drawn), size)\n"
        "    drawn = [tuple(part[some[1] < count * size] for part in some) for some in drawn]\n",
        (f"{_BITS}::test_a_larger_batch_than_expected_makes_more_pieces",),
    ),
    Mutant(
        "zero times NaN is NaN",
        "a record that is not finite adds zero",
        "dpsgd/layers/products.py",
        "    return values.nan_to_num_(0.0, 0.0, 0.0)\n",
        "    return values\n",
        (f"{_MOVES}[linear]", f"{_MOVES}[convolution]"),
    ),
    Mutant(
        "runs of a group share a key",
        "runs of a group are independent",
        "dpsgd/run.py",
        "[noise.Words.of_seed(run.seed) for run in runs]",
        "[noise.Words.of_seed(runs[0].seed) for run in runs]",
        (f"{_BITS}::test_a_run_alone_and_among_others_ends_in_the_same_bits[linear]",),
    ),
    Mutant(
        "runs on a GPU are sampled at the rate of the first",
        "a run takes records with its own rate",
        "dpsgd/cuda_graph.py",
        " and run.rate == runs[0].rate",
        "",
        ("dpsgd/test_dpsgd_run.py::test_a_gpu_draws_the_batches_of_runs_with_one_rate_alone",),
    ),
    Mutant(
        "dropout belongs to places in the batch",
        "a record's contribution does not depend on its place",
        "dpsgd/book.py",
        " ^ (records + 1))",
        " ^ (0 * records + torch.arange(records.shape[-1], device=records.device)))",
        (f"{_BITS}::test_a_contribution_has_the_same_bits_in_other_places_and_beside_other_records[dropout]",),
    ),
    Mutant(
        "gradients are not clipped",
        "one record moves a step by at most the clipping norm",
        "dpsgd/step.py",
        "torch.minimum(self.scale, made)",
        "self.scale + 0 * made",
        (f"{_MOVES}[linear]",),
    ),
    Mutant(
        "products treat the last rows otherwise",
        "a record's contribution does not depend on its place",
        "dpsgd/layers/products.py",
        "    for way in _WAYS:\n",
        "    for way in (torch.mm,):\n        return way\n",
        (f"{_BITS}::test_a_contribution_has_the_same_bits_in_other_places_and_beside_other_records[twice]",),
    ),
)
