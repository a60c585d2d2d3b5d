"""Conformance suites: for the things people write themselves."""

from ._mechanisms import check_mechanism as check_mechanism
