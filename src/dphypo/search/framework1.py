"""Framework 1 of the paper, DP-HyPO 𝒜(D, π⁽⁰⁾, 𝒯, C, c), run durably.

| the paper | here |
|---|---|
| Initialize π⁽⁰⁾ | the prior of ``declaration.space`` |
| Initialize the result set A = {} | a new journal |
| Draw T ∼ 𝒯 | ``part.record``: T is drawn and committed before anything else |
| for j = 0 to T − 1 | until ``part.next`` gives no more runs |
| (x, q) ∼ Q(D, π⁽ʲ⁾) | ``part.next`` draws λ ∼ π⁽ʲ⁾ and commits it; a worker runs M_λ on D |
| A = A ∪ {(x, q)} | ``part.finish`` commits the outcome; of the models, the best one is kept |
| Update π⁽ʲ⁺¹⁾ such that c ≤ π⁽ʲ⁺¹⁾(λ) / π⁽⁰⁾(λ) ≤ C | ``policy.py``: the sampler's density, then its projection |
| Output (x, q) from A with the highest q | ``publish``: the best run, and nothing else |

The paper's loop makes one run after the other. Runs may be made side by side too: a λ that is drawn while other runs
are under way uses less of A, which the theorems allow. What counts is score and key, never which run ended first.

A survey is made by the same loop: T is declared, a proposer takes the place of the band, and all of A is published.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from dphypo import _validate
from dphypo.executors import Executor, Withdrawn
from dphypo.executors.executor import Crew, Lost
from dphypo.executors.groups import Groups
from dphypo.executors.processes import Processes
from dphypo.mechanisms import Mechanism
from dphypo.search.checkpoint import CheckpointFile
from dphypo.search.live import LiveSteps, ReportsSteps
from dphypo.search.progress import say_attempt
from dphypo.search.table import OnRun

if TYPE_CHECKING:
    from dphypo.search.part import GroupSizes
    from dphypo.search.under_way import PartUnderWay


def dp_hypo(
    part: PartUnderWay, crew: Crew, publish: Callable[[], None], *, progress: bool, on_run: OnRun | None = None
) -> None:
    """Make the runs of a part, or those that are left, and publish.

    Nothing is published before the last run has ended. With ``progress`` people see the runs that are published.
    """
    part.record()  # T is drawn and committed
    watch = part.decider.watch(part.record, show=progress, on_run=on_run)
    with _made_by(crew, part, show=progress) as workers, watch as one_more:
        while True:
            part.check_hope()
            while workers.idle and (trial := part.next()) is not None:  # density, band, λ
                if progress and part.decider.published:
                    say_attempt(trial, last=part.last_run)
                workers.start(trial)
            if not workers.busy:
                break  # T runs have ended
            trial, outcome = workers.wait()
            if outcome is None:
                part.lost(trial)
            elif isinstance(outcome, Withdrawn):
                part.withdraw(trial)
            else:
                part.finish(trial, outcome)
                one_more(trial, outcome)
    publish()


@contextlib.contextmanager
def _made_by(crew: Crew, part: PartUnderWay, *, show: bool) -> Iterator[Executor]:
    """A block in which a crew makes the runs, or a mechanism that makes many at once; ``show`` shows published runs."""
    mechanism, decider = part.mechanism, part.decider
    part.lost_runs.check(crew)
    if part.last_run and crew.devices is not None:
        crew = replace(crew, workers=1)
    groups = None
    if crew.executor is None and mechanism.makes_many:
        same = mechanism.same_alone and part.lost_runs is Lost.AGAIN  # in a study a run is the same among others
        groups = decider.groups(crew.workers) if same or decider.published else None
    each = on_each_device(crew, mechanism, one=part.last_run)
    with part.making(groups, here=len(each) == 1 and (crew.here or groups is not None)):
        if decider.published and crew.local and len(each) == 1:
            each = [ReportsSteps(each[0], _follower(crew, part, show=show))]
        with _hired(crew, each, groups, alone=not decider.published) as workers:
            yield workers


def chosen_devices(mechanism: Mechanism, devices: Sequence[str] | str) -> Sequence[str]:
    """The devices that are meant, "all" being all of this machine; refused if training cannot be moved."""
    if not mechanism.devices():
        remedy = "the mechanism has no devices() and at(device=...): choose the device in your training"
        raise _validate.fail("devices", devices, remedy)
    names = mechanism.devices() if devices == "all" else devices
    if isinstance(names, str) or not names or not all(isinstance(name, str) for name in names):
        raise _validate.fail("devices", devices, 'give "all", or a list such as ["cuda:0", "cuda:1"]')
    return names


def on_each_device(crew: Crew, mechanism: Mechanism, *, one: bool) -> list[Mechanism]:
    """The same training on each of the crew's devices; on the first of them if there is ``one`` run."""
    if crew.devices is None:
        return [mechanism]
    return [mechanism.at(device=name) for name in (crew.devices[:1] if one else crew.devices)]


def _follower(crew: Crew, part: PartUnderWay, *, show: bool) -> LiveSteps:
    """Follows published runs that one device of this machine makes; a last run keeps checkpoints."""
    every, file = crew.checkpoint_every, None
    if part.last_run and part.checkpoint is not None and every is not None:
        file = CheckpointFile(part.checkpoint, every)
    log = show and part.declaration.timed
    return LiveSteps("last run" if part.last_run else "survey", show, log, file, part.live)


def _hired(
    crew: Crew, each: Sequence[Mechanism], groups: GroupSizes | None, *, alone: bool
) -> AbstractContextManager[Executor]:
    """An executor for the mechanism, which is given once for each device; ``alone`` makes lost runs again alone."""
    if groups is not None:
        return contextlib.closing(Groups(each, groups.of, alone=alone, start_method=crew.start_method))
    if len(each) == 1:
        return crew.hire(each[0])
    workers = Processes(each[0], workers=crew.workers, start_method=crew.start_method, each=each)
    return contextlib.closing(workers)
