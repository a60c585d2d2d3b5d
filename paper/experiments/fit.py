"""Landscapes by BoTorch from 50 trainings, as in the paper; needs ``pip install botorch``, so the result is committed.

The paper says that it generates mean and standard error of every cell with BoTorch and no more. Taken here: BoTorch's
standard single-task Gaussian process on the cell's place in the unit square, outcomes standardised, hyperparameters by
its default fit; the standard error is the posterior's deviation of the function.
"""

from __future__ import annotations

import json

import numpy as np

from paper.data import points
from paper.data.points import Floats
from paper.simulate import worlds

COUNT = 50


def posterior(features: Floats, values: Floats, everywhere: Floats) -> tuple[Floats, Floats]:
    """Mean and deviation at all cells from ``values`` at some."""
    import torch
    from botorch.fit import fit_gpytorch_mll  # type: ignore[import-not-found,unused-ignore]
    from botorch.models import SingleTaskGP  # type: ignore[import-not-found,unused-ignore]
    from botorch.models.transforms import Standardize  # type: ignore[import-not-found,unused-ignore]
    from gpytorch.mlls import ExactMarginalLogLikelihood  # type: ignore[import-not-found,unused-ignore]

    torch.manual_seed(0)
    model = SingleTaskGP(torch.tensor(features), torch.tensor(values)[:, None], outcome_transform=Standardize(1))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    with torch.no_grad():
        found = model.posterior(torch.tensor(everywhere))
        return found.mean[:, 0].numpy(), found.variance[:, 0].sqrt().numpy()


def fit_all() -> None:
    """Write the fitted landscapes of CIFAR-10 and of the federated task."""
    import botorch  # type: ignore[import-not-found,unused-ignore]

    record = {"command": "python -m paper fit", "botorch": botorch.__version__, "trainings": COUNT}
    square = worlds.unit_square(points.CIFAR)
    design = points.CIFAR.design(160)[:COUNT]
    levels = (0.65, 0.6)
    known = worlds.trained(("cifar-design",), 1954)
    fits = [posterior(square[design], known.mean(level)[:COUNT], square) for level in levels]
    np.savez_compressed(
        worlds.FOLDER / "cifar-botorch.npz",
        noise_multipliers=np.array(levels),
        mean=np.array([mean for mean, _ in fits], dtype=np.float32),
        deviation=np.array([deviation for _, deviation in fits], dtype=np.float32),
        design=design,
        provenance=json.dumps(record),
    )
    square = worlds.unit_square(points.FEDERATED)
    design = points.FEDERATED.design(COUNT)
    mean, deviation = posterior(square[design], worlds.federated_losses()[0, design], square)
    np.savez_compressed(
        worlds.FOLDER / "federated-botorch.npz",
        mean=mean,
        deviation=deviation,
        design=design,
        provenance=json.dumps(record),
    )
