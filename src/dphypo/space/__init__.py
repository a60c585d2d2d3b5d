"""The search space: what people write for a randomised search, with its prior, candidate sets and grids."""

from dphypo.space.around import Normal as Normal
from dphypo.space.around import Spread as Spread
from dphypo.space.around import read_spread as read_spread
from dphypo.space.candidates import Candidates as Candidates
from dphypo.space.dimension import Dimension as Dimension
from dphypo.space.finite import Finite as Finite
from dphypo.space.grid import Grid as Grid
from dphypo.space.parameter import Parameter as Parameter
from dphypo.space.parameter import check_name as check_name
from dphypo.space.space import MOST_CANDIDATES as MOST_CANDIDATES
from dphypo.space.space import Space as Space
from dphypo.space.unit import interior as interior
