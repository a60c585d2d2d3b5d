"""The search space: what people write for a randomised search, with its prior, candidate sets and grids."""

from ._candidates import Candidates as Candidates
from ._grid import Grid as Grid
from ._space import Space as Space
