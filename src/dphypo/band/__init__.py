"""The band of densities that a private search may sample from, the projections into it, and the draw.

:class:`Band` is the set S_{C,c} of the paper. The projections :class:`L2`, :class:`KL`, :class:`Mixed` and
:class:`Greedy` choose the density in the band that replaces the one a sampler asks for.
"""

from dphypo.band.band import Band as Band
from dphypo.band.projections import KL as KL
from dphypo.band.projections import L2 as L2
from dphypo.band.projections import Greedy as Greedy
from dphypo.band.projections import Mixed as Mixed
from dphypo.band.projections import Problem as Problem
