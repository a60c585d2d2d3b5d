"""Laws of T, the secret number of runs of a search.

T is drawn once, independently of the data. Its generating function f(x) = E[x^T] decides what the search costs, so
that each law gives f and f′ in closed form, and is sampled exactly: the law accounted for is the law drawn from.
"""

from dphypo.laws.law import Law as Law
from dphypo.laws.law import Pmf as Pmf
from dphypo.laws.law import from_dict as from_dict
from dphypo.laws.negative_binomial import Geometric as Geometric
from dphypo.laws.negative_binomial import Logarithmic as Logarithmic
from dphypo.laws.negative_binomial import NegativeBinomial as NegativeBinomial
from dphypo.laws.poisson import Poisson as Poisson
