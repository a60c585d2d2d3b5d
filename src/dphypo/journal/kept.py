"""Public numbers that take long to find, kept in a journal from one call to the next."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from dphypo.accounting import Keep
from dphypo.journal.journal import Journal
from dphypo.journal.store import Store, open_store


@contextlib.contextmanager
def keeping(journal: str | Path | Store | None, name: str) -> Iterator[Keep | None]:
    """Keep answers in a journal, under the name of a search; nowhere (None), if the journal is in memory.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for answer in (0.5, 0.6):  # the second is not asked for
    ...         with keeping(f"{folder}/tune.db", "tune") as keep:
    ...             print(keep({"epsilon": 1.0}, lambda: answer))
    0.5
    0.5
    """
    if journal is None:
        yield None
        return
    kept = Journal(open_store(journal), name, shared=isinstance(journal, Store))
    try:
        yield kept.solved
    finally:
        kept.rest()
