"""Conformance suites: for the things people write themselves."""

from ._engines import check_engine as check_engine
from ._laws import check_law as check_law
from ._mechanisms import check_mechanism as check_mechanism
from ._samplers import check_sampler as check_sampler
