"""A law of T of one's own: T is ``few`` or ``many``, each with probability one half."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dphypo import laws
from dphypo.entropy import Entropy, bits

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TwoPoint:
    """P[T = few] = P[T = many] = ½."""

    few: int
    many: int

    @property
    def mean(self) -> float:
        return (self.few + self.many) / 2

    def pmf(self, k: npt.ArrayLike) -> Array:
        mass: Array = ((np.asarray(k) == self.few) + 0.0 + (np.asarray(k) == self.many))[()] / 2
        return mass

    def pgf(self, x: npt.ArrayLike) -> Array:
        value: Array = ((np.asarray(x) ** self.few + np.asarray(x) ** self.many) / 2)[()]
        return value

    def pgf_derivative(self, x: npt.ArrayLike) -> Array:
        return np.exp(self.log_pgf_derivative(x))

    def log_pgf_derivative(self, x: npt.ArrayLike) -> Array:
        with np.errstate(divide="ignore"):
            return self._log_derivative(np.log(np.asarray(x, dtype=np.float64)))

    def log_g(self, v: npt.ArrayLike) -> Array:
        with np.errstate(divide="ignore"):
            return self._log_derivative(np.log1p(-np.asarray(v, dtype=np.float64)))

    def _log_derivative(self, log_x: Array) -> Array:
        def term(k: int) -> Array:  # x^0 is 1 at x = 0 too
            power: Array = 0.0 * np.maximum(log_x, -1.0) if k == 1 else (k - 1) * log_x
            return np.asarray(np.log(k / 2) + power)

        total: Array = np.logaddexp(term(self.few), term(self.many))[()]
        return total

    def quantile(self, q: float) -> int:
        return self.few if q <= 0.5 else self.many

    def sample(self, entropy: Entropy) -> int:
        return self.few if bits(1, entropy) else self.many

    def capped(self, limit: int) -> laws.Law:
        return laws.Pmf({self.few: 0.5, self.many: 0.5}).capped(limit)

    def to_dict(self) -> dict[str, Any]:
        return {"law": "two_point", "few": self.few, "many": self.many}


@laws.register("two_point")
def _from_dict(description: Any) -> TwoPoint:
    return TwoPoint(description["few"], description["many"])


if __name__ == "__main__":
    from dphypo.testing import check_law

    check_law(TwoPoint(3, 20))
    print("TwoPoint conforms")
