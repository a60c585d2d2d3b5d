"""The landscapes fitted by BoTorch from 50 trainings against what was really trained."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import spearmanr

from paper.data import points
from paper.data.points import Floats
from paper.simulate import worlds


def coarse_cells() -> Any:
    """Where the cells of the coarse grid lie in the paper's."""
    first = [int(np.abs(points.CIFAR.first - value).argmin()) for value in points.CIFAR_COARSE.first]
    second = [int(np.abs(points.CIFAR.second - value).argmin()) for value in points.CIFAR_COARSE.second]
    return np.array([len(points.CIFAR.second) * i + j for i in first for j in second])


def comparison() -> dict[str, Any]:
    """Errors of the fitted mean on the cells that were trained, and what its best cell is really worth."""
    result: dict[str, Any] = {}
    known, cells = worlds.trained(("cifar-coarse",), 1954), coarse_cells()
    for level in (0.65, 0.6):
        result[f"CIFAR-10, σ = {level}"] = _errors(worlds.cifar(level).mean[cells], known.mean(level))
    result["federated (loss, sign turned)"] = _errors(worlds.federated().mean, -worlds.federated_losses().mean(axis=0))
    return result


def _errors(fitted: Floats, real: Floats) -> dict[str, float]:
    return {
        "cells": len(real),
        "root mean square error": round(float(np.sqrt(np.mean((fitted - real) ** 2))), 4),
        "rank correlation": round(float(spearmanr(fitted, real).statistic), 3),
        "largest fitted mean": round(float(fitted.max()), 4),
        "real mean there": round(float(real[fitted.argmax()]), 4),
        "largest real mean": round(float(real.max()), 4),
    }
