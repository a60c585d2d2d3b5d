"""The earlier name of :mod:`dphypo.optuna`."""

from dphypo.optuna import *  # noqa: F403
