"""The only loop: it executes the runs of every search, durably.

Framework 1 of the paper, DP-HyPO 𝒜(D, π⁽⁰⁾, 𝒯, C, c), is a search with one part, a study:

    for part in declaration.parts:                        the paper
        prior = declaration.prior(published)                 Initialize π⁽⁰⁾
        journal.begin(declaration, T ∼ 𝒯)                    Initialize the result set A = {}; draw T ∼ 𝒯
        while runs are left:                                 for j = 0 to T − 1:
            λ = runs.draw(results); journal.claim(λ, seed)       update π⁽ʲ⁾ in the band (study.py); λ ∼ π⁽ʲ⁾
            outcome = a worker executes M_λ(D)                   (x, q) ∼ Q(D, π⁽ʲ⁾)
            journal.finish(outcome, model if best)               A = A ∪ {(x, q)}
        journal.release(certificate)                         Output (x, q) from A with the highest q
    return release

Every draw is committed before it is used: T before the first run, λ and seed before a run, its outcome after it. A
killed search resumes and ends in the result that it would have had. Nothing is published before the last run has ended.

The paper's loop executes one run after the other. Runs may also be executed concurrently: a λ drawn while other runs
are in progress uses less of A, which the theorems allow. The best run is decided by score and key, never by which run
ended first.

A survey is executed by the same loop: T is declared, a proposer takes the place of the band, and all of A is published.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import multiprocessing
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import date
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any

from dphypo import _stderr, _validate, errors
from dphypo._stderr import note, on_terminal, say
from dphypo.accounting import Certificate, Composition
from dphypo.accounting.certificate import where_it_stopped
from dphypo.entropy import Entropy, bits
from dphypo.errors import Refusal, Stopped
from dphypo.executors import Executor, Withdrawn
from dphypo.executors.executor import Execution, Groups, GroupSizes, Lost, Processes, check_sendable, checked
from dphypo.journal import Ledger
from dphypo.journal.journal import KEEPS_MODELS, MAX_ATTEMPTS, Journal, Record, Stop, Trial, refuse_without_ledger
from dphypo.journal.ledger import LEDGER, Reservation
from dphypo.journal.store import Store, inherited, open_store, tampered
from dphypo.mechanisms import Mechanism, Outcome
from dphypo.mechanisms.fingerprint import fingerprint
from dphypo.mechanisms.mechanism import END_SIGNALS, outcome_told
from dphypo.search import progress as _progress
from dphypo.search import refusals
from dphypo.search.curator import Curator
from dphypo.search.declaration import Declaration, PartSetting, Past, refuse_changed
from dphypo.search.progress import NOWHERE, WATCH_SUFFIX, CheckpointFile, LiveFile, LiveSteps, ReportsSteps, erase
from dphypo.search.release import Ending, OnRun, Release, SurveyTable, with_models
from dphypo.search.survey import LastRun

_FOREIGN = "this trial does not belong to this search: pass tell() what ask() returned"
HOPELESS = 5
"""A survey ends if its first runs, this many, have all failed."""
DAY, TOTAL, LAG, COUNTS, TRAINING = "declared on", "total", "lag", "counts", "training"
"""In the journal, next to the declaration: its day, the only time that a certificate states; ε and δ in words; the lag
of rules that see results in order; the noisy counts of the records that fit; a hash of the training of a study."""


class Runner:
    """The secret side of a declaration. Parts are numbered from 0.

    Part k of a longer search is the study "name, stage k + 1" in the journal. An open store stays open when the parts
    are closed. The cost of the whole is reserved in the ledger when the first part begins.
    """

    def __init__(
        self,
        declaration: Declaration,
        journal: str | Path | Store | None,
        name: str,
        entropy: Entropy,
        ledger: Ledger | str | Path | None = None,
    ) -> None:
        if entropy.private != declaration.private:
            raise _validate.fail("entropy", entropy, "it must agree with the declaration: both private, or both seeded")
        mechanisms = [part.mechanism for part in declaration.parts]
        mechanisms[-1].serve(mechanisms)  # before the journal is opened, which the leader has
        if journal is None and mechanisms[-1].processes > 1:
            raise _validate.fail("journal", None, "a launcher may start the program again: give the name of a file")
        self.declaration = declaration
        self._name, self._entropy = name, entropy
        self._reservation: Reservation | None = None
        if ledger is not None:
            stated: dict[str, Any] = {"private": declaration.private, "delta": declaration.delta}
            entry = _entry_name(name, journal)
            self._reservation = Reservation(ledger, declaration.guarantee, entry, **stated, unit=declaration.unit)
            self.declaration = replace(declaration, ledger=self._reservation.total)
        self._shared, self._store = isinstance(journal, Store), open_store(journal)
        self.address = self._store.address  # in words that may be printed; None if the journal is in memory
        self._journals: dict[int, Journal] = {}
        self._parts: dict[int, RunningPart] = {}
        self.live = LiveFile(self._store.beside(WATCH_SUFFIX), timed=declaration.timed)
        self.noted: set[str] = set()  # what a log says once
        self._workers: int | None = None  # how many runs are executed at a time, if known
        self.records = SameRecords(declaration, self.journal(0), self.address)
        self.turn = OneRunner()

    def run(
        self,
        execution: Execution,
        *,
        progress: bool,
        on_run: OnRun | None = None,
        options: dict[str, object] | None = None,
    ) -> Release:
        """Execute the runs that are left, part by part, and return the release; an earlier release is read again."""
        refuse_in_worker_start()
        declaration, parts, refused = self.declaration, self.declaration.parts, dict(options or {})
        if on_run is not None and not declaration.timed:
            refused["on_run"] = on_run
        if refused:
            refusals.refuse_options(refused)
        told: object = on_run
        if told is not None and not callable(told):
            remedy = "give a function of a row; for a Trainer, dphypo.transformers.log_to(trainer)"
            raise _validate.fail("on_run", told, remedy)
        if execution.devices is not None:
            devices = chosen_devices(parts[-1].mechanism, execution.devices)
            execution = replace(execution, devices=devices, workers=max(execution.workers, len(devices)))
        with _stderr.usable(), interruptible(self.address), self.turn.long(), orderly():
            ours = False  # whether this process has the journal, and with it the live file
            try:
                self._workers = execution.workers
                finished, ours = self.finished(), True
                if finished:
                    _progress.say_made_before(self.address if progress else None, released=True)
                    return self.release(again=True)
                if execution.spawns(last := parts[-1].mechanism, single=isinstance(parts[-1], LastRun)):
                    check_sendable(last)
                cost = _progress.cost(declaration.certificate, [part.compute() for part in parts])
                self.live.erase()
                self.live.update(cost=cost)
                if progress:
                    if self.journal(0).record.exists:
                        _progress.say_made_before(self.address, released=False)
                    say(cost)
                    _progress.tell_fit(parts[-1].mechanism, declaration.space, log=declaration.timed)
                note("search started or resumed")
                first = self._first()
                if progress and not first and (counted := self.part(0).counted) is not None:
                    say(counted)
                number = first
                while number <= self.last:  # which a ladder may lower
                    if progress and len(parts) > 1 and on_terminal():  # a log would show how long parts take
                        say(f"Part {number + 1} of {len(parts)}.")
                    execute_runs(
                        self.part(number), execution, partial(self.publish, number), progress=progress, on_run=on_run
                    )
                    number += 1
                self._log_release()
                release = self.release()
                if progress and (stopped := where_it_stopped(release.certificate.document)):
                    say(stopped)
                return release
            finally:
                if ours:
                    self.live.erase()
                self.close()

    def ask(self) -> tuple[int, Trial] | None:
        """The next run to execute, with the number of its part; None if there is none now."""
        refuse_in_worker_start()
        with self.turn.short():
            number = self._first()
            while (trial := self.part(number).ask()) is None:
                if number == self.last or not self.part(number).record().complete or self._stops(number):
                    return None
                self.publish(number)
                number += 1
            return number, trial

    def tell(self, number: int, trial: Trial, outcome: Any) -> None:
        with self.turn.short():
            if not 0 <= number <= self._first():
                raise ValueError(_FOREIGN)
            self.part(number).tell(trial, outcome)

    def publish_last(self) -> Release:
        """The release, once, after all outcomes of all parts have been told."""
        with self.turn.short():
            number = self._first()
            if number < self.last and not (self.part(number).record().complete and self._stops(number)):
                raise Refusal(refusals.UNFINISHED)
            self.publish(number)
            self.live.erase()  # left by a run() that was killed
            self._log_release()
            return self.release()

    def _log_release(self) -> None:
        if self.declaration.timed:  # a log has times: with the start they would show how long a study took
            note("released")

    def part(self, number: int) -> RunningPart:
        """The secret side of a part. All parts before it must have published: its prior depends on that."""
        with self.turn.look:
            if number not in self._parts:
                if number:  # its prior depends on what another declaration may have published
                    self.part(number - 1).record()
                if number and self._reservation is None and not self.journal(number).record.exists:
                    refuse_without_ledger(self.journal(0).record)  # or a copy would release again for the same entry
                self._parts[number] = RunningPart(self, number)
            if self._workers is not None:
                self._parts[number].set_workers(self._workers)
            return self._parts[number]

    def publish(self, number: int) -> None:
        """Commit that a part has published. The certificate of a part is that of the whole search."""
        declaration, part = self.declaration, self.declaration.parts[number]
        certificate, stops = declaration.certificate, self._stops(number)
        if (number == self.last or stops) and not declaration.alone:
            own = [part.read(self.part(number).record())] if part.table else []
            certificate = declaration.certify(self._with_models([*self.earlier(number), *own]))
        day = (self.journal(0).record.declaration or {}).get(DAY)
        certificate = certificate if day is None else certificate.declared_on(day)
        self.part(number).publish(certificate, self._stop(number) if stops else None)

    @property
    def last(self) -> int:
        """The part whose release is that of the search: the last one, or the one at which a ladder has stopped."""
        end = len(self.declaration.parts) - 1
        if not any(part.may_stop for part in self.declaration.parts):
            return end
        return next((number for number in range(end) if self.journal(number).record.stopped), end)

    def _stops(self, number: int) -> bool:
        """Whether the search ends with what a part has published, and parts after it are not run."""
        part = self.declaration.parts[number]
        if not part.may_stop or number == len(self.declaration.parts) - 1:
            return False
        return part.stops(part.read(self.part(number).record()))

    def _stop(self, number: int) -> Stop:
        made = range(number + 1)
        terms = tuple(term for one in made for term in self.declaration.terms[one])
        return Stop(Composition(terms), tuple(map(self._stored_as, made)))

    def published(self, before: int) -> list[Any]:
        """What the parts before a given one have published, for those that have."""
        found: list[Any] = []
        for number, part in enumerate(self.declaration.parts[:before]):
            record = self.journal(number).record
            if not record.released:
                break
            if record.shredded:
                raise Refusal(refusals.SHREDDED)
            found.append(part.read(record))
        return found

    def earlier(self, number: int) -> list[Any]:
        """What all parts before a given one have published; refused if one has not."""
        published = self.published(number)
        if len(published) < number:
            raise ValueError(f"part {number + 1} has not begun: its prior depends on what the parts before it publish")
        return published

    def release(self, *, again: bool = False) -> Release:
        """The release of the last part, with the tables of earlier surveys; ``again`` if it was released before."""
        setting, part = self.setting(self.last), self.part(self.last)
        release = self.declaration.parts[self.last].release(part.best(), part.record(), setting)
        own = [*release.surveys] if self.declaration.parts[self.last].table else []
        published = self._with_models([*setting.published, *own])
        surveys = tuple(value for value in published if isinstance(value, SurveyTable))
        read_from = (self.address or "memory") if again else None
        view = partial(self.curator, self.last) if release.ending is Ending.ALL_FAILED else None
        return replace(release, surveys=surveys, read_from=read_from, curator_view=view)

    def _with_models(self, published: Sequence[Any]) -> list[Any]:
        """What the first parts have published, with the models of surveys that publish them."""
        return [
            with_models(value, self.journal(number), part.mechanism.saver) if part.models else value
            for number, (value, part) in enumerate(zip(published, self.declaration.parts, strict=False))
        ]

    def finished(self) -> bool:
        """Whether the last part has published, declared as it is now. Nothing is begun to find out."""
        with self.turn.look:
            return self.journal(self.last).record.exists and self.part(self.last).record().released

    def shred(self) -> None:
        with self.turn.short(), self.looking():
            last = self.journal(self.last).record
            if not (last.exists and last.shredded) and not self.finished():
                raise Refusal(refusals.NOT_RELEASED)
            self._parts.clear()
            for number in reversed(range(self.last + 1)):  # the last one first: then the others may be shredded later
                self.journal(number).shred()
            self.live.erase()
        self.close()

    def curator(self, number: int) -> Curator:
        with self.turn.look:
            return self.part(number).curator()

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """Read the journal. It is closed afterwards unless it was in use: trials that were asked for would be lost."""
        with self.turn.look:
            in_use = any(self._store.holds(self._stored_as(number)) for number in range(len(self.declaration.parts)))
            try:
                yield
            finally:
                if not in_use:
                    self.close()

    def close(self) -> None:
        """Let other processes use the journal."""
        with self.turn.short():
            self.records.checked = False
            for part in self._parts.values():
                part.close()
            for journal in self._journals.values():
                journal.rest()
            if not self._shared:
                self._store.rest()

    def _first(self) -> int:
        """The first part that has not published; the last one, if all have. Each was declared as it is now."""
        number = 0
        while number < self.last and self.part(number).record().released:
            number += 1
        return number

    def setting(self, number: int) -> PartSetting:
        published, declared = self.earlier(number), self.declaration
        return PartSetting(declared.space, declared.prior(published), tuple(published))

    def journal(self, number: int) -> Journal:
        if number not in self._journals:
            # All parts share one entry in the ledger. The first part reserves.
            shared, name = self._shared or not self.declaration.alone, self._stored_as(number)
            self._journals[number] = Journal(self._store, name, shared=shared, reservation=self._reservation)
        return self._journals[number]

    def entropy_of(self, number: int) -> Entropy:
        return self._entropy if self.declaration.alone else self._entropy.child(f"stage {number + 1}")

    def checkpoint(self, number: int) -> Path | None:
        return self._store.beside(f"-checkpoint-{sha256(self._stored_as(number).encode()).hexdigest()[:8]}")

    def _stored_as(self, number: int) -> str:
        """The name of a part in the journal."""
        return self._name if self.declaration.alone else f"{self._name}, stage {number + 1}"


def execute_runs(
    part: RunningPart, execution: Execution, publish: Callable[[], None], *, progress: bool, on_run: OnRun | None
) -> None:
    """Execute the runs of a part, or those that are left, and publish.

    Nothing is published before the last run has ended. With ``progress``, published runs are shown.
    """
    part.record()  # T is drawn and committed
    display = part.runs.display(part.record, show=progress, on_run=on_run)
    with _workers(execution, part, show=progress) as workers, display as one_more:
        while True:
            part.stop_if_all_fail()
            while workers.idle and (trial := part.next()) is not None:  # density, band, λ
                if progress and not part.secret:
                    _progress.say_attempt(trial, part.called, last=part.runs.single)
                workers.start(trial)
            if not workers.busy:
                break  # T runs have ended
            trial, outcome = checked(workers.wait(), part.handed)
            if outcome is None:
                part.lost(trial)
            elif isinstance(outcome, Withdrawn):
                part.withdraw(trial)
            else:
                part.finish(trial, outcome)
                one_more(trial, outcome)
    publish()


@contextlib.contextmanager
def _workers(execution: Execution, part: RunningPart, *, show: bool) -> Iterator[Executor]:
    """A block in which the runs are executed; ``show`` shows published runs."""
    mechanism = part.mechanism
    part.lost_runs.check(execution)
    if execution.devices is not None and (part.runs.single or not mechanism.all_devices()):
        execution = replace(execution, workers=1)
    groups = None
    if execution.executor is None and mechanism.makes_many:
        same = mechanism.same_alone and part.lost_runs is Lost.AGAIN  # in a study a run is the same among others
        groups = part.runs.groups(execution.workers) if same or not part.secret else None
    each = on_each_device(execution, mechanism, one=part.runs.single)
    with part.executing(groups, here=len(each) == 1 and (execution.here or groups is not None)):
        if not part.secret and execution.local and len(each) == 1:
            each = [ReportsSteps(each[0], _follower(execution, part, show=show))]
        opened: AbstractContextManager[Executor]
        start: dict[str, Any] = {"start_method": execution.start_method}
        if groups is not None:  # lost runs of a study are repeated alone
            opened = contextlib.closing(Groups(each, groups.of, alone=part.secret, **start))
        elif len(each) == 1:
            opened = execution.open(each[0])
        else:
            opened = contextlib.closing(Processes(*each, workers=execution.workers, **start))
        with opened as workers:
            yield workers


def chosen_devices(mechanism: Mechanism, devices: Sequence[str] | str | int) -> Sequence[str]:
    """The devices to use; "all" means all of this machine, a number the first of them, or as many processes on the CPU.

    Refused if training cannot be moved.
    """
    if not mechanism.all_devices():
        remedy = "the mechanism has no all_devices() and at(device=...): choose the device in your training"
        raise _validate.fail("devices", devices, remedy)
    if mechanism.processes > 1:
        raise _validate.fail("devices", devices, "leave it out: a launcher has started a process for every device")
    if isinstance(devices, int):
        return _first_devices(mechanism.all_devices(), _validate.integer(at_least=1, devices=devices))
    names = mechanism.all_devices() if devices == "all" else devices
    listed = isinstance(names, Sequence) and not isinstance(names, str)
    if not listed or not names or not all(isinstance(name, str) for name in names):
        raise _validate.fail(
            "devices", devices, 'give "all", a number of devices, or a list such as ["cuda:0", "cuda:1"]'
        )
    return names


def _first_devices(known: Sequence[str], count: int) -> Sequence[str]:
    """The first devices of a machine; if it has the CPU alone, as many processes."""
    if list(known) == ["cpu"]:
        return ["cpu"] * count
    if count > len(known):
        raise _validate.fail("devices", count, f"this machine has {len(known)}: {', '.join(known)}")
    return known[:count]


def on_each_device(execution: Execution, mechanism: Mechanism, *, one: bool) -> list[Mechanism]:
    """The same training on each device that was asked for; ``one`` run is executed on all of them, or on the first.

    A part that cannot be moved, such as the scale of the inputs, stays where it is.
    """
    devices = execution.devices
    if devices is None or isinstance(devices, int) or not mechanism.all_devices():
        return [mechanism]
    if one:
        together = {"devices": tuple(devices)} if mechanism.can("devices") else {}
        return [mechanism.at(device=devices[0], **together)]
    return [mechanism.at(device=name) for name in devices]


def _follower(execution: Execution, part: RunningPart, *, show: bool) -> LiveSteps:
    """Follows published runs on one device of this machine; a last run keeps checkpoints."""
    every, file = execution.checkpoint_every, None
    if part.runs.single and part.checkpoint is not None and every is not None:
        file = CheckpointFile(part.checkpoint, every)
    log = show and part.declaration.timed
    return LiveSteps(part.called, show, log, file, part.live, part.noted)


class RunningPart:
    """The state of a part: what was drawn and how runs ended, as committed to its journal. It is thread-safe."""

    def __init__(self, runner: Runner, number: int) -> None:
        self.declaration, self._number, setting = runner.declaration, number, runner.setting(number)
        self._part = part = self.declaration.parts[number]
        self._journal, self._records, self._turn = runner.journal(number), runner.records, runner.turn
        self._entropy, self._prior = runner.entropy_of(number), setting.prior
        self.live = runner.live if self.declaration.timed else NOWHERE  # shows published runs
        self.noted = runner.noted
        self.checkpoint = runner.checkpoint(number)  # in which a last run keeps its state, if the journal is a file
        begun = None if part.kept is None else part.after(runner.part(number - 1).best().model)
        self.mechanism, self.lost_runs = begun or part.executed, part.lost_runs
        self.runs, self.secret = part.begin(setting), part.secret
        self.sampler_error: Exception | None = None
        self.counted: str | None = None  # the noisy counts of the records that fit, in words
        self._lag, self._open, self._same_training = self.runs.lag, False, True
        self._here = True  # runs are executed in this process, as far as is known
        self._at_exit = False  # whether the end of the process closes the part
        self.handed: dict[int, Trial] = {}  # started and not finished yet
        self._groups: GroupSizes | None = None

    @property
    def _training(self) -> str:
        """A hash of the training: all runs of a study are of one (docs/theory/selection.md, condition 2)."""
        return sha256(self.mechanism.procedure.encode()).hexdigest()

    @property
    def called(self) -> str:
        """What its runs are called while they are executed."""
        if self._part.may_stop or (self.runs.single and self._number + 1 < len(self.declaration.parts)):
            return f"part {self._number + 1}"  # a rung of a ladder, or the scale of the inputs
        return "last run" if self.runs.single else "survey"

    def record(self) -> Record:
        """What is committed. The first call takes the journal and, if the part is new, draws and commits T."""
        with self._turn.look:
            if not self._open:
                self._begin()
            return self._journal.record

    def _begin(self) -> None:
        declaration, runs = self.declaration, self.runs
        declared = declaration.to_dict(self._number, self._prior)
        # The day of a later part would show how long runs took.
        notes: dict[str, Any] = {} if self._number else {DAY: date.today().isoformat()}
        if self._journal.record.exists:  # compared first: of another search a ledger says only that it costs more
            try:
                self._compare(self._journal.record.declaration or {}, declared)
            except BaseException:
                self._journal.rest()
                raise
        else:
            erase(self.checkpoint)  # of an earlier search with a journal of this name
            if self._number == 0:
                declaration.rehearse()
            notes[TOTAL] = declaration.total()
            if self._part.counts is not None:  # committed with the number of runs, before anything is done with it
                notes[COUNTS] = self._part.counts.draw(self.mechanism, declaration.space, self._entropy)
        notes |= {LAG: self._lag or 0} if runs.in_order else {}
        notes |= {KEEPS_MODELS: True} if self._part.models else {}
        notes |= {TRAINING: self._training} if self.secret else {}
        found = self._journal.begin({**declared, **notes}, lambda: runs.draw_total(self._entropy))
        self._open = True
        try:
            kept = self._compare(found, declared)
            self._records.check()
            if (counts := self._part.counts) is not None and COUNTS in kept:
                try:
                    counts.check(kept[COUNTS], self.mechanism, declaration.delta, declaration.stated)
                except errors.UnfitRecordsError:
                    self._journal.settle(Composition(counts.terms(self.mechanism)))
                    raise
                self.counted = counts.said(kept[COUNTS])
            record = self._journal.record
            if record.total is not None and not runs.possible(record.total):
                raise tampered("its number of runs is one that the law of T never gives")
            self._lag = kept[LAG] if runs.in_order else self._lag
            self._same_training = kept.get(TRAINING) == self._training or not self.secret
            self._past = Past(runs.space, declaration.sign)
            if self.runs.single and record.results:
                erase(self.checkpoint)  # its process died when it had committed
        except BaseException:
            self.close()
            raise

    def _compare(self, found: Mapping[str, Any], declared: Mapping[str, Any]) -> dict[str, Any]:
        """What a journal keeps next to its declaration; refused if it was declared differently."""
        notes = (DAY, TOTAL, LAG, KEEPS_MODELS, COUNTS, TRAINING)
        stated = {name: value for name, value in found.items() if name not in (*notes, LEDGER)}
        refuse_changed(stated, declared, found.get(TOTAL), self.declaration.total, self._records.where)
        return {name: found[name] for name in notes if name in found}

    def set_workers(self, runs: int) -> None:
        """Set the number of runs at a time. It sets the lag if none was declared or committed with T."""
        if self.runs.lag is None and not (self.runs.in_order and self._lag is not None):
            self._lag = runs - 1

    def next(self) -> Trial | None:
        """The next run, committed: first lost runs, with the same λ and seed, then new ones; None after T."""
        with self._turn.short():
            record = self.record()
            if record.released:
                raise Refusal(refusals.RUNS_AFTER_RELEASE)
            if not (record.complete or self._same_training):
                raise errors.ChangedStudy(refusals.OTHER_TRAINING.format(where=self._records.where))
            while (trial := self._lost_run(record)) is not None:
                steps = CheckpointFile(self.checkpoint).steps if self.runs.single and self.checkpoint is not None else 0
                deaths = deaths_of(trial, steps)
                if (died := self._died(deaths)) is None:
                    trial = replace(trial, attempts=self._attempts(deaths), machine=machine(), steps=steps)
                    self._journal.attempted(trial)
                    self.handed[trial.number] = trial
                    return trial
                self.finish(trial, Outcome.failed(died))
            if len(record.trials) == record.total or self.waiting:
                return None
            trial = self._draw(record)
            self._journal.claim(trial)
            self.handed[trial.number] = trial
            if self.lost_runs is Lost.FAILED and not self._at_exit:
                self._at_exit = True
                atexit.register(_close, weakref.ref(self), os.getpid())
            return trial

    def ask(self) -> Trial | None:
        """The next run, which the caller executes; None if there is none now."""
        with self._turn.short():
            if (trial := self.next()) is None and self.runs.in_order and self.waiting:
                raise Refusal(refusals.TELL_FIRST)
            return trial

    @property
    def waiting(self) -> bool:
        """Whether the next λ can be drawn only after a run in progress has ended."""
        record = self.record()
        if len(record.trials) == record.total:
            return False
        return any(number not in record.results for number in range(self._usable(len(record.trials)) or 0))

    def _usable(self, number: int) -> int | None:
        return self.runs.usable(number, self._lag or 0, self._groups)

    def _attempts(self, before: int) -> int:
        """Attempts to commit before the run starts: one more if it is executed here, or if lost runs are repeated."""
        return before + 1 if self._here or self.lost_runs is Lost.AGAIN else before

    def _died(self, deaths: int) -> str | None:
        """Why a run that was started and never finished counts as failed; None if it is to be repeated."""
        if deaths >= MAX_ATTEMPTS:
            return "the process that executed this run died three times without progress"
        if self.lost_runs is Lost.FAILED and deaths > 0:
            return "the process that executed this run died"
        return None

    def _lost_run(self, record: Record) -> Trial | None:
        """A run that was started, is not in progress, and has no outcome."""
        if len(record.results) + len(self.handed) == len(record.trials):
            return None
        under_way = record.results.keys() | self.handed.keys()
        return next((trial for trial in record.trials if trial.number not in under_way), None)

    def _draw(self, record: Record) -> Trial:
        """All that is random about a run but the run itself: λ, its seed, and the key that breaks ties."""
        number = len(record.trials)
        entropy = self._entropy.child(f"trial {number}")
        try:
            params = self.runs.draw(self._past, record, self._usable(number), entropy)
        except errors.SamplerError as error:
            self.sampler_error = error.secret
            raise
        seed = bits(self.mechanism.seed_bits, entropy.child("seed"))
        tie_key = entropy.child("tie").bytes(16)
        return Trial(params, seed, number, tie_key, self._attempts(0), machine())

    def finish(self, trial: Trial, outcome: Outcome) -> None:
        """Commit how a run ended; keep the model if it is the best so far, and erase the one it beats.

        Seeds of published runs are erased: anyone who knew one could subtract the noise.
        """
        with self._turn.short():
            record = self.record()
            if trial.number in record.results:
                raise Refusal(refusals.TOLD_TWICE)
            best = beats(trial, outcome, record, self.declaration.sign)
            model = outcome.model if best or self._part.models else None
            self._journal.finish(trial, outcome, model, best=best, erase_seed=not self.secret)
            self.handed.pop(trial.number, None)
            if self.runs.single:
                erase(self.checkpoint)
            elif not self.secret and self.live.due(len(record.results)):
                self.live.show(record, maximize=self.declaration.sign > 0)

    def tell(self, trial: Trial, outcome: Any) -> None:
        """Commit how a run that was executed elsewhere ended: an ``Outcome`` or a ``(model, score)`` pair."""
        with self._turn.short():
            record = self.record()
            ended = trial.number in record.results  # its seed may be erased; ``finish`` refuses a second outcome
            if trial.number >= len(record.trials) or (not ended and record.trials[trial.number].seed != trial.seed):
                raise ValueError(_FOREIGN)
            self.finish(trial, outcome_told(outcome, self.mechanism.saver))

    def lost(self, trial: Trial) -> None:
        """Handle a run whose process, another than this one, died."""
        with self._turn.short():
            self.handed.pop(trial.number, None)
            if self.lost_runs is Lost.FAILED:
                self.finish(trial, Outcome.failed("the process that executed this run died"))

    def withdraw(self, *trials: Trial) -> None:
        """Requeue runs, by default all that are unfinished, without counting the attempt.

        For a clean shutdown, and if an executor took a worker back. With ``lost="failed"`` the count becomes zero.
        """
        with self._turn.short():
            taken = trials or tuple(self.handed.values())
            if not trials:  # before a commit, which may fail: a run that counts as started is never repeated
                self.handed = {}
            for trial in taken:
                if trial.number not in self.record().results:
                    before = trial.attempts - 1 if self.lost_runs is Lost.AGAIN else 0
                    self._journal.attempted(replace(trial, attempts=max(before, 0)))
                self.handed.pop(trial.number, None)  # if the commit fails, ``executing`` takes it back

    @contextlib.contextmanager
    def executing(self, groups: GroupSizes | None, *, here: bool) -> Iterator[None]:
        """A block in which runs are executed, ``here`` if in this process. After it no run is in progress."""
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

    def stop_if_all_fail(self) -> None:
        """Stop a survey whose first runs have all failed. It uses published results only."""
        record = self.record()
        first = [record.results.get(number) for number in range(HOPELESS)]
        if self._part.table and (record.total or 0) > HOPELESS and all(one and one.score is None for one in first):
            raise errors.AllFailedError(HOPELESS, self.curator)

    def publish(self, certificate: Certificate, stop: Stop | None = None) -> None:
        """Commit that the part has published. Refused a second time, and before every outcome is in.

        ``stop`` says that the search ends with it, before its last part.
        """
        with self._turn.short():
            record = self.record()
            if record.shredded:
                raise Refusal(refusals.SHREDDED)
            if record.released:
                raise Refusal(refusals.SECOND_RELEASE)
            if not record.complete:
                raise Refusal(refusals.UNFINISHED)
            self._journal.release(ending(record).name, json.dumps(certificate.to_dict()), stop)

    def best(self) -> Release:
        """The best run as it was released, read from the journal: the same every time, so it costs nothing more."""
        with self._turn.look:
            record, saver = self.record(), self.mechanism.saver
            if record.shredded or record.ending is None or record.certificate is None:
                raise Refusal(refusals.SHREDDED)
            certificate, how = Certificate.from_dict(json.loads(record.certificate)), Ending[record.ending]
            if record.best is None:
                return Release(None, None, None, certificate, how, saver)
            params, score = record.trials[record.best].params, record.results[record.best].score
            return Release(dict(params), saver.load(self._journal.model()), score, certificate, how, saver)

    def curator(self) -> Curator:
        return Curator(self.record, lambda: self.sampler_error)

    def close(self) -> None:
        """Let other processes use the journal."""
        with self._turn.short():
            if self.lost_runs is Lost.FAILED:  # an orderly end does not count as a death
                with contextlib.suppress(errors.JournalError):
                    self.withdraw()
            self._open, self.handed = False, {}
            self._journal.rest()


def deaths_of(trial: Trial, steps: int) -> int:
    """How many attempts at a lost run count as its deaths, if its checkpoint was written after ``steps`` steps.

    Progress, shown by a later checkpoint, resets the count. An attempt lost together with its machine does not count,
    because it is not an outcome of the run.
    """
    if steps > trial.steps:
        return 0
    lost_with_machine = trial.machine not in ("", machine())
    return max(trial.attempts - lost_with_machine, 0)


class SameRecords:
    """Refuses records that are not those that a search began with, before anything is returned or spent.

    The journal of the first part keeps their fingerprint, under its own key.
    """

    def __init__(self, declaration: Declaration, journal: Journal, address: str | None) -> None:
        self._declaration, self._journal, self.checked = declaration, journal, False
        self.where = f"the journal {address}" if address else "this search"

    def check(self) -> None:
        record = self._journal.record
        if self.checked or record.records_key is None:  # shredded
            return
        found = fingerprint((part.mechanism for part in self._declaration.parts), record.records_key)
        kept = self._journal.fingerprint()
        if kept is None and not record.trials:
            self._journal.commit_fingerprint(found)
        elif found != kept:
            raise errors.ChangedStudy(refusals.OTHER_RECORDS.format(where=self.where))
        self.checked = True


def _entry_name(name: str, journal: str | Path | Store | None) -> str:
    """The name of a search in a ledger: the one it was given, or else that of its journal's file."""
    file = isinstance(journal, (str, Path)) and "://" not in str(journal)
    default = name in ("study", "stages", "tune", "frontier")
    return Path(str(journal)).stem or name if file and default else name


def machine() -> str:
    """A name for this machine since it was started; empty if the system has none."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def _close(part: weakref.ref[RunningPart], process: int) -> None:
    """Close the part at the end of the script, also on an interrupt, so that no attempt is counted."""
    if (found := part()) is not None and os.getpid() == process:
        with contextlib.suppress(Exception):
            found.close()


def beats(trial: Trial, outcome: Outcome, record: Record, sign: float) -> bool:
    """Whether a run that just ended is the best so far: by its score, then by its key, never by when it ended."""
    if outcome.score is None:
        return False
    if record.best is None:
        return True
    best = record.results[record.best]
    assert best.score is not None
    return (sign * outcome.score, trial.tie_key) > (sign * best.score, record.trials[record.best].tie_key)


def ending(record: Record) -> Ending:
    if record.best is not None:
        return Ending.MODEL
    return Ending.ALL_FAILED if record.trials else Ending.NO_RUN


# What may interrupt a search: the start of workers, signals, the keyboard, other threads.


def refuse_in_worker_start() -> None:
    """Refuse to search while a worker process imports the main script."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # multiprocessing sets it
        raise Refusal(refusals.IN_WORKER_START)


class Terminated(Stopped):
    """The process received a signal to end while runs were executed."""

    def __init__(self, number: int, raised: BaseException | None) -> None:
        super().__init__()
        self.number = number
        self.raised = raised


@contextlib.contextmanager
def orderly() -> Iterator[None]:
    """A block that a terminating signal ends like an interrupt; then the process ends.

    The previous handler is called first. It may decide to continue. What it raises is raised again after the block, so
    that no run treats it as its own failure. Signals reach the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()
    before = {number: signal.getsignal(number) for number in END_SIGNALS}
    before = {number: handler for number, handler in before.items() if handler not in (None, signal.SIG_IGN)}

    def stop(number: int, frame: Any) -> None:
        handler = before[number]
        if os.getpid() != owner:  # a process that a run has forked
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif callable(handler):
            try:
                handler(number, frame)
            except BaseException as raised:
                raise Terminated(number, raised) from None
        else:
            raise Terminated(number, None)

    for number in before:
        signal.signal(number, stop)
    ended: Terminated | None = None
    try:
        yield
    except Terminated as terminated:
        ended = terminated
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is stop:
                signal.signal(number, handler)
    if ended is not None:
        if ended.raised is not None:
            raise ended.raised from None  # without the stack of the run, whose values are secret
        os.kill(owner, ended.number)  # as if the signal had not been caught
        raise ended


@contextlib.contextmanager
def interruptible(journal: str | None) -> Iterator[None]:
    """Show two lines that name the journal, instead of a traceback, after a keyboard interrupt."""
    interrupted, why = False, ""
    try:
        yield
    except KeyboardInterrupt as error:
        interrupted, why = True, f"{error}.\n" if isinstance(error, errors.ProcessLost) else ""
    if not interrupted:
        return
    where = "its journal is in memory" if journal is None else f"everything committed is in {journal}"
    again = "call run() again in this process" if journal is None else "run the same program, or call run(), again"
    said = f"{why}The search was interrupted, and {where}.\nTo resume, {again}."
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, KeyboardInterrupt) and error.args == (said,):
            say(said)
        else:
            before(kind, error, trace)

    sys.excepthook = hook
    # Raised outside the handler, so that the stack of the run is not printed. It is not a subclass, because Python
    # exits with the status of an interrupt only for KeyboardInterrupt itself.
    raise KeyboardInterrupt(said)


class OneRunner:
    """A lock: while one thread executes the runs, others are refused."""

    def __init__(self) -> None:
        self.look = threading.RLock()  # for steps that only read: they wait for other threads, and are not refused
        self._runner: threading.Thread | None = None
        inherited.add(self)

    def leave(self) -> None:
        """Reset the lock in a forked child: the thread that holds it exists only in the parent."""
        self.look, self._runner = threading.RLock(), None

    @contextlib.contextmanager
    def short(self) -> Iterator[None]:
        """A step that no other thread may interrupt."""
        with self.look:
            if self._runner not in (None, threading.current_thread()):
                raise Refusal(refusals.OTHER_THREAD)
            yield

    @contextlib.contextmanager
    def long(self) -> Iterator[None]:
        """Executing all the runs: until the block ends, no other thread may take a step."""
        with self.look:
            if self._runner is not None:
                raise Refusal(refusals.OTHER_THREAD)
            self._runner = threading.current_thread()
        try:
            yield
        finally:
            self._runner = None
