"""The interface of a search rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

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
