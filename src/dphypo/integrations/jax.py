"""The earlier name of :mod:`dphypo.jax`."""

from dphypo.jax import *  # noqa: F403
