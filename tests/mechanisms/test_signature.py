"""A function that no study could call is refused where it is declared, by name of what is missing."""

from __future__ import annotations

import functools
import pydoc

import dp_accounting as dp
import numpy as np
import pytest

import dphypo
from dphypo.mechanisms import Declared, Mechanism, OwnTraining, SampledGaussian

SPACE = dphypo.Space({"lr": [0.1, 1.0]})
DECLARE = dphypo.mechanism(event=dp.GaussianDpEvent(1.0), relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda params: None, "unexpected keyword argument 'seed'"),
        (lambda *, seed: None, "too many positional arguments"),
        (lambda seed: None, "multiple values for argument 'seed'"),
        (lambda: None, "too many positional arguments"),
        (lambda params, data, *, seed: None, "missing a required argument: 'data'"),
        (lambda params, seed, *, epochs: None, "missing a required .*argument: 'epochs'"),
        (print, "unexpected keyword argument 'seed'"),
        (lambda seed, params: None, "multiple values for argument 'seed'"),
    ],
)
def test_the_decorator_says_what_a_signature_lacks(function, words):
    with pytest.raises(TypeError, match=words) as caught:
        DECLARE(function)
    assert "Write def train(params, *, seed)" in str(caught.value)


@pytest.mark.parametrize(
    "function",
    [
        lambda params, *, seed: None,
        lambda params, seed: None,
        lambda hyperparameters, *, seed, epochs=3: None,
        lambda *args, **named: None,
        lambda params, **named: None,
        max,  # its signature is not known
    ],
)
def test_the_decorator_takes_what_can_be_called(function):
    assert isinstance(DECLARE(function), Mechanism)


def only_a_score(params, *, seed) -> float:
    return 0.5


def nothing(params, *, seed, run) -> None:
    pass


class Own(Mechanism):
    """A mechanism that is not made by the decorator."""

    event, relation = dp.GaussianDpEvent(1.0), dp.NeighboringRelation.ADD_OR_REMOVE_ONE

    def __call__(self, seed, params):
        return params, 0.5


def test_a_function_that_says_that_it_returns_no_model_is_refused():
    words = r"returns? no model.*return model, score; dphypo\.testing\.check_mechanism"
    with pytest.raises(TypeError, match=rf"only_a_score\(params, \*, seed\) -> .* {words}"):
        DECLARE(only_a_score)
    with pytest.raises(TypeError, match=words):
        OwnTraining(nothing, SampledGaussian.of(records=100, batch_size=10, steps=5, noise_multiplier=1.0))


@pytest.mark.parametrize(
    "declare",
    [
        lambda own: dphypo.Study(SPACE, own, dphypo.Geometric(mean=3), delta=1e-6, journal=None),
        lambda own: dphypo.Stages(SPACE, [dphypo.Survey(own, 3)], delta=1e-6, journal=None),
        lambda own: dphypo.tune(SPACE, own, epsilon=1.0, delta=1e-6, journal=None),
    ],
)
def test_a_mechanism_of_ones_own_that_cannot_be_called_is_refused_at_the_declaration(declare):
    with pytest.raises(TypeError, match=r"Own\(seed, params\) cannot be called .* multiple values for argument 'seed'"):
        declare(Own())


def test_the_decorator_without_its_arguments_says_which_are_missing():
    with pytest.raises(TypeError, match=r"no event and no relation: .* Write @dphypo\.mechanism\(event=.* above def f"):

        @dphypo.mechanism
        def f(params, *, seed):
            return 1, 0.5

    with pytest.raises(TypeError, match=r"has no relation: .* Write @dphypo\.mechanism\(relation=[^,]*, with"):
        dphypo.mechanism(event=dp.GaussianDpEvent(1.0))


def test_the_function_may_be_the_first_argument():
    made = dphypo.mechanism(lambda params, *, seed: (1, 0.5), event=Own.event, relation=Own.relation)
    assert isinstance(made, Declared)
    assert made({}, seed=1) == (1, 0.5)


def test_the_annotation_of_a_wrapped_function_is_not_that_of_the_wrapper():
    def score(params, *, seed) -> float:
        return 0.5

    @functools.wraps(score)
    def with_model(params, *, seed):
        return "model", score(params, seed=seed)

    made = dphypo.mechanism(with_model, event=Own.event, relation=Own.relation)
    assert made({}, seed=1) == ("model", 0.5)


def test_a_loop_of_ones_own_is_given_the_run():
    run = SampledGaussian.of(records=100, batch_size=10, steps=5, noise_multiplier=1.0)
    with pytest.raises(TypeError, match=r"keyword argument 'run'\. Write def train\(params, \*, seed, run\)"):
        OwnTraining(lambda params, *, seed: None, run)


def test_help_shows_the_decorator():
    text = pydoc.render_doc(dphypo.mechanism, renderer=pydoc.plaintext)
    assert "@dphypo.mechanism(event=..., relation=...)" in text
    assert "def train(params, *, seed)" in text


@pytest.mark.parametrize("records", ["100", [1, 2, 3], np.zeros(3), 0, -5, 2.5, None])
def test_an_attribute_of_ones_own_that_is_no_number_of_records_is_left_alone(records):
    """A mechanism may call its data ``records``."""
    own = dphypo.mechanism(lambda params, *, seed: (1, 0.5), event=Own.event, relation=Own.relation)
    object.__setattr__(own, "records", records)
    study = dphypo.Study(SPACE, own, dphypo.Geometric(mean=3), delta=1e-6, journal=None)
    assert study.guarantee.epsilon(1e-6) > 0
