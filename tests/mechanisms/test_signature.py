"""A function that no study could call is refused where it is declared, by name of what is missing."""

from __future__ import annotations

import pydoc

import dp_accounting as dp
import pytest

import dphypo
from dphypo.mechanisms import DpSgd, Mechanism, OwnTraining

DECLARE = dphypo.mechanism(event=dp.GaussianDpEvent(1.0), relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda params: None, "it takes no seed"),
        (lambda *, seed: None, "it takes no params"),
        (lambda seed: None, "it takes no params"),
        (lambda: None, "it takes no params, it takes no seed"),
        (lambda params, data, *, seed: None, "it also needs data"),
        (lambda params, seed, *, epochs: None, "it also needs epochs"),
        (print, "it takes no seed"),
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


def test_a_loop_of_ones_own_is_given_the_run():
    run = DpSgd.of(records=100, batch_size=10, steps=5, noise_multiplier=1.0)
    with pytest.raises(TypeError, match=r"it takes no run\. Write def train\(params, \*, seed, run\)"):
        OwnTraining(lambda params, *, seed: None, run)


def test_help_shows_the_decorator():
    text = pydoc.render_doc(dphypo.mechanism, renderer=pydoc.plaintext)
    assert "@dphypo.mechanism(event=..., relation=...)" in text
    assert "def train(params, *, seed)" in text
