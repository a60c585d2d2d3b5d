"""Runs that have children, die, or hang. At the top of a module, where other processes find them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from support.study_world import EVENT, RELATION, score

import dphypo


def _one(pipe: Any) -> None:
    pipe.send(1.0)


def _sleep() -> None:
    time.sleep(300)


@dphypo.mechanism(event=EVENT, relation=RELATION)
def with_child(params, *, seed):
    """A run that uses a process of its own, as a DataLoader with workers does."""
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_one, args=(theirs,))
    child.start()
    value = ours.recv()
    child.join()
    return {"value": value}, score(params, seed)


@dphypo.mechanism(event=EVENT, relation=RELATION)
def with_loader(params, *, seed):
    """A run that loads its batches in a process of its own."""
    import torch

    records = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(records, batch_size=4, num_workers=1)
    return {"sum": float(sum(batch.sum() for (batch,) in loader))}, score(params, seed)


@dphypo.mechanism(event=EVENT, relation=RELATION)
def killed_with_child(params, *, seed):
    """A run that is killed while a child of its own, which holds every descriptor that it had, lives on."""
    if params["depth"] == 2:
        child = os.fork()
        if child == 0:
            _sleep()
        os.kill(os.getpid(), signal.SIGKILL)
    return params["lr"], score(params, seed)


@dphypo.mechanism(event=EVENT, relation=RELATION)
def leaves_children(params, *, seed):
    """Leaves children of three kinds behind, their numbers in a file, and goes on for long."""
    started = [multiprocessing.get_context("fork").Process(target=_sleep)]
    started[0].start()
    commands = [[sys.executable, "-c", "import time; time.sleep(300)"], ["sleep", "300"]]
    children = [started[0].pid, *(subprocess.Popen(command).pid for command in commands)]
    folder = Path(os.environ["DPHYPO_TEST_FOLDER"])
    (folder / f"{os.getpid()}.tmp").write_text(" ".join(map(str, [os.getpid(), *children])))
    (folder / f"{os.getpid()}.tmp").rename(folder / f"{os.getpid()}.pids")
    time.sleep(300)


class DiesUnpickled:
    """A mechanism that kills the first processes it arrives in, before they can say that they are there."""

    def __init__(self, folder: str, deaths: int) -> None:
        self.folder, self.deaths = folder, deaths
        self.__name__ = self.__qualname__ = "dies"

    def __call__(self, params: Any, *, seed: int) -> Any:
        return params["lr"], score(params, seed)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        Path(self.folder, str(os.getpid())).touch()
        if len(list(Path(self.folder).iterdir())) <= self.deaths:
            os.kill(os.getpid(), signal.SIGKILL)


@dphypo.mechanism(event=EVENT, relation=RELATION)
def sees_gpus(params, *, seed):
    return {}, float(len(os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")))


@dphypo.mechanism(event=EVENT, relation=RELATION)
def sleeps(params, *, seed):
    """Sleeps for so many seconds, and says first in a file who does."""
    if "file" in params:
        Path(params["file"]).write_text(str(os.getpid()))
    time.sleep(params["seconds"])
    return os.getpid(), 1.0


@dphypo.mechanism(event=EVENT, relation=RELATION, seeded=True)
def paced(params, *, seed):
    """Takes as long as the process that runs the study was told, and leaves a file if it was told where."""
    if folder := os.environ.get("DPHYPO_TEST_FOLDER"):
        Path(folder, str(seed)).touch()
    time.sleep(float(os.environ.get("DPHYPO_TEST_SECONDS", "0")))
    return params["lr"], score(params, seed)


@dphypo.mechanism(event=EVENT, relation=RELATION)
def waits_for_file(params, *, seed):
    """Ends as soon as there is a file, or at once; killed then if so told. Says first in another file who it is."""
    if "pid" in params:
        Path(params["pid"]).write_text(str(os.getpid()))
    while "file" in params and not Path(params["file"]).exists():
        time.sleep(0.05)
    if params.get("dies"):
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid(), 1.0


@dphypo.mechanism(event=EVENT, relation=RELATION, seeded=True)
def misbehaves(params, *, seed):
    """Does to its process what it is told, and leaves a file each time it is begun."""
    if "folder" in params:
        Path(params["folder"], f"{params['do']} {os.getpid()} {time.monotonic_ns()}").touch()
    if params["do"] == "interrupt":
        raise KeyboardInterrupt
    if params["do"] == "interrupt again":
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt("another one") from error
    if params["do"] == "exit":
        sys.exit(3)
    if params["do"] == "end":
        os._exit(0)
    if params["do"].startswith("fork"):
        child = os.fork()
        if child == 0:
            if params["do"] == "fork and raise":
                raise RuntimeError("in the child")
            return "child", 5.0
        os.waitpid(child, 0)
    if params["do"] == "preempt":
        os.kill(os.getpid(), signal.SIGUSR2)
    return "parent", 1.0
