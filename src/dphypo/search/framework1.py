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

A survey is made by the same loop: T is declared, an optimiser takes the place of the band, and all of A is published.
"""

from __future__ import annotations

from collections.abc import Callable

from dphypo.executors import Withdrawn
from dphypo.executors.executor import Crew
from dphypo.search.table import OnRun
from dphypo.search.under_way import PartUnderWay


def dp_hypo(
    part: PartUnderWay, crew: Crew, publish: Callable[[], None], *, progress: bool, on_run: OnRun | None = None
) -> None:
    """Make the runs of a part, or those that are left, and publish.

    Nothing is published before the last run has ended. With ``progress`` people see on a terminal that runs are made.
    """
    part.record()  # T is drawn and committed
    watch = part.watch(show=progress, ticking=crew.threads, on_run=on_run)
    with part.made_by(crew, show=progress) as workers, watch as one_more:
        while True:
            part.check_hope()
            while workers.idle and (trial := part.next()) is not None:  # density, band, λ
                workers.start(trial)
            if not workers.busy:
                break  # T runs have ended
            trial, outcome = workers.wait()
            if outcome is None:
                part.lost(trial)
            elif isinstance(outcome, Withdrawn):
                part.withdrawn(trial)
            else:
                part.finish(trial, outcome)
                one_more(trial, outcome)
    publish()
