"""A run repeats itself, under threads too; a rehearsal reads no record; an architecture is part of a declaration."""

from __future__ import annotations

import contextlib
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from support.torch_world import EXAMPLE, dpsgd, net, weights
from torch import nn
from torch.utils.data import Dataset

import dphypo
from dphypo.errors import UnsupportedModelError
from dphypo.torch import PrivateAccuracy
from dphypo.torch.engine import device


def restless() -> nn.Module:
    """Initial weights from every global generator there is."""
    model = net()
    with torch.no_grad():
        for value in model.parameters():
            value += float(np.random.normal()) + random.random() + torch.rand(())  # noqa: NPY002
    return model


def test_all_randomness_comes_from_the_seed() -> None:
    mechanism = dpsgd(model=restless)
    assert mechanism.seeded
    first = weights(mechanism)
    torch.manual_seed(5), np.random.seed(5), random.seed(5)  # noqa: NPY002
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[index, union-attr] # noqa: NPY002
    assert torch.equal(weights(mechanism), first)
    assert not torch.equal(weights(mechanism, seed=2), first)
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[index, union-attr] # noqa: NPY002
    assert before[:2] == after[:2]
    assert torch.equal(before[2], after[2])


def test_runs_in_threads_are_those_that_are_made_alone() -> None:
    mechanism = dpsgd(model=restless, epochs=4)
    alone = [weights(mechanism, seed) for seed in range(6)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda seed: weights(mechanism, seed), range(6)))
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))


def test_without_the_lock_threads_would_disturb_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant lets two threads in at a time; each draws after both have seeded."""
    both = threading.Barrier(2, timeout=30)

    def draws(meet: bool) -> list[float]:
        with device.seeded(7, torch.device("cpu")):
            if meet:
                both.wait()
            found = torch.rand(4).tolist()
            if meet:
                both.wait()
            return found

    alone = draws(False)
    monkeypatch.setattr(device, "process_lock", contextlib.nullcontext)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(draws, (True, True)))
    assert found != [alone, alone]


def test_a_rehearsal_touches_no_private_record_and_shows_what_is_wrong() -> None:
    class Untouchable(Dataset[Any]):
        def __len__(self) -> int:
            return 60

        def __getitem__(self, index: int) -> Any:
            raise AssertionError("a private record was read")

    private = PrivateAccuracy(Untouchable(), noise_multiplier=2.0, example=EXAMPLE)
    outcome = dpsgd(data=Untouchable(), score=private, example=EXAMPLE).rehearse(
        {"batch_size": 30, "learning_rate": 1e30}, seed=0
    )
    assert outcome.ok
    with pytest.raises(ZeroDivisionError):
        dpsgd(score=lambda model: 1 / 0).rehearse({}, seed=0)
    wider = dpsgd(
        model=lambda width=4: nn.Sequential(nn.Linear(5, width), nn.BatchNorm1d(width)) if width > 4 else net()
    )
    with pytest.raises(UnsupportedModelError, match="GroupNorm"):
        wider.rehearse({"width": 8}, seed=0)


def test_a_mechanism_of_another_architecture_does_not_go_on_with_a_journal(tmp_path: Any) -> None:
    space = dphypo.Space({"learning_rate": [0.1]})
    once = dphypo.Pmf({1: 1.0})
    dphypo.Study(space, dpsgd(), once, delta=1e-5, journal=tmp_path / "study.db").run(progress=False)
    assert dpsgd().architecture(space) == dpsgd(noise_multiplier=3.0).architecture(space)
    other = dpsgd(model=lambda: nn.Linear(5, 2))
    assert other.architecture(space) != dpsgd().architecture(space)
    with pytest.raises(dphypo.errors.ChangedStudy):
        dphypo.Study(space, other, once, delta=1e-5, journal=tmp_path / "study.db").run(progress=False)


def test_a_study_is_not_resumed_with_other_settings_of_training(tmp_path: Any) -> None:
    """Runs of both would be ranked together, and what is certified is the best of runs of one training."""
    space, three, path = dphypo.Space({"learning_rate": [0.1, 1.0]}), dphypo.Pmf({3: 1.0}), tmp_path / "study.db"

    def study(**changes: Any) -> dphypo.Study:
        return dphypo.Study(space, dpsgd(**changes), three, delta=1e-5, journal=path)

    with study() as begun:
        trial = begun.ask()
        assert trial is not None
        begun.tell(trial, trial.mechanism(trial.params, seed=trial.seed))
    others: list[dict[str, Any]] = [
        {"clipping": "normalise"},
        {"max_grad_norm": 3.0},
        {"optimizer": "adam"},
        {"fixed": {"momentum": 0.5}},
        {"score": lambda model: 100.0},
        {"loss": nn.CrossEntropyLoss(label_smoothing=0.1)},
    ]
    for other in others:
        with pytest.raises(dphypo.errors.ChangedStudy, match="not the training that the journal"):
            study(**other).run(progress=False)
    assert study(physical_batch_size=40, threads=2).run(progress=False).params, "where and in what pieces is free"
