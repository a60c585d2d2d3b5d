"""The secret side of a study: T, the runs that were given out, and how they ended. Commit first, then use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dphypo import errors
from dphypo.entropy import Entropy, below
from dphypo.errors import SamplerError
from dphypo.journal import MAX_ATTEMPTS, Journal, Record, Trial
from dphypo.laws import Law
from dphypo.mechanisms import Outcome
from dphypo.study import declaration as _declaration
from dphypo.study.next_params import Policy
from dphypo.study.selection import beats, history


class Search:
    """What a study has drawn and what has come back, as committed to its journal."""

    def __init__(
        self, journal: Journal, declaration: dict[str, Any], law: Law, policy: Policy, entropy: Entropy, sign: float
    ) -> None:
        self._journal = journal
        self._declaration = declaration
        self._law = law
        self._policy = policy
        self._entropy = entropy
        self._sign = sign  # scores times this: larger is better
        self._open = False
        self._handed: dict[int, Trial] = {}  # given out and not finished yet
        self.sampler_error: Exception | None = None

    def is_part_of(self, whole: dict[str, Any]) -> None:
        """Add to the declaration, before anything is drawn, the larger search of which this is a part."""
        self._declaration = {**self._declaration, **whole}

    def record(self) -> Record:
        """What is committed. The first call takes the journal and, if the study is new, draws and commits T."""
        if not self._open:
            found = self._journal.begin(self._declaration, lambda: self._law.sample(self._entropy.child("T")))
            self._open = True
            try:
                _declaration.check(found, self._declaration)
            except errors.ChangedStudy:
                self.close()
                raise
        return self._journal.record

    def next(self) -> Trial | None:
        """The next run to make, committed: first those that were lost, as they were, then new ones; None after T."""
        record = self.record()
        if record.released:
            raise errors.RunsAfterRelease
        while (trial := self._lost_run(record)) is not None:
            if trial.attempts < MAX_ATTEMPTS:
                trial = replace(trial, attempts=trial.attempts + 1)
                self._journal.attempted(trial)
                self._handed[trial.number] = trial
                return trial
            self.finish(trial, Outcome.failed("the process that made this run died three times"))
        if len(record.trials) == record.total:
            return None
        trial = self._draw(record)
        self._journal.claim(trial)
        self._handed[trial.number] = trial
        return trial

    def _lost_run(self, record: Record) -> Trial | None:
        """A run that was given out, is not under way, and has no outcome."""
        if len(record.results) + len(self._handed) == len(record.trials):
            return None
        under_way = record.results.keys() | self._handed.keys()
        return next((trial for trial in record.trials if trial.number not in under_way), None)

    def _draw(self, record: Record) -> Trial:
        """All that is random about a run but the run itself: λ from the band, its seed, the key that breaks ties."""
        number = len(record.trials)
        entropy = self._entropy.child(f"trial {number}")
        past = history(record, self._policy.space, self._sign) if self._policy.adaptive else None
        try:
            params = self._policy.draw(past, entropy)
        except SamplerError as error:
            self.sampler_error = error.secret
            raise
        return Trial(params, below(2**63, entropy.child("seed")), number, entropy.child("tie").bytes(16))

    def finish(self, trial: Trial, outcome: Outcome) -> None:
        """Commit how a run ended; keep the model if it is the best so far, and erase the one it beats."""
        record = self.record()
        if trial.number in record.results:
            raise errors.OutcomeTwice
        model = outcome.model if beats(trial, outcome, record, self._sign) else None
        self._journal.finish(trial, outcome, model)
        self._handed.pop(trial.number, None)
        if outcome.leaving is not None:
            raise outcome.leaving

    def lost(self, trial: Trial) -> None:
        """The process that made this run died: ``next`` gives it out again."""
        self._handed.pop(trial.number, None)

    def withdraw(self) -> None:
        """An orderly stop is not a death: what was given out will be given out again, the attempt not counted."""
        handed, self._handed = self._handed, {}
        for trial in handed.values():
            if trial.number not in self.record().results:
                self._journal.attempted(replace(trial, attempts=max(trial.attempts - 1, 0)))

    def close(self) -> None:
        """Let other processes use the journal."""
        self._open, self._handed = False, {}
        self._journal.rest()
