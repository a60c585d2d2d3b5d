"""Laws of T, the secret number of runs of a search.

T is drawn once, independently of the data. Its generating function f(x) = E[x^T] decides what the search costs, so
that each law gives f and f′ in closed form, and is sampled exactly: the law accounted for is the law drawn from.
"""

from ._capped import Capped as Capped
from ._law import Law as Law
from ._negative_binomial import Geometric as Geometric
from ._negative_binomial import Logarithmic as Logarithmic
from ._negative_binomial import NegativeBinomial as NegativeBinomial
from ._pmf import Pmf as Pmf
from ._poisson import Poisson as Poisson
from ._serial import from_dict as from_dict
