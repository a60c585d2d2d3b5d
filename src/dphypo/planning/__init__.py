"""Plans: the ways to tune under a total (ε, δ), compared, and designs chosen on a public proxy at no cost."""

from dphypo.errors import NoDesignError as NoDesignError
from dphypo.planning.choice import Choice as Choice
from dphypo.planning.choice import Row as Row
from dphypo.planning.choose import choose_design as choose_design
from dphypo.planning.compare import plan as plan
from dphypo.planning.comparison import Compared as Compared
from dphypo.planning.comparison import Comparison as Comparison
from dphypo.planning.costs import noise_between as noise_between
from dphypo.planning.design import Design as Design
from dphypo.planning.expected import winners as winners
from dphypo.planning.expected import winners_of_stages as winners_of_stages
from dphypo.planning.landscape import BEYOND as BEYOND
from dphypo.planning.landscape import Landscape as Landscape
from dphypo.planning.landscape import local_quadratic as local_quadratic
from dphypo.planning.training import Training as Training
