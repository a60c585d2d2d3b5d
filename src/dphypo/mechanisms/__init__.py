"""What one run is: a training function, the privacy event that bounds it for every λ, and how its model is saved."""

from dphypo.errors import UnsupportedModelError as UnsupportedModelError
from dphypo.mechanisms import capabilities as capabilities
from dphypo.mechanisms import dp_sgd as dp_sgd
from dphypo.mechanisms import over_space as over_space
from dphypo.mechanisms import transfer as transfer
from dphypo.mechanisms.dp_sgd import DpSgd as DpSgd
from dphypo.mechanisms.dp_sgd import matched as matched
from dphypo.mechanisms.mechanism import Declared as Declared
from dphypo.mechanisms.mechanism import Mechanism as Mechanism
from dphypo.mechanisms.mechanism import mechanism as mechanism
from dphypo.mechanisms.outcome import Outcome as Outcome
from dphypo.mechanisms.outcome import well_formed as well_formed
from dphypo.mechanisms.own_training import OwnTraining as OwnTraining
from dphypo.mechanisms.rehearsal import DryRun as DryRun
from dphypo.mechanisms.rehearsal import rehearse as rehearse
from dphypo.mechanisms.running import attempt as attempt
from dphypo.mechanisms.running import attempt_many as attempt_many
from dphypo.mechanisms.running import settle as settle
from dphypo.mechanisms.savers import Plain as Plain
from dphypo.mechanisms.savers import Saver as Saver
from dphypo.mechanisms.savers import savers as savers
from dphypo.mechanisms.transfer import NoiseRehearsal as NoiseRehearsal
from dphypo.mechanisms.transfer import SmallerBatches as SmallerBatches
