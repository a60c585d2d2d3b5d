"""Fitting a private estimator as a mechanism: one run is a copy with λ, noise and seed, fitted and scored.

Runs are scored on public records for nothing, or on private ones with noise.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import dp_accounting
import numpy as np
from sklearn.base import clone

from dphypo import _validate, noise
from dphypo.accounting import RoundedDp
from dphypo.accounting.events import Event, canonical
from dphypo.accounting.sides import Sides
from dphypo.integrations.record_hash import record_bytes
from dphypo.integrations.sklearn.pipeline import ChecksSpace, CutShort, Parts
from dphypo.integrations.sklearn.records import Prepared, TableRecords
from dphypo.integrations.sklearn.table import numbers, width_of
from dphypo.mechanisms import Outcome, Saver, over_space
from dphypo.mechanisms.capabilities import CALIBRATE, RunKind
from dphypo.mechanisms.sampled_gaussian import match_noise
from dphypo.space import Space


@dataclass(frozen=True, repr=False, kw_only=True)
class Fitting:
    """Fits of an estimator on some records, each with a score.

    A score on private records is the share that is classified correctly, or minus the mean absolute error, with exact
    noise. The correct records are counted. Errors are cut off at ``error_bound``, put on a grid and added up. Adding or
    removing one record changes the count by at most 1 and the sum by at most ``error_bound``: a Gaussian mechanism. A
    whole number of units over a public number of records is published. What an estimator predicts of a record is taken
    as a function of that record alone: in the last bit a product of matrices may round a row by its place.
    """

    estimator: Any  # states its event; or a pipeline that ends in one that does
    parts: Parts  # of the estimator
    train: TableRecords  # to fit on
    records: int  # their declared number
    held_out: TableRecords  # to rank the fits by: public with a scorer, else private
    scorer: Callable[..., float] | None = None  # any of scikit-learn's
    score_noise_multiplier: float | str | None = None  # deviation on the count, or on the sum in units of error_bound
    score_records: int | None = None  # the declared number of private records that score
    error_bound: float | None = None  # of a regressor, the largest absolute error that counts; None for a classifier
    saver: Saver  # saves fitted copies of the estimator
    noise: float | Mapping[Hashable, float] | None = None  # the multiplier, or one for each kind; None: the estimator's
    fraction: float = 1.0  # of a full fit's steps
    match: bool = False  # whether the estimator maps λ, the full fit's hyperparameters, to those of a short one
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
        if self.scorer is not None:
            return None
        if self.score_noise_multiplier == CALIBRATE:
            return lambda params: self._score_noise
        sigma = self._score_noise
        slack = noise.slack(1, sigma) if self.error_bound is None else noise.slack_of_sum(sigma)
        return RoundedDp(dp_accounting.GaussianDpEvent(sigma), slack)

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
        if part < 1 and not isinstance(self.parts.last, CutShort):
            remedy = "it does not say what a shorter fit is: give it a method cut_short, or make full fits"
            raise _validate.fail("estimator", self.estimator, remedy)
        noise = self.noise if noise_multiplier is None else noise_multiplier
        if match and noise is not None:
            ratio = match_noise(1.0, part / self.fraction)
            noise = {key: ratio * one for key, one in noise.items()} if isinstance(noise, Mapping) else ratio * noise
        if score_noise_multiplier is not None and self.scorer is not None:
            remedy = "the score looks at public records: it has no noise"
            raise _validate.fail("score_noise_multiplier", score_noise_multiplier, remedy)
        scoring = self.score_noise_multiplier if score_noise_multiplier is None else score_noise_multiplier
        changes: dict[str, Any] = {"noise": noise, "fraction": part, "score_noise_multiplier": scoring}
        return replace(self, **changes, match=self.match or match)

    def without_score(self) -> Fitting:
        """The same fit, which looks at no private record for a score."""
        return self if self.scorer is not None else replace(self, scorer=_no_score, score_noise_multiplier=None)

    def architecture(self, space: Space) -> str:
        """The kinds of steps and the number of columns: a search goes on with the same ones only."""
        kinds = [type(step).__name__ for _, step in (*self.parts.steps, ("", self.parts.last))]
        return " > ".join(kinds) + f" on {width_of(self.train.X)} columns"

    def check_space(self, space: Space) -> None:
        """Refuse a space that the estimator refuses, if it has a method ``check_space(space, prefix)``."""
        if isinstance(self.parts.last, ChecksSpace):
            self.parts.last.check_space(space, self.parts.prefix)

    def kinds(self, space: Space) -> list[RunKind]:
        """Runs of a space that cost the same but for their noise, told apart by the full fit's event at noise 1."""
        self.check_space(space)
        return over_space.everywhere(lambda params: [RunKind(self._key(params), partial(self._event, params))], space)

    def __call__(self, params: Mapping[str, Any], *, seed: int) -> Outcome:
        """One run: ``M_λ(D)`` of the paper."""
        prefix = self.parts.prefix
        own = {**self._over(params, self._noise(params), transfer=True), "random_state": seed}
        if self.parts.takes("records"):
            own["records"] = self.records
        chosen = {**params, **{f"{prefix}{name}": value for name, value in own.items()}}
        key = tuple((name, repr(value)) for name, value in sorted(params.items()) if not name.startswith(prefix))
        fitted = Prepared.of(clone(self.estimator).set_params(**chosen), self.train.X, key)
        with warnings.catch_warnings(action="ignore"):  # about single records
            fitted.last.fit(*self.train.met_by(fitted))
            score = self._score(fitted, seed)
        fitted.whole.set_params(**{f"{prefix}random_state": None})  # the seed stays with the curator
        return Outcome(fitted.whole, score)

    def _score(self, fitted: Prepared, seed: int) -> float:
        if self.scorer is not None:
            return float(self.scorer(fitted.whole, self.held_out.X, self.held_out.y))
        sigma, records = self._score_noise, self.score_records
        assert records is not None
        X, y = self.held_out.met_by(fitted)
        guesses = fitted.last.predict(X) if len(y) else np.zeros(0)
        words = noise.Words.of_seed(seed).stream("score")
        if self.error_bound is None:
            # By value, each record alone: one label of another type changes the type of all of them.
            correct = sum(map(operator.eq, record_bytes(guesses), record_bytes(y)))
            return noise.noisy_count(correct, sigma, words) / records
        # Both as one number a record: a column less a row would be a table, with a record in a row and a column of it.
        targets, guesses = (np.reshape(np.asarray(one, dtype=np.float64), len(y)) for one in (numbers(y), guesses))
        guesses = np.where(np.isnan(guesses), np.inf, guesses)  # no guess is as wrong as can be
        return -noise.noisy_sum(np.abs(targets - guesses), self.error_bound, sigma, words) / records

    @property
    def _score_noise(self) -> float:
        """The noise of a score on private records, which must have been found."""
        if self.score_noise_multiplier is None or isinstance(self.score_noise_multiplier, str):
            remedy = "a survey solves for it: give a number, or epsilon=... and no runs"
            raise _validate.fail("score_noise_multiplier", self.score_noise_multiplier, remedy)
        return self.score_noise_multiplier

    def _event(self, params: Mapping[str, Any], noise: float | None) -> Event:
        seen = _Seen(params, self.parts.prefix, self._over(params, noise, transfer=False))
        state = partial(self.parts.last.privacy_event, seen)
        event: Event = state(records=self.records)
        if not self.parts.takes("records"):
            self._refuse_another_number(event, state)
        return event

    def _refuse_another_number(self, event: Event, state: Callable[..., Event]) -> None:
        """Refuse an event that depends on the number of records, where ``fit`` is not told the declared number.

        It would count the records that it is given. How many those are is private: a hash decides which records score,
        and steps leave records out.
        """
        declared, stated = self.records, _canonical(event)
        for records in (max(1, declared // 2), max(1, declared - 1), declared + 1, 2 * declared, 10 * declared):
            try:
                same = _canonical(state(records=records)) == stated
            except (ValueError, ArithmeticError):  # such as a batch that is larger than the data
                same = False
            if not same:
                remedy = (
                    "its privacy_event changes with the number of records, and fit is not told the declared number: "
                    "give it a parameter records=None, which the search sets, and use that in place of len(X) in fit"
                )
                raise _validate.fail("estimator", self.parts.last, remedy)

    def _over(self, params: Mapping[str, Any], noise: float | None, *, transfer: bool) -> dict[str, Any]:
        """The parameters of a fit that are not λ's, without their prefix: those of a shorter fit, and the noise."""
        over: dict[str, Any] = {}
        last, prefix = self.parts.last, self.parts.prefix
        if self.fraction < 1 and isinstance(last, CutShort):
            seen, transfer = _Seen(params, prefix, {}), transfer and self.match
            over.update(last.cut_short(seen, self.fraction, records=self.records, transfer=transfer))
        if noise is not None and self.parts.takes("noise_multiplier"):
            over["noise_multiplier"] = noise
        return over

    def _noise(self, params: Mapping[str, Any]) -> float | None:
        return self.noise[self._key(params)] if isinstance(self.noise, Mapping) else self.noise

    def _key(self, params: Mapping[str, Any]) -> Hashable:
        """What tells kinds of runs apart: the full fit's event at noise 1."""
        return replace(self, fraction=1.0)._event(params, 1.0)


def _no_score(*_: object) -> float:
    return 0.0


def _canonical(event: Event | Sequence[Event]) -> list[Event]:
    return [canonical(one) for one in (event if isinstance(event, list | tuple) else [event])]


class _Seen(Mapping[str, Any]):
    """Parameters as a private part sees them: without their prefix, and some with other values.

    It reads no more than what is asked for, so that a search knows what an event depends on.
    """

    def __init__(self, params: Mapping[str, Any], prefix: str, over: Mapping[str, Any]) -> None:
        self._params, self._prefix, self._over = params, prefix, over

    def __getitem__(self, name: str) -> Any:
        return self._over[name] if name in self._over else self._params[self._prefix + name]

    def __contains__(self, name: object) -> bool:
        return name in self._over or f"{self._prefix}{name}" in self._params

    def __iter__(self) -> Iterator[str]:
        inner = (name.removeprefix(self._prefix) for name in self._params if name.startswith(self._prefix))
        return iter(dict.fromkeys([*inner, *self._over]))

    def __len__(self) -> int:
        return sum(1 for _ in self)
