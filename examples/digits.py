"""The demo: tune a DP-SGD model on scikit-learn's handwritten digits, ε = 8 and δ = 1e-5 for the whole search.

    python examples/digits.py [--folder demo]

Three parts of the data, by a hash of each digit: about a fifth is held out to report the accuracy at the end (whoever
runs this looks at it; no guarantee covers that number). The rest is private. Of that, four fifths train the models and
one fifth ranks them, by accuracy with Gaussian noise on the count: no public records are needed, and since no record
is in both parts, a run costs the worse of training and ranking.

Kill it in the middle and start it again: it goes on where it was. Once it has released, it shows that release.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np
from scipy.stats import loguniform
from sklearn.datasets import load_digits
from torch import nn

import dphypo
from dphypo.integrations.opacus import DPSGD, PrivateAccuracy, PublicAccuracy, split_by_hash

EPSILON, DELTA = 8.0, 1e-5
SPACE = dphypo.Space(
    {"learning_rate": loguniform(0.01, 10), "max_grad_norm": loguniform(0.1, 10), "batch_size": [64, 128, 256, 512]}
)
# A concentrated law: few searches end after one or two runs, as many do under a geometric law of the same mean.
RUNS = dphypo.NegativeBinomial(shape=8, mean=10)
BAR = "─" * 78


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def declare(epochs: float = 20) -> tuple[DPSGD, PublicAccuracy]:
    """The mechanism, its noise still to be found, and the accuracy on the digits that are held out."""
    pixels, labels = load_digits(return_X_y=True)
    private, held_out = split_by_hash((pixels / 16).astype(np.float32), labels, key="held out")
    train, rank = split_by_hash(*private, key="score")
    mechanism = DPSGD(
        model=network,
        data=train,
        records=1150,  # about as many as there are: the exact number of private records is nobody's business
        score=PrivateAccuracy(rank, noise_multiplier=2.0, records=280),
        noise_multiplier="calibrate",
        epochs=epochs,
    )
    return mechanism, PublicAccuracy(held_out)


def search(folder: Path, epochs: float, runs: dphypo.NegativeBinomial) -> str:
    """Run the study, or what is left of it, and save its release. Returns what there is to say."""
    mechanism, held_out = declare(epochs)
    print("Solving for the noise that a total of ε = 8 allows at each batch size ...", flush=True)
    mechanism = mechanism.calibrated(SPACE, runs, epsilon=EPSILON, delta=DELTA)
    study = dphypo.Study(SPACE, mechanism, runs, delta=DELTA, journal=folder / "study.db")
    release = study.run()
    shutil.rmtree(folder / "release", ignore_errors=True)  # left by a process that was killed while it saved
    release.save(folder / "release")
    report = ["The release", BAR]
    if release.params is None:
        report += [str(release.ending)]
    else:
        alone = dphypo.account(mechanism.event(release.params), dphypo.Pmf({1: 1.0})).one_run(DELTA)
        report += [f"{name:<16}{value:.4g}" for name, value in release.params.items()]
        report += [
            f"{'accuracy':<16}{held_out(release.model):.3f} on digits held out (not private, not used by the search)",
            f"{'score':<16}{release.score:.3f} on the private digits that ranked the runs, with noise",
            "",
            f"The winning run alone would have been reported as ε = {alone['pld']:.2f} (or {alone['rdp']:.2f} by Rényi "
            f"accounting)",
            f"at δ = {DELTA:g}. That is not what was spent: it was chosen among others.",
        ]
    report += ["", "What was spent", BAR, release.certificate.statement(), ""]
    report += [f"Certificate: {folder / 'release' / 'certificate.json'}  (check it with: dphypo verify)"]
    (folder / "report.txt").write_text("\n".join(report) + "\n", encoding="utf-8")
    study.shred()  # the release is saved: the other runs, and how many there were, are destroyed
    return "\n".join(report)


def main() -> None:
    parser = argparse.ArgumentParser(description="Tune a private model on the handwritten digits.")
    parser.add_argument("--folder", type=Path, default=Path("demo"), help="where the journal and the release go")
    parser.add_argument("--epochs", type=float, default=20, help="epochs of one run")
    parser.add_argument("--mean", type=float, default=RUNS.mean, help="mean number of runs")
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
    print(f"Digits: learning rate, clipping norm and batch size, total ε = {EPSILON:g} at δ = {DELTA:g}.", flush=True)
    print("\n" + search(options.folder, options.epochs, dphypo.NegativeBinomial(shape=8, mean=options.mean)))


if __name__ == "__main__":
    main()
