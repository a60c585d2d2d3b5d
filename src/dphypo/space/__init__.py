"""The search space: what people write for a randomised search, with its prior, candidate sets and grids."""

from dphypo.space.space import Candidates as Candidates
from dphypo.space.space import Grid as Grid
from dphypo.space.space import Space as Space
