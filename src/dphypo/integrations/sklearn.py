"""The earlier name of :mod:`dphypo.sklearn`."""

from dphypo.sklearn import *  # noqa: F403
