"""``PrivacyEngine(accountant="dphypo")``: Opacus's ``get_epsilon`` for all runs that this process has made.

Opacus's accountants count one run. A script that trains forty models and keeps the best reports the ε of one of them.
Importing this module registers an accountant that counts every run with it: all of them together are what the script
has released, whichever it keeps. ``dphypo.tune`` costs far less than that.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import dp_accounting
from opacus.accountants import IAccountant, register_accountant

from dphypo.accounting import Composition, Term
from dphypo.accounting.composition import account_published
from dphypo.accounting.profiles import round_epsilon
from dphypo.accounting.sides import EVERYONE

Step = tuple[float, float, int]  # noise multiplier, sampling rate, steps


class SearchAccountant(IAccountant):  # type: ignore[misc]
    """The ε of every run that was trained with this accountant in this process, together."""

    trained: ClassVar[list[SearchAccountant]] = []
    """The accountants of all runs that have made a step."""

    def __init__(self) -> None:
        super().__init__()

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        if self not in self.trained:  # the solver of make_private_with_epsilon makes none
            self.trained.append(self)
        last = self.history[-1] if self.history else None
        if last is not None and last[:2] == (noise_multiplier, sample_rate):
            self.history[-1] = (noise_multiplier, sample_rate, last[2] + 1)
        else:
            self.history.append((noise_multiplier, sample_rate, 1))

    def get_epsilon(self, delta: float, **_: Any) -> float:
        """An upper bound for all runs so far, rounded up; Poisson sampling and adding or removing one record."""
        runs: Counter[tuple[Step, ...]] = Counter()
        for one in {*self.trained, self}:
            if one.history:
                runs[tuple(one.history)] += 1
        terms = []
        for history, count in runs.items():
            steps = [
                dp_accounting.SelfComposedDpEvent(
                    dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise)), number
                )
                for noise, rate, number in history
            ]
            event = steps[0] if len(steps) == 1 else dp_accounting.ComposedDpEvent(steps)
            terms.append(Term(account_published(event, count), EVERYONE))
        return round_epsilon(Composition(tuple(terms)).epsilon(delta)) if terms else 0.0

    def __len__(self) -> int:
        return len(self.history)

    @classmethod
    def mechanism(cls) -> str:
        return "dphypo"


register_accountant("dphypo", SearchAccountant, force=True)
