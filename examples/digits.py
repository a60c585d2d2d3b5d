"""The demo: tune a DP-SGD model on scikit-learn's handwritten digits, ε = 8 and δ = 1e-5 for all of it together.

    python examples/digits.py [--folder demo]

About a fifth of the digits, by a hash of each, is held out to report the accuracy at the end (whoever runs this looks
at it; no guarantee covers that number). The rest is private. The library sets some of it apart to score models, by
accuracy with Gaussian noise on the count, if it searches the learning rate at all.

It first says whether a search is worth its cost. If not, the learning rate follows from public values and from the
scale of the inputs, which is measured with noise, and one run trains on all records. With ``--runs 8`` there is a
survey: short runs with more noise, all of whose results are published, then one full run at what they recommend. If it
is killed, run it again: it resumes. After the release it shows that release.
"""

from __future__ import annotations

import argparse
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from torch import nn

import dphypo
from dphypo.torch import DPSGD, PublicAccuracy, split_by_hash

EPSILON, DELTA = 8.0, 1e-5
BAR = "─" * 78


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def declare(epochs: float = 20) -> tuple[DPSGD, PublicAccuracy]:
    """The mechanism, its noise still to be found, and the accuracy on the digits that are held out."""
    pixels, labels = load_digits(return_X_y=True)
    private, held_out = split_by_hash((pixels / 16).astype(np.float32), labels, key="held out")
    mechanism = DPSGD(
        model=network,
        data=private,
        records=1430,  # about as many as there are: the exact number of private records is nobody's business
        score="accuracy",
        epochs=epochs,
        batch_size=128,
    )
    return mechanism, PublicAccuracy(held_out)


def search(folder: Path, epochs: float, runs: int | None) -> str:
    """Make the plan, or what is left of it, and save its release. Returns what there is to say."""
    mechanism, held_out = declare(epochs)
    release = dphypo.tune(mechanism, epsilon=EPSILON, delta=DELTA, survey=runs, journal=folder / "plan.db")
    shutil.rmtree(folder / "release", ignore_errors=True)  # left by a process that was killed while it saved
    release.save(folder / "release")
    report = ["The release", BAR]
    if release.model is None:
        report += [str(release.ending)]
    else:
        report += [f"{name:<16}{value}" for name, value in (release.params or {}).items()]
        report += [
            f"{'accuracy':<16}{held_out(release.model):.3f} on digits held out (not private, not used by the search)",
        ]
        report += [
            f"{'survey':<16}{one!r}, all public: {folder / 'release' / 'surveys.json'}" for one in release.surveys
        ]
    with suppress(ImportError):  # without matplotlib there is no page
        report += [f"{'report':<16}{release.report(folder / 'report.html')}"]
    report += ["", "What was spent", BAR, release.certificate.statement(), ""]
    report += [f"Certificate: {folder / 'release' / 'certificate.json'}  (check it with: dphypo verify)"]
    (folder / "report.txt").write_text("\n".join(report) + "\n", encoding="utf-8")
    return "\n".join(report)


def main() -> None:
    parser = argparse.ArgumentParser(description="Tune a private model on the handwritten digits.")
    parser.add_argument("--folder", type=Path, default=Path("demo"), help="where the journal and the release go")
    parser.add_argument("--epochs", type=float, default=20, help="epochs of the full run")
    parser.add_argument("--runs", type=int, default=None, help="short runs of a survey; decided if left out")
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
    print(f"Digits: learning rate of a private network, total ε = {EPSILON:g} at δ = {DELTA:g}.", flush=True)
    print("\n" + search(options.folder, options.epochs, options.runs))


if __name__ == "__main__":
    main()
