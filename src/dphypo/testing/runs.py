"""The conformance suites of what makes and keeps runs: mechanisms, executors, and stores (databases).

Run that of a mechanism on public or synthetic records before the first study.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import pickle
import secrets
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np

from dphypo import _validate
from dphypo._validate import ensure
from dphypo.accounting import PureDp, account
from dphypo.entropy import SYSTEM, Entropy, below
from dphypo.errors import JournalError, JournalInUseError, UnaccountableError
from dphypo.executors import Executor
from dphypo.executors.executor import Crew
from dphypo.journal import Database
from dphypo.journal.journal import Journal
from dphypo.journal.records import Trial
from dphypo.journal.store import Store
from dphypo.laws import Pmf
from dphypo.mechanisms import Mechanism, Outcome, mechanism, over_space
from dphypo.mechanisms.outcome import attempt
from dphypo.space import Space

Opened = Callable[[], AbstractContextManager[Executor]]


def check_mechanism(
    mechanism: Mechanism,
    space: Space,
    *,
    points: int = 3,
    deterministic: bool = True,
    workers: bool = False,
    entropy: Entropy = SYSTEM,
) -> None:
    """Raise an ``AssertionError`` that says what is wrong with a mechanism, if anything is.

    **It trains 4 times for each point and releases nothing: use it on records that are not private.** It cannot check
    that the event is true. It does check what else the theorems and a resumed study rely on: that the event bounds
    every λ of the space and can be accounted, that a run carries nothing over to the next, that its noise follows its
    seed, and that its model can be saved and loaded.

    Args:
        mechanism: what to check.
        space: the space it will be searched over.
        points: how many λ to draw from the prior.
        deterministic: whether the same λ and seed must give the same model to the last bit. Without that, a resumed
            study may differ from an uninterrupted one, and no run can be checked for what it carries over.
        workers: whether it must travel to other processes, for ``study.run(workers=2)``.
        entropy: where λ and the seeds come from.

    >>> import dp_accounting as dp
    >>> import numpy as np
    >>> import dphypo
    >>> @dphypo.mechanism(event=dp.GaussianDpEvent(1.0), relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    ... def same_noise(params, *, seed):
    ...     return params["scale"] * np.random.default_rng(0).normal(), 0.0
    >>> check_mechanism(same_noise, dphypo.Space({"scale": [1.0, 2.0]}))
    Traceback (most recent call last):
    AssertionError: two seeds gave the same model: the noise of a run must follow its seed
    """
    points = _validate.integer(at_least=1, points=points)
    ensure(isinstance(mechanism, Mechanism), "it is not a mechanism: declare it with @dphypo.mechanism(...)")
    _check_event(mechanism, space)
    if workers:
        ensure(pickle.loads(pickle.dumps(mechanism)) is mechanism, "other processes would not find it by its name")
    for _ in range(points):
        params, other = space.sample(entropy), space.sample(entropy)
        seed = below(2**63, entropy)
        first = _attempt(mechanism, params, seed)
        saved = mechanism.saver.dump(mechanism.saver.load(first.model))
        ensure(saved == first.model, "a model that is saved, loaded and saved again is not the same")
        between = _attempt(mechanism, other, below(2**63, entropy))
        again = _attempt(mechanism, params, seed)
        told = "the same λ and seed gave another model after another run: a run must depend on its λ and seed alone"
        ensure(not deterministic or (again.score, again.model) == (first.score, first.model), told)
        reseeded = _attempt(mechanism, params, below(2**63, entropy))
        told = "two seeds gave the same model: the noise of a run must follow its seed"
        ensure(first.model not in (reseeded.model, between.model), told)


def _check_event(mechanism: Mechanism, space: Space) -> None:
    """The supremum exists, and one run has a finite ε at some δ."""
    try:
        events = over_space.events(mechanism, space)
        epsilon = account(events, Pmf({1: 1.0}), relation=mechanism.relation).epsilon(0.1)
    except UnaccountableError as error:
        raise AssertionError(str(error)) from None
    ensure(math.isfinite(epsilon), "one run has no finite ε even at δ = 0.1: the event states no privacy")


def _attempt(mechanism: Mechanism, params: dict[str, object], seed: int) -> Outcome:
    result = attempt(mechanism, params, seed)
    ensure(result.failure is None, f"a run failed with {params!r}: {result.failure}")
    return result


def check_executor(
    make: Callable[[], Any], *, workers: int = 2, start_method: str = "spawn", deaths: bool = True, megabytes: int = 20
) -> None:
    """Raise an ``AssertionError`` that says what an executor does not do that a study needs, if anything.

    It makes equal runs, a run that raises, one that takes longer than the others, one with a large model, runs that are
    stopped, and one that kills its process.

    Args:
        make: makes, afresh every time, what ``study.run(executor=...)`` takes.
        workers: how many runs to make at a time.
        start_method: how processes of our own start.
        deaths: whether to kill workers; leave this out for runs that are made in this process.
        megabytes: the size of the largest model to send back.

    >>> check_executor(lambda: "in_process", workers=1, deaths=False, megabytes=1)
    """
    declare = mechanism(event=PureDp(0.1), relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    with tempfile.TemporaryDirectory(prefix="dphypo-executor-") as name:
        folder, made = Path(name), declare(functools.partial(_make, name))

        def opened() -> AbstractContextManager[Executor]:
            return Crew(workers, start_method, make()).hire(made)

        _check_equal_trials(opened, folder, workers)
        _check_outcomes(opened, folder, megabytes)
        _check_interruption(opened, folder, workers)
        if deaths:
            _check_deaths(opened, folder)


_SECONDS = {"sleep": 0.3, "slow": 1.5, "stop": 1.0}  # how long a run takes


def _make(folder: str, params: dict[str, Any], *, seed: int) -> Any:
    """A run that leaves a file behind each time it is made."""
    Path(folder, f"{params['do']} {seed} {time.monotonic_ns()} {os.getpid()}").touch()
    if params["do"] == "raise":
        raise ValueError("on purpose")
    if params["do"] == "die":
        os._exit(9)
    time.sleep(_SECONDS.get(params["do"], 0.0))
    return np.full(int(params["size"]), seed % 251, dtype=np.uint8), float(seed)


def _trial(number: int, do: str = "return", size: int = 1, seed: int | None = None) -> Trial:
    key = hashlib.sha256(str(number).encode()).digest()
    return Trial({"do": do, "size": size}, number if seed is None else seed, number, key)


def _run(opened: Opened, trials: list[Trial]) -> dict[int, Outcome]:
    """What came of runs on a newly opened executor: each must end once, with an outcome."""
    left, ended = trials[::-1], dict[int, Outcome]()
    with opened() as executor:
        ensure(executor.idle and not executor.busy, "an executor that was just opened is busy")
        while left or executor.busy:
            while left and executor.idle:
                executor.start(left.pop())
            trial, outcome = executor.wait()
            ensure(trial.number not in ended, "a run ended twice")
            if not isinstance(outcome, Outcome):
                raise AssertionError("a run was lost or withdrawn though no worker died or was taken back")
            ended[trial.number] = outcome
        ensure(executor.idle and not executor.busy, "an executor whose runs have all ended is busy")
    ensure(len(ended) == len(trials), "a run never ended")
    return ended


def _made(folder: Path, do: str) -> int:
    return len(list(folder.glob(f"{do} *")))


def _check_equal_trials(opened: Opened, folder: Path, workers: int) -> None:
    """Runs that are equal in all but their number are made as often as asked: no result is shared or remembered."""
    count = 3 * workers + 1
    ended = _run(opened, [_trial(number, "sleep", seed=5) for number in range(count)])
    ensure(all(one.score == 5.0 for one in ended.values()), "a run came back changed")
    made = _made(folder, "sleep")
    ensure(made == count, f"{count} equal runs were asked for and {made} were made")


def _check_outcomes(opened: Opened, folder: Path, megabytes: int) -> None:
    """An exception is an outcome, a large model comes back whole, and a slow run is waited for."""
    size = megabytes * 2**20
    ended = _run(opened, [_trial(3, "slow"), _trial(0, "raise"), _trial(1, "return", size), _trial(2)])
    failed, large, small, slow = (ended[number] for number in range(4))
    ensure(slow.score == 3.0, "a run that takes longer than others came back changed")
    ensure(_made(folder, "slow") == 1, "a run that takes longer than others was started again")
    ensure(failed.score is None and "on purpose" in str(failed.failure), "an error was lost")
    ensure(large.model is not None and len(large.model) > size, f"a model of {megabytes} MB did not come back")
    ensure(small.score == 2.0, "the run after an error came back changed")


def _check_interruption(opened: Opened, folder: Path, workers: int) -> None:
    """Runs may be stopped while they are under way: none is made twice, and others can be made after."""
    with opened() as executor:
        for number in range(workers):
            executor.start(_trial(number, "stop"))
        ensure(executor.busy and not executor.idle, "an executor that makes all the runs it can is idle")
    ensure(_run(opened, [_trial(0, "after")])[0].score == 0.0, "no run can be made after others were stopped")
    ensure(_made(folder, "after") == 1, "a run after others were stopped was made twice")
    ensure(_made(folder, "stop") <= workers, "a run that was stopped was started again")


def _check_deaths(opened: Opened, folder: Path) -> None:
    """A run that kills its process is lost, once, and is not started again on the executor's own account."""
    with opened() as executor:
        executor.start(_trial(0, "die"))
        trial, outcome = executor.wait()
    ensure(trial.number == 0 and outcome is None, "a run whose process died is not reported as lost")
    time.sleep(0.5)
    ensure(_made(folder, "die") == 1, "a run whose process died was started again")
    _run(opened, [_trial(number) for number in range(2)])


def check_store(connect: Callable[[], Database]) -> None:
    """Raise an ``AssertionError`` that says what a database does not do that a journal needs, if anything.

    ``connect`` connects anew to the same database every time. The check writes a study of its own under a random name
    and reduces it to its certificate in the end. It cannot check that a commit survives the loss of power.

    >>> import tempfile, pathlib
    >>> from dphypo.journal import SQLite
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     check_store(lambda: SQLite(pathlib.Path(folder) / "study.db"))
    """
    name = f"conformance {secrets.token_hex(8)}"
    store = Store(connect())
    try:
        _check_history(store, name)
        if not connect().durable:
            return
        _check_hold(store, Store(connect()), name)
        store.close()
        store = Store(connect())
        _check_kept(store, name)
    finally:
        store.close()


def _check_history(store: Store, name: str) -> None:
    journal = Journal(store, name)
    journal.begin({}, lambda: 2)
    Journal(store, name).begin({}, lambda: 9)
    ensure(Journal(store, name).record.total == 2, "a second T replaced the first")
    first = Trial({"x": (1, None)}, 2**63 - 1, 0, bytes(range(16)))
    second = Trial({"x": 1.5}, 0, 1, b"\xff")
    beyond = Trial({}, 0, 2, b"")
    _refuses("an outcome without a run", journal.finish, first, Outcome(None, 1.0), b"model")
    journal.claim(first)
    _refuses("a run drawn twice", journal.claim, first)
    for score in (math.inf, -math.inf, math.nan, None):
        _refuses(f"the score {score} without a failure", journal.finish, first, Outcome(None, score), None)
    journal.finish(first, Outcome(None, 0.1 + 0.2), b"\0first")
    _refuses("a second outcome of a run", journal.finish, first, Outcome(None, 2.0), None)
    journal.claim(second)
    _refuses("a run beyond T", journal.claim, beyond)
    _refuses("a release before the last outcome", journal.release, "MODEL", "{}")
    journal.finish(second, Outcome(None, 0.5), b"second\xff")
    journal.release("MODEL", "{}")
    _refuses("a second release", journal.release, "MODEL", "{}")


def _refuses(what: str, act: Callable[..., object], *given: Any, error: type[JournalError] = JournalError) -> None:
    try:
        act(*given)
    except error:
        return
    raise AssertionError(f"the database accepted {what}")


def _check_hold(store: Store, other: Store, name: str) -> None:
    """While one connection has a study, no other gets it: a run could be made twice."""
    store.hold(name)
    with closing(other):
        begin = Journal(other, name).begin
        _refuses("two connections that hold one study", begin, {}, lambda: 2, error=JournalInUseError)


def _check_kept(store: Store, name: str) -> None:
    """What was committed comes back bit for bit, and goes when it is shredded."""
    journal = Journal(store, name)
    journal.begin({}, lambda: 9)
    record = journal.record
    kept = [(trial.params, trial.seed, trial.tie_key) for trial in record.trials]
    expected = [({"x": (1, None)}, 2**63 - 1, bytes(range(16))), ({"x": 1.5}, 0, b"\xff")]
    ensure(record.total == 2 and kept == expected, "the runs that were committed came back changed, or not at all")
    ensure(record.results[0].score == 0.1 + 0.2, "a score came back changed")
    ensure(record.released, "the release was lost")
    ensure(record.best == 1 and journal.model() == b"second\xff", "the model of the best run came back changed")
    journal.shred()
    ensure(journal.record.shredded and not journal.record.trials, "shredding left runs behind")
