"""The ways to tune under a total (ε, δ), called designs, compared."""

from dphypo.planning.compare import plan as plan
