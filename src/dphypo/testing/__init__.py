"""Conformance suites: for the things people write themselves."""

from dphypo.testing.laws import check_law as check_law
from dphypo.testing.rules import check_projection as check_projection
from dphypo.testing.rules import check_sampler as check_sampler
from dphypo.testing.runs import check_executor as check_executor
from dphypo.testing.runs import check_mechanism as check_mechanism
from dphypo.testing.runs import check_store as check_store
