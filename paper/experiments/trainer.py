"""What was measured of the landscape trainer: against Opacus in accuracy and in samples per second."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from paper.data import points
from paper.simulate import worlds


def measured() -> dict[str, Any]:
    """Accuracies at the checked points beside Opacus's, and throughputs, from the committed record of the GPU runs."""
    record = json.loads((worlds.FOLDER / "trainer.json").read_text())
    ours = worlds.trained(("mnist",), 2344).scores[0.71]
    rows = []
    trainings = record.pop("opacus trainings")
    for rate, clip in sorted({(t["learning_rate"], t["clip"]) for t in trainings}):
        theirs = np.array([t["correct"] / 1e4 for t in trainings if (t["learning_rate"], t["clip"]) == (rate, clip)])
        place = np.abs(np.log(points.MNIST.pairs / [rate, clip])).sum(axis=1).argmin()
        mine = ours[:, place]
        error = np.hypot(theirs.std(ddof=1) / len(theirs) ** 0.5, mine.std(ddof=1) / len(mine) ** 0.5)
        rows.append(
            {
                "learning rate": round(rate, 4),
                "clip": clip,
                "Opacus": round(float(theirs.mean()), 4),
                "Opacus trainings": len(theirs),
                "vectorised": round(float(mine.mean()), 4),
                "difference in standard errors": round(float((mine.mean() - theirs.mean()) / error), 2),
            }
        )
    record["ratio to Opacus"] = round(record["samples per second"] / record["samples per second, Opacus"])
    return {"checked points": rows, **record}
