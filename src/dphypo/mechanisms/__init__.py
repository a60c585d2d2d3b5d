"""What one run is: a training function, the privacy event that bounds it for every λ, and how its model is saved."""

from dphypo.mechanisms.mechanism import Declared as Declared
from dphypo.mechanisms.mechanism import Mechanism as Mechanism
from dphypo.mechanisms.mechanism import Outcome as Outcome
from dphypo.mechanisms.mechanism import mechanism as mechanism
from dphypo.mechanisms.sampled_gaussian import NoiseRehearsal as NoiseRehearsal
from dphypo.mechanisms.sampled_gaussian import OwnTraining as OwnTraining
from dphypo.mechanisms.sampled_gaussian import SampledGaussian as SampledGaussian
from dphypo.mechanisms.sampled_gaussian import SmallerBatches as SmallerBatches
from dphypo.mechanisms.savers import Plain as Plain
from dphypo.mechanisms.savers import Saver as Saver
