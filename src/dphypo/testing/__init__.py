"""Conformance suites: for the things people write themselves."""

from dphypo.testing.executors import check_executor as check_executor
from dphypo.testing.laws import check_law as check_law
from dphypo.testing.mechanisms import check_mechanism as check_mechanism
from dphypo.testing.projections import check_projection as check_projection
from dphypo.testing.samplers import check_sampler as check_sampler
from dphypo.testing.stores import check_store as check_store
