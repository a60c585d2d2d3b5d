"""The ways to tune under a total (ε, δ), called designs, compared; public landscapes on which they are judged."""

from dphypo.planning.compare import plan as plan
from dphypo.planning.landscape import Landscape as Landscape
