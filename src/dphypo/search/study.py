"""The study: one journal, one T, one release."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dphypo import _validate
from dphypo.accounting.guarantee import PolicyClass
from dphypo.band import Band, Greedy
from dphypo.band.band import BandLike
from dphypo.band.problem import Projection
from dphypo.entropy import SYSTEM, Entropy, check_entropy
from dphypo.executors.executor import Lost
from dphypo.journal import Ledger
from dphypo.journal.journal import Trial
from dphypo.journal.store import Store
from dphypo.laws import Law
from dphypo.mechanisms import Mechanism
from dphypo.samplers import Sampler
from dphypo.search.chain import Chain
from dphypo.search.curator import Curator
from dphypo.search.declaration import Declaration
from dphypo.search.release import Release
from dphypo.search.stage import Stage
from dphypo.search.stages import Search
from dphypo.space import Space


class Study(Search):
    """A private hyperparameter search: one journal, one T, one release. It is a declaration with one part, a Stage.

    **Guarantee.** The release is (ε, δ)-DP with ε = ``study.guarantee.epsilon(delta)``, for any sampler, provided that
    the mechanism's event bounds one run for every λ, that given its λ a run depends on no other run, and that nothing
    but the release leaves the curator's side: not the journal, not how long the search took.

    Args:
        space: the hyperparameters and their prior.
        mechanism: what one run is, declared with ``@dphypo.mechanism``.
        runs: the law of T, the number of runs.
        band: how far the sampling density may move from the prior, a ``Band`` or its two numbers (c, C); (1, 1) is
            private random search (Algorithm 1).
        sampler: the search rule; it only matters inside a band, where a Gaussian process is the default.
        projection: how its weights are projected into the band.
        delta: the δ of the certificate.
        journal: a file for SQLite, a ``postgresql://`` URL, an open store, or None to keep it in memory.
        name: tells studies in one database apart.
        maximize: whether larger scores are better.
        candidates: how many fresh candidates are drawn for every run.
        grid: into how many cells to cut continuous parameters, ``{"lr": 32}``, to search over one fixed grid instead.
        entropy: where randomness comes from; with ``Seeded`` there is no guarantee, and the certificate says so.
        lost: what becomes of a run whose process died. "again" repeats it with its seed until it has died three times
            without progress, which is right if all its randomness comes from the seed; "failed" counts it as failed. By
            default what the mechanism says of itself (``seeded``). An orderly stop and the loss of the whole machine do
            not count as deaths, nor does a death after the run has written a checkpoint.
        data_name: a public name of the data set. A journal that was begun under another name is refused, so that no
            release of other data is returned; the name is in the certificate.
        policy: what the search rule may look at: ``"history"`` or ``"anything"``, which costs more. By default
            ``"history"`` if the sampler states ``history_only = True`` (see :class:`dphypo.samplers.Sampler`).
        first_from_prior: how many of the first runs are drawn from the prior, without asking the search rule: the more,
            the less a band costs. By default what a rule of ours leaves to the prior (``GaussianProcess.start``), else
            1.
        lag: how many of the latest runs a history-only rule does not see, so that lag + 1 runs can be made at a time.
            It stays the same when a study is resumed. By default one less than the ``workers`` of the first ``run``.
        ledger: a :class:`dphypo.Ledger`, or its file: the study reserves there what it costs, once, before its first
            run, and is refused if the total would be exceeded. A killed study still counts.
        epsilon: the total ε that the study may cost at ``delta``. One that costs more is refused before its first run.

    >>> import dp_accounting as dp
    >>> import dphypo
    >>> from dphypo.laws import Geometric
    >>> from scipy.stats import loguniform
    >>> @dphypo.mechanism(event=dp.GaussianDpEvent(4.0), relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    ... def train(params, *, seed):
    ...     return {"weight": params["lr"]}, -abs(params["lr"] - 0.1)  # a stand-in for training on private records
    >>> space = dphypo.Space({"lr": loguniform(1e-3, 1)})
    >>> study = dphypo.Study(space, train, Geometric(mean=10), delta=1e-6, journal=None)
    >>> round(study.guarantee.epsilon(1e-6), 1)
    1.6
    >>> release = study.run(progress=False)
    >>> release.params == {"lr": release.model["weight"]}
    True
    """

    def __init__(
        self,
        space: Space,
        mechanism: Mechanism,
        runs: Law,
        band: BandLike = Band(1, 1),  # noqa: B008 - a frozen value
        sampler: Sampler | None = None,
        projection: Projection | str = Greedy(),  # noqa: B008
        *,
        delta: float,
        journal: str | Path | Store | None = "study.db",
        name: str = "study",
        maximize: bool = True,
        candidates: int = 8192,
        grid: Mapping[str, int] | None = None,
        entropy: Entropy = SYSTEM,
        lost: Lost | str | None = None,
        data_name: str | None = None,
        policy: PolicyClass | str | None = None,
        first_from_prior: int | None = None,
        lag: int | None = None,
        ledger: Ledger | str | Path | None = None,
        epsilon: float | None = None,
    ) -> None:
        check_entropy(entropy)
        only = Stage(
            *(mechanism, runs, band, sampler, projection),
            candidates=candidates,
            grid=grid,
            lost=lost,
            policy=policy,
            first_from_prior=first_from_prior,
            lag=lag,
        )
        public: dict[str, Any] = {"maximize": maximize, "private": entropy.private, "data_name": data_name}
        declared = Declaration.of(space, [only], delta=delta, epsilon=epsilon, **public)
        self._chain = Chain(declared, journal, name, entropy, ledger)

    @classmethod
    def of(
        cls,
        declaration: Declaration,
        *,
        journal: str | Path | Store | None = "study.db",
        name: str = "study",
        entropy: Entropy = SYSTEM,
        ledger: Ledger | str | Path | None = None,
    ) -> Study:
        """A study that was declared before: many studies may share a declaration, which is accounted for once."""
        if not declaration.alone:
            raise _validate.fail("declaration", declaration, "it has more parts than one stage: use dphypo.Stages.of")
        return cls._over(Chain(declaration, journal, name, entropy, ledger))

    def ask(self) -> Trial | None:
        """The next run to make, with its ``params`` and ``seed``; None when there is none to give out.

        That there is none is **secret**, like T: use it to end the loop and for nothing else. A run that an earlier
        process was given and did not tell is given out again as it was.
        """
        found = self._chain.ask()
        return None if found is None else found[1]

    def tell(self, trial: Trial, outcome: Any) -> None:
        """How a run ended: an ``Outcome``, a ``(model, score)`` pair, or ``Outcome.failed(reason)``.

        Anything else is a TypeError, and nothing is recorded: tell the trial again. A score that is a number but not
        finite is a failed run.
        """
        self._chain.tell(0, trial, outcome)

    def released(self) -> Release | None:
        """The release again if there is one: the same values, which cost nothing more. None if there is none yet."""
        return self._chain.release(again=True) if self._chain.finished() else None

    def curator(self) -> Curator:
        """The trials, for the curator alone. **Nothing it shows carries a guarantee.**"""
        return self._chain.curator(0)

    def __repr__(self) -> str:
        return f"<study: {self.declaration.parts[0]}>"
