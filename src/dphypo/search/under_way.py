"""A part under way, its secret side: the number of runs, the runs that were given out, how they ended.

Commit every draw before using it. The part's decider, which is public, makes the draws, so that studies and surveys
share this code.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import secrets
import weakref
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from dphypo import errors
from dphypo.accounting import Certificate
from dphypo.entropy import Entropy, below
from dphypo.executors.executor import Lost
from dphypo.journal.journal import MAX_ATTEMPTS, Journal, Record, Trial
from dphypo.journal.store import tampered
from dphypo.mechanisms import Outcome
from dphypo.mechanisms.fingerprint import fingerprint
from dphypo.mechanisms.outcome import settle, well_formed
from dphypo.search import refusals
from dphypo.search.checkpoint import CheckpointFile, erase
from dphypo.search.curator import Curator
from dphypo.search.declaration import Declaration, check
from dphypo.search.interrupts import Turn
from dphypo.search.kept_models import KeptModels
from dphypo.search.live import LiveFile
from dphypo.search.part import GroupSizes, PartSetting
from dphypo.search.policy import Past, beats, best_of, ending
from dphypo.search.release import Ending, Release

HOPELESS = 5
"""A survey ends if its first runs, this many, have all failed."""
DAY, TOTAL, LAG, FOLDER = "declared on", "total", "lag", "models of"
"""In the journal, beside the declaration: its day, the only time that a certificate states; ε and δ in words; the lag
of rules that see results in order; what tells the folder of models apart from those of other searches."""


class PartUnderWay:
    """What a part has drawn and what has come back, as committed to its journal. Its methods are safe under threads."""

    def __init__(
        self,
        declaration: Declaration,
        number: int,
        setting: PartSetting,
        journal: Journal,
        entropy: Entropy,
        turn: Turn,
        live: LiveFile,  # where published runs are shown as they are made
        checkpoint: Path | None,  # the file in which a last run keeps its state, if the journal is a file
        records: SameRecords,
    ) -> None:
        self._part = part = declaration.parts[number]
        self.declaration, self._number, self._prior = declaration, number, setting.prior
        self.decider = decider = part.begin(setting)
        self.mechanism, self.lost_runs = part.executed, part.lost_runs
        self.sampler_error: Exception | None = None
        self._records = records
        self._journal, self._entropy, self._turn, self.live, self.checkpoint = journal, entropy, turn, live, checkpoint
        self._lag, self._open = decider.lag, False
        self.last_run = decider.published and not part.table  # one run, which keeps checkpoints
        self._here = True  # runs are made in this process, as far as one can know
        self._at_exit = False  # whether the end of the process closes the part
        self._handed: dict[int, Trial] = {}  # given out and not finished yet
        self._models: KeptModels | None = None
        self._groups: GroupSizes | None = None

    def record(self) -> Record:
        """What is committed. The first call takes the journal and, if the part is new, draws and commits T."""
        with self._turn.look:
            if not self._open:
                self._begin()
            return self._journal.record

    def _begin(self) -> None:
        declaration, decider = self.declaration, self.decider
        declared = declaration.to_dict(self._number, self._prior)
        # The day of a later part would tell how long runs took.
        notes: dict[str, Any] = {} if self._number else {DAY: date.today().isoformat()}
        if not self._journal.record.exists:
            if self._number == 0:
                declaration.rehearse()
            notes[TOTAL] = declaration.total()
        notes |= {LAG: self._lag or 0} if decider.in_order else {}
        notes |= {FOLDER: secrets.token_hex(16)} if self._part.models is not None else {}
        found = dict(self._journal.begin({**declared, **notes}, lambda: decider.draw_total(self._entropy)))
        self._open = True
        try:
            kept = {name: found.pop(name) for name in (DAY, TOTAL, LAG, FOLDER) if name in found}
            check(found, declared, kept.pop(TOTAL, None), declaration.total)
            self._records.check()
            record = self._journal.record
            if LAG in kept and not decider.in_order and not record.released:
                del kept[LAG]
                self._journal.redeclare({**declared, **kept})
            self._lag = kept[LAG] if decider.in_order else self._lag
            if record.total is not None and not decider.possible(record.total):
                raise tampered("its number of runs is one that the law of T never gives")
            self._past = Past(decider.space, declaration.sign)
            if self.last_run and record.results:
                erase(self.checkpoint)  # its process died when it had committed
            if self._part.models is not None and not record.shredded:
                self._models = KeptModels(Path(self._part.models), self.mechanism.saver.format, kept[FOLDER])
                self._models.settle(record.results)
        except BaseException:
            self.close()
            raise

    def side_by_side(self, runs: int) -> None:
        """Set the number of runs at a time. It becomes the lag if none was declared or committed with T."""
        if self.decider.lag is None and not (self.decider.in_order and self._lag is not None):
            self._lag = runs - 1

    def next(self) -> Trial | None:
        """The next run to make, committed: first those that were lost, as they were, then new ones; None after T."""
        with self._turn.short():
            record = self.record()
            if record.released:
                raise errors.Refusal(refusals.RUNS_AFTER_RELEASE)
            while (trial := self._lost_run(record)) is not None:
                steps = CheckpointFile(self.checkpoint).steps if self.last_run and self.checkpoint is not None else 0
                deaths = deaths_of(trial, steps)
                if (died := self._died(deaths)) is None:
                    trial = replace(trial, attempts=self._attempts(deaths), machine=machine(), steps=steps)
                    self._journal.attempted(trial)
                    self._handed[trial.number] = trial
                    return trial
                self.finish(trial, Outcome.failed(died))
            if len(record.trials) == record.total or self.waiting:
                return None
            trial = self._draw(record)
            self._journal.claim(trial)
            self._handed[trial.number] = trial
            if self.lost_runs is Lost.FAILED and not self._at_exit:
                self._at_exit = True
                atexit.register(_close, weakref.ref(self), os.getpid())
            return trial

    def ask(self) -> Trial | None:
        """The next run, which the caller makes; None if there is none to give out."""
        with self._turn.short():
            if (trial := self.next()) is None and self.decider.in_order and self.waiting:
                raise errors.Refusal(refusals.TELL_FIRST)
            return trial

    @property
    def waiting(self) -> bool:
        """Whether the next λ cannot be drawn before a run that is under way has ended."""
        record = self.record()
        if len(record.trials) == record.total:
            return False
        return any(number not in record.results for number in range(self._usable(len(record.trials)) or 0))

    def _usable(self, number: int) -> int | None:
        return self.decider.usable(number, self._lag or 0, self._groups)

    def _attempts(self, before: int) -> int:
        """Attempts to commit before the run starts: one more if it is made here, or if lost runs are made again."""
        return before + 1 if self._here or self.lost_runs is Lost.AGAIN else before

    def _died(self, deaths: int) -> str | None:
        """Why a run that was given out and never told counts as failed; None if it is to be repeated."""
        if deaths >= MAX_ATTEMPTS:
            return "the process that executed this run died three times without progress"
        if self.lost_runs is Lost.FAILED and deaths > 0:
            return "the process that executed this run died"
        return None

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
            params = self.decider.draw(self._past, record, self._usable(number), entropy)
        except errors.SamplerError as error:
            self.sampler_error = error.secret
            raise
        seed, tie_key = below(2**63, entropy.child("seed")), entropy.child("tie").bytes(16)
        return Trial(params, seed, number, tie_key, self._attempts(0), machine())

    def finish(self, trial: Trial, outcome: Outcome) -> None:
        """Commit how a run ended; keep the model if it is the best so far, and erase the one it beats.

        Seeds of published runs are erased: whoever knew one could subtract the noise.
        """
        with self._turn.short():
            record = self.record()
            if trial.number in record.results:
                raise errors.Refusal(refusals.TOLD_TWICE)
            model = outcome.model if beats(trial, outcome, record, self.declaration.sign) else None
            kept = self._models if outcome.model is not None else None
            if kept is not None:
                kept.write(trial.number, outcome.model)
            try:
                self._journal.finish(trial, outcome, model, erase_seed=self.decider.published)
            finally:
                if kept is not None:
                    with contextlib.suppress(errors.JournalError):  # another process has the journal, and the models
                        kept.settle_one(trial.number, committed=trial.number in self._journal.record.results)
            self._handed.pop(trial.number, None)
            if self.last_run:
                erase(self.checkpoint)
            elif self.decider.published and self.live.due(len(record.results)):
                self.live.show(record, maximize=self.declaration.sign > 0)
        if outcome.leaving is not None:
            raise outcome.leaving

    def tell(self, trial: Trial, outcome: Any) -> None:
        """How a run ended that was made elsewhere: an ``Outcome`` or a ``(model, score)`` pair."""
        with self._turn.short():
            record = self.record()
            ended = trial.number in record.results  # its seed may be erased; ``finish`` refuses a second outcome
            if trial.number >= len(record.trials) or (not ended and record.trials[trial.number].seed != trial.seed):
                raise ValueError("this trial is not of this study: tell what study.ask() returned")
            told = well_formed(outcome)
            self.finish(trial, settle(lambda: told, self.mechanism.saver))

    def lost(self, trial: Trial) -> None:
        """Handle a run whose process, another than this one, died."""
        with self._turn.short():
            self._handed.pop(trial.number, None)
            if self.lost_runs is Lost.FAILED:
                self.finish(trial, Outcome.failed("the process that executed this run died"))

    def withdraw(self, *trials: Trial) -> None:
        """Requeue runs, by default all that are unfinished, without counting the attempt.

        For a clean shutdown, and where an executor took a worker back. With ``lost="failed"`` the count becomes zero.
        """
        with self._turn.short():
            taken = trials or tuple(self._handed.values())
            if not trials:  # before a commit, which may fail: what is still given out is never made again
                self._handed = {}
            for trial in taken:
                if trial.number not in self.record().results:
                    before = trial.attempts - 1 if self.lost_runs is Lost.AGAIN else 0
                    self._journal.attempted(replace(trial, attempts=max(before, 0)))
                self._handed.pop(trial.number, None)  # if the commit fails, ``making`` takes it back

    @contextlib.contextmanager
    def making(self, groups: GroupSizes | None, *, here: bool) -> Iterator[None]:
        """A block in which runs are made, ``here`` if in this process. After it no run is under way."""
        self._groups, self._here = groups, here
        try:
            self.withdraw()
            yield
        except BaseException:
            with contextlib.suppress(Exception):  # a journal that cannot be written must not hide what went wrong
                self.withdraw()
            raise
        finally:
            self._here, self._groups = True, None

    def check_hope(self) -> None:
        """Stop a survey whose first runs have all failed. All of them are published: this looks at nothing else."""
        record = self.record()
        first = [record.results.get(number) for number in range(HOPELESS)]
        if self._part.table and (record.total or 0) > HOPELESS and all(one and one.score is None for one in first):
            raise errors.AllFailedError(HOPELESS, lambda: Curator(self))

    def publish(self, certificate: Certificate) -> None:
        """Commit that the part has published. Refused a second time, and before every outcome is in."""
        with self._turn.short():
            record = self.record()
            if record.shredded:
                raise errors.Refusal(refusals.SHREDDED)
            if record.released:
                raise errors.Refusal(refusals.SECOND_RELEASE)
            if not record.complete:
                raise errors.Refusal(refusals.UNFINISHED)
            if record.best != best_of(record, self.declaration.sign):
                raise RuntimeError("the journal contradicts itself about which run is best: nothing was released")
            self._journal.release(ending(record).name, json.dumps(certificate.to_dict()))

    def best(self) -> Release:
        """The best run as it was released, read from the journal: the same every time, so it costs nothing more."""
        with self._turn.look:
            record, saver = self.record(), self.mechanism.saver
            if record.shredded or record.ending is None or record.certificate is None:
                raise errors.Refusal(refusals.SHREDDED)
            certificate, how = Certificate.from_dict(json.loads(record.certificate)), Ending[record.ending]
            if record.best is None:
                return Release(None, None, None, certificate, how, saver)
            params, score = record.trials[record.best].params, record.results[record.best].score
            return Release(dict(params), saver.load(self._journal.model()), score, certificate, how, saver)

    def close(self) -> None:
        """Let other processes use the journal."""
        with self._turn.short():
            if self.lost_runs is Lost.FAILED:  # an orderly end does not count as a death
                with contextlib.suppress(errors.JournalError):
                    self.withdraw()
            self._open, self._handed = False, {}
            self._journal.rest()


def deaths_of(trial: Trial, steps: int) -> int:
    """How many attempts at a lost run count as its deaths, if its checkpoint was written after ``steps`` steps.

    Progress, which a later checkpoint shows, ends the count. An attempt that was lost with its machine does not count:
    that is no outcome of the run.
    """
    if steps > trial.steps:
        return 0
    lost_with_machine = trial.machine not in ("", machine())
    return max(trial.attempts - lost_with_machine, 0)


class SameRecords:
    """Refuses records that are not those that a search began with, before anything is returned or spent.

    The journal of the first part keeps their fingerprint, under a key of its own.
    """

    def __init__(self, declaration: Declaration, journal: Journal, address: str | None) -> None:
        self._declaration, self._journal, self._address, self.checked = declaration, journal, address, False

    def check(self) -> None:
        record = self._journal.record
        if self.checked or record.records_key is None:  # shredded
            return
        found = fingerprint((part.mechanism for part in self._declaration.parts), record.records_key)
        kept = self._journal.fingerprint()
        if kept is None and not record.trials:
            self._journal.commit_fingerprint(found)
        elif found != kept:
            where = f"the journal {self._address}" if self._address else "this search"
            raise errors.ChangedStudy(refusals.OTHER_RECORDS.format(where=where))
        self.checked = True


def machine() -> str:
    """A name for this machine since it was started; empty where the system gives none."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def _close(part: weakref.ref[PartUnderWay], process: int) -> None:
    """Close the part at the end of the script, also on an interrupt, so that no attempt is counted."""
    if (found := part()) is not None and os.getpid() == process:
        with contextlib.suppress(Exception):
            found.close()
