"""The parts of a plan under way: one journal for each, each opened when those before it have published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dphypo.entropy import Entropy
from dphypo.journal import Journal, Ledger, Store, make_reservation, open_store
from dphypo.mechanisms import rehearse
from dphypo.search.part import Running, Setting
from dphypo.search.plan import Plan


class UnderWay:
    """The secret side of a plan. Parts are numbered from 0.

    Args:
        plan: what was declared.
        journal: where the parts commit; an open store stays open when they are closed.
        name: part k is the study "name, stage k + 1" there.
        entropy: where randomness comes from.
        ledger: where the cost of the whole plan is reserved when its first part begins.
    """

    def __init__(
        self,
        plan: Plan,
        journal: str | Path | Store | None,
        name: str,
        entropy: Entropy,
        ledger: Ledger | str | Path | None = None,
    ) -> None:
        self._reservation = make_reservation(ledger, plan.guarantee, name, private=plan.private, delta=plan.delta)
        self._plan, self._name, self._entropy = plan, name, entropy
        self._shared = isinstance(journal, Store)
        self._store = open_store(journal)
        self._running: dict[int, Running] = {}
        self._journals: dict[int, Journal] = {}
        self.last = len(plan.parts) - 1

    @property
    def address(self) -> str | None:
        """Where the journal is, in words that may be printed; None if it is in memory."""
        return self._store.address

    @property
    def in_use(self) -> bool:
        """Whether this process has the journal."""
        return any(self._store.holds(self._called(number)) for number in range(self.last + 1))

    def first(self) -> int:
        """The first part that has not published; the last one, if all have. Each was declared as it is now."""
        number = 0
        while number < self.last and self.part(number).finished:
            number += 1
        return number

    def part(self, number: int) -> Running:
        """The secret side of a part. All parts before it must have published: its prior is made from that."""
        if number not in self._running:
            published = self.earlier(number)
            if number == 0 and not self._journal(0).record.exists:
                for part in self._plan.parts:  # all of them, before the first run is drawn
                    rehearse(part.mechanism, self._plan.space)
            # What is paid for is the whole: each part is certified as part of it.
            certificate = self._plan.certify(published) if number == self.last else self._plan.certificate
            self._running[number] = self._plan.parts[number].open(
                Setting(
                    journal=self._journal(number),
                    entropy=self._entropy.child(f"stage {number + 1}"),
                    terms=self._plan.terms[number],
                    certificate=certificate,
                    whole={"stage": number + 1, **self._plan.to_dict()},
                    prior=self._plan.prior(published),
                    published=tuple(published),
                    maximize=self._plan.maximize,
                    last=number == self.last,
                )
            )
        return self._running[number]

    def published(self, before: int) -> list[Any]:
        """What the parts before a given one have published, as far as they have."""
        found: list[Any] = []
        for number, part in enumerate(self._plan.parts[:before]):
            one = part.read(self._journal(number))
            if one is None:
                break
            found.append(one)
        return found

    def earlier(self, number: int) -> list[Any]:
        """What all parts before a given one have published; refused if one has not."""
        published = self.published(number)
        if len(published) < number:
            raise ValueError(
                f"stage {number + 1} has not begun: its prior depends on what the stages before it release"
            )
        return published

    def finished(self) -> bool:
        """Whether the last part has published; nothing is begun to find out."""
        return self._journal(self.last).record.released

    def shred(self) -> None:
        """Reduce the journals of all parts to their certificates."""
        self._running.clear()
        for number in range(self.last + 1):
            self._journal(number).shred()

    def close(self) -> None:
        """Let other processes use the journal."""
        for part in self._running.values():
            part.close()
        for journal in self._journals.values():
            journal.rest()
        if not self._shared:
            self._store.rest()

    def _journal(self, number: int) -> Journal:
        if number not in self._journals:
            # All parts share one entry in the ledger. The first reserves: whoever goes on with the plan begins with it.
            self._journals[number] = Journal(
                self._store, self._called(number), shared=True, reservation=self._reservation
            )
        return self._journals[number]

    def _called(self, number: int) -> str:
        return f"{self._name}, stage {number + 1}"
