"""Audits: experiments that bound ε from below, from many searches or trainings, or from one training with canaries."""

from dphypo.audit.canaries import evidence_of_steps as evidence_of_steps
from dphypo.audit.canaries import one_run as one_run
from dphypo.audit.canaries import one_run_of as one_run_of
from dphypo.audit.guessing import OneRunAudit as OneRunAudit
from dphypo.audit.neighbours import Audit as Audit
from dphypo.audit.neighbours import audit_observations as audit_observations
from dphypo.audit.neighbours import lower_bound as lower_bound
