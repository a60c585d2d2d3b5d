"""The ways to tune under a total (ε, δ), compared; public landscapes on which they are judged."""

from dphypo.planning.compare import plan as plan
from dphypo.planning.design import Design as Design
from dphypo.planning.landscape import Landscape as Landscape
