"""A rule counts as history-only by the word of the class that defines its weights, and holds no code of others."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import optuna
import pytest
from support.slow import mostly_slow
from support.study_world import make

from dphypo.accounting.guarantee import PolicyClass
from dphypo.band import KL, L2, Greedy, Mixed
from dphypo.samplers import GaussianProcess, History, OptunaSampler, Parzen, Proposals, Uniform
from dphypo.samplers.history_only import basis, description

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


class Overrides(Parzen):
    def weights(self, candidates, history):
        return candidates.masses * (1.0 + peek() * (np.arange(len(candidates)) == 0))


class OverridesHelper(GaussianProcess):
    def _standard(self, candidates, history, values):
        return np.full(len(candidates), peek()), np.zeros(len(candidates))


class Renamed(Parzen):
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


def shadowed() -> Parzen:
    rule = Parzen()
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


ATTACKS = {
    "a subclass overrides weights": Overrides,
    "a subclass overrides a helper": OverridesHelper,
    "a subclass of a user's rule": Inherits,
    "a subclass repeats the flag alone": SaysSo,
    "the flag is on the instance": told_on_the_instance,
    "weights are hidden by the instance": shadowed,
    "a user's weights are hidden by the instance": shadowed_by_user,
    "a number that computes": lambda: Parzen(quantile=Number(0.25)),
    "a number that computes in a wrapper": lambda: OptunaSampler(optuna.samplers.RandomSampler(), fraction=Number(0.2)),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_a_rule_that_peeks_is_certified_for_anything(attack):
    assert basis(attack()) is None
    assert make(None, sampler=attack()).guarantee.terms[0].releases.policy is PolicyClass.ANYTHING


class OwnState(np.random.RandomState):
    def random_sample(self, *size):
        return peek()


class Own(optuna.samplers.RandomSampler):
    pass


class OwnDeclared(optuna.samplers.RandomSampler):
    history_only = True

    def sample_independent(self, *arguments):
        return super().sample_independent(*arguments)


class OwnAgain(OwnDeclared):
    def sample_independent(self, *arguments):
        return peek()


def hidden(value):
    """TPE with something of the user's inside."""
    sampler = optuna.samplers.TPESampler()
    sampler.extra = value
    return sampler


CALLABLES = {
    "function": peek,
    "np.vectorize": np.vectorize(peek),
    "np.frompyfunc": np.frompyfunc(peek, 1, 1),
    "array of objects": np.array([peek, None]),
    "array with an object field": np.zeros(2, dtype=[("x", "f8"), ("f", "O")]),
    "array of a subclass": np.arange(3.0).view(np.ma.MaskedArray),
    "np.poly1d": np.poly1d([1.0]),
    "generator": OwnState(),
    "partial": functools.partial(peek, 1),
    "bound": SECRET.append,
    "number": Number(0.5),
    "list of lists": [[(peek,)]],
    "key": {peek: 1},
    "default of a dict": __import__("collections").defaultdict(peek),
    "method": Own().reseed_rng,
    "class": Own,
}


@pytest.mark.parametrize("value", CALLABLES.values(), ids=CALLABLES)
def test_what_hides_code_in_a_sampler_of_optuna_is_not_the_librarys(value):
    assert basis(OptunaSampler(hidden(value))) is None


@pytest.mark.parametrize(
    "value",
    [1, 2.5, "x", None, np.arange(3), np.float32(1), {"a": [(1, 2)]}, np.random.default_rng(0)],
    ids=lambda value: type(value).__name__,
)
def test_plain_data_in_a_sampler_of_optuna_is_fine(value):
    assert basis(OptunaSampler(hidden(value))) is not None


def test_every_sampler_of_optuna_counts_and_those_that_call_others_do_not():
    samplers = optuna.samplers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optunas = [
            samplers.TPESampler(seed=0),
            samplers.TPESampler(multivariate=True, group=True, constant_liar=True),
            samplers.RandomSampler(),
            samplers.CmaEsSampler(),
            samplers.GPSampler(),
            samplers.NSGAIISampler(),
            samplers.NSGAIIISampler(),
            samplers.QMCSampler(),
            samplers.BruteForceSampler(),
            samplers.GridSampler({"x": [1, 2]}),
            samplers.PartialFixedSampler({"x": 0.5}, samplers.TPESampler()),
        ]
        others = [
            Own(),
            samplers.PartialFixedSampler({"x": 0.5}, Own()),
            samplers.CmaEsSampler(independent_sampler=Own()),
            samplers.TPESampler(constraints_func=lambda trial: (0.0,)),
            samplers.TPESampler(gamma=lambda runs: 3),
            samplers.TPESampler(gamma=np.vectorize(lambda runs: 3)),
        ]
    for sampler in optunas:
        name = type(sampler).__name__
        assert f"{name}, which is given the history and nothing else" in (basis(OptunaSampler(sampler)) or name)
    assert [basis(OptunaSampler(one)) for one in others] == [None] * 6


def test_a_sampler_of_optunas_kind_gives_its_word_in_its_own_class():
    assert "OwnDeclared" in (basis(OptunaSampler(OwnDeclared())) or "")
    assert basis(OptunaSampler(OwnAgain())) is None


@pytest.mark.parametrize("rule", mostly_slow([Parzen(), GaussianProcess(), Uniform()]), ids=repr)
def test_our_own_rules_are_history_only(rule):
    assert (
        basis(rule) == f"{type(rule).__module__}.{type(rule).__qualname__}, which is given the history and nothing else"
    )
    study = make(None, sampler=rule)
    assert study.guarantee.terms[0].releases.policy is PolicyClass.HISTORY
    assert "history" in study.guarantee.bounds(1e-6)


@pytest.mark.parametrize("rule", [GaussianProcess(), OptunaSampler(optuna.samplers.TPESampler(seed=0))])
def test_a_rule_keeps_its_word_after_it_was_used(rule):
    """A study of Optuna that was kept for the next draw had cost the rule its word."""
    make(None, sampler=rule, grid={"lr": 8}).run(progress=False)
    assert basis(rule) is not None


def test_a_function_that_proposes_is_taken_at_its_word_only_if_it_gives_it():
    def propose(history):
        return []

    assert basis(Proposals(propose)) is None
    propose.history_only = True
    assert "propose" in (basis(Proposals(propose)) or "")

    @functools.wraps(propose)
    def other(history):
        return [peek()]

    assert other.history_only  # copied by wraps
    assert basis(Proposals(other)) is None
    assert basis(Proposals(functools.partial(propose))) is None

    class Asks:
        history_only = True

        def __call__(self, history):
            return []

    class AsksMore(Asks):
        def __call__(self, history):
            return [peek()]

    assert "Asks," in (basis(Proposals(Asks())) or "")
    assert basis(Proposals(AsksMore())) is None


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

    assert all(basis(Parzen(), rule) == basis(Parzen()) for rule in (Greedy(), KL(), L2(), Mixed(0.5)))
    assert basis(Parzen(), OwnGreedy()) is None
    assert basis(Parzen(), Again()) is None
    assert basis(Parzen(), Mixed(Number(0.5))) is not None  # it is stored as a plain float
    assert "Promised" in (basis(Parzen(), Promised()) or "")


def test_a_forged_module_name_is_the_users_word_and_not_the_librarys():
    assert basis(Forged()) == (
        "the word of the author of dphypo.samplers.forged.Forged, who declared history_only = True there"
    )


def test_the_certificate_names_the_class_whose_word_it_is():
    said = make(None, sampler=Declared()).certificate.to_dict()["public"]["search rule"]
    assert said["sees only the history by"] == (
        f"the word of the author of {__name__}.Declared, who declared history_only = True there"
    )


def test_the_settings_of_a_rule_are_part_of_it():
    def rule(history):
        return []

    def other(history):
        return []

    assert description(Proposals(rule)) == description(Proposals(rule)) != description(Proposals(other))
    eager, lazy = (OptunaSampler(optuna.samplers.TPESampler(n_startup_trials=count)) for count in (1, 100))
    assert description(eager) == description(OptunaSampler(optuna.samplers.TPESampler(n_startup_trials=1)))
    assert description(eager) != description(lazy)


def test_a_history_has_no_clock_and_no_number_of_runs():
    assert not {"T", "total", "time", "left"} & set(dir(History.empty(features=1, unit=1)))
