"""The earlier name of :mod:`dphypo.torch`."""

from dphypo.torch import *  # noqa: F403
