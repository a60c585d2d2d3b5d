"""A captured graph whose records are not kept apart."""

from __future__ import annotations

from mutants.mutant import Mutant

_OPERATORS = "engine/test_engine_operators.py"
_HOSTILE = "integrations/test_torch_hostile.py"
_OUTSIDE = f"{_OPERATORS}::test_values_outside_are_reported_and_raise_nothing"

MUTANTS = (
    Mutant(
        "an operator that looks at all records is on the list",
        "a captured graph holds operators that treat records separately",
        "torch/engine/operators.py",
        '_NAMES = """\n',
        '_NAMES = """\n_is_any_true ',
        (f"{_OPERATORS}::test_operators_off_the_list_are_refused",),
    ),
    Mutant(
        "indices are not clamped from above",
        "no value of a record raises an exception or reads another record",
        "torch/engine/rewrites.py",
        "clamped = self.call(A.clamp.default, index, low, size - 1)",
        "clamped = self.call(A.clamp.default, index, low, size)",
        (_OUTSIDE,),
    ),
    Mutant(
        "a record outside is not reported",
        "a record outside the domain has weight zero",
        "torch/engine/rewrites.py",
        "            self.fits(self.call(A.ne.Tensor, index, clamped))\n",
        "",
        (_OUTSIDE,),
    ),
    Mutant(
        "an integer is divided by zero",
        "no value of a record raises an exception or reads another record",
        "torch/engine/rewrites.py",
        "    A.fmod.Tensor: _divided,\n",
        "",
        (_OUTSIDE,),
    ),
    Mutant(
        "memory that was never written is read",
        "a captured graph reads what it has written",
        "torch/engine/rewrites.py",
        "    A.empty.memory_format: _zeros,\n",
        "",
        (f"{_OPERATORS}::test_memory_that_was_never_written_is_zero",),
    ),
    Mutant(
        "views by strides go past their record",
        "a captured graph reads what it has written",
        "torch/engine/rewrites.py",
        "if bool((index < 0).any()) or",
        "if",
        (f"{_OPERATORS}::test_a_refusal_names_the_line_of_the_model",),
    ),
    Mutant(
        "a float that no integer holds is converted as it comes",
        "a record's gradient is the same in every place",
        "torch/engine/rewrites.py",
        "    A._to_copy.default: _converted,\n",
        "",
        (f"{_OPERATORS}::test_floats_that_no_integer_holds_become_the_same_integer_in_every_place",),
    ),
    Mutant(
        "a normal draw is infinite",
        "draws are functions of keyed uniform numbers",
        "torch/engine/rewrites.py",
        "edit.call(A.add.Scalar, uniforms, 2.0**-25), 2.0**-25, 1 - 2.0**-24)",
        "uniforms, 0.0, 1.0)",
        (f"{_OPERATORS}::test_draws_are_functions_of_uniform_numbers",),
    ),
    Mutant(
        "dropout keeps what it should drop",
        "draws are functions of keyed uniform numbers",
        "torch/engine/rewrites.py",
        "mask = edit.call(A.ge.Scalar, uniforms, chance)",
        "mask = edit.call(A.lt.Scalar, uniforms, chance)",
        (f"{_OPERATORS}::test_draws_are_functions_of_uniform_numbers",),
    ),
    Mutant(
        "constants may hold the records",
        "constants of a model are public",
        "torch/engine/operators.py",
        "records in (*shape[:1], *shape[-1:])",
        "records in (*shape[:0],)",
        (f"{_OPERATORS}::test_constants_are_listed_and_one_as_long_as_the_records_is_refused",),
    ),
    Mutant(
        "replaced kernels run in training",
        "no Python of a user runs in training",
        "torch/engine/operators.py",
        "if not place.startswith(own)), None)",
        "if not place), None)",
        (f"{_OPERATORS}::test_replaced_kernels_and_active_modes_are_refused",),
    ),
    Mutant(
        "a saved graph may call any operator",
        "loading a release runs no code",
        "torch/saver.py",
        "target, args = _OPERATORS[rest[0]], ",
        "target, args = _OPERATORS.get(rest[0], operator.getitem), ",
        ("integrations/test_torch_saved_graph.py::test_a_graph_with_another_operator_is_refused",),
    ),
    Mutant(
        "a saved graph names arguments as it likes",
        "loading a release runs no code",
        "torch/saver.py",
        "if name not in known]",
        "if not name]",
        ("integrations/test_torch_saved_graph.py::test_a_name_of_an_argument_runs_no_code",),
    ),
    Mutant(
        "a graph holds the tensors of the model's code themselves",
        "what trains was captured once: no code changes it afterwards",
        "torch/engine/record_graph.py",
        "        graph.register_buffer(name, value.detach().clone())\n",
        "        graph.register_buffer(name, value.detach())\n",
        (f"{_HOSTILE}::test_tensors_that_the_code_uses_are_copied_when_it_is_captured",),
    ),
)
