"""Record and replay: an honest search shows nothing outside of its runs, and each kind of peeking is found."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
from scipy.stats import loguniform
from support.replay import replay
from support.slow import mostly_slow

import dphypo
from dphypo.band import Band
from dphypo.entropy import Entropy
from dphypo.samplers import Uniform
from dphypo.search import LastRun, Survey

SPACE = dphypo.Space({"lr": loguniform(1e-3, 1)})
RELATION = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
HERE, THERE = np.arange(20.0), np.arange(19.0)


def train(records: np.ndarray, noise: float = 4.0) -> Any:
    @dphypo.mechanism(event=dp.GaussianDpEvent(noise), relation=RELATION)
    def run(params, *, seed):
        if params["lr"] < 2e-3:
            raise ValueError("diverged")
        return {"sum": float(records.sum())}, float(np.random.default_rng(seed).normal() - params["lr"])

    return run


def study(records: np.ndarray, wrap: Any, entropy: Entropy, folder: Path, **options: Any) -> dphypo.Study:
    given = {"space": SPACE, "mechanism": train(records), "runs": dphypo.Geometric(mean=6), "band": Band(0.75, 2)}
    given |= options
    mechanism = wrap(given.pop("mechanism"))
    return dphypo.Study(mechanism=mechanism, **given, delta=1e-5, journal=folder / "study.db", entropy=entropy)


def stages(records: np.ndarray, wrap: Any, entropy: Entropy, folder: Path) -> dphypo.Stages:
    parts = [
        dphypo.Survey(wrap(train(records, 20.0)), 4, prior=dphypo.PriorAround()),
        dphypo.Stage(wrap(train(records)), dphypo.Geometric(mean=3)),
    ]
    return dphypo.Stages(SPACE, parts, delta=1e-5, journal=folder / "stages.db", entropy=entropy)


def survey(records: np.ndarray, wrap: Any, entropy: Entropy, folder: Path) -> dphypo.Stages:
    parts = [Survey(wrap(train(records, 20.0)), 6), LastRun(wrap(train(records)))]
    return dphypo.Stages(SPACE, parts, delta=1e-5, journal=folder / "survey.db", entropy=entropy)


@pytest.mark.parametrize("make", mostly_slow([stages, study, survey]))
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_an_honest_search_shows_nothing(make: Callable[..., Any], seed: int) -> None:
    assert replay(make, HERE, THERE, seed=seed) == []


class Peeking(Uniform):
    """A rule that was given the data."""

    def __init__(self, records: np.ndarray) -> None:
        object.__setattr__(self, "count", len(records))

    def weights(self, candidates, history):
        return np.asarray(candidates.masses) * (1 + np.arange(len(candidates.masses)) % self.count)


def naming(records: np.ndarray, wrap: Any, entropy: Entropy, folder: Path) -> dphypo.Study:
    (folder / f"with {len(records)} records").touch()
    return study(records, wrap, entropy, folder)


def logging_it(records: np.ndarray, wrap: Any, entropy: Entropy, folder: Path) -> dphypo.Study:
    logging.getLogger("dphypo").info("%d records", len(records))
    return study(records, wrap, entropy, folder)


def printing(records: np.ndarray, wrap: Any, entropy: Entropy, folder: Path) -> dphypo.Study:
    print(len(records))
    return study(records, wrap, entropy, folder)


def warning(records: np.ndarray, wrap: Any, entropy: Entropy, folder: Path) -> dphypo.Study:
    warnings.warn(f"{len(records)} records", stacklevel=1)
    return study(records, wrap, entropy, folder)


def ending(records: np.ndarray, wrap: Any, entropy: Entropy, folder: Path) -> dphypo.Study:
    if len(records) == len(THERE):
        raise ValueError("too few records")
    return study(records, wrap, entropy, folder)


def given(**options: Callable[[np.ndarray], Any]) -> Callable[..., dphypo.Study]:
    def make(records: np.ndarray, wrap: Any, entropy: Entropy, folder: Path) -> dphypo.Study:
        made = {name: option(records) for name, option in options.items()}
        return study(records, wrap, entropy, folder, **{"sampler": Uniform(), "policy": "anything", **made})

    return make


@pytest.mark.parametrize(
    ("make", "found"),
    mostly_slow(
        [
            (given(sampler=Peeking), "λ of run"),
            (given(space=lambda records: dphypo.Space({"lr": loguniform(1e-3, len(records))})), "λ of run 1 differs"),
            (given(runs=lambda records: dphypo.Geometric(mean=len(records) / 4)), "the release or its certificate"),
            (given(mechanism=lambda records: train(records, len(records) / 4)), "the release or its certificate"),
            (naming, "the files"),
            (logging_it, "what was logged"),
            (printing, "what was printed"),
            (warning, "what was warned of"),
            (ending, "how the search ended"),
        ],
        4,
    ),
)
def test_peeking_is_found(make: Callable[..., Any], found: str) -> None:
    assert any(one.startswith(found) for one in replay(make, HERE, THERE))
