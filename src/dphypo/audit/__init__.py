"""Audits by experiment, that try to break the claims of the accountant: searches, training runs, and the worst case."""

from dphypo.audit.canary import audit_mechanism as audit_mechanism
from dphypo.audit.canary import gradient_canary as gradient_canary
from dphypo.audit.canary import input_canary as input_canary
from dphypo.audit.empirical import audit as audit
from dphypo.audit.empirical import audit_observations as audit_observations
from dphypo.audit.replay import replay as replay
from dphypo.audit.worst_case import WorstCase as WorstCase
