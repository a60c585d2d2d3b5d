"""How far the best learning rate of a short run lies from the full run's, for each optimiser.

Two tasks: made-up clusters, by which the exponents of ``dphypo.mechanisms.sampled_gaussian`` are set, and
scikit-learn's digits, on which the rule is then judged.

K networks (64, 64, 10), one for each learning rate, train at once on the same Poisson batches, with clipping per sample
(the norm of a linear layer's gradient is the product of two norms) and the noise σ/√f. The curve of the mean accuracy
against log η, smoothed, is best at η₁ in full runs and at η_f in short ones; the exponent a of η_f = η₁ f^(-a) is what
a transfer rule needs.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paper.data.points import Floats
from paper.train.descent import Descent, Memories

OPTIMISERS = ("SGD", "momentum 0.9", "Adam", "AdamW", "RMSprop", "Adagrad")
STEPS, BATCH, HIDDEN = 180, 128, 64
FRACTIONS = (0.3, 0.15, 0.05)
NOISES = {"ε = 8": 1.022, "ε = 2": 2.588}  # of a full run alone at δ = 1e-5, 1 437 records
CLIPS = (1.0,)
REPETITIONS = 6
TASKS = ("made up", "digits")
LEARNT = 0.3  # accuracy of short runs, where guessing has 0.1
SEED = 7


@cache
def records(task: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four fifths to train, one to test: 1 797 records of 64 features in ten classes."""
    from sklearn.datasets import load_digits, make_classification

    if task == "digits":
        pixels, classes = load_digits(return_X_y=True)
    else:
        made, classes = make_classification(
            1797, 64, n_informative=24, n_redundant=16, n_classes=10, n_clusters_per_class=2, class_sep=2.5,
            flip_y=0.0, random_state=0,
        )  # fmt: skip
        pixels = 8 + 4 * (made - made.mean(axis=0)) / made.std(axis=0)  # of the same size as the digits
    order = np.random.default_rng(0).permutation(len(pixels))
    x, y = torch.tensor(pixels[order] / 16, dtype=torch.float32), torch.tensor(classes[order])
    cut = len(x) * 4 // 5
    return x[:cut], y[:cut], x[cut:], y[cut:]


def rates(optimiser: str) -> Floats:
    """Candidates, a factor of √2 apart."""
    middle = {"SGD": 1.0, "momentum 0.9": 0.1, "Adagrad": 0.1}.get(optimiser, 0.01)
    return np.asarray(middle * 2.0 ** np.arange(-5, 7.01, 0.5))


def accuracies(
    optimiser: str, rate: Floats, clip: float, noise: float, steps: int, seed: int, task: str = "digits",
    memories: Memories | None = None,
) -> Floats:  # fmt: skip
    """Test accuracy of one model for each learning rate; with ``memories``, by momentum or Adam that has them."""
    x, y, tests, labels = records(task)
    random = torch.Generator().manual_seed(seed)
    models = len(rate)
    eta = torch.tensor(rate, dtype=torch.float32)[:, None, None]
    bound = [(1 / 65) ** 0.5, (1 / 65) ** 0.5]
    w = [
        (torch.rand((models, 65, size), generator=random) * 2 - 1) * one
        for size, one in zip((HIDDEN, 10), bound, strict=True)
    ]
    state = [[torch.zeros_like(v), torch.zeros_like(v)] for v in w]
    descent = None if memories is None else Descent(memories)
    one_hot = torch.nn.functional.one_hot(y, 10).float()
    for step in range(1, steps + 1):
        drawn = torch.rand(len(x), generator=random) < BATCH / len(x)
        inputs = torch.cat([x[drawn], torch.ones(int(drawn.sum()), 1)], 1).expand(models, -1, -1)
        pre = inputs @ w[0]
        hidden = torch.cat([pre.relu(), torch.ones_like(pre[..., :1])], 2)
        top = (hidden @ w[1]).softmax(2) - one_hot[drawn]
        low = (top @ w[1][:, :-1].mT) * (pre > 0)
        squares = (inputs**2).sum(2) * (low**2).sum(2) + (hidden**2).sum(2) * (top**2).sum(2)
        weight = (clip / (squares.sqrt() + 1e-6)).clamp_max(1.0)[..., None]
        gradients = []
        for left, right in ((inputs, low), (hidden, top)):
            total = left.mT @ (right * weight)
            total += noise * clip * torch.randn(total.shape, generator=random)
            gradients.append(total / BATCH)
        if descent is not None:
            directions = descent.directions(gradients)
        else:
            directions = [_direction(optimiser, gradients[n], state[n], step, w[n]) for n in range(2)]
        for value, direction in zip(w, directions, strict=True):
            value -= eta * direction
    hidden = (torch.cat([tests, torch.ones(len(tests), 1)], 1) @ w[0]).relu()
    logits = torch.cat([hidden, torch.ones_like(hidden[..., :1])], 2) @ w[1]
    return np.asarray((logits.argmax(2) == labels).float().mean(1).double().numpy())


def _direction(optimiser: str, gradient: Tensor, state: list[Tensor], step: int, w: Tensor) -> Tensor:
    """The step of each of PyTorch's optimisers with its default settings, per unit of learning rate."""
    if optimiser == "SGD":
        return gradient
    if optimiser == "momentum 0.9":
        state[0].mul_(0.9).add_(gradient)
        return state[0]
    if optimiser == "Adagrad":
        state[1].add_(gradient**2)
        return gradient / (state[1].sqrt() + 1e-10)
    if optimiser == "RMSprop":
        state[1].mul_(0.99).add_(0.01 * gradient**2)
        return gradient / (state[1].sqrt() + 1e-8)
    state[0].mul_(0.9).add_(0.1 * gradient)
    state[1].mul_(0.999).add_(0.001 * gradient**2)
    moved = (state[0] / (1 - 0.9**step)) / ((state[1] / (1 - 0.999**step)).sqrt() + 1e-8)
    return moved + 0.01 * w if optimiser == "AdamW" else moved


def best_rate(rate: Floats, scores: Floats) -> float:
    """Where the mean curve, smoothed over neighbours a factor of two apart, is best: a parabola through its top."""
    kernel = np.array([1, 2, 3, 2, 1]) / 9
    smooth = np.convolve(np.pad(scores.mean(axis=0), 2, mode="edge"), kernel, mode="valid")
    top = int(np.clip(smooth.argmax(), 1, len(smooth) - 2))
    left, here, right = smooth[top - 1 : top + 2]
    shift = 0.5 * (left - right) / min(left - 2 * here + right, -1e-9)
    return float(rate[top] * 2 ** (0.5 * np.clip(shift, -1, 1)))


def measured() -> dict[str, Any]:
    """Both tasks."""
    rows = [row for task in TASKS for row in on(task)]
    return {"rows": rows, "exponents": {task: summary([row for row in rows if row["task"] == task]) for task in TASKS}}


def on(task: str) -> list[dict[str, Any]]:
    """For each optimiser, ε, clipping norm and fraction: the exponent."""
    rows: list[dict[str, Any]] = []
    for optimiser in OPTIMISERS:
        rate = rates(optimiser)
        for words, noise in NOISES.items():
            for clip in CLIPS:
                curves = {}
                for f in (1.0, *FRACTIONS):
                    steps, seeds = round(STEPS * f), range(SEED, SEED + REPETITIONS)
                    curves[f] = np.array(
                        [accuracies(optimiser, rate, clip, noise / f**0.5, steps, s, task) for s in seeds]
                    )
                place = {f: best_rate(rate, curve) for f, curve in curves.items()}
                for f in FRACTIONS:
                    rows.append(
                        {"task": task, "optimiser": optimiser, "noise": words, "clip": clip, "fraction": f,
                         "full": round(place[1.0], 5), "short": round(place[f], 5),
                         "exponent": round(float(np.log(place[f] / place[1.0]) / np.log(1 / f)), 3),
                         "best accuracy, full": round(float(curves[1.0].mean(axis=0).max()), 4),
                         "best accuracy, short": round(float(curves[f].mean(axis=0).max()), 4)}
                    )  # fmt: skip
                print(task, optimiser, words, clip, [row["exponent"] for row in rows[-3:]], flush=True)
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Median exponent of each optimiser at each fraction, where short runs learn something at all."""
    found: dict[str, dict[str, float]] = {}
    for optimiser in OPTIMISERS:
        for f in FRACTIONS:
            known = [
                row["exponent"] for row in rows
                if row["optimiser"] == optimiser and row["fraction"] == f and row["best accuracy, short"] > LEARNT
            ]  # fmt: skip
            if known:
                found.setdefault(optimiser, {})[f"{f:g}"] = round(float(np.median(known)), 3)
    return found
