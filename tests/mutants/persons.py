"""Rows in the place of persons."""

from __future__ import annotations

from mutants.mutant import Mutant

_PERSONS = "integrations/test_persons.py"
_EVERYWHERE = "integrations/test_persons_everywhere.py"
_STEP = f"{_PERSONS}::test_a_step_sums_the_clipped_averages_of_persons"

MUTANTS = (
    Mutant(
        "rows are sampled instead of persons",
        "a step samples persons: all rows of a person count, or none",
        "integrations/torch/runs.py",
        "rows if persons is None else PersonRows(rows, persons.grouped(program.views)),",
        "rows,",
        (f"{_PERSONS}::test_persons_are_sampled_and_not_rows", _STEP),
    ),
    Mutant(
        "rows of a person are added up instead of averaged",
        "what is clipped is the average of a person's rows",
        "dpsgd/batches.py",
        "    weights = counts / total.clamp(min=1)\n",
        "    weights = counts.double()\n",
        (_STEP,),
    ),
    Mutant(
        "the average is over the cap, not over the rows there are",
        "a person with few rows is averaged over what there is",
        "dpsgd/batches.py",
        "    weights = counts / total.clamp(min=1)\n",
        "    weights = counts / views\n",
        (_STEP,),
    ),
    Mutant(
        "weights of rows are left out of the backward pass",
        "what is clipped is the average of a person's rows",
        "dpsgd/factors.py",
        "    return [*made[:-1], made[-1] * beside.to(last.dtype)]\n",
        "    return [*made[:-1], made[-1] / last.shape[2]]\n",
        (_STEP,),
    ),
    Mutant(
        "the cap on rows of a person is left out",
        "at most so many rows of a person are used at a time",
        "integrations/persons.py",
        "        held = places < counts[:, None]\n",
        "        most = max(most, int(counts.max(initial=1)))\n"
        "        places = np.broadcast_to(np.arange(most), (len(persons), most)).copy()\n"
        "        held = places < counts[:, None]\n",
        (f"{_PERSONS}::test_rows_are_drawn_without_repetition_and_in_the_order_of_the_table",),
    ),
    Mutant(
        "the same rows are drawn at every step",
        "which rows of a person are used is drawn afresh",
        "dpsgd/run.py",
        "return masks.keys_of_rows(keys, step, numbers)",
        "return masks.keys_of_rows(keys, 0, numbers)",
        (f"{_PERSONS}::test_which_rows_are_used_is_drawn_afresh_at_every_step",),
    ),
    Mutant(
        "a resumed run draws other rows",
        "a run that is resumed ends in the same bits",
        "dpsgd/batches.py",
        "words(begun + passed + at, one)",
        "words(begun + at, one)",
        (f"{_EVERYWHERE}::test_a_run_that_is_resumed_draws_the_same_rows",),
    ),
    Mutant(
        "places without a row hold another person's",
        "what a person adds is a function of that person's rows",
        "integrations/persons.py",
        "chosen = first[:, None] + np.where(held, places, 0)",
        "chosen = np.where(held, first[:, None] + places, 0)",
        (f"{_PERSONS}::test_rows_are_drawn_without_repetition_and_in_the_order_of_the_table",),
    ),
    Mutant(
        "keys are compared in single precision",
        "keys are compared exactly: a newcomer is not merged with another person",
        "integrations/persons.py",
        'return b"n%d" % int(value) if abs(value) < _EXACT else None',
        'return b"n%d" % int(np.float32(value)) if abs(value) < _EXACT else None',
        (f"{_PERSONS}::test_keys_are_compared_exactly",),
    ),
    Mutant(
        "whole numbers that doubles do not tell apart are keys",
        "one missing key does not change whose rows the others' are",
        "integrations/persons.py",
        "if abs(value) < _EXACT else None",
        "if True else None",
        (f"{_PERSONS}::test_keys_are_compared_exactly",),
    ),
    Mutant(
        "a missing key is a person",
        "a row without a key counts for nothing",
        "integrations/persons.py",
        "return None if value.decode(",
        "return None if False and value.decode(",
        (f"{_PERSONS}::test_a_key_that_is_missing_or_of_another_type_counts_for_nothing",),
    ),
    Mutant(
        "a split by person looks at the kind of the column",
        "the column that holds keys moves nobody to the other side",
        "integrations/split.py",
        'return None if key is None else b"person|" + key[1:]',
        'return None if key is None else b"person|" + key',
        (f"{_PERSONS}::test_the_column_that_holds_keys_changes_nothing",),
    ),
    Mutant(
        "records are split by row where they are persons",
        "all rows of a person are on one side",
        "integrations/split.py",
        "        found: list[bytes | None] = list(map(_hashed, keys.rows))\n",
        "        found: list[bytes | None] = [b'%d' % at for at in range(len(keys))]\n",
        (f"{_EVERYWHERE}::test_a_split_by_person_keeps_all_rows_of_a_person_together",),
    ),
    Mutant(
        "rows of a person are added up in JAX",
        "what is clipped is the average of a person's rows",
        "integrations/jax/jax_program.py",
        "return jnp.sum(losses.astype(weights.dtype) * weights)",
        "return jnp.sum(losses.astype(weights.dtype) * (weights > 0))",
        (f"{_EVERYWHERE}::test_a_step_in_jax_sums_the_clipped_averages_of_persons",),
    ),
    Mutant(
        "rows of a person are clipped one by one in a loop of one's own",
        "what is clipped is the average of a person's rows",
        "integrations/torch/own_loop.py",
        "        if self._sizes and self._sizes[0].persons is not None:\n",
        "        if False:\n",
        (f"{_EVERYWHERE}::test_a_loop_of_ones_own_averages_the_rows_of_persons",),
    ),
    Mutant(
        "a person's rows cost what one row costs",
        "searches over rows are reserved for persons as what they cost a group",
        "journal/ledger.py",
        "costs = np.asarray(guarantee.rdp(2.0**doublings * orders), dtype=np.float64)",
        "costs = np.asarray(guarantee.rdp(orders), dtype=np.float64)",
        ("journal/test_ledger_units.py::test_rows_cost_a_person_at_least_what_a_group_of_them_costs",),
    ),
    Mutant(
        "ledgers add up what is spent on rows and on persons",
        "one ledger protects one unit",
        "journal/ledger.py",
        "doublings = 0 if unit == self.terms.unit else self._doublings(guarantee, unit)",
        "doublings = 0",
        ("journal/test_ledger_units.py::test_units_are_not_mixed_without_a_stated_bound",),
    ),
)
