"""Spaces from Optuna's distributions: the same values with the same probabilities."""

from __future__ import annotations

import math

import numpy as np
import optuna
import pytest
import scipy.stats as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from dphypo.entropy import Seeded
from dphypo.space import Space

DISTRIBUTIONS = {
    "float": FloatDistribution(-1, 3),
    "log float": FloatDistribution(1e-5, 10, log=True),
    "stepped float": FloatDistribution(0.1, 0.7, step=0.1),
    "int": IntDistribution(1, 8),
    "stepped int": IntDistribution(0, 12, step=3),
    "log int": IntDistribution(2, 40, log=True),
    "long log int": IntDistribution(1, 10**7, log=True),
    "choice": CategoricalDistribution(["a", None, True, 2.5]),
    "constant float": FloatDistribution(2, 2),
    "constant int": IntDistribution(3, 3),
}
SPACE = Space.from_optuna(DISTRIBUTIONS)


def test_values_belong_to_optunas_distributions():
    candidates = SPACE.candidates(512, Seeded(0))
    rows = SPACE.from_unit(candidates.unit)
    for name, distribution in DISTRIBUTIONS.items():
        for row in rows:
            assert distribution._contains(distribution.to_internal_repr(row[name]))
    assert {row["stepped float"] for row in rows} == {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7}
    assert {row["stepped int"] for row in rows} == {0, 3, 6, 9, 12}
    assert {row["choice"] for row in rows} == {"a", None, True, 2.5}
    assert {type(row["log int"]) for row in rows} == {int}
    assert rows[0]["constant float"] == 2
    assert SPACE.from_unit(SPACE.to_unit(rows)) == rows


@pytest.mark.parametrize("name", ["float", "log float", "int", "stepped int", "log int", "long log int"])
def test_the_prior_is_that_of_optunas_random_sampler(name):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    theirs = [study.ask({name: DISTRIBUTIONS[name]}).params[name] for _ in range(1000)]
    space = Space.from_optuna({name: DISTRIBUTIONS[name]})
    ours = [row[name] for row in space.from_unit((np.arange(20000)[:, None] + 0.5) / 20000)]
    if name.endswith("int") and name != "long log int":
        values = sorted(set(ours))
        expected = np.array([ours.count(value) for value in values]) / 20000 * 1000
        counts = np.array([theirs.count(value) for value in values])
        assert counts.sum() == 1000
        assert st.chisquare(counts, expected * 1000 / expected.sum()).pvalue > 1e-6
    else:
        assert st.ks_2samp(theirs, ours).pvalue > 1e-6


def test_the_log_uniform_integers_have_their_closed_form():
    grid = Space.from_optuna({"k": IntDistribution(2, 40, log=True)}).grid()
    expected = [math.log((k + 0.5) / (k - 0.5)) / math.log(40.5 / 1.5) for k in range(2, 41)]
    assert grid.masses == pytest.approx(expected, rel=1e-12)
    assert math.fsum(grid.masses) == pytest.approx(1, abs=1e-15)


def test_the_representation_and_description():
    space = Space.from_optuna({"k": IntDistribution(2, 40, log=True), "x": FloatDistribution(0, 0.5, step=0.25)})
    assert repr(space) == "Space({'k': lograndint(low=2, high=40), 'x': [0.0, 0.25, 0.5]})"
    assert space.to_dict()["parameters"][0]["arguments"] == {"low": 2, "high": 40}


@pytest.mark.parametrize(
    ("distributions", "message"),
    [
        ([FloatDistribution(0, 1)], "give a dict of name to distribution"),
        ({"x": st.uniform()}, "parameter 'x' = .* distribution of optuna"),
        ({"x": FloatDistribution(0, 1, step=1e-6)}, "has 1000001 steps, more than 65536"),
        ({}, "give a dict"),
    ],
)
def test_what_is_not_optunas_is_refused(distributions, message):
    with pytest.raises(ValueError, match=message):
        Space.from_optuna(distributions)
