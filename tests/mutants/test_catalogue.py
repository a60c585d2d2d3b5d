"""Every mutant still applies to the sources as they are. ``make mutants`` runs them."""

from __future__ import annotations

import ast
import functools
import re

import pytest
from mutants import run
from mutants.catalogue import MUTANTS
from mutants.mutant import ROOT, SOURCES, Mutant, PatchError


@functools.cache
def meaning(file: str) -> str:
    return ast.dump(ast.parse((SOURCES / "dphypo" / file).read_text(encoding="utf-8")))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_applies_and_parses(mutant):
    assert ast.dump(ast.parse(mutant.patched())) != meaning(mutant.file), "the mutant changes nothing"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_tests_that_catch_a_mutant_exist(mutant):
    assert mutant.tests
    for test in mutant.tests:
        file, name = test.split("::")
        source = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert re.search(rf"^def {re.escape(name.partition('[')[0])}\(", source, re.MULTILINE), test


def test_there_are_enough_and_names_are_unique():
    assert len(MUTANTS) >= 30
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_a_patch_whose_text_is_gone_is_an_error():
    with pytest.raises(PatchError, match="0 times"):
        Mutant("gone", "", "band/band.py", "no such text", "", ("band/test_band.py::test_band_is_a_value",)).patched()
    with pytest.raises(PatchError, match="copies"):
        MUTANTS[0].apply(SOURCES)


def test_a_text_that_no_name_contains_is_an_error(capsys):
    with pytest.raises(SystemExit):
        run.main(["no mutant has this name"])
    assert "no mutant's name contains 'no mutant has this name'" in capsys.readouterr().err
