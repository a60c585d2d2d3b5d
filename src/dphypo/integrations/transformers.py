"""The earlier name of :mod:`dphypo.transformers`."""

from dphypo.transformers import *  # noqa: F403
