"""The parts of a search under way: one journal for each, each begun when those before it have published."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from dphypo import _validate
from dphypo._stderr import note, on_terminal, say
from dphypo.entropy import Entropy
from dphypo.errors import Refusal
from dphypo.executors.executor import Crew
from dphypo.journal import Ledger
from dphypo.journal.journal import Journal, Trial, refuse_without_ledger
from dphypo.journal.ledger import Reservation, make_reservation
from dphypo.journal.store import Store, open_store
from dphypo.search import progress as _progress
from dphypo.search import refusals
from dphypo.search.curator import Curator
from dphypo.search.declaration import Declaration
from dphypo.search.framework1 import chosen_devices, dp_hypo
from dphypo.search.interrupts import Turn, interruptible, orderly, refuse_in_worker_start
from dphypo.search.live import ENDING, NOWHERE, LiveFile
from dphypo.search.part import PartSetting
from dphypo.search.release import Ending, Release
from dphypo.search.table import OnRun, Surveyed
from dphypo.search.under_way import DAY, PartUnderWay, SameRecords


class Chain:
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
            raise _validate.fail("entropy", entropy, "a search is declared private, or seeded, as its entropy is")
        self.declaration, self.last = declaration, len(declaration.parts) - 1
        self._name, self._entropy = name, entropy
        self._reservation: Reservation | None = None
        if ledger is not None:
            private, delta = declaration.private, declaration.delta
            self._reservation = make_reservation(ledger, declaration.guarantee, name, private=private, delta=delta)
        self._shared, self._store = isinstance(journal, Store), open_store(journal)
        self.address = self._store.address  # in words that may be printed; None if the journal is in memory
        self._journals: dict[int, Journal] = {}
        self._parts: dict[int, PartUnderWay] = {}
        self._live = LiveFile(self._store.beside(ENDING), timed=declaration.timed)
        self._workers: int | None = None  # how many runs are made at a time, if that is known
        self._records = SameRecords(declaration, self._journal(0), self.address)
        self.turn = Turn()

    def run(
        self, crew: Crew, *, progress: bool, on_run: OnRun | None = None, options: dict[str, object] | None = None
    ) -> Release:
        """Make the runs that are left, part by part, and return the release; one that was made before is read again."""
        refuse_in_worker_start()
        declaration, parts, refused = self.declaration, self.declaration.parts, dict(options or {})
        if on_run is not None and not (declaration.timed and any(part.table for part in parts)):
            refused["on_run"] = on_run
        if refused:
            refusals.refuse_options(refused)
        if crew.devices is not None:
            devices = chosen_devices(parts[0].mechanism, crew.devices)
            crew = replace(crew, devices=devices, workers=max(crew.workers, len(devices)))
        with interruptible(self.address), self.turn.long(), orderly():
            ours = False  # whether this process has the journal, and with it the file beside it
            try:
                self._workers = crew.workers
                finished, ours = self.finished(), True
                if finished:
                    _progress.say_made_before(self.address if progress else None, released=True)
                    return self.release(again=True)
                cost = _progress.cost(declaration.certificate, [part.compute() for part in parts])
                self._live.erase()
                self._live.update(cost=cost)
                if progress:
                    if self._journal(0).record.exists:
                        _progress.say_made_before(self.address, released=False)
                    say(cost)
                    _progress.tell_fit(parts[-1].mechanism, declaration.space, log=declaration.timed)
                note("search started or resumed")
                for number in range(self._first(), self.last + 1):
                    if progress and self.last and on_terminal():  # a log would tell how long parts take
                        say(f"Part {number + 1} of {self.last + 1}.")
                    dp_hypo(self.part(number), crew, partial(self.publish, number), progress=progress, on_run=on_run)
                self._log_release()
                return self.release()
            finally:
                if ours:
                    self._live.erase()
                self.close()

    def ask(self) -> tuple[int, Trial] | None:
        """The next run to make, with the number of its part; None when there is none to give out now."""
        refuse_in_worker_start()
        with self.turn.short():
            number = self._first()
            while (trial := self.part(number).ask()) is None:
                if number == self.last or not self.part(number).record().complete:
                    return None
                self.publish(number)
                number += 1
            return number, trial

    def tell(self, number: int, trial: Trial, outcome: Any) -> None:
        with self.turn.short():
            if number > self._first():
                raise ValueError("this trial is not of these stages: tell what stages.ask() returned")
            self.part(number).tell(trial, outcome)

    def publish_last(self) -> Release:
        """The release, once, when all runs of all parts are told."""
        with self.turn.short():
            number = self._first()
            if number < self.last:
                raise Refusal(refusals.UNFINISHED)
            self.publish(number)
            self._live.erase()  # left by a run() that was killed
            self._log_release()
            return self.release()

    def _log_release(self) -> None:
        if self.declaration.timed:  # a log says when: beside the start that would be the time of a study
            note("released")

    def part(self, number: int) -> PartUnderWay:
        """The secret side of a part. All parts before it must have published: its prior is made from that."""
        with self.turn.look:
            if number not in self._parts:
                self._parts[number] = self._made(number)
            if self._workers is not None:
                self._parts[number].side_by_side(self._workers)
            return self._parts[number]

    def _made(self, number: int) -> PartUnderWay:
        if number:  # its prior is made from what another declaration may have published
            self.part(number - 1).record()
        declaration, setting = self.declaration, self._setting(number)
        if number and self._reservation is None and not self._journal(number).record.exists:
            refuse_without_ledger(self._journal(0).record)  # a copy would release once more for the same entry
        entropy = self._entropy if declaration.alone else self._entropy.child(f"stage {number + 1}")
        live = self._live if declaration.timed else NOWHERE
        checkpoint = self._store.beside(f"-checkpoint-{sha256(self._called(number).encode()).hexdigest()[:8]}")
        more: dict[str, Any] = {"live": live, "checkpoint": checkpoint, "records": self._records}
        return PartUnderWay(declaration, number, setting, self._journal(number), entropy, self.turn, **more)

    def publish(self, number: int) -> None:
        """Commit that a part has published. The certificate of a part is that of the whole search."""
        declaration, part = self.declaration, self.declaration.parts[number]
        certificate = declaration.certificate
        if number == self.last and not declaration.alone:
            own = [part.read(self.part(number).record())] if part.table else []
            certificate = declaration.certify([*self.earlier(number), *own])
        day = (self._journal(0).record.declaration or {}).get(DAY)
        self.part(number).publish(certificate if day is None else certificate.declared_on(day))

    def published(self, before: int) -> list[Any]:
        """What the parts before a given one have published, as far as they have."""
        found: list[Any] = []
        for number, part in enumerate(self.declaration.parts[:before]):
            record = self._journal(number).record
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
            raise ValueError(f"part {number + 1} has not begun: its prior depends on what the stages before it release")
        return published

    def release(self, *, again: bool = False) -> Release:
        """The release of the last part, with the tables of the surveys before it; ``again`` if it was made before."""
        setting, part = self._setting(self.last), self.part(self.last)
        release = self.declaration.parts[self.last].release(part.best(), part.record(), setting)
        surveys = [value for value in setting.published if isinstance(value, Surveyed)]
        read_from = (self.address or "memory") if again else None
        door = partial(self.curator, self.last) if release.ending is Ending.ALL_FAILED else None
        return replace(release, surveys=(*surveys, *release.surveys), read_from=read_from, door=door)

    def finished(self) -> bool:
        """Whether the last part has published, declared as it is now. Nothing is begun to find out."""
        with self.turn.look:
            return self._journal(self.last).record.exists and self.part(self.last).record().released

    def shred(self) -> None:
        with self.turn.short(), self.looking():
            last = self._journal(self.last).record
            if not (last.exists and last.shredded) and not self.finished():
                raise Refusal(refusals.NOT_RELEASED)
            self._parts.clear()
            for number in reversed(range(self.last + 1)):  # the last one first: then the others may be shredded later
                self._journal(number).shred()
            self._live.erase()
        self.close()

    def curator(self, number: int) -> Curator:
        with self.turn.look:
            return Curator(self.part(number))

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """A look at the journal. It is closed afterwards unless it was in use: what ask gave out would be lost."""
        with self.turn.look:
            in_use = any(self._store.holds(self._called(number)) for number in range(self.last + 1))
            try:
                yield
            finally:
                if not in_use:
                    self.close()

    def close(self) -> None:
        """Let other processes use the journal."""
        with self.turn.short():
            self._records.checked = False
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

    def _setting(self, number: int) -> PartSetting:
        published, declared = self.earlier(number), self.declaration
        return PartSetting(declared.space, declared.prior(published), tuple(published))

    def _journal(self, number: int) -> Journal:
        if number not in self._journals:
            # All parts share one entry in the ledger. The first part reserves.
            shared, called = self._shared or not self.declaration.alone, self._called(number)
            self._journals[number] = Journal(self._store, called, shared=shared, reservation=self._reservation)
        return self._journals[number]

    def _called(self, number: int) -> str:
        return self._name if self.declaration.alone else f"{self._name}, stage {number + 1}"
