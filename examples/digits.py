"""The demo: tune a DP-SGD model on scikit-learn's handwritten digits, ε = 8 and δ = 1e-5 for all of it together.

    python examples/digits.py [--folder demo]

Three parts of the data, by a hash of each digit: about a fifth is held out to report the accuracy at the end (whoever
runs this looks at it; no guarantee covers that number). The rest is private. Of that, four fifths train the models and
one fifth scores them, by accuracy with Gaussian noise on the count: no public records are needed, and since no record
is on both sides, scores are free up to what training costs.

First a survey: short runs with more noise, all of whose results are published, followed by an ordinary optimiser. Then
one full run at what the survey recommends. Kill it in the middle and start it again: it goes on where it was. Once it
has released, it shows that release.
"""

from __future__ import annotations

import argparse
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
from scipy.stats import loguniform
from sklearn.datasets import load_digits
from torch import nn

import dphypo
from dphypo.integrations.torch import DPSGD, PrivateAccuracy, PublicAccuracy, split_by_hash
from dphypo.journal import keeping
from dphypo.search import plan_tuning, solving, stages_of

EPSILON, DELTA = 8.0, 1e-5
SPACE = dphypo.Space({"learning_rate": loguniform(0.01, 10), "max_grad_norm": loguniform(0.1, 10)})
BAR = "─" * 78


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def declare(epochs: float = 20) -> tuple[DPSGD, PublicAccuracy]:
    """The mechanism, its noise still to be found, and the accuracy on the digits that are held out."""
    pixels, labels = load_digits(return_X_y=True)
    private, held_out = split_by_hash((pixels / 16).astype(np.float32), labels, key="held out")
    train, score = split_by_hash(*private, key="score")
    mechanism = DPSGD(
        model=network,
        data=train,
        records=1150,  # about as many as there are: the exact number of private records is nobody's business
        score=PrivateAccuracy(score, noise_multiplier="calibrate", records=280),
        noise_multiplier="calibrate",
        epochs=epochs,
        batch_size=128,
    )
    return mechanism, PublicAccuracy(held_out)


def search(folder: Path, epochs: float, runs: int | None) -> str:
    """Make the plan, or what is left of it, and save its release. Returns what there is to say."""
    mechanism, held_out = declare(epochs)
    print(f"Solving for the noise that a total of ε = {EPSILON:g} allows ...", flush=True)
    with keeping(folder / "plan.db", "tune") as keep, solving():  # a demo that is started again finds it at once
        tuning = plan_tuning(SPACE, mechanism, epsilon=EPSILON, delta=DELTA, survey=runs, keep=keep)
    print(tuning.summary, flush=True)
    plan = stages_of(SPACE, tuning, delta=DELTA, journal=folder / "plan.db")
    release = plan.run()
    shutil.rmtree(folder / "release", ignore_errors=True)  # left by a process that was killed while it saved
    release.save(folder / "release")
    report = ["The release", BAR]
    if release.model is None:
        report += [str(release.ending)]
    else:
        report += [f"{name:<16}{value:.4g}" for name, value in (release.params or {}).items()]
        report += [
            f"{'accuracy':<16}{held_out(release.model):.3f} on digits held out (not private, not used by the search)",
            f"{'survey':<16}{release.survey!r}, all public: {folder / 'release' / 'surveys.json'}",
        ]
    with suppress(ImportError):  # without matplotlib there is no page
        report += [f"{'report':<16}{release.report(folder / 'report.html')}"]
    report += ["", "What was spent", BAR, tuning.summary, release.certificate.statement(), ""]
    report += [f"Certificate: {folder / 'release' / 'certificate.json'}  (check it with: dphypo verify)"]
    (folder / "report.txt").write_text("\n".join(report) + "\n", encoding="utf-8")
    return "\n".join(report)


def main() -> None:
    parser = argparse.ArgumentParser(description="Tune a private model on the handwritten digits.")
    parser.add_argument("--folder", type=Path, default=Path("demo"), help="where the journal and the release go")
    parser.add_argument("--epochs", type=float, default=20, help="epochs of the full run")
    parser.add_argument("--runs", type=int, default=None, help="short runs of the survey; planned if left out")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    report = options.folder / "report.txt"
    if report.exists():
        print(
            f"{options.folder} holds a finished search: this is its release again, at no further cost. Another search"
        )
        print("on the same records costs another ε = 8; remove the folder to start one.\n")
        print(report.read_text(encoding="utf-8"), end="")
        return
    print(f"Digits: learning rate and clipping norm, total ε = {EPSILON:g} at δ = {DELTA:g}.", flush=True)
    print("\n" + search(options.folder, options.epochs, options.runs))


if __name__ == "__main__":
    main()
