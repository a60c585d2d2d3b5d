"""The hyperparameters of the real searches: the cells of the landscapes."""

from __future__ import annotations

from dphypo import Space
from paper.data import points

# Sixteen learning rates and twenty clipping norms, ordered and equally likely.
SPACE = Space({"learning_rate": points.MNIST.first.tolist(), "clip": points.MNIST.second.tolist()})
