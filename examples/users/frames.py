"""A scikit-learn and pandas user: a table with categories and missing values, one total for the data set.

python examples/users/frames.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import loguniform

import dphypo
from dphypo.sklearn import DPSGDClassifier, PrivateSearch, Schema


def people(count: int) -> tuple[pd.DataFrame, pd.Series]:
    """Made-up records: age with gaps, kind of work, and who is retired."""
    rng = np.random.default_rng(0)
    age = rng.integers(18, 90, count)
    work = rng.choice(np.array(["office", "outside", None], dtype=object), count)
    frame = pd.DataFrame({"age": np.where(rng.random(count) < 0.05, np.nan, age), "work": work})
    return frame, pd.Series((age > 65).astype(int), name="retired")


def main(folder: Path) -> None:
    table, retired = people(600)
    # What must not be learnt from private records is given: names, ranges, categories.
    schema = Schema({"age": (18, 90), "work": ["office", "outside"]})
    ledger = dphypo.Ledger.open(folder / "ledger.db", epsilon=8, delta=1e-5)  # for all that is ever released of them
    search = PrivateSearch(
        schema.pipeline(DPSGDClassifier(hidden=(), classes=(0, 1), epochs=3)),
        {"estimator__learning_rate": loguniform(0.1, 10)},
        epsilon=4,
        delta=1e-6,
        survey=3,
        ledger=ledger,
    )
    search.fit(table, retired)
    print(f"columns {list(search.feature_names_in_)}, accuracy {search.score(table, retired):.2f}")
    print(f"chosen: {search.best_params_}")
    print(pd.DataFrame(search.cv_results_).filter(like="score"))
    print(search.certificate_.statement())
    print(ledger)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else sys.exit(__doc__))
