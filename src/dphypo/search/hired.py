"""Who makes the runs of a part: groups in this process, a process for each device, or a crew."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from dphypo.executors import Executor
from dphypo.executors.devices import DeviceGroups
from dphypo.executors.executor import Crew
from dphypo.executors.groups import Groups, in_process
from dphypo.executors.processes import Processes
from dphypo.mechanisms import Mechanism, capabilities
from dphypo.search.checkpoint import CheckpointFile
from dphypo.search.live_steps import Followed, LiveSteps
from dphypo.search.part import GroupSizes, Opening


def on_each_device(crew: Crew, mechanism: Mechanism, *, one: bool) -> list[Mechanism]:
    """The same training on each of the crew's devices; on the first of them if there is ``one`` run."""
    if crew.devices is None or not isinstance(mechanism, capabilities.OnDevices):
        return [mechanism]
    return [mechanism.at(device=name) for name in (crew.devices[:1] if one else crew.devices)]


def followed(crew: Crew, each: list[Mechanism], opening: Opening, *, last: bool, show: bool) -> list[Mechanism]:
    """Published runs, followed where one device of this machine makes them; a ``last`` run keeps checkpoints."""
    if not crew.local or len(each) > 1:
        return each
    path, every, file = opening.checkpoint, crew.checkpoint_every, None
    if last and path is not None and every is not None:
        file = CheckpointFile(path, every)
    shown = LiveSteps("last run" if last else "survey", show, show and opening.timed, file, opening.live)
    return [Followed(each[0], shown)]


@contextlib.contextmanager
def hired(crew: Crew, each: Sequence[Mechanism], groups: GroupSizes | None, *, alone: bool) -> Iterator[Executor]:
    """An executor that is gone when the block ends.

    Args:
        crew: how many, where.
        each: the mechanism, once for each device.
        groups: how many runs are made at once; None for one at a time.
        alone: whether a run that was lost is made again alone.
    """
    if groups is not None:
        with contextlib.ExitStack() as stack:
            make = in_process(each[0])
            if len(each) > 1:
                make = stack.enter_context(contextlib.closing(DeviceGroups(each, crew.start_method))).make
            yield Groups(make, groups.of, alone=alone)
    elif len(each) > 1:
        workers = Processes(each[0], workers=crew.workers, start_method=crew.start_method, each=each)
        with contextlib.closing(workers):
            yield workers
    else:
        with crew.hire(each[0]) as found:
            yield found
