"""What people see of a search: its cost before it starts, and a line for every published run.

A study shows its cost and nothing else: how many of its runs have ended is secret. Nothing here raises into a search.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from dphypo._stderr import Shield, on_terminal, say, shielded
from dphypo.accounting.calibrate import watch
from dphypo.journal.journal import MAX_ATTEMPTS
from dphypo.search.release import OnRun, Row, at_edge, table_of

if TYPE_CHECKING:
    from dphypo._files import Json
    from dphypo.accounting import Certificate
    from dphypo.journal.journal import Record, Trial
    from dphypo.laws import Law
    from dphypo.mechanisms import Mechanism, Outcome
    from dphypo.space import Space

_QUANTILES = (0.5, 0.9, 0.99)


def cost(certificate: Certificate, computes: Sequence[str]) -> str:
    """What a search will cost: in privacy, and for each part in compute. It is the same before and after the search.

    All costs are printed first, because printing them later would reveal how long earlier parts took.
    """
    count = len(computes)
    parts = [f"Part {number} of {count}. {one}" if count > 1 else one for number, one in enumerate(computes, 1)]
    if certificate.warning is not None:
        privacy = f"Privacy: {certificate.warning}. Whoever knows the seed can repeat every draw."
    else:
        privacy = (
            f"Privacy: ε = {certificate.epsilon:.4g} at δ = {certificate.delta:g} for the whole search "
            f"({certificate.document['bound']} bound), whatever happens in it."
        )
    return "\n".join([privacy, *parts])


def say_made_before(journal: str | None, *, released: bool) -> None:
    """Say that a search was released or started before, and where; without times or counts."""
    if journal is not None:
        said = "released before. The same release is read again" if released else "started before. It resumes"
        say(f"This search was {said} from {journal}.")


def say_attempt(trial: Trial, *, last: bool) -> None:
    """Say that a published run is repeated or resumed. In a log, this is said of a last run alone."""
    if last or on_terminal():
        what = "last run" if last else f"run {trial.number + 1}"
        if trial.attempts > 1:
            say(f"{what}: attempt {trial.attempts} of {MAX_ATTEMPTS} without progress")
        elif trial.steps:
            say(f"{what}: resumed after step {trial.steps}")


def tell_fit(mechanism: Mechanism, space: Space, *, log: bool) -> None:
    """Say how many records fit: **secret**, and before anything is spent.

    On a terminal, and in a ``log`` that is for the curator alone, since it has lines with times. Nothing else may
    depend on it: neither a number nor an error leaves this function.
    """
    if not (log or on_terminal()):
        return

    def tell() -> None:
        if not (counts := mechanism.fitting_records(space).items()):
            return
        found = ", ".join(f"{fit} of the {given} records given to {use}" for use, (fit, given) in counts)
        said = "" if on_terminal() else " Do not publish this log."
        say(f"SECRET, for the curator alone: {found} fit the declaration. The others are left out.{said}")

    shielded(tell, otherwise=None)


def compute(law: Law) -> str:
    """What a study costs in runs, as the law of T has it."""
    half, most, nearly_all = (law.quantile(q) for q in _QUANTILES)
    return (
        f"Compute: {law.mean:.4g} runs expected; half of all studies execute at most {half}, 9 in 10 at most {most}, "
        f"99 in 100 at most {nearly_all}."
    )


@contextlib.contextmanager
def rows(
    record: Callable[[], Record], total: int, space: Json, on_run: OnRun | None, *, show: bool, public: bool
) -> Iterator[Callable[[Trial, Outcome], object]]:
    """A line for every published run, and a remark if the best is at the edge; yields what is told of a run.

    The number of runs and their scores are public. Durations are public only if declared. If not, lines are printed as
    runs end on a terminal only: in a log with times they would show how long each run took. Elsewhere all lines are
    printed, and ``on_run`` is called, when the survey has ended, since results may be published. Lines about steps
    show times: they go to a log at once and say that it is for the curator (``live.py``).
    """
    at_once, told, remarked = public or on_terminal(), Shield("on_run"), Shield("the remark on the best run")

    def tell(number: int, trial: Trial, outcome: Outcome, *, now: bool) -> None:
        if show and at_once is now:
            say(row(number, total, trial.params, outcome.score))
        if on_run is not None and public is now:
            told(lambda: on_run(Row(trial.params, outcome.score, outcome.metrics)), otherwise=None)

    yield lambda trial, outcome: tell(len(record().results), trial, outcome, now=True)
    for number, trial in enumerate(record().trials, 1):
        tell(number, trial, record().results[trial.number], now=False)
    if show and (remark := remarked(lambda: at_edge(table_of(record()), space), otherwise="")):
        say(remark)


def row(number: int, total: int, params: Mapping[str, object], score: float | None) -> str:
    """One published run.

    >>> row(3, 20, {"lr": 0.123456, "optimizer": "sgd"}, 0.91234)
    'run  3 of 20: 0.9123  lr = 0.1235, optimizer = sgd'
    """
    shown = "failed" if score is None else f"{score:.4g}"
    values = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in params.items()}
    listed = ", ".join(f"{name} = {value}" for name, value in values.items())
    return f"run {number:{len(str(total))}} of {total}: {shown}  {listed}"


@contextlib.contextmanager
def solving(*, show: bool = True, wait: float = 2.0) -> Iterator[None]:
    """Show on a terminal that noise is being solved for, if that takes longer than ``wait`` seconds.

    The line says how many values were tried, and the ε of the latest. It disappears when the noise is found.
    """
    if not (show and on_terminal()):
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    shield = Shield("the display of how the noise is solved for")
    what, latest = TextColumn("solving for the noise"), TextColumn("{task.description}")
    columns = SpinnerColumn("line"), what, TimeElapsedColumn(), latest
    shown = Progress(*columns, console=Console(stderr=True, force_jupyter=False), transient=True)
    task = shown.add_task("")
    lock, over, tries = threading.Lock(), False, 0

    def begin() -> None:
        with lock:
            if not over:
                shield(shown.start, otherwise=None)

    def tried(epsilon: float) -> None:
        nonlocal tries
        tries += 1
        text = f"{tries} tried, the latest costs ε = {epsilon:.4g}"
        shield(lambda: shown.update(task, description=text), otherwise=None)

    timer = threading.Timer(wait, begin)
    timer.daemon = True
    timer.start()
    try:
        with watch(tried):
            yield
    finally:
        timer.cancel()
        with lock:
            over = True
        shield(shown.stop, otherwise=None)
