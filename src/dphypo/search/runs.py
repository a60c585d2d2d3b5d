"""The secret side of a search: the number of runs, the runs that were given out, how they ended.

Commit first, then use. A search knows neither a space nor a law: what is drawn, it draws by its :class:`Rules`, which
are public. So a study and a survey have the same search.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import weakref
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from typing import Any, Protocol, runtime_checkable

from dphypo import errors
from dphypo.accounting import Certificate
from dphypo.entropy import Entropy, below
from dphypo.journal import MAX_ATTEMPTS, Journal, Record, Trial, machine
from dphypo.mechanisms import Outcome, Saver, settle, well_formed
from dphypo.search.declaration import DAY, check
from dphypo.search.lost import Lost
from dphypo.search.release import Ending, Release
from dphypo.search.selection import beats, best_of, ending
from dphypo.search.signals import orderly
from dphypo.search.turn import Turn

LAG = "lag"


class Rules(Protocol):
    """What decides the runs of a search. Fixed and public; ``Declaration`` has the rules of a study."""

    @property
    def sign(self) -> float:
        """Scores times this: larger is better."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """What may not change once the search has begun, as JSON."""
        ...

    def draw_total(self, entropy: Entropy) -> int:
        """How many runs there are."""
        ...

    def possible(self, total: int) -> bool:
        """Whether there may be so many: a journal that says otherwise was tampered with."""
        ...

    def draw_params(self, record: Record, entropy: Entropy) -> dict[str, Any]:
        """λ of the next run."""
        ...

    @property
    def history_only(self) -> bool:
        """Whether λ may depend on nothing but earlier results, taken in the order of the runs with a fixed lag."""
        ...


@runtime_checkable
class Rehearsed(Protocol):
    """Rules that can be tried before anything is drawn."""

    def rehearse(self) -> None:
        """Raise if runs cannot be made. No private record is touched."""
        ...


class Search:
    """What a search has drawn and what has come back, as committed to its journal. Its methods are safe under threads.

    Args:
        rules: what decides the runs.
        journal: where they are committed.
        entropy: where randomness comes from.
        lost: what becomes of a run whose process died.
        stages: whether it is a part of a longer search, which refusals then name.
        erase_seeds: whether the seed of a run is erased when the run has ended.
        lag: how many of the latest runs the rules do not see, if they are history-only; it is committed with T and
            stays the same. If left out, it is one less than the number of runs made at a time when the search begins.
    """

    def __init__(
        self,
        rules: Rules,
        journal: Journal,
        entropy: Entropy,
        *,
        lost: Lost = Lost.AGAIN,
        stages: bool = False,
        erase_seeds: bool = False,
        lag: int | None = None,
    ) -> None:
        self._rules = rules
        self._lag = lag
        self._journal = journal
        self._entropy = entropy
        self._lost = lost
        self._open = False
        self._here = True  # runs are made in this process, as far as one can know
        self._at_exit = False  # whether the end of the process closes the search
        self._handed: dict[int, Trial] = {}  # given out and not finished yet
        self._turn = Turn(stages=stages)
        self._stages, self._erase_seeds = stages, erase_seeds
        self.sampler_error: Exception | None = None

    @property
    def address(self) -> str | None:
        """Where the journal is, in words that may be printed; None if it is in memory."""
        return self._journal.address

    def record(self) -> Record:
        """What is committed. The first call takes the journal and, if the search is new, draws and commits T."""
        with self._turn.look():
            if not self._open:
                declared = self._rules.to_dict()
                if isinstance(self._rules, Rehearsed) and not self._journal.record.exists:
                    self._rules.rehearse()
                # Of a plan, a part begins when the part before it has ended: its day would tell how long that took.
                begun = declared if self._stages else {**declared, DAY: date.today().isoformat()}
                begun = {**begun, LAG: self._lag or 0} if self._rules.history_only else begun
                found = dict(self._journal.begin(begun, lambda: self._rules.draw_total(self._entropy)))
                self._open = True
                try:
                    lag = found.pop(LAG, None)
                    check(found, declared)
                    if lag is not None and not self._rules.history_only and not self._journal.record.released:
                        self._journal.redeclare(declared | {DAY: found[DAY]} if DAY in found else declared)
                    self._lag = lag if self._rules.history_only else self._lag
                    total = self._journal.record.total
                    if total is not None and not self._rules.possible(total):
                        raise errors.JournalTamperedError("its number of runs is one that the law of T never gives")
                except BaseException:
                    self.close()
                    raise
            return self._journal.record

    def next(self) -> Trial | None:
        """The next run to make, committed: first those that were lost, as they were, then new ones; None after T."""
        with self._turn.short():
            record = self.record()
            if record.released:
                raise errors.RunsAfterRelease(stages=self._stages)
            while (trial := self._lost_run(record)) is not None:
                if (died := self._died(trial)) is None:
                    trial = replace(trial, attempts=self._attempts(trial.attempts))
                    self._journal.attempted(trial)
                    self._handed[trial.number] = trial
                    return trial
                self.finish(trial, Outcome.failed(died))
            if len(record.trials) == record.total or self.waiting:
                return None
            trial = self._draw(record)
            self._journal.claim(trial)
            self._handed[trial.number] = trial
            if self._lost is Lost.FAILED and not self._at_exit:
                self._at_exit = True
                atexit.register(_close, weakref.ref(self), os.getpid())
            return trial

    def _attempts(self, before: int) -> int:
        """How many deaths a run will have had, if this process dies now.

        Where a death is the run's end, a run that is made in a process of its own cannot die with this one.
        """
        return before + 1 if self._here or self._lost is Lost.AGAIN else before

    def _died(self, trial: Trial) -> str | None:
        """Why a run that was given out and never told counts as failed; None if it is to be made again."""
        if trial.attempts >= MAX_ATTEMPTS:
            return "the process that made this run died three times"
        if self._lost is Lost.FAILED and trial.attempts > 0 and self._journal.record.machine == machine():
            return "the process that made this run died"
        return None

    def ask(self) -> Trial | None:
        """The next run to make, for somebody who makes runs elsewhere; None after T."""
        with self._turn.short():
            trial = self.next()
            if trial is None and self.waiting:
                raise errors.TellFirst
            return trial

    def side_by_side(self, runs: int) -> None:
        """Say how many runs are made at a time; it counts if the search has not begun and no lag was declared."""
        self._lag = runs - 1 if self._lag is None else self._lag

    @property
    def waiting(self) -> bool:
        """Whether the next λ cannot be drawn before a run that is under way has ended."""
        record = self.record()
        return len(record.trials) != record.total and not self._seen(record).keys() >= set(self._usable(record))

    def _usable(self, record: Record) -> range:
        """The runs whose results the next λ depends on: all but the last few, if the rules are history-only."""
        number = len(record.trials)
        return range(max(number - (self._lag or 0), 0)) if self._rules.history_only else range(0)

    def _seen(self, record: Record) -> dict[int, Outcome]:
        """The results that the rules are shown."""
        if not self._rules.history_only:
            return record.results
        return {number: record.results[number] for number in self._usable(record) if number in record.results}

    def _lost_run(self, record: Record) -> Trial | None:
        """A run that was given out, is not under way, and has no outcome."""
        if len(record.results) + len(self._handed) == len(record.trials):
            return None
        under_way = record.results.keys() | self._handed.keys()
        return next((trial for trial in record.trials if trial.number not in under_way), None)

    def _draw(self, record: Record) -> Trial:
        """All that is random about a run but the run itself: λ, its seed, and the key that breaks ties."""
        number = len(record.trials)
        entropy = self._entropy.child(f"trial {number}")
        try:
            params = self._rules.draw_params(replace(record, results=self._seen(record)), entropy)
        except errors.SamplerError as error:
            self.sampler_error = error.secret
            raise
        return Trial(
            params, below(2**63, entropy.child("seed")), number, entropy.child("tie").bytes(16), self._attempts(0)
        )

    def finish(self, trial: Trial, outcome: Outcome) -> None:
        """Commit how a run ended; keep the model if it is the best so far, and erase the one it beats."""
        with self._turn.short():
            record = self.record()
            if trial.number in record.results:
                raise errors.OutcomeTwice
            model = outcome.model if beats(trial, outcome, record, self._rules.sign) else None
            self._journal.finish(trial, outcome, model, erase_seed=self._erase_seeds)
            self._handed.pop(trial.number, None)
        if outcome.leaving is not None:
            raise outcome.leaving

    def tell(self, trial: Trial, outcome: Any, saver: Saver) -> None:
        """How a run ended that was made elsewhere: an ``Outcome`` or a ``(model, score)`` pair."""
        with self._turn.short():
            record = self.record()
            known = record.trials
            ended = trial.number in record.results  # its seed may be erased; ``finish`` refuses a second outcome
            if trial.number >= len(known) or (not ended and known[trial.number].seed != trial.seed):
                raise ValueError("this trial is not of this study: tell what study.ask() returned")
            told = well_formed(outcome)
            self.finish(trial, settle(lambda: told, saver))

    def lost(self, trial: Trial) -> None:
        """The process that made this run died, and not this one."""
        with self._turn.short():
            self._handed.pop(trial.number, None)
            if self._lost is Lost.FAILED:
                self.finish(trial, Outcome.failed("the process that made this run died"))

    def withdrawn(self, trial: Trial) -> None:
        """A cluster took back the worker that made this run: ``next`` gives it out again, the attempt not counted."""
        with self._turn.short():
            self._take_back(trial)
            self._handed.pop(trial.number, None)

    def withdraw(self) -> None:
        """On an orderly stop, take back what was given out. It is given out again, and the attempt is not counted."""
        with self._turn.short():
            handed, self._handed = self._handed, {}
            for trial in handed.values():
                if trial.number not in self.record().results:
                    self._take_back(trial)

    def _take_back(self, trial: Trial) -> None:
        """The attempt is not counted. Where one death is the run's end, nothing that came before counts either."""
        before = trial.attempts - 1 if self._lost is Lost.AGAIN else 0
        self._journal.attempted(replace(trial, attempts=max(before, 0)))

    @contextlib.contextmanager
    def running(self, *, here: bool = True) -> Iterator[None]:
        """A block that makes the runs, and lets no other thread ask or tell. What ask gave out is made here.

        However the block ends, nothing is under way afterwards, and other processes may use the journal. A signal that
        ends the process leaves the block first. ``here`` says whether runs are made in this process itself.
        """
        with self._turn.long(), orderly():
            try:
                self._here = here
                self.withdraw()
                yield
            except BaseException:
                with contextlib.suppress(Exception):  # a journal that cannot be written must not hide what went wrong
                    self.withdraw()
                raise
            finally:
                self._here = True
                self.close()

    def publish(self, certificate: Certificate) -> None:
        """Commit that the best of the runs is released. Refused a second time, and before every outcome is in."""
        with self._turn.short():
            record = self.record()
            if record.shredded:
                raise errors.Shredded
            if record.released:
                raise errors.SecondRelease(stages=self._stages)
            if not record.complete:
                raise errors.Unfinished(stages=self._stages)
            if record.best != best_of(record, self._rules.sign):
                raise RuntimeError("the journal contradicts itself about which run is best: nothing was released")
            if record.declaration is not None and DAY in record.declaration:
                certificate = certificate.declared_on(record.declaration[DAY])
            self._journal.release(ending(record).name, json.dumps(certificate.to_dict()))

    def published(self, saver: Saver) -> Release:
        """The release that was made, read from the journal: the same every time, so it costs nothing more."""
        with self._turn.look():
            record = self.record()
            if record.shredded or record.ending is None or record.certificate is None:
                raise errors.Shredded
            certificate, how = Certificate.from_dict(json.loads(record.certificate)), Ending[record.ending]
            if record.best is None:
                return Release(None, None, None, certificate, how, saver)
            params, score = record.trials[record.best].params, record.results[record.best].score
            return Release(dict(params), saver.load(self._journal.model()), score, certificate, how, saver)

    def shred(self) -> None:
        """Reduce the journal to the certificate."""
        with self._turn.short():
            if not self.record().released:
                raise errors.NotReleased(stages=self._stages)
            self._journal.shred()

    def close(self) -> None:
        """Let other processes use the journal."""
        with self._turn.short():
            if self._lost is Lost.FAILED:  # an orderly end does not count as a death
                with contextlib.suppress(errors.JournalError):
                    self.withdraw()
            self._open, self._handed = False, {}
            self._journal.rest()


def _close(search: weakref.ref[Search], process: int) -> None:
    """A script that ends, by an interrupt too, has not died."""
    found = search()
    if found is not None and os.getpid() == process:
        with contextlib.suppress(Exception):
            found.close()
