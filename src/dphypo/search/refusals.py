"""What a search refuses because it would void the guarantee, and why.

The guarantee of a study covers one algorithm: draw T from its law, execute T runs inside the band, release the best and
nothing else. That of a survey covers the runs that were declared. No message holds T, a count, a score or a seed.
"""

from __future__ import annotations

from dphypo import _validate
from dphypo.errors import Refusal

_NEW = "start a new search with a new journal: the two guarantees compose"

SECOND_RELEASE = (
    "This search has already made its release. The guarantee covers that output only; a second output of the same "
    "runs, such as the second best, would have to be paid for again. run() returns the same release again. For a new "
    f"one, {_NEW}."
)
RUNS_AFTER_RELEASE = (
    "This search has made its release and can execute no more runs. Their number was fixed before the first one; runs "
    f"added after the release would not be paid for. run() returns the same release again. For more runs, {_NEW}."
)
UNFINISHED = (
    "Some runs of this search have no outcome yet, so there is nothing to release. The number of runs must not depend "
    "on their results, as it would if the search stopped at a good score or when time is up. To spend less, declare "
    "less before the search starts: runs.capped(K) in a study, fewer runs in a survey. Call run(), or continue until "
    "ask() returns None and tell() was called for every trial (for a failed one with Outcome.failed)."
)
NOT_RELEASED = (
    "A search can be shredded only after its release: destroying unreleased runs and starting again would be a way to "
    "choose among several searches. Finish it with run(), or keep the journal."
)
SHREDDED = (
    "The journal of this search was reduced to its certificate. The release was published and cannot be repeated: load "
    "the saved one with dphypo.load_release(folder)."
)
TOLD_TWICE = (
    "This trial already has an outcome. A run has one outcome: a second one would replace a draw from the mechanism by "
    "a choice between two, which the event does not bound."
)
TELL_FIRST = (
    "The sampler sees results in the order of the runs, with a fixed lag, never in the order in which they finish. "
    "Call tell() for the trials that ask() has returned before you ask for the next one. To have n trials open at a "
    'time, declare the study with lag=n-1, or with policy="anything", which costs more.'
)
OTHER_THREAD = (
    "Another thread is executing the runs of this search. If two threads started or withdrew the same run, the faster "
    "of two outcomes would count. Call run() once, with workers= for several runs at a time; or use ask() and tell(), "
    "from any number of threads."
)
IN_WORKER_START = (
    'A search cannot begin while a worker process starts. The start methods "spawn" and "forkserver" import the main '
    "script in every worker, so its searches would be executed again, each with new noise that nobody accounts for. "
    "Put the code that searches under if __name__ == '__main__': in the script."
)
OTHER_RECORDS = (
    "These are not the records that {where} began with: values, labels, order, number, or which of them train and "
    "score are different. Nothing was returned or spent. To resume the search, give the same records, read the same "
    "way (scaling, columns, order, split). For a search on other records, give another journal, such as "
    "journal='other.db': it is a new search and pays again."
)
OTHER_TRAINING = (
    "This is not the training that {where} began with: its code or its settings are different, or Python compiles them "
    "in another way. All runs of a study are runs of one training: otherwise releasing the best of them may cost far "
    "more. Nothing was run. Restore the training to resume. To train in another way, give another journal, such as "
    "journal='other.db': it is a new study and pays again."
)
CHANGED_STUDY = (
    "The journal belongs to a search that was declared differently. What the guarantee is computed from is fixed "
    "before the data are read: chosen later, it may have been chosen by somebody who saw the journal. Open it with the "
    "same declaration; or give this search another journal, such as journal='other.db': it is a new search and pays "
    "again."
)
SECRET_VALUE = (
    "The trials of a study are secret: the guarantee covers the release and nothing else, so T, the other runs and "
    "their scores may not be published or influence anything published. The release has the best run. For the "
    "curator, who may see the data, curator() shows the rest, without any guarantee."
)

_ON_TIME = (
    "A search cannot release when time is up: how many runs finish in time depends on the data, and fast runs would "
    "win. Interrupt it instead: it resumes later, and releases nothing before the last run. To limit the compute, "
    "declare less before the search starts: runs.capped(K) in a study, fewer or shorter runs in a survey."
)
_FIXED_NUMBER = (
    "The number of runs cannot be chosen here: a fixed or hand-picked number is not a draw from the law of T, and the "
    "best of a fixed number of runs costs far more than the certificate would say. Choose the law instead: its mean, "
    "or runs.capped(K) for a bound."
)
_ON_SCORE = (
    "A search cannot stop because of a score: the number of runs of a study must be independent of the data, and a "
    "survey pays for all runs that it declared. To spend less, declare less before the search starts: a law with a "
    "smaller mean or runs.capped(K) in a study, fewer runs in a survey."
)
_CALLBACKS = (
    "A study has no callbacks: they would see every run, and runs are secret. Use progress=True for a progress bar, "
    "and study.curator() for the runs, if you may see the data. A survey publishes all its runs: tune(on_run=...) and "
    "Optuna's callbacks receive them."
)
_PRUNING = (
    "A run cannot be stopped by comparison with other runs, nor see them: given its hyperparameters, each run must be "
    "independent of all others. A rule inside the training function that uses only its own run is part of the "
    "mechanism and is allowed, provided that the event covers it."
)

OPTIONS = {
    **dict.fromkeys(("timeout", "deadline", "max_time"), _ON_TIME),
    **dict.fromkeys(("n_trials", "n_runs", "max_runs"), _FIXED_NUMBER),
    **dict.fromkeys(("target", "stop", "stop_score", "patience", "early_stopping"), _ON_SCORE),
    **dict.fromkeys(("callbacks", "on_run"), _CALLBACKS),
    **dict.fromkeys(("pruner", "scheduler"), _PRUNING),
}
"""Options of other optimisers that would void the guarantee."""

SECRETS = frozenset(
    {"trials", "history", "results", "best_trial", "best_trials", "best_params", "best_value", "best_score", "T"}
)
"""Attributes in which other optimisers show their trials."""


_RUN = ("workers", "progress", "start_method", "executor", "devices", "checkpoint_every", "on_run")
"""The arguments of ``run``."""


def refuse_options(options: dict[str, object]) -> None:
    """Explain an option of another optimiser that is refused or named differently; otherwise raise a TypeError."""
    for name in options:
        if name in OPTIONS:
            raise Refusal(f"{OPTIONS[name]} (run was given {name}=.)")
    _validate.spelled("run", options, _RUN)
