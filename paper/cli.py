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


@app.command()
def fit() -> None:
    """Fit the landscapes of CIFAR-10 and the federated task with BoTorch (pip install botorch)."""
    from paper.fit import fit_all

    fit_all()


@app.command()
def result(name: str, as_json: Annotated[bool, typer.Option("--json", help="print it as JSON")] = False) -> None:
    """Compute the result NAME (see paper/results.py) and write it to paper/results."""
    from paper.parallel import quiet
    from paper.report import shown
    from paper.results import make

    quiet()
    found = make(name)
    print(json.dumps(found) if as_json else shown(name))


@app.command()
def table1(as_json: Annotated[bool, typer.Option("--json", help="print it as JSON")] = False) -> None:
    """Table 1 of the paper: accuracy on MNIST by γ."""
    result("table1", as_json)


@app.command()
def table2(as_json: Annotated[bool, typer.Option("--json", help="print it as JSON")] = False) -> None:
    """Table 2 of the paper: loss of the federated task by γ."""
    result("table2", as_json)


@app.command(name="all")
def everything() -> None:
    """Every table and figure from the committed landscapes, and RESULTS.md."""
    from paper.parallel import quiet
    from paper.report import write
    from paper.results import MAKERS, make

    quiet()
    for name in MAKERS:
        started = time.perf_counter()
        make(name)
        print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
    write()


@app.command()
def report() -> None:
    """RESULTS.md and the figures, from the results as they are."""
    from paper.report import write

    write()
