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
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
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
    ...     space = dphypo.Space({"lr": [0.1, 1.0]})
    ...     runs = dphypo.Geometric(mean=3)
    ...     return dphypo.Study(space, wrap(train(records)), runs, delta=1e-5, journal=folder / "s.db", entropy=entropy)
    >>> replay(search, [1, 2], [1])
    []
    >>> def peeking(records, wrap, entropy, folder):  # the space depends on the records
    ...     space = dphypo.Space({"lr": [0.1 * len(records)]})
    ...     runs = dphypo.Geometric(mean=3)
    ...     return dphypo.Study(space, wrap(train(records)), runs, delta=1e-5, journal=folder / "s.db", entropy=entropy)
    >>> replay(peeking, [1, 2], [1])[0]
    'λ of run 1 differs'
    """
    tape: list[Any] = []
    recorded = _observe(make_search, data, seed, lambda run, calls: _Taped(run, calls, tape, play=False))
    played = _observe(make_search, neighbour, seed, lambda run, calls: _Taped(run, calls, tape, play=True))
    return list(_differences(recorded, played))


@dataclass
class _Seen:
    """All that a search showed."""

    calls: list[tuple[Any, int]] = field(default_factory=list)
    release: Any = None
    ending: str = ""
    files: dict[str, int] = field(default_factory=dict)
    printed: str = ""
    logged: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)


class _Taped:
    """A mechanism with all it declares, whose outcomes are recorded on a tape, or played from one."""

    def __init__(self, mechanism: Mechanism, calls: list[tuple[Any, int]], tape: list[Any], *, play: bool) -> None:
        self.inner, self.calls, self._tape, self._play = mechanism, calls, tape, play

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in {"inner", "calls"}:
            raise AttributeError(name)
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
    make_search: MakeSearch, data: Any, seed: int, wrap: Callable[[Mechanism, list[tuple[Any, int]]], Mechanism]
) -> _Seen:
    seen = _Seen()
    printed, handler = io.StringIO(), _Lines(seen.logged)
    logger = logging.getLogger("dphypo")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="dphypo-replay-") as folder,
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
            warnings.catch_warnings(record=True) as warned,
        ):
            warnings.simplefilter("always")
            place = Path(folder)
            try:
                release = make_search(data, lambda mechanism: wrap(mechanism, seen.calls), Seeded(seed), place).run()
                seen.release = (release.params, release.score, dict(release.certificate.document))
            except Exception as error:
                seen.ending = f"{type(error).__name__}: {error}"
            seen.files = {str(file.relative_to(place)): file.stat().st_mode for file in sorted(place.rglob("*"))}
            seen.printed = printed.getvalue().replace(folder, "FOLDER")
            seen.ending = seen.ending.replace(folder, "FOLDER")
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    seen.warned = [str(one.message) for one in warned]
    return seen


class _Lines(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def _differences(recorded: _Seen, played: _Seen) -> Iterator[str]:
    for number, (one, other) in enumerate(zip(recorded.calls, played.calls, strict=False), start=1):
        if one[0] != other[0]:
            yield f"λ of run {number} differs"
        if one[1] != other[1]:
            yield f"the seed of run {number} differs"
    if len(recorded.calls) != len(played.calls):
        yield f"the number of runs differs: {len(recorded.calls)} and {len(played.calls)}"
    for name, what in (
        ("release", "the release or its certificate"),
        ("ending", "how the search ended"),
        ("files", "the files or their modes"),
        ("printed", "what was printed"),
        ("logged", "what was logged"),
        ("warned", "what was warned of"),
    ):
        if getattr(recorded, name) != getattr(played, name):
            yield f"{what} differs"
