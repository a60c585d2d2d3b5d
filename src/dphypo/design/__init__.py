"""Designs of a search in stages: public numbers, and a way to choose them on a public proxy at no cost."""

from dphypo.design._choice import Choice as Choice
from dphypo.design._choice import Row as Row
from dphypo.design._choose import choose_design as choose_design
from dphypo.design._costs import noise_between as noise_between
from dphypo.design._design import Design as Design
from dphypo.design._expected import winners as winners
from dphypo.design._expected import winners_of_stages as winners_of_stages
from dphypo.design._landscape import BEYOND as BEYOND
from dphypo.design._landscape import Landscape as Landscape
from dphypo.design._landscape import local_quadratic as local_quadratic
from dphypo.design._refusal import NoDesignError as NoDesignError
from dphypo.design._training import Training as Training
