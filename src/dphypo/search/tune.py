"""Tune a private model: a survey of short runs, then one full run at what it found."""

from __future__ import annotations

import concurrent.futures
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import cast

from dphypo import _validate
from dphypo.entropy import SYSTEM, Entropy, check_entropy
from dphypo.executors.executor import FIVE_MINUTES, Crew, Every, Factory
from dphypo.journal import Ledger
from dphypo.journal.journal import keeping
from dphypo.journal.store import Store
from dphypo.mechanisms import Mechanism, capabilities
from dphypo.search.chain import Chain
from dphypo.search.plan_file import PlanFile, read_plan
from dphypo.search.progress import solving
from dphypo.search.release import Release
from dphypo.search.survey_plan import PRICE, SurveyPlan, plan_tuning
from dphypo.search.table import OnRun
from dphypo.space import Space


@_validate.named_right
def tune(
    *searched: Space | Mechanism,
    space: Space | None = None,
    mechanism: Mechanism | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    compute: float | None = None,
    survey: SurveyPlan | int | None = None,
    price: float = PRICE,
    plan: PlanFile | str | Path | None = None,
    workers: int = 1,
    progress: bool = True,
    start_method: str = "spawn",
    executor: str | Factory | concurrent.futures.Executor | None = None,
    devices: Sequence[str] | str | None = None,
    checkpoint_every: Every = FIVE_MINUTES,
    on_run: OnRun | None = None,
    journal: str | Path | Store | None = "tune.db",
    name: str = "tune",
    maximize: bool = True,
    entropy: Entropy = SYSTEM,
    data_name: str | None = None,
    ledger: Ledger | str | Path | None = None,
) -> Release:
    """Tune the hyperparameters of a private training run, and train with them: all of it costs (ε, δ) together.

    Short runs with more noise cost next to nothing beside the full run, so all of their results are published, an
    ordinary optimiser follows them, and one full run is made at the λ they recommend. The noise of all runs is solved
    for: the full run's is usually less than a few per cent above what it would be without any tuning. What tuning costs
    is printed before it starts.

    **Guarantee.** The model, its λ and the whole table of the survey (``release.survey``) together are (ε, δ)-DP, by
    composition; ``release.certificate`` says so in public values. Nothing about the search is secret but the data, the
    seeds and how long runs take.

    The last run is not ranked, so ``release.score`` is None. To say how good the model is, evaluate it on public
    records, or on private ones that were used for nothing else, and pay for that.

    Args:
        searched: the space and the mechanism, or the mechanism alone: ``tune(space, mechanism, ...)`` or
            ``tune(mechanism, ...)``. Both may be given by name.
        space: the hyperparameters of the full run, and a prior of them; by default those that the mechanism names
            (:meth:`dphypo.integrations.torch.DPSGD.default_space`).
        mechanism: the full run, such as :class:`dphypo.integrations.torch.DPSGD`. It offers
            ``at(noise_multiplier=...)`` and ``at(fraction=..., match=True)``, the same training cut short.
        epsilon, delta: what everything that is released may cost together.
        compute: the most compute, in full runs; the last run takes 1 of it. Where batch size or steps are tuned,
            settings with which it could be exceeded are excluded.
        survey: a :class:`dphypo.SurveyPlan`, or the number of short runs; by default it is planned.
        price: how much more noise in the full run a planned survey may cost, as a fraction.
        plan: instead of ``epsilon``, ``delta``, ``compute``, ``survey`` and ``price``: a ``PlanFile``, or the path
            of one, as ``dphypo plan --write`` or :func:`dphypo.plan` makes it. It may be any design, not only
            a survey. What would cost anything but what it states is refused.
        workers: how many runs to make at a time.
        progress: print what tuning costs, and every run of the survey.
        start_method, executor, devices: how and where runs are made: as for :meth:`dphypo.Study.run`.
        checkpoint_every: how often the last run keeps its state: as for :meth:`dphypo.Stages.run`.
        on_run: told of every published run, such as a logger: as for :meth:`dphypo.Stages.run`.
        journal, name, entropy, data_name, ledger: as for :class:`dphypo.Stages`. A call that was interrupted goes on.
        maximize: whether larger scores are better.

    >>> import math
    >>> import dp_accounting as dp
    >>> import dphypo
    >>> from scipy.stats import loguniform
    >>> def training(noise_multiplier, steps=400):
    ...     def train(params, *, seed):  # a stand-in for so many steps of training on private records
    ...         return {"lr": params["lr"], "steps": steps}, -abs(math.log(params["lr"] / 0.1))
    ...     event = dp.SelfComposedDpEvent(dp.GaussianDpEvent(noise_multiplier), steps)
    ...     return Training(train, event=event, relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    >>> class Training(dphypo.mechanisms.Declared):
    ...     def at(self, noise_multiplier=None, fraction=1.0, match=False):
    ...         noise = noise_multiplier or self.event.event.noise_multiplier
    ...         return training(noise / math.sqrt(fraction) if match else noise, round(400 * fraction))
    >>> release = tune(dphypo.Space({"lr": loguniform(1e-3, 1)}), training(1.0), epsilon=2.0, delta=1e-6,
    ...                survey=20, journal=None, progress=False)
    >>> 0.05 < release.params["lr"] < 0.2, release.model["steps"], len(release.survey.rows)
    (True, 400, 20)
    >>> 1.99 < release.certificate.epsilon <= 2.0
    True
    """
    space, mechanism = _subject(searched, space, mechanism)
    check_entropy(entropy)
    crew = Crew(workers, start_method, executor, devices, checkpoint_every)
    if plan is not None:
        given = {"epsilon": epsilon, "delta": delta, "compute": compute, "survey": survey}
        if twice := [argument for argument, value in given.items() if value is not None]:
            raise _validate.fail(twice[0], given[twice[0]], "the plan says it: leave it out")
        declare, summary = partial(read_plan(plan).declare, space, mechanism), ""
    else:
        if epsilon is None or delta is None:
            missing = "epsilon" if epsilon is None else "delta"
            raise _validate.fail(missing, None, "give epsilon and delta, what everything may cost together; or a plan")
        with keeping(journal, name) as keep, solving(show=progress):
            tuning = plan_tuning(
                space, mechanism, epsilon=epsilon, delta=delta, compute=compute, survey=survey, price=price, keep=keep
            )
        declare, summary = partial(tuning.declare, space, delta), tuning.summary
    declared = declare(maximize=maximize, private=entropy.private, data_name=data_name)
    chain = Chain(declared, journal, name, entropy, ledger)
    if _validate.flag(progress=progress) and summary:
        print(summary, file=sys.stderr)
    return chain.run(crew, progress=progress, on_run=on_run, options={})


def _subject(
    searched: Sequence[Space | Mechanism], space: Space | None, mechanism: Mechanism | None
) -> tuple[Space, Mechanism]:
    """The space and the mechanism, given by place or by name."""
    places = list(searched)
    if mechanism is None:
        if not places:
            raise _validate.fail("mechanism", None, "give tune(mechanism, ...) or tune(space, mechanism, ...)")
        mechanism = cast(Mechanism, places.pop())
    if places and space is None:
        space = cast(Space, places.pop())
    if places:
        raise TypeError("tune takes a space and a mechanism: tune(space, mechanism, ...) or tune(mechanism, ...)")
    return capabilities.default_space(mechanism) if space is None else space, mechanism
