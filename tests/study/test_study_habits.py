"""What people bring from elsewhere: each habit is answered with what to do instead."""

from __future__ import annotations

import dp_accounting as dp
import optuna
import pytest
from support.study_world import LAW, RELATION, SPACE, make, train

import dphypo
from dphypo.band import L2, Band
from dphypo.errors import Refusal
from dphypo.samplers import GaussianProcess


@pytest.mark.parametrize(
    ("option", "error", "words"),
    [
        ("callbacks", Refusal, r"study\.curator\(\)"),
        ("timeout", Refusal, "Interrupt it instead"),
        ("n_jobs", TypeError, "give workers="),
        ("catch", TypeError, "a failed run"),
        ("show_progress_bar", TypeError, "progress=True"),
    ],
)
def test_options_of_optuna_are_answered_one_by_one(option, error, words):
    with pytest.raises(error, match=words):
        make().run(**{option: 2})


def test_a_raw_sampler_of_optuna_is_told_its_wrapper():
    with pytest.raises(ValueError, match=r"OptunaSampler\(TPESampler\(\.\.\.\)\)"):
        dphypo.Study(SPACE, train, LAW, Band(0.5, 2), optuna.samplers.TPESampler(), delta=1e-6, journal=None)


@pytest.mark.parametrize("given", [{"sampler": GaussianProcess}, {"projection": L2}])
def test_a_class_in_place_of_its_instance_is_refused(given):
    with pytest.raises(ValueError, match=r"it is a class: give (GaussianProcess|L2)\(\.\.\.\)"):
        dphypo.Study(SPACE, train, LAW, Band(0.5, 2), delta=1e-6, journal=None, **given)


class HalfALaw:
    mean = 3.0

    def pmf(self, k):
        return k


class HalfAMechanism:
    event, relation = dp.GaussianDpEvent(1.0), RELATION


class NoWeights:
    pass


def test_who_lacks_a_method_is_told_which_and_what_tests_it():
    with pytest.raises(TypeError, match=r"is not a law of T: give, for example.*dphypo\.Pmf"):
        dphypo.Study(SPACE, train, HalfALaw(), delta=1e-6, journal=None)
    with pytest.raises(ValueError, match=r"derive its class from dphypo.mechanisms.Mechanism.*check_mechanism"):
        dphypo.Study(SPACE, HalfAMechanism(), LAW, delta=1e-6, journal=None)
    with pytest.raises(ValueError, match=r"weights\(candidates, history\).*check_sampler"):
        dphypo.Study(SPACE, train, LAW, Band(0.5, 2), NoWeights(), delta=1e-6, journal=None)
    with pytest.raises(ValueError, match=r"declare the function with @dphypo\.mechanism"):
        dphypo.Study(SPACE, lambda params, *, seed: None, LAW, delta=1e-6, journal=None)
