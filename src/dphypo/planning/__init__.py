"""The ways to tune under a total (ε, δ), compared; public landscapes on which they are judged."""

from dphypo.planning.compare import plan as plan
from dphypo.planning.comparison import Compared as Compared
from dphypo.planning.comparison import Comparison as Comparison
from dphypo.planning.design import Design as Design
from dphypo.planning.expected import winners as winners
from dphypo.planning.landscape import BEYOND as BEYOND
from dphypo.planning.landscape import Landscape as Landscape
from dphypo.planning.landscape import local_quadratic as local_quadratic
