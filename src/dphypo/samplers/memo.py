"""A private place where a sampler keeps work it may use again."""

from __future__ import annotations

from typing import Generic, TypeVar

Work = TypeVar("Work")


class Memo(Generic[Work]):
    """At most one piece of work, handed out to one caller at a time.

    A sampler is a value: what it returns depends on its fields and arguments alone. A memo only saves time, so
    whoever takes work from it must check that it belongs to the arguments at hand. What it holds is derived from a
    secret history: it is never printed, and a copied or pickled memo is empty.

    >>> import pickle
    >>> memo = Memo()
    >>> memo.put("work")
    >>> memo, pickle.loads(pickle.dumps(memo)).take()
    (Memo(), None)
    >>> memo.take(), memo.take()
    ('work', None)
    """

    def __init__(self) -> None:
        self._work: list[Work] = []

    def take(self) -> Work | None:
        """The work, which leaves the memo: two threads never share it."""
        try:
            return self._work.pop()
        except IndexError:
            return None

    def put(self, work: Work) -> None:
        self._work[:] = [work]

    def __repr__(self) -> str:
        return "Memo()"

    def __reduce__(self) -> tuple[type[Memo[Work]], tuple[()]]:
        return type(self), ()
