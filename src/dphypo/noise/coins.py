"""Poisson sampling by integer comparison: a record is in if its word is below ⌊q·2⁶⁴⌋.

``rand() < q`` compares q with a multiple of 2⁻²⁴ or 2⁻⁵³, and so samples at another rate than was declared. Here the
rate is q rounded down to a multiple of 2⁻⁶⁴. It is never above q, and a smaller rate never costs more privacy.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dphypo import _validate
from dphypo.noise.words import Source


def threshold(rate: float) -> int:
    """⌊rate·2⁶⁴⌋, exactly; 2⁶⁴ if the rate is 1, and then every word is below it.

    >>> threshold(0.5) == 2**63, threshold(1.0) == 2**64
    (True, True)
    """
    return int(Fraction(_validate.within(0.0, 1.0, closed="both", rate=rate)) * 2**64)


def chosen(rate: float, words: Source, size: int) -> npt.NDArray[np.int64]:
    """The places of 0, ..., ``size − 1`` that are in, each independently with probability ⌊rate·2⁶⁴⌋/2⁶⁴.

    It takes ``size`` words whatever the rate is.

    >>> from dphypo.noise import Words
    >>> chosen(1.0, Words(bytes(16)), 3).tolist(), chosen(0.0, Words(bytes(16)), 3).tolist()
    ([0, 1, 2], [])
    """
    bound, drawn = threshold(rate), words.draw(size)
    if bound == 2**64:
        return np.arange(size)
    return np.flatnonzero(drawn < np.uint64(bound))
