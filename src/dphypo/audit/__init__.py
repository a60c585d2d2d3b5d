"""Audits: an exact oracle on small worlds, and explicit attacks, that try to break the bounds of the accountant."""

from dphypo.audit.attack import attack_epsilon as attack_epsilon
from dphypo.audit.oracle import World as World
from dphypo.audit.oracle import exact_delta as exact_delta
