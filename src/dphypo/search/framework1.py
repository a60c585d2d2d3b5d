"""Framework 1 of the paper, DP-HyPO 𝒜(D, π⁽⁰⁾, 𝒯, C, c), run durably.

| the paper | here |
|---|---|
| Initialize π⁽⁰⁾ | the prior of ``declaration.space`` |
| Initialize the result set A = {} | a new journal |
| Draw T ∼ 𝒯 | ``search.record``: T is drawn and committed before anything else |
| for j = 0 to T − 1 | until ``search.next`` gives no more runs |
| (x, q) ∼ Q(D, π⁽ʲ⁾) | ``search.next`` draws λ ∼ π⁽ʲ⁾ and commits it; a worker runs M_λ on D |
| A = A ∪ {(x, q)} | ``search.finish`` commits the outcome; of the models, the best one is kept |
| Update π⁽ʲ⁺¹⁾ such that c ≤ π⁽ʲ⁺¹⁾(λ) / π⁽⁰⁾(λ) ≤ C | ``next_params``: the sampler's density, then its projection |
| Output (x, q) from A with the highest q | ``search.publish``: the best run, and nothing else |

The paper's loop makes one run after the other. Runs may be made side by side too: a λ that is drawn while other runs
are under way uses less of A, which the theorems allow. What counts is score and key, never which run ended first.
"""

from __future__ import annotations

from dphypo.accounting import Certificate
from dphypo.executors import Crew, Withdrawn
from dphypo.search import progress as _progress
from dphypo.search.declaration import Declaration
from dphypo.search.runs import Search


def dp_hypo(declaration: Declaration, search: Search, crew: Crew, certificate: Certificate, *, progress: bool) -> None:
    """Make the T runs of a study, or those that are left, and publish the best.

    Nothing is published before the last run has ended. With ``progress`` a bar is drawn on a terminal.
    """
    declaration.lost.check(crew)
    done = len(search.record().results)  # T is drawn and committed
    with (
        crew.hire(declaration.mechanism) as workers,
        _progress.bar(declaration.runs, done, show=progress, ticking=crew.threads) as one_more,
    ):
        while True:
            while workers.idle and (trial := search.next()) is not None:  # density, band, λ
                workers.start(trial)
            if not workers.busy:
                break  # T runs have ended
            trial, outcome = workers.wait()
            if outcome is None:
                search.lost(trial)
            elif isinstance(outcome, Withdrawn):
                search.withdrawn(trial)
            else:
                search.finish(trial, outcome)
                one_more()
    search.publish(certificate)
