"""The conformance suite on every rule, and the suite itself on rules that are wrong."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field

import numpy as np
import optuna
import pytest

from dphypo.samplers import GaussianProcess, History, OptunaSampler, Sampler, Uniform
from dphypo.samplers.gaussian_process import Hyperparameters
from dphypo.testing import check_sampler


def best_so_far(history: History) -> list:
    """Proposes where the best run was; independent of the order as long as scores differ."""
    done = np.flatnonzero(~history.failed)
    return [history.params[done[history.scores[done].argmax()]]] if len(done) else []


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        (Uniform(), {}),
        (GaussianProcess(), {"ordered": True}),
        (GaussianProcess.paper(), {"ordered": True}),
        (GaussianProcess(hyperparameters=Hyperparameters()), {}),
        # Each run is asked for and told, one by one: a long history takes Optuna as long as it would have taken there.
        (OptunaSampler(optuna.samplers.TPESampler(seed=0)), {"ordered": True, "longest": 200}),
        pytest.param(
            OptunaSampler(optuna.samplers.RandomSampler(seed=0), proposals=3), {"longest": 200}, marks=pytest.mark.slow
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Sampler) else "",
)
def test_every_rule_conforms(rule, options):
    check_sampler(rule, **options)


@dataclass
class Wrong:
    """A rule with a fault."""

    fault: str
    calls: list = field(default_factory=list)

    def weights(self, candidates, history):
        self.calls.append(len(history))
        weights = candidates.masses * (1 + candidates.features[:, 0])
        match self.fault:
            case "length":
                return weights[:-1]
            case "list":
                return list(weights)
            case "negative":
                return weights - 2 * weights.min()
            case "nan":
                return weights * (1 + np.abs(history.scores).sum())
            case "zero":
                return weights * 0
            case "overflow":
                return np.exp(np.abs(history.scores).max(initial=1.0)) * weights
            case "failures":
                return weights * 0 if len(history) and history.failed.all() else weights
            case "writes":
                history.scores[:] = 0.0
                return weights
            case "candidate order":
                return weights * np.arange(1, len(weights) + 1)
            case "history order":
                last = 0.0 if not len(history) or history.failed[-1] else history.scores[-1]
                return weights ** (1 + abs(np.tanh(last)))
            case "memory":
                return weights ** (1 + len(self.calls) % 7)
        raise AssertionError


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("length", "have shape"),
        ("list", "not an array"),
        ("negative", "are negative"),
        ("nan", "not finite"),
        ("zero", "every weight is zero"),
        ("overflow", "not finite"),
        ("failures", "failed run every weight is zero"),
        ("writes", "changed its arguments"),
        ("candidate order", "order of the candidates"),
        ("history order", "order of the runs"),
        ("memory", "order of the candidates|asked before"),
    ],
)
def test_the_suite_finds(fault, message):
    with np.errstate(over="ignore", invalid="ignore"), pytest.raises(AssertionError, match=message):
        check_sampler(Wrong(fault), longest=100)


def test_a_rule_with_a_notion_of_time_may_say_so():
    check_sampler(Wrong("history order"), longest=100, ordered=True)


def test_the_suite_wants_a_sampler():
    with pytest.raises(AssertionError, match="no method weights"):
        check_sampler(object())


def test_the_package_loads_no_rule_before_it_is_used():
    code = (
        "import sys, dphypo.samplers as s\n"
        "assert not {'scipy.optimize', 'sklearn', 'optuna'} & set(sys.modules), sys.modules.keys()\n"
        "s.OptunaSampler, s.Uniform\n"
        "assert not {'sklearn', 'optuna'} & set(sys.modules)\n"
        "assert 'GaussianProcess' in dir(s)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    import dphypo.samplers

    with pytest.raises(AttributeError, match="attribute Nothing"):
        dphypo.samplers.Nothing  # noqa: B018
