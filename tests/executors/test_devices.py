"""Several devices of one machine: every worker and every group has its own. CPU devices by number stand for GPUs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import dp_accounting as dp
import numpy as np
import pytest
import torch
from scipy.stats import loguniform
from support.torch_world import dpsgd

import dphypo
from dphypo.entropy import Seeded
from dphypo.executors.executor import Execution, Groups
from dphypo.journal.journal import Trial
from dphypo.mechanisms import Mechanism, Outcome
from dphypo.search import LastRun, Stages, Survey
from dphypo.search.runner import chosen_devices, on_each_device
from dphypo.torch import DPSGD
from dphypo.torch.engine import distributed

SPACE = dphypo.Space({"learning_rate": loguniform(0.1, 1)})
TWO = ["cpu:0", "cpu:1"]
START = "spawn" if torch.cuda.is_available() else "fork"  # a process that has used CUDA cannot fork one that uses it


class Placed(dphypo.mechanisms.Declared):
    """Writes down where its runs are made."""

    device = "cpu"
    log = ""

    def at(self, device):
        made = Placed(_nothing, self.event, self.relation, seeded=True)
        object.__setattr__(made, "device", device)
        object.__setattr__(made, "log", self.log)
        return made

    def all_devices(self):
        return TWO

    def __call__(self, params, *, seed):
        with Path(self.log).open("a") as file:
            file.write(f"{self.device}\n")
        return {"lr": params["learning_rate"]}, 0.5

    def __reduce__(self):
        return _placed, (self.device, self.log)


def _nothing(params, *, seed):
    raise AssertionError


def _placed(device, log):
    made = Placed(_nothing, dp.GaussianDpEvent(5.0), dp.NeighboringRelation.ADD_OR_REMOVE_ONE, seeded=True)
    object.__setattr__(made, "device", device)
    object.__setattr__(made, "log", log)
    return made


def search(mechanism, *, journal=None):
    parts = [Survey(mechanism, 6), LastRun(mechanism)]
    return Stages(SPACE, parts, delta=1e-3, journal=journal, entropy=Seeded(1))


@pytest.mark.parametrize("devices", ["all", TWO, 2])
def test_every_worker_has_a_device_of_its_own(tmp_path, devices):
    mechanism = _placed("cpu", str(tmp_path / "log"))
    search(mechanism).run(progress=False, devices=devices, start_method="fork")
    *surveyed, last = (tmp_path / "log").read_text().split()
    assert len(surveyed) == 6
    assert set(surveyed) == set(TWO)
    assert last == "cpu:0", "a last run takes one"


@pytest.mark.slow
def test_groups_are_shared_out_and_the_last_run_uses_all_devices_with_the_same_bits(monkeypatch):
    monkeypatch.setattr(distributed, "START_METHOD", START)
    mechanism, teams = dpsgd(score=_norm), []
    started = distributed.started
    monkeypatch.setattr(distributed, "started", lambda *given: teams.append(len(given[1])) or started(*given))
    here = search(mechanism).run(progress=False, devices=TWO[:1])
    assert not teams
    there = search(mechanism).run(progress=False, devices=TWO, start_method=START)
    assert teams == [1], "one process besides this one, for the last run"
    assert there.survey.rows == here.survey.rows
    assert there.certificate.to_dict() == here.certificate.to_dict()
    states = [one.model.state_dict().values() for one in (here, there)]
    assert all(torch.equal(*pair) for pair in zip(*states, strict=True))


def _norm(model):
    return float(sum(value.square().sum() for value in model.state_dict().values()))


def test_a_share_of_a_group_whose_process_dies_is_lost_alone():
    with contextlib.closing(Groups([_Dying(0), _Dying(1)], lambda number: 4, start_method="fork")) as made:
        for seed in range(4):
            made.start(Trial({}, seed, seed, b""))
        outcomes = [made.wait()[1] for _ in range(4)]
    assert [outcome is None for outcome in outcomes] == [False, False, True, True]


class _Dying(Mechanism):
    """The second process dies in its first share."""

    event = relation = None
    same_alone = True

    def __init__(self, number):
        self.number = number

    def __call__(self, params, *, seed):
        raise AssertionError

    def many(self, params, *, seeds):
        if 2 in seeds:
            os._exit(3)
        return [Outcome({"seed": seed}, 0.5) for seed in seeds]


def test_dp_sgd_knows_the_devices_of_the_machine():
    mechanism = dpsgd()
    expected = [f"cuda:{number}" for number in range(torch.cuda.device_count())] or ["cpu"]
    assert mechanism.all_devices() == expected
    assert chosen_devices(mechanism, "all") == expected
    assert chosen_devices(mechanism, 2) == (expected[:2] if expected[0] != "cpu" else ["cpu", "cpu"])
    each = on_each_device(Execution(devices=TWO), mechanism, one=False)
    assert [str(one.device) for one in each] == TWO


def test_tune_moves_training_where_the_scale_of_the_inputs_is_measured_first():
    rng = np.random.default_rng(0)
    data = rng.normal(size=(300, 4)).astype(np.float32), rng.integers(0, 2, 300)
    mechanism = DPSGD(model=lambda: torch.nn.Linear(4, 2), data=data, score="accuracy", epochs=1)
    common = {"epsilon": 8, "delta": 1e-4, "journal": None, "progress": False}
    release = dphypo.tune(mechanism, **common, search="never", devices=["cpu"])
    assert "scale of the inputs" in release.certificate.statement()
    assert release.model is not None


@pytest.mark.parametrize("devices", ["cuda", [], [0], 0, 1.5])
def test_wrong_devices_are_refused(devices):
    with pytest.raises(ValueError, match="devices = "):
        search(dpsgd()).run(progress=False, devices=devices)


def test_a_mechanism_that_cannot_be_moved_and_another_executor_are_refused():
    @dphypo.mechanism(event=dp.GaussianDpEvent(5.0), relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    def train(params, *, seed):
        return {}, 0.5

    with pytest.raises(ValueError, match="choose the device in your training"):
        search(train).run(progress=False, devices="all")
    with pytest.raises(ValueError, match="omit one of the two"):
        search(dpsgd()).run(progress=False, devices=TWO, executor="processes")
