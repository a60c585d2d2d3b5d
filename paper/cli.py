"""The commands of ``python -m paper``. Imports are inside: most commands need no PyTorch."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)
DataFolder = Annotated[Path, typer.Option("--data", help="folder that holds mnist/, fashion/ and cifar10/")]


@app.command()
def data(folder: DataFolder = Path("data")) -> None:
    """Verify the data sets, and say how to get what is missing."""
    from paper.data import SOURCES, load

    for name in SOURCES:
        try:
            images = load(name, folder)
        except (FileNotFoundError, ValueError) as error:
            print(f"{name}: {error}")
        else:
            print(
                f"{name}: {len(images.train)} training and {len(images.test)} test images, checksums and counts right"
            )


@app.command()
def pack(source: Path, target: Path) -> None:
    """Pack CIFAR-10's binary batches losslessly to half their size."""
    from paper.pack import pack_folder

    pack_folder(source, target)


@app.command()
def train(
    jobs: list[str],
    out: Path = Path("paper/landscapes"),
    folder: DataFolder = Path("data"),
    device: str = "cpu",
    seconds: float = float("inf"),
    fused: bool = True,
) -> None:
    """Train the landscapes JOBS (see paper/train/jobs.py) into the folder OUT, stopping cleanly after SECONDS."""
    from paper.data import load
    from paper.train.jobs import JOBS
    from paper.train.landscape import train_landscape

    deadline = time.time() + seconds
    for job in jobs:
        images = load(JOBS[job].data, folder)
        train_landscape(JOBS[job], images, out / f"{job}.npz", device, deadline, fused)


@app.command()
def federated(
    out: Path = Path("paper/landscapes"),
    folder: DataFolder = Path("data"),
    device: str = "cpu",
    seconds: float = float("inf"),
) -> None:
    """Train the landscape of the federated task into the folder OUT, stopping cleanly after SECONDS."""
    from paper.data import load
    from paper.train.landscape import train_federated

    train_federated(load("fashion", folder), out / "federated.npz", device, time.time() + seconds)


@app.command()
def check(
    folder: DataFolder = Path("data"), device: str = "cpu", opacus: bool = True, profile: Path | None = None
) -> None:
    """Agreement of the trainer with float64, its samples per second, and Opacus's on the same device."""
    from paper.data import load
    from paper.train import checks
    from paper.train.run import Data

    images = load("mnist", folder)
    result = checks.report(images, device, profile)
    print(json.dumps(result), flush=True)
    if opacus:
        print(json.dumps({"opacus": checks.opacus_throughput(Data.of(images, device))}), flush=True)


@app.command()
def opacus(number: int, out: Path, folder: DataFolder = Path("data"), device: str = "cpu") -> None:
    """Train one of the checked points with Opacus (point NUMBER % 5, seed NUMBER), appending its accuracy to OUT."""
    from paper.data import load
    from paper.train.checks import opacus_accuracy

    opacus_accuracy(load("mnist", folder), out, number, device)
