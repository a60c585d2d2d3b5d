"""The root finder ends on the crossing, whatever the function."""

from __future__ import annotations

import math

import pytest

from dphypo.band.projections import crossing


def count(evaluate):
    def counted(x):
        counted.calls += 1
        return evaluate(x)

    counted.calls = 0
    return counted


@pytest.mark.parametrize("root", [0.0, 1e-300, -1e-300, 5e-324, 1.0, -3.0, 1e300, -1.7e308])
@pytest.mark.parametrize("slope", [0.0, -1.0, 1e-9, 1e9, math.nan, math.inf])
def test_a_jump_is_found_to_the_last_float(root, slope):
    # The slope that is reported says nothing about the function, which is a step: halving alone has to find it.
    evaluate = count(lambda x: (1.0 if x >= root else -1.0, slope))
    x = crossing(evaluate, 0.5, -1.7976931348623157e308, 1.7976931348623157e308, 0.0)
    assert x < root <= math.nextafter(x, math.inf)
    assert evaluate.calls <= 300


def test_a_line_takes_one_step():
    evaluate = count(lambda x: (3.0 * (x - 0.25), 3.0))
    assert crossing(evaluate, 100.0, -1e6, 1e6, 0.0) == 0.25
    assert evaluate.calls == 2


def test_a_start_outside_is_brought_inside():
    assert crossing(lambda x: (x - 1.0, 1.0), 5.0, 0.0, 1.5, 0.0) == 1.0


def test_newton_that_circles_is_stopped():
    # On the cube root Newton's method jumps to −2x: each step is further from the root than the one before.
    evaluate = count(lambda x: (math.cbrt(x - 0.3), math.cbrt(x - 0.3) ** -2 / 3 if x != 0.3 else math.inf))
    assert crossing(evaluate, 0.9, -1.0, 1.0, 1e-9) == pytest.approx(0.3, abs=1e-15)
    assert evaluate.calls <= 140
