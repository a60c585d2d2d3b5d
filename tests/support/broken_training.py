"""DP-SGD as people write it, on scikit-learn's digits, right or with one of ten faults; gradient canaries beside it."""

from __future__ import annotations

from typing import Any

import dp_accounting
import numpy as np
from sklearn.datasets import load_digits

import dphypo

STEPS, RATE, NOISE, CANARIES, LONG = 60, 0.25, 2.0, 400, 5.0
EVENT = dp_accounting.SelfComposedDpEvent(
    dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(NOISE)), STEPS
)
FAULTS = (
    "half of the noise",
    "no clipping",
    "rows instead of persons",
    "the same noise in every step",
    "all records in every batch",
    "four times the steps",
    "each of four layers clipped by itself",
    "noise in every second step",
    "weights of classes after clipping",
    "started from a model of the same records",
)
_PIXELS, _LABELS = load_digits(return_X_y=True)


def usual(count: int = 600) -> tuple[np.ndarray, ...]:
    """Pixels, labels, and which canary: none."""
    return _PIXELS[:count] / 16, _LABELS[:count], np.full(count, -1)


def canaries(fault: str | None = None) -> tuple[np.ndarray, ...]:
    rows = np.repeat(np.arange(CANARIES), 3) if fault == "rows instead of persons" else np.arange(CANARIES)
    return np.zeros((len(rows), 64)), np.zeros(len(rows), dtype=int), rows


def make(fault: str | None, parts: int = 4) -> Any:
    """A function of the records. A canary has a gradient in ``parts`` layers, a coordinate of its own in each."""

    def of_records(records: tuple[np.ndarray, ...]) -> Any:
        pixels, labels, which = records

        @dphypo.mechanism(event=EVENT, relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
        def train(params: dict[str, Any], *, seed: int) -> tuple[np.ndarray, float]:
            rng = np.random.default_rng(seed)
            model, moves = np.zeros((64, 10)), []
            steps = STEPS * (4 if fault == "four times the steps" else 1)
            start = np.zeros((parts, CANARIES))
            if fault == "started from a model of the same records":
                np.add.at(start, (slice(None), which[which >= 0]), 20.0 / np.sqrt(parts))
            for step in range(steps):
                everyone = fault == "all records in every batch"
                batch = np.flatnonzero(rng.random(len(which)) < (1.0 if everyone else RATE))
                total, beside = np.zeros((64, 10)), np.zeros((parts, CANARIES))
                for record in batch:
                    if which[record] >= 0:
                        beside[:, which[record]] += _clipped(np.full(parts, LONG), fault)
                    else:
                        chances = np.exp(pixels[record] @ model)
                        gradient = np.outer(pixels[record], chances / chances.sum() - np.eye(10)[labels[record]])
                        total += gradient / max(1.0, float(np.linalg.norm(gradient)))
                draw = np.random.default_rng(seed) if fault == "the same noise in every step" else rng
                scale = {"half of the noise": NOISE / 2}.get(fault or "", NOISE)
                scale *= not (fault == "noise in every second step" and step % 2)
                total += scale * draw.normal(size=total.shape)
                beside += scale * draw.normal(size=beside.shape)
                model -= 2.0 * total / (RATE * len(which))
                moves.append(beside)
            moves[0] = moves[0] + start
            return np.array(moves), float((np.argmax(pixels @ model, 1) == labels)[which < 0].mean())

        return train

    return of_records


def _clipped(gradient: np.ndarray, fault: str | None) -> np.ndarray:
    if fault == "no clipping":
        return gradient
    if fault == "each of four layers clipped by itself":
        return gradient / np.maximum(1.0, np.abs(gradient))
    clipped = gradient / max(1.0, float(np.linalg.norm(gradient)))
    return clipped * (3.0 if fault == "weights of classes after clipping" else 1.0)
