"""Framework 1 of the paper: draw T, make T runs inside the band, release the best and nothing else."""

from dphypo.study.curator import Curator as Curator
from dphypo.study.study import Study as Study
