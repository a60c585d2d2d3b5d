"""Searches whose runs use several processes: the same release on any number of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
import torch
from scipy.stats import loguniform, uniform
from support.torch_world import INPUTS, LABELS, dpsgd
from torch import nn

import dphypo
from dphypo.entropy import Seeded
from dphypo.errors import UnsupportedModelError
from dphypo.search import LastRun, Stages, Survey
from dphypo.torch import DPSGD
from dphypo.torch import runs as torch_runs
from dphypo.torch.engine import distributed
from dphypo.torch.engine import run as engine

SPACE = dphypo.Space({"learning_rate": loguniform(0.1, 1)})
EXAMPLE = Path(__file__).parents[2] / "examples" / "several_processes.py"


@pytest.fixture(autouse=True)
def _fork(monkeypatch):
    monkeypatch.setattr(distributed, "START_METHOD", "fork")


class Rows(torch.utils.data.Dataset):
    """A data set that is read by index."""

    def __len__(self):
        return len(LABELS)

    def __getitem__(self, index):
        return torch.from_numpy(INPUTS[index]), int(LABELS[index])


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([value.detach().flatten() for value in model.state_dict().values()])


def noisy(inputs: torch.Tensor, uniforms: Any) -> torch.Tensor:
    return inputs + uniforms(1) - 0.5


KINDS: dict[str, dict[str, Any]] = {
    "augmented": {"augment": noisy, "views": 3},
    "persons": {"person": np.arange(60) // 2, "batch_size": 15},
    "read by index": {"data": Rows(), "example": (torch.zeros(5), 0)},
    "schedule": {"schedule": lambda done: 1 - done, "optimizer": "adamw", "average": 0.9},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_of_every_kind_has_the_same_bits_on_two_processes(kind):
    one, two = (dpsgd(devices=count, **KINDS[kind])({"learning_rate": 0.3}, seed=5) for count in (1, 2))
    assert torch.equal(flat(one.model), flat(two.model))


class Noted(torch.utils.data.Dataset):
    """A data set that writes down which process reads which record."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def __len__(self) -> int:
        return len(LABELS)

    def __getitem__(self, index: int) -> Any:
        with (self.log / str(os.getpid())).open("a") as file:
            file.write(f"{index}\n")
        return torch.from_numpy(INPUTS[index]), int(LABELS[index])


def in_shards(log: Path, **changes: Any) -> DPSGD:
    log.mkdir()
    return dpsgd(data=Noted(log), example=(torch.zeros(5), 0), shards=4, **changes)


def test_records_that_every_process_holds_have_no_shards():
    """Before, shards of arrays were ignored without a word."""
    with pytest.raises(ValueError, match="shards = 4 is not valid: every process holds all of these records"):
        dpsgd(shards=4)


def read(log: Path) -> list[set[int]]:
    """The records that each process has read."""
    return [set(map(int, one.read_text().split())) for one in log.iterdir()]


@pytest.mark.parametrize("persons", [False, True])
def test_a_process_reads_no_record_of_anothers_shards(tmp_path, persons):
    """Four shards of 15 records. Of persons with two rows each, one has rows in two ranges of the table."""
    keys = {"person": np.arange(60) % 30, "batch_size": 15} if persons else {}
    makes = {
        count: in_shards(tmp_path / str(count), devices=count, **keys)({"learning_rate": 0.3}, seed=5)
        for count in (1, 2, 4)
    }
    assert torch.equal(flat(makes[1].model), flat(makes[2].model))
    assert torch.equal(flat(makes[1].model), flat(makes[4].model))
    for count in (2, 4):
        found = read(tmp_path / str(count))
        assert len(found) == count
        shards = [{one % 30 * 4 // 30 if persons else one * 4 // 60 for one in records} for records in found]
        assert sum(map(len, shards)) == len(set.union(*shards)) == 4, "each shard is read by one process"


def test_scores_and_keys_for_which_all_records_would_be_read_are_refused(tmp_path):
    with pytest.raises(ValueError, match="every process would read all"):
        in_shards(tmp_path / "score", score="accuracy")
    with pytest.raises(ValueError, match="give an array of keys"):
        in_shards(tmp_path / "keys", person=lambda record: int(record[1]))
    assert not read(tmp_path / "score")


def search(mechanism: DPSGD, journal: Any = None) -> Stages:
    return Stages(SPACE, [Survey(mechanism, 4), LastRun(mechanism)], delta=1e-3, journal=journal, entropy=Seeded(1))


def norm(model: Any) -> float:
    return float(flat(model).square().sum())


@pytest.fixture(scope="module")
def alone() -> Any:
    return search(dpsgd(score=norm, epochs=6)).run(progress=False, devices=["cpu"])


@pytest.mark.parametrize("count", [2, 4])
def test_a_search_on_several_processes_has_the_release_of_one(alone, count):
    found = search(dpsgd(score=norm, epochs=6)).run(progress=False, devices=["cpu"] * count, start_method="fork")
    assert found.certificate.to_dict() == alone.certificate.to_dict()
    assert torch.equal(flat(found.model), flat(alone.model))
    assert found.survey.rows == alone.survey.rows


def test_a_killed_process_ends_the_attempt_and_the_search_resumes_on_another_number(alone, tmp_path, monkeypatch):
    serve = torch_runs._serve

    def dies(team, mechanism):
        step, made = engine.Group.step, []

        def killed(group, number=None):
            made.append(number)
            if len(made) == 7:
                os.kill(os.getpid(), signal.SIGKILL)
            step(group, number)

        engine.Group.step = killed  # in the other process alone
        serve(team, mechanism)

    monkeypatch.setattr(torch_runs, "_serve", dies)
    mechanism, journal = dpsgd(score=norm, epochs=6), tmp_path / "search.db"
    given: dict[str, Any] = {"progress": False, "start_method": "fork", "checkpoint_every": 2}
    with pytest.raises(KeyboardInterrupt, match=r"A process of this run was lost(.|\n)*To resume"):
        search(mechanism, journal).run(devices=["cpu"] * 2, **given)
    monkeypatch.setattr(torch_runs, "_serve", serve)
    begun = []
    load = engine.Group._load
    monkeypatch.setattr(engine.Group, "_load", lambda group, kept: begun.append(load(group, kept)) or begun[-1])
    found = search(mechanism, journal).run(devices=["cpu"] * 3, **given)
    assert begun == [6], "the last run went on from its checkpoint"
    assert torch.equal(flat(found.model), flat(alone.model))
    assert found.certificate.to_dict() == alone.certificate.to_dict()


def test_processes_with_the_same_records_in_another_order_are_refused(monkeypatch):
    send = torch_runs._to_send

    def shuffled(mechanism, device):
        made = send(mechanism, device)
        data = torch_runs.replace(made.data, inputs=made.data.inputs.flip(0), targets=made.data.targets.flip(0))
        vars(made)["data"] = data
        return made

    monkeypatch.setattr(torch_runs, "_to_send", shuffled)
    with pytest.raises(UnsupportedModelError, match="same records in the same order"):
        dpsgd(devices=2)({"learning_rate": 0.3}, seed=5)


@pytest.mark.parametrize("devices", [0, "cuda", [], [0], ["cuda:77"]])
def test_wrong_devices_are_refused(devices):
    with pytest.raises(ValueError, match="device"):
        dpsgd(device=None, devices=devices)


def test_a_device_besides_devices_is_refused():
    with pytest.raises(ValueError, match="devices= says where runs are executed"):
        dpsgd(device="cpu:1", devices=["cpu:0", "cpu:1"])


def launch(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")


def test_devices_are_left_to_a_launcher(monkeypatch):
    launch(monkeypatch)
    mechanism = dpsgd()
    assert mechanism.devices == ("cpu",), "pieces are shared, also by one process"
    assert mechanism.at(fraction=0.5).at(threads=2).devices == ("cpu",)
    with pytest.raises(ValueError, match="a launcher has started"):
        dpsgd(devices=2)


class Launched(dphypo.mechanisms.Declared):
    processes = 2


def training(params: Any, *, seed: int) -> Any:
    raise AssertionError


def test_a_launched_search_needs_a_journal():
    mechanism = Launched(training, dp.GaussianDpEvent(5.0), dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    with pytest.raises(ValueError, match="a launcher may start the program again"):
        Stages(SPACE, [LastRun(mechanism)], delta=1e-3, journal=None)


WRAPPED = """
import os, runpy, signal, sys
from pathlib import Path

kill = Path(sys.argv[1])
if os.environ["RANK"] == "1" and kill.exists():
    from dphypo.torch.engine.run import Group

    step = Group.step

    def killed(group, number=None):
        if number == 7:
            kill.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        step(group, number)

    Group.step = killed
sys.argv = sys.argv[2:]
release = runpy.run_path(sys.argv[0], run_name="__main__")["release"]
print(release.certificate.to_dict())
print([value.tolist() for value in release.model.state_dict().values()])
"""


def launched(folder: Path, *options: str, kill: bool = False) -> str:
    """What the example prints when torchrun starts it, with its weights; a process may be killed once."""
    script, journal, mark = (folder / name for name in ("script.py", f"{len(options)}.db", "kill"))
    script.write_text(WRAPPED)
    if kill:
        mark.touch()
    command = [sys.executable, "-m", "torch.distributed.run", *options, str(script), str(mark), str(EXAMPLE)]
    done = subprocess.run(
        [*command, "--seed", "1", "--journal", str(journal)], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert not mark.exists()
    return done.stdout


@pytest.mark.slow
def test_torchrun_makes_the_release_of_one_process_also_if_a_process_dies(tmp_path):
    """Without a checkpoint the run begins anew, with its seed: the journal is the same."""
    one = launched(tmp_path, "--nproc-per-node=1")
    assert launched(tmp_path, "--nproc-per-node=2", "--max-restarts=1", kill=True) == one


SHARDED = """
import os, sys
from pathlib import Path

import torch
from scipy.stats import loguniform

import dphypo
from dphypo.entropy import Seeded
from dphypo.search import LastRun, Stages, Survey
from dphypo.torch import DPSGD

log, rank = Path(sys.argv[1]), os.environ["RANK"]


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        with (log / rank).open("a") as file:
            file.write(f"{index}\\n")
        generator = torch.Generator().manual_seed(index)
        return torch.randn(5, generator=generator), index % 2


def norm(model):
    return float(sum(value.square().sum() for value in model.state_dict().values()))


train = DPSGD(
    model=lambda: torch.nn.Linear(5, 2), data=Rows(), example=(torch.zeros(5), 0), score=norm, epochs=2,
    batch_size=100, noise_multiplier=1.0, shards=4,
)
space = dphypo.Space({"learning_rate": loguniform(0.1, 1)})
search = Stages(space, [Survey(train, 2), LastRun(train)], delta=1e-3, journal=log.parent / "j.db", entropy=Seeded(1))
release = search.run()
print(release.certificate.to_dict(), [value.tolist() for value in release.model.state_dict().values()])
"""


@pytest.mark.slow
def test_torchrun_with_shards_makes_the_release_of_one_process_and_no_process_reads_anothers_records(tmp_path):
    """The fingerprint of all records, too, is the sum of what each process says of its own."""
    printed = {}
    for count in (1, 2):
        folder = tmp_path / str(count)
        (folder / "log").mkdir(parents=True)
        (folder / "script.py").write_text(SHARDED)
        given = [f"--nproc-per-node={count}", str(folder / "script.py"), str(folder / "log")]
        command = [sys.executable, "-m", "torch.distributed.run", *given]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        printed[count] = done.stdout
    assert printed[1] == printed[2]
    both = [set(map(int, (tmp_path / "2" / "log" / rank).read_text().split())) for rank in "01"]
    assert both == [{*range(100), *range(200, 300)}, {*range(100, 200), *range(300, 400)}]


def test_a_run_that_cannot_be_made_fails_in_secret_on_every_process(capfd):
    """A serving process would otherwise print a traceback with λ, or end the search because of a losing run."""
    space = dphypo.Space({"weight_decay": uniform(-0.4, 1.0)})
    mechanism = dpsgd(score=_size, optimizer="nadam", learning_rate=0.1, devices=2)
    runs = dphypo.laws.Pmf({6: 1.0})
    release = dphypo.Study(space, mechanism, runs, delta=1e-3, journal=None, entropy=Seeded(3)).run(progress=False)
    assert release.params["weight_decay"] >= 0
    assert "weight_decay" not in capfd.readouterr().err


def _size(model: nn.Module) -> float:
    return float(flat(model).square().sum())
