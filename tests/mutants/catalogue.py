"""All mutants: wrong implementations kept as source patches outside the package, each with the tests that catch it."""

from __future__ import annotations

from mutants import accounting, captured, engine, exact_noise, jax_step, journals, persons, searching, showing, training
from mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *accounting.MUTANTS,
    *searching.MUTANTS,
    *journals.MUTANTS,
    *exact_noise.MUTANTS,
    *engine.MUTANTS,
    *captured.MUTANTS,
    *training.MUTANTS,
    *jax_step.MUTANTS,
    *persons.MUTANTS,
    *showing.MUTANTS,
)
