"""Errors that name the argument, its value and what would be right."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dphypo import _validate as check
from dphypo._files import parsing
from dphypo.errors import FileError


@pytest.mark.parametrize(
    ("call", "value"),
    [
        (lambda: check.number(a=3), 3.0),
        (lambda: check.number(a=Fraction(1, 4)), 0.25),
        (lambda: check.number(a=np.float32(0.5)), 0.5),
        (lambda: check.within(0, 1, a=0.5), 0.5),
        (lambda: check.within(0, 1, closed="left", a=0), 0.0),
        (lambda: check.within(0, 1, closed="right", a=1), 1.0),
        (lambda: check.within(0, 1, closed="both", a=1), 1.0),
        (lambda: check.positive(a=1e-300), 1e-300),
        (lambda: check.non_negative(a=0), 0.0),
        (lambda: check.integer(a=np.int64(7)), 7),
        (lambda: check.integer(at_least=0, a=0), 0),
        (lambda: check.probability(a=0), 0.0),
        (lambda: check.probability(a=1), 1.0),
        (lambda: check.delta(a=1e-5), 1e-5),
        (lambda: check.delta(a=0), 0.0),
    ],
)
def test_values_pass_through(call: Callable[[], Any], value: float) -> None:
    assert call() == value
    assert type(call()) is type(value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: check.number(rate="x"), "rate = 'x' is not valid: give a finite number"),
        (lambda: check.number(rate="2.5"), "rate = '2.5' is not valid: give a finite number"),
        (lambda: check.number(rate=b"2"), "is not valid: give a finite number"),
        (lambda: check.flag(maximize="minimize"), "maximize = 'minimize' is not valid: give True or False"),
        (lambda: check.flag(maximize=1), "maximize = 1 is not valid: give True or False"),
        (lambda: check.number(rate=None), "rate = None is not valid: give a finite number"),
        (lambda: check.number(rate=math.nan), "rate = nan is not valid"),
        (lambda: check.number(rate=-math.inf), "rate = -inf is not valid"),
        (lambda: check.number(rate=10**400), "is not valid: give a finite number"),
        (lambda: check.within(0, 1, rate=0), "rate = 0 is not valid: it must lie in (0, 1)"),
        (lambda: check.within(0, 1, closed="left", rate=1), "it must lie in [0, 1)"),
        (lambda: check.within(0, 1, closed="right", rate=0), "it must lie in (0, 1]"),
        (lambda: check.within(0, 1, closed="both", rate=2), "it must lie in [0, 1]"),
        (lambda: check.within(0, 1, why="a rate is a share", rate=2), "it must lie in (0, 1); a rate is a share"),
        (lambda: check.positive_delta(delta=0), "delta = 0 is not valid: it must lie in (0, 1); choose δ well below"),
        (lambda: check.positive(rate=0), "rate = 0 is not valid: it must be greater than 0"),
        (lambda: check.non_negative(rate=-1), "rate = -1 is not valid: it must be 0 or greater"),
        (lambda: check.integer(rate=1.0), "rate = 1.0 is not valid: give a whole number"),
        (lambda: check.integer(rate=True), "rate = True is not valid: give a whole number"),
        (lambda: check.integer(rate=np.bool_(True)), "give a whole number"),
        (lambda: check.integer(at_least=2, rate=1), "rate = 1 is not valid: give a whole number, 2 or greater"),
        (lambda: check.integer(at_least=2, rate="2"), "give a whole number, 2 or greater"),
        (lambda: check.probability(rate=1.1), "rate = 1.1 is not valid: it must lie in [0, 1]"),
        (lambda: check.delta(delta=1), "delta = 1 is not valid: it must lie in [0, 1); choose δ well below"),
        (lambda: check.vector(weights=[[1.0]]), "weights has shape (1, 1): give a one-dimensional array"),
        (lambda: check.vector(weights="abc"), "give a one-dimensional array of numbers"),
        (lambda: check.vector(weights=[1, 2], length=3), "weights has length 2: give 3 numbers"),
        (lambda: check.vector(weights=[1, math.inf]), "weights[1] = inf is not finite"),
        (lambda: check.fractions(x=[0.5, 1.5]), "x = 1.5 is not valid: give numbers in [0, 1]"),
        (lambda: check.fractions(x=math.nan), "x = nan is not valid"),
        (lambda: check.fractions(x="half"), "x = 'half' is not valid: give numbers in [0, 1]"),
        (lambda: check.counts(k=[1, 1.5]), "k = 1.5 is not valid: give whole numbers"),
        (lambda: check.counts(k=[1, math.inf]), "k = inf is not valid"),
        (lambda: check.counts(k="many"), "k = 'many' is not valid: give whole numbers"),
    ],
)
def test_errors_say_what_would_be_right(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is compared below)
        call()
    assert message in str(caught.value)


def test_arrays() -> None:
    assert check.vector(length=2, weights=(1, 2)).dtype == np.float64
    assert check.fractions(x=[[0, 1]]).shape == (1, 2)
    assert check.fractions(x=0.5).shape == ()
    assert check.counts(k=np.array([-1, 3])).tolist() == [-1.0, 3.0]


def test_an_argument_that_does_not_exist_names_the_nearest_one() -> None:
    with pytest.raises(TypeError, match=r"DPSGD\(\) got an unexpected .* 'epoch'\. Did you mean 'epochs'\?"):
        check.spelled("DPSGD", ["epoch"], ["epochs", "batch_size"])


def test_a_long_value_is_cut_and_a_strange_one_is_escaped() -> None:
    """A refusal is a message that people read, whatever was passed."""
    for value in ("x" * 5000, ["\x1b[31m"] * 5000, {"a": "b\n" * 5000}):
        said = str(check.fail("name", value, "give a short one"))
        assert said.startswith("name = ")
        assert said.endswith("… is not valid: give a short one")
        assert len(said) < 300
        assert said.isprintable()


def test_what_a_file_makes_a_reader_raise_is_an_error_that_names_the_file() -> None:
    with (
        pytest.raises(FileError, match=r"plan\.json: it is no plan \(KeyError: 'runs'\)"),
        parsing("plan.json", "it is no plan"),
    ):
        {}["runs"]
