"""A sampler counts as history-only by a statement: of the class that defines its weights, or of who wraps another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import optuna
import pytest
from support.study_world import make

from dphypo.accounting.guarantee import PolicyClass
from dphypo.band import KL, L2, Greedy, Mixed
from dphypo.samplers import GaussianProcess, History, OptunaSampler, Uniform
from dphypo.samplers.gaussian_process import Hyperparameters
from dphypo.samplers.sampler import basis, description

SECRET = [7.0]


def peek(*arguments):
    return SECRET[0]


class Number(float):
    """A number that computes what it likes."""

    def __mul__(self, other):
        return peek()


@dataclass(frozen=True)
class Declared:
    """A rule of the user's own, declared to see only the history."""

    history_only: ClassVar[bool] = True

    def weights(self, candidates, history):
        return candidates.masses.copy()


class Overrides(GaussianProcess):
    def weights(self, candidates, history):
        return candidates.masses * (1.0 + peek() * (np.arange(len(candidates)) == 0))


class OverridesHelper(GaussianProcess):
    def _standard(self, candidates, history, values):
        return np.full(len(candidates), peek()), np.zeros(len(candidates))


class Renamed(GaussianProcess):
    """A subclass that says nothing of its own."""


class Inherits(Declared):
    def weights(self, candidates, history):
        return candidates.masses * peek()


class SaysSo(Overrides):
    history_only = True  # but of weights that stand in another class


class Forged:
    history_only = True

    def weights(self, candidates, history):
        return candidates.masses * peek()


Forged.__module__ = "dphypo.samplers.forged"


def shadowed() -> GaussianProcess:
    rule = GaussianProcess()
    object.__setattr__(rule, "weights", peek)
    return rule


def shadowed_by_user() -> Declared:
    rule = Declared()
    object.__setattr__(rule, "weights", peek)
    return rule


def told_on_the_instance():
    rule = Overrides()
    object.__setattr__(rule, "history_only", True)
    return rule


class OwnWrapper(OptunaSampler):
    def weights(self, candidates, history):
        return candidates.masses * peek()


def shadowed_wrapper() -> OptunaSampler:
    rule = OptunaSampler(optuna.samplers.RandomSampler(), history_only=True)
    object.__setattr__(rule, "weights", peek)
    return rule


def hidden(value) -> optuna.samplers.TPESampler:
    """TPE with something of the user's inside."""
    sampler = optuna.samplers.TPESampler()
    sampler.extra = value
    return sampler


ATTACKS = {
    "a subclass overrides weights": Overrides,
    "a subclass overrides a helper": OverridesHelper,
    "a subclass of a user's rule": Inherits,
    "a subclass repeats the flag alone": SaysSo,
    "the flag is on the instance": told_on_the_instance,
    "weights are hidden by the instance": shadowed,
    "a user's weights are hidden by the instance": shadowed_by_user,
    "a sampler of Optuna, without the user's statement": lambda: OptunaSampler(optuna.samplers.TPESampler()),
    "code of others in a sampler of Optuna": lambda: OptunaSampler(hidden(np.vectorize(peek))),
    "a subclass of the wrapper": lambda: OwnWrapper(optuna.samplers.RandomSampler(), history_only=True),
    "a wrapper whose weights are hidden": shadowed_wrapper,
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_a_rule_that_peeks_is_certified_for_anything(attack):
    assert basis(attack()) is None
    assert make(None, sampler=attack()).guarantee.terms[0].releases.policy is PolicyClass.ANYTHING


def test_numbers_that_compute_are_kept_as_plain_numbers():
    """An object that is a number could compute its value from the data: the library's own samplers copy the value."""
    number = Number(0.5)
    rule = GaussianProcess(tau=number, beta=number, hyperparameters=Hyperparameters(number, (number, number), number))
    inner = rule.hyperparameters
    kept = [
        rule.tau,
        rule.beta,
        inner.variance,
        *inner.lengthscales,
        inner.noise,
        Hyperparameters(1.0, number).lengthscales,
    ]
    kept += [OptunaSampler(optuna.samplers.RandomSampler(), fraction=number).fraction, Mixed(number).nu]
    assert {type(value) for value in kept} == {float}

    class Own(Hyperparameters):
        pass

    with pytest.raises(ValueError, match="hyperparameters = "):
        GaussianProcess(hyperparameters=Own())


def test_a_sampler_of_optuna_counts_by_the_statement_of_the_user():
    stated = OptunaSampler(optuna.samplers.TPESampler(seed=0), history_only=True)
    by = "a statement by the user, who gave history_only=True to dphypo.samplers.optuna.OptunaSampler"
    assert basis(stated) == by
    assert make(None, sampler=stated).guarantee.terms[0].releases.policy is PolicyClass.HISTORY
    assert "TPESampler" in str(make(None, sampler=stated).certificate.to_dict()["public"]["search rule"])


@pytest.mark.parametrize("rule", [GaussianProcess(), Uniform()], ids=repr)
def test_our_own_rules_are_history_only(rule):
    assert (
        basis(rule) == f"{type(rule).__module__}.{type(rule).__qualname__}, which is given the history and nothing else"
    )
    study = make(None, sampler=rule)
    assert study.guarantee.terms[0].releases.policy is PolicyClass.HISTORY
    assert "history" in study.guarantee.bounds(1e-6)


@pytest.mark.parametrize(
    "rule", [GaussianProcess(), OptunaSampler(optuna.samplers.TPESampler(seed=0), history_only=True)]
)
def test_a_rule_keeps_its_word_after_it_was_used(rule):
    """A study of Optuna that was kept for the next draw had cost the rule its word."""
    make(None, sampler=rule, grid={"lr": 8}).run(progress=False)
    assert basis(rule) is not None


def test_a_projection_gives_its_word_where_it_defines_the_ratios():
    class OwnGreedy(Greedy):
        history_only = True

    class Promised:
        history_only = True

        def ratios(self, problem):
            return Greedy().ratios(problem)

    class Again(Promised):
        def ratios(self, problem):
            return Greedy().ratios(problem) * peek()

    assert all(basis(Uniform(), rule) == basis(Uniform()) for rule in (Greedy(), KL(), L2(), Mixed(0.5)))
    assert basis(Uniform(), OwnGreedy()) is None
    assert basis(Uniform(), Again()) is None
    assert "Promised" in (basis(Uniform(), Promised()) or "")


def test_a_forged_module_name_is_the_users_word_and_not_the_librarys():
    assert basis(Forged()) == (
        "a statement by the author of dphypo.samplers.forged.Forged, who declared history_only = True there"
    )


def test_the_certificate_names_the_class_whose_word_it_is():
    said = make(None, sampler=Declared()).certificate.to_dict()["public"]["search rule"]
    assert said["sees only the history by"] == (
        f"a statement by the author of {__name__}.Declared, who declared history_only = True there"
    )


def test_the_settings_of_a_rule_are_part_of_it():
    assert description(GaussianProcess()) == description(GaussianProcess()) != description(GaussianProcess(tau=0.5))
    eager, lazy = (OptunaSampler(optuna.samplers.TPESampler(n_startup_trials=count)) for count in (1, 100))
    assert description(eager) == description(OptunaSampler(optuna.samplers.TPESampler(n_startup_trials=1)))
    assert description(eager) != description(lazy)


def test_a_history_has_no_clock_and_no_number_of_runs():
    assert not {"T", "total", "time", "left"} & set(dir(History.empty(features=1, unit=1)))
