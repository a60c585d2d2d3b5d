"""Record and replay: does anything but the runs look at the data?

A search is run on D and what each of its runs returned is recorded. Then it is run on D′ with the same randomness and
the recorded outputs in place of the runs. Everything else must come out the same: how many runs there are, their λ and
seeds, the release, the files and their names, what is printed and logged, and how it ends. A difference is a
dependence on the data that no event pays for and no theorem covers.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any, Protocol

from dphypo.entropy import Entropy, Seeded
from dphypo.mechanisms import Mechanism

Wrap = Callable[[Mechanism], Mechanism]


class MakeSearch(Protocol):
    """Makes a search on given data. It must pass its mechanism through ``wrap``, and use the entropy and folder given.

    ``search(data, wrap, entropy, folder)`` could be ``Study(space, wrap(train(data)), runs, delta=1e-5,
    journal=folder / "study.db", entropy=entropy)``.
    """

    def __call__(self, data: Any, wrap: Wrap, entropy: Entropy, folder: Path) -> Any: ...


def replay(make_search: MakeSearch, data: Any, neighbour: Any, *, seed: int = 0) -> list[str]:
    """What a search shows of the data outside of its runs: a sentence for each difference, none if there is none.

    **The randomness is seeded: use it on records that are not private.**

    >>> import dp_accounting as dp
    >>> import dphypo
    >>> def train(records):
    ...     @dphypo.mechanism(event=dp.GaussianDpEvent(4.0), relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    ...     def run(params, *, seed):
    ...         return len(records), params["lr"]
    ...     return run
    >>> def search(records, wrap, entropy, folder):
    ...     space = dphypo.Space({"lr": [0.1 * len(records)]})  # wrong: it depends on the records
    ...     runs = dphypo.Geometric(mean=3)
    ...     return dphypo.Study(space, wrap(train(records)), runs, delta=1e-5, journal=folder / "s.db", entropy=entropy)
    >>> replay(search, [1, 2], [1])[0]
    'λ of run 1 differs'
    >>> replay(search, [1, 2], [1, 3])
    []
    """
    tape: list[Any] = []
    (runs, seen), (other_runs, other_seen) = (
        _observe(make_search, records, seed, tape, play=play) for records, play in ((data, False), (neighbour, True))
    )
    found = []
    for number, (one, other) in enumerate(zip(runs, other_runs, strict=False), start=1):
        found += [f"λ of run {number} differs"] * (one[0] != other[0])
        found += [f"the seed of run {number} differs"] * (one[1] != other[1])
    if len(runs) != len(other_runs):
        found.append(f"the number of runs differs: {len(runs)} and {len(other_runs)}")
    return found + [f"{what} differs" for what in seen if seen[what] != other_seen[what]]


class _Taped(Mechanism):
    """A mechanism with all it declares, whose outcomes are recorded on a tape, or played from one."""

    def __init__(self, mechanism: Mechanism, calls: list[tuple[Any, int]], tape: list[Any], *, play: bool) -> None:
        self.inner, self.calls, self._tape, self._play = mechanism, calls, tape, play

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__") or name in {"inner", "calls", "_tape", "_play"}:
            return object.__getattribute__(self, name)
        return getattr(self.inner, name)

    def __call__(self, params: Mapping[str, Any], *, seed: int) -> Any:
        self.calls.append((dict(params), seed))
        if not self._play:
            try:
                self._tape.append(self.inner(params, seed=seed))
            except Exception as error:
                self._tape.append(error)
        place = len(self.calls) - 1
        outcome = self._tape[place] if place < len(self._tape) else (None, 0.0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def _observe(
    make_search: MakeSearch, data: Any, seed: int, tape: list[Any], *, play: bool
) -> tuple[list[tuple[Any, int]], dict[str, Any]]:
    """The λ and the seed of every run, and all else that a search showed, by its name."""
    calls: list[tuple[Any, int]] = []
    release, ending = None, ""
    printed, logged, logger = io.StringIO(), BufferingHandler(sys.maxsize), logging.getLogger("dphypo")
    with (
        tempfile.TemporaryDirectory(prefix="dphypo-replay-") as folder,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
        warnings.catch_warnings(record=True, action="always") as warned,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(logger.setLevel, logger.level)
        stack.callback(logger.removeHandler, logged)
        logger.addHandler(logged)
        logger.setLevel(logging.DEBUG)
        place = Path(folder)
        try:
            made = make_search(data, lambda run: _Taped(run, calls, tape, play=play), Seeded(seed), place).run()
            release = (made.params, made.score, dict(made.certificate.document))
        except Exception as error:
            ending = f"{type(error).__name__}: {error}".replace(folder, "FOLDER")
        files = {str(file.relative_to(place)): file.stat().st_mode for file in sorted(place.rglob("*"))}
    return calls, {
        "the release or its certificate": release,
        "how the search ended": ending,
        "the files or their modes": files,
        "what was printed": printed.getvalue().replace(folder, "FOLDER"),
        "what was logged": [record.getMessage() for record in logged.buffer],
        "what was warned of": [str(one.message) for one in warned],
    }
