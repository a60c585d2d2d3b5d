"""Public numbers that take long to find, kept in a journal from one call to the next."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from dphypo.journal.journal import Journal
from dphypo.journal.store import Store, open_store


class Keep(Protocol):
    """Gives the answer to a question: one that is kept, or what ``solve()`` finds, which is kept from then on.

    The question has all that the answer depends on, in public values. A kept answer is not trusted: what it is used for
    is accounted for as if the user had given it.
    """

    def __call__(self, question: Mapping[str, Any], solve: Callable[[], float]) -> float: ...


def solved_anew(question: Mapping[str, Any], solve: Callable[[], float]) -> float:
    """The answer, found now and kept nowhere.

    >>> solved_anew({"epsilon": 1.0}, lambda: 0.5)
    0.5
    """
    return solve()


@contextlib.contextmanager
def keeping(journal: str | Path | Store | None, name: str) -> Iterator[Keep]:
    """Keep answers in a journal, under the name of a search; nowhere, if the journal is in memory.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for answer in (0.5, 0.6):  # the second is not asked for
    ...         with keeping(f"{folder}/tune.db", "tune") as keep:
    ...             print(keep({"epsilon": 1.0}, lambda: answer))
    0.5
    0.5
    """
    if journal is None:
        yield solved_anew
        return
    kept = Journal(open_store(journal), name, shared=isinstance(journal, Store))
    try:
        yield kept.solved
    finally:
        kept.rest()
