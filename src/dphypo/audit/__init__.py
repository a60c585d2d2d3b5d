"""Audits: an exact oracle on small worlds, and explicit attacks, that try to break the bounds of the accountant."""

from dphypo.audit.attack import attack_delta as attack_delta
from dphypo.audit.attack import attack_epsilon as attack_epsilon
from dphypo.audit.canary import audit_mechanism as audit_mechanism
from dphypo.audit.canary import gradient_canary as gradient_canary
from dphypo.audit.canary import input_canary as input_canary
from dphypo.audit.empirical import Audit as Audit
from dphypo.audit.empirical import audit as audit
from dphypo.audit.empirical import audit_observations as audit_observations
from dphypo.audit.empirical import lower_bound as lower_bound
from dphypo.audit.history_attack import HistoryAttack as HistoryAttack
from dphypo.audit.history_attack import merged as merged
from dphypo.audit.history_oracle import exact_history_delta as exact_history_delta
from dphypo.audit.oracle import World as World
from dphypo.audit.oracle import exact_delta as exact_delta
from dphypo.audit.pair import Pair as Pair
from dphypo.audit.replay import replay as replay
from dphypo.audit.worst_case import WorstCase as WorstCase
