"""Several metrics of one run, ``DPSGD(score={"accuracy": ..., "gap": ...})``: the first one ranks, all are published.

Each metric on private records is a Gaussian mechanism with noise of its own, and together they compose: what all of
them cost is one Gaussian mechanism, 1/σ² = Σ 1/σᵢ². Measures of one confusion matrix are functions of the same noisy
matrix, which is drawn and paid for once. Without private records a metric costs nothing.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import dp_accounting
from torch import nn

from dphypo import _validate
from dphypo.accounting import RoundedDp
from dphypo.accounting.events import ideal
from dphypo.accounting.sides import Sides
from dphypo.integrations import cost
from dphypo.integrations.measures import PrivateScore
from dphypo.integrations.split import Origin
from dphypo.integrations.torch import seeds
from dphypo.integrations.torch.fields import plain
from dphypo.integrations.torch.score import PrivateConfusion, RecordScore
from dphypo.integrations.training import no_score

_ROUNDING = 1 - 1e-12


@dataclass(frozen=True, repr=False)
class Metrics:
    """Named scores, of which the first ranks.

    Args:
        scores: private scores, and functions of the model that look at public records alone.
        noise_multiplier: of all private scores together; None if they have their own, "calibrate" if it is to be found.
    """

    scores: Mapping[str, Any]
    noise_multiplier: float | str | None = None

    def __post_init__(self) -> None:
        for name, score in _validate.mapping(score=self.scores).items():
            if not callable(score) or not isinstance(name, str) or name in ("score", "status"):
                raise _validate.fail("score", name, "give names, each with a function of the model or a private score")
        open_ = [score.noise_multiplier == cost.CALIBRATE for score in self.private]
        if self.noise_multiplier is None and any(open_):
            if not all(open_):
                raise _validate.fail("score", "calibrate", "leave the noise of all private scores to tune, or of none")
            object.__setattr__(self, "noise_multiplier", cost.CALIBRATE)
        elif self.noise_multiplier is not None and not isinstance(self.noise_multiplier, str):
            noise = self.noise_multiplier * math.sqrt(len(self.private))
            with warnings.catch_warnings(action="ignore"):  # a plan tries out noise that it does not keep
                scores = {
                    name: replace(score, noise_multiplier=noise) if is_private(score) else score
                    for name, score in self.scores.items()
                }
            object.__setattr__(self, "scores", scores)

    @property
    def private(self) -> list[PrivateScore]:
        """The scores that cost something, one of each matrix."""
        found: dict[Any, PrivateScore] = {}
        for name, score in self.scores.items():
            if is_private(score):  # the first of a matrix, which is the one that draws it
                found.setdefault(score.matrix_key if isinstance(score, PrivateConfusion) else name, score)
        return list(found.values())

    @property
    def event(self) -> RoundedDp:
        """One evaluation of all of them, each with noise of its own."""
        events = [score.event for score in self.private]
        slack = math.fsum(event.slack for event in events if isinstance(event, RoundedDp)) * (1 + 1e-12)
        exact = all(isinstance(event, RoundedDp) and event.exact for event in events)
        parts = list(map(ideal, events))
        if all(isinstance(part, dp_accounting.GaussianDpEvent) for part in parts):
            sigma = _ROUNDING / math.sqrt(math.fsum(part.noise_multiplier**-2 for part in parts))
            return RoundedDp(dp_accounting.GaussianDpEvent(sigma), slack, exact)
        return RoundedDp(dp_accounting.ComposedDpEvent(parts), slack, exact)

    @property
    def records(self) -> int | None:
        """The smallest declared number of records that a private score looks at."""
        return min((score.records for score in self.private if score.records), default=None)

    @property
    def split(self) -> Sides | None:
        """The rule of all private scores, where it is one."""
        rules = [score.split for score in self.private]
        return rules[0] if all(rule == rules[0] for rule in rules) else None

    @property
    def data(self) -> Origin:
        """Where the records of all private scores come from: their side, if it is one, and all their arrays."""
        known = [Origin.of(score.data) for score in self.private]
        one = known[0] if known and all(origin == known[0] for origin in known) else Origin()
        return replace(one, arrays=tuple(array for origin in known for array in origin.arrays))

    def __call__(self, model: nn.Module, *, seed: int) -> dict[str, float]:
        """Every metric, each with random words of its own but for the measures of one matrix."""
        found, matrices = {}, {}
        for name, score in self.scores.items():
            own = int.from_bytes(seeds.words(seed, f"metric {name}").draw(2).tobytes(), "big")
            if isinstance(score, PrivateConfusion):
                if (key := score.matrix_key) not in matrices:
                    matrices[key] = score.matrix(model, seed=own)
                found[name] = score.measured(matrices[key])
            else:
                found[name] = float(score(model, seed=own) if is_private(score) else score(plain(model)))
        return found


def on_records(score: Any, **changes: Any) -> Any:
    """A score on other records. A private score of one's own reads its own records: 0 takes its place."""
    if isinstance(score, Metrics):
        return Metrics({name: on_records(one, **changes) for name, one in score.scores.items()})
    if isinstance(score, RecordScore):
        return replace(score, **changes)
    return no_score if is_private(score) else score


def is_private(score: object) -> bool:
    """Whether a score looks at private records: it states an event. It must then state all of a private score."""
    if isinstance(score, Metrics):
        return bool(score.private)
    if isinstance(score, (RecordScore, PrivateScore)):
        return True
    if inspect.getattr_static(score, "event", None) is not None:
        remedy = "it states an event, so it is private: let it state its split, data, records and noise_multiplier, "
        raise _validate.fail("score", type(score).__name__, remedy + "too, or None if they are not known")
    return False
