"""All mutants: wrong implementations kept as source patches outside the package, each with the tests that catch it."""

from __future__ import annotations

from mutants import accounting, journals, searching, showing, training
from mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *accounting.MUTANTS,
    *searching.MUTANTS,
    *journals.MUTANTS,
    *training.MUTANTS,
    *showing.MUTANTS,
)
