"""Fitting a private estimator as a mechanism: one run is a copy with λ, noise and seed, fitted and scored."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import dp_accounting
from sklearn.base import clone

from dphypo import _validate
from dphypo.accounting.events import Event
from dphypo.accounting.sides import Sides
from dphypo.integrations import calibration
from dphypo.integrations.sklearn import scoring
from dphypo.integrations.sklearn.protocol import ChecksSpace, CutShort, Seen, noise_name, private_part
from dphypo.integrations.sklearn.records import Prepared, Records
from dphypo.integrations.sklearn.steps import Parts
from dphypo.mechanisms import Outcome, Saver
from dphypo.mechanisms.dp_sgd import matched
from dphypo.space import Space

CALIBRATE = "calibrate"


@dataclass(frozen=True, repr=False, kw_only=True)
class Fitting:
    """Fits of an estimator on some records, each with a score."""

    estimator: Any  # states its event; or a pipeline that ends in one that does
    train: Records  # to fit on
    score: scoring.Score  # ranks the fits
    records: int  # the declared number of records to fit on
    saver: Saver  # saves fitted copies of the estimator
    noise: float | Mapping[Hashable, float] | None = None  # the multiplier, or one for each kind; None: the estimator's
    fraction: float = 1.0  # of a full fit's steps
    matched: bool = False  # whether the estimator maps λ, the full fit's hyperparameters, to those of a short one
    split: Sides | None = None  # of the records to fit on and of those that score, where both are private

    relation: ClassVar[dp_accounting.NeighboringRelation] = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    monotone: ClassVar[frozenset[str]] = frozenset()
    seeded: ClassVar[bool] = True
    """By the protocol of :class:`PrivateEstimator`, all randomness of a fit comes from ``random_state``."""

    def event(self, params: Mapping[str, Any]) -> Event:
        """The event of fitting with the given parameters."""
        return self._event(params, self._noise(params))

    @property
    def score_event(self) -> Any:
        """The event of the score; None on public records, a function that raises if its noise is not known yet."""
        if self.score_noise_multiplier == CALIBRATE:
            return lambda params: self.score.event
        return self.score.event

    @property
    def score_noise_multiplier(self) -> float | str | None:
        """The noise of the score, where it looks at private records."""
        return self.score.noise_multiplier if isinstance(self.score, scoring.Private) else None

    @property
    def score_records(self) -> int | None:
        """The declared number of records that the score looks at, where they are private."""
        return self.score.records if isinstance(self.score, scoring.Private) else None

    @property
    def can_be_cut_short(self) -> bool:
        """Whether the estimator says what a shorter fit is."""
        return isinstance(private_part(self.estimator)[1], CutShort)

    def at(
        self,
        *,
        noise_multiplier: float | Mapping[Hashable, float] | None = None,
        fraction: float | None = None,
        match: bool = False,
        score_noise_multiplier: float | None = None,
    ) -> Fitting:
        """A copy with other noise, or cut short; ``match`` as in :meth:`dphypo.integrations.torch.DPSGD.at`."""
        part = self.fraction if fraction is None else _validate.within(0.0, 1.0, closed="right", fraction=fraction)
        if part < 1 and not self.can_be_cut_short:
            remedy = "it does not say what a shorter fit is: give it a method cut_short, or make full fits"
            raise _validate.fail("estimator", self.estimator, remedy)
        noise = self.noise if noise_multiplier is None else noise_multiplier
        if match and noise is not None:
            ratio = matched(1.0, part / self.fraction)
            noise = {key: ratio * one for key, one in noise.items()} if isinstance(noise, Mapping) else ratio * noise
        score: Any = self.score
        if score_noise_multiplier is not None:
            score = replace(score, noise_multiplier=score_noise_multiplier)
        return replace(self, noise=noise, fraction=part, matched=self.matched or match, score=score)

    def architecture(self, space: Space) -> str:
        """The kinds of steps and the number of columns: a search goes on with the same ones only."""
        parts = Parts.of(self.estimator)
        X = self.train.X
        columns = X.shape[1] if hasattr(X, "shape") else len(X[0]) if len(X) else 0
        kinds = [type(step).__name__ for step in (*(step for _, step in parts.steps), parts.last)]
        return " > ".join(kinds) + f" on {columns} columns"

    def check_space(self, space: Space) -> None:
        """Refuse a space that the estimator refuses, if it has a method ``check_space(space, prefix)``."""
        prefix, last = private_part(self.estimator)
        if isinstance(last, ChecksSpace):
            last.check_space(space, prefix)

    def kinds(self, space: Space) -> list[calibration.Kind]:
        """Runs of a space that cost the same but for their noise, told apart by the full fit's event at noise 1."""
        self.check_space(space)

        def kind_of(params: Mapping[str, Any]) -> calibration.Kind:
            return calibration.Kind(self._key(params), lambda noise: self._event(params, noise))

        return calibration.kinds(space, kind_of)

    def __call__(self, params: Mapping[str, Any], *, seed: int) -> Outcome:
        """One run: ``M_λ(D)`` of the paper."""
        prefix, _ = private_part(self.estimator)
        cut = {f"{prefix}{name}": value for name, value in self._cut(params, transfer=True).items()}
        chosen: dict[str, Any] = {**params, **cut, f"{prefix}random_state": seed}
        name, noise = noise_name(self.estimator), self._noise(params)
        if noise is not None and name is not None:
            chosen[name] = noise
        if f"{prefix}records" in self.estimator.get_params():
            chosen[f"{prefix}records"] = self.records
        key = tuple((name, repr(value)) for name, value in sorted(params.items()) if not name.startswith(prefix))
        fitted = Prepared.of(clone(self.estimator).set_params(**chosen), self.train.X, key)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about single records
            fitted.last.fit(*self.train.met_by(fitted))
            score = self.score(fitted, seed)
        fitted.whole.set_params(**{f"{prefix}random_state": None})  # the seed stays with the curator
        return Outcome(fitted.whole, score)

    def _event(self, params: Mapping[str, Any], noise: float | None) -> Event:
        prefix, last = private_part(self.estimator)
        over = dict(self._cut(params, transfer=False))
        if noise is not None and noise_name(self.estimator) is not None:
            over["noise_multiplier"] = noise
        return last.privacy_event(Seen(params, prefix, over), records=self.records)

    def _cut(self, params: Mapping[str, Any], *, transfer: bool) -> dict[str, Any]:
        """The parameters that a shorter fit has other than a full one, without their prefix."""
        prefix, last = private_part(self.estimator)
        if self.fraction == 1 or not isinstance(last, CutShort):
            return {}
        seen, transfer = Seen(params, prefix, {}), transfer and self.matched
        return last.cut_short(seen, self.fraction, records=self.records, transfer=transfer)

    def _noise(self, params: Mapping[str, Any]) -> float | None:
        return self.noise[self._key(params)] if isinstance(self.noise, Mapping) else self.noise

    def _key(self, params: Mapping[str, Any]) -> Hashable:
        """What tells kinds of runs apart: the full fit's event at noise 1."""
        return replace(self, fraction=1.0)._event(params, 1.0)
