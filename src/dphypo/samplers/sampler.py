"""The interface of a search rule, search by the prior alone, and the default search rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from dphypo.band import Band

if TYPE_CHECKING:
    from dphypo.samplers.history import History
    from dphypo.space import Candidates, Grid


@runtime_checkable
class Sampler(Protocol):
    """A rule that turns the finished runs into weights on candidates: π^(j+1) of Framework 1, before projection.

    Any rule is allowed. Whatever it returns, the band is enforced after it, in one place, so a rule cannot break
    privacy; weights that are not finite, are negative, or are all zero are refused before anything is drawn.

    A rule is a frozen dataclass: configuration is fields, and randomness inside it comes only from a ``seed`` field
    and the arguments. It is never told T, how many runs remain, or the time.

    A rule whose weights depend on nothing else may say so with ``history_only = True`` in the class that defines
    ``weights``; subclasses do not inherit it. Inside a band the rule then costs less (Theorem H), and the certificate
    names the class whose author has said so.
    """

    def weights(self, candidates: Candidates | Grid, history: History) -> npt.NDArray[np.float64]:
        """(n,) non-negative finite numbers, one a candidate and not all zero: how much mass the rule wants there.

        They are relative masses, not densities: the prior itself is ``candidates.masses``.
        """


@dataclass(frozen=True)
class Uniform:
    """Draw every run from the prior: Algorithm 1 of the paper, private random search.

    It needs no band: with ``Band(1, 1)`` it costs what Papernot and Steinke's random search costs.

    >>> Uniform()
    Uniform()
    """

    history_only: ClassVar[bool] = True

    def weights(self, candidates: Candidates | Grid, history: History) -> npt.NDArray[np.float64]:
        """The prior masses themselves, whatever happened before."""
        return np.asarray(candidates.masses, dtype=np.float64)


def default_sampler(band: Band) -> Sampler:
    """A Gaussian process where the band leaves it room, else draws from the prior.

    ``benchmarks/rules.py`` has the evidence: with the greedy projection it is the best of the rules there.

    >>> default_sampler(Band(1, 1))
    Uniform()
    """
    if band.C == 1:
        return Uniform()
    from dphypo.samplers.gaussian_process import GaussianProcess

    return GaussianProcess()
