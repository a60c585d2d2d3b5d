"""What one run is: a training function, the privacy event that bounds it for every λ, and how its model is saved."""

from dphypo.mechanisms.attempt import Attempt as Attempt
from dphypo.mechanisms.attempt import attempt as attempt
from dphypo.mechanisms.attempt import settle as settle
from dphypo.mechanisms.attempt import well_formed as well_formed
from dphypo.mechanisms.mechanism import Declared as Declared
from dphypo.mechanisms.mechanism import Mechanism as Mechanism
from dphypo.mechanisms.mechanism import Outcome as Outcome
from dphypo.mechanisms.mechanism import Split as Split
from dphypo.mechanisms.mechanism import mechanism as mechanism
from dphypo.mechanisms.savers import Plain as Plain
from dphypo.mechanisms.savers import Saver as Saver
from dphypo.mechanisms.savers import UnsupportedModelError as UnsupportedModelError
