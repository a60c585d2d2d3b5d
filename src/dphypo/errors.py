"""Every error that a user of the package can meet.

The first part is what a study refuses to do. Each refusal says which part of the theorem it would break, and what to do
instead. The guarantee is for one algorithm: draw T from its law, make T runs inside the band, release the best and
nothing else. The second part is what can go wrong: a journal, a worker, a search rule, a model, an account.

No message holds T, a count, a score or a seed.
"""

from __future__ import annotations


class Refusal(RuntimeError):  # noqa: N818 - the subclasses are named after the reason
    """A request that would void the guarantee. The class is the reason; ``str`` is the explanation."""

    why = "This would void the guarantee."
    instead = ""  # what to do with a study
    in_stages = ""  # what to do with a search in stages, where it is another thing

    def __init__(self, detail: str = "", *, stages: bool = False) -> None:
        instead = (stages and self.in_stages) or self.instead
        super().__init__(" ".join(part for part in (self.why, instead, detail) if part))


class SecondRelease(Refusal):
    why = (
        "This study has made its release. The guarantee covers one output, the best of T runs; the second best, or "
        "the best of some of them, is another output of the same runs and would have to be paid for again."
    )
    instead = (
        "Read the same release again with study.released(); for a new one, start a new study with a new journal: "
        "its guarantee composes with this one's."
    )
    in_stages = (
        "stages.run() shows the same release again (stages.released holds those of the earlier stages); for a new one, "
        "start new stages with a new journal: their guarantee composes with this one's."
    )


class RunsAfterRelease(Refusal):
    why = (
        "This study has made its release, so it can make no more runs. T was drawn from its law before the first "
        "run, independently of the data; runs added after a look at the release would make T depend on the data."
    )
    instead = (
        "Read the release again with study.released(). For more runs, start a new study with a new journal: its "
        "guarantee composes with this one's."
    )
    in_stages = (
        "stages.run() shows the release again. For more runs, start new stages with a new journal: their guarantee "
        "composes with this one's."
    )


class Unfinished(Refusal):
    why = (
        "Not all runs of this study have been told, so there is nothing to release yet. The theorem is about the best "
        "of T runs with T independent of the data: stopping because a score is good, or because time is up, makes T "
        "depend on the runs. To spend less, cap the law before the study starts: runs.capped(K)."
    )
    instead = (
        "Go on until study.ask() returns None and every trial is told (a failed one with Outcome.failed), or call "
        "study.run()."
    )
    in_stages = (
        "Go on until stages.ask() returns None and every trial is told (a failed one with Outcome.failed), or call "
        "stages.run()."
    )


class StopsOnScore(Refusal):
    why = (
        "A study cannot stop because of a score. T must be independent of the data; a search that stops at a good "
        "score has a T that depends on every run before. To spend less, choose a law with a smaller mean, or "
        "runs.capped(K), before the study starts; the guarantee then accounts for it."
    )


class StopsOnTime(Refusal):
    why = (
        "A study cannot release when time is up. How many runs end in time depends on the data and on the "
        "hyperparameters, so T would too, and fast runs would win. Interrupt it instead: it resumes where it was and "
        "releases nothing before the end. To bound the compute, use runs.capped(K) before the study starts."
    )


class FixesRuns(Refusal):
    why = (
        "The number of runs cannot be chosen here: a fixed or hand-picked number is not a draw from the law of T, and "
        "the best of a fixed number of runs costs far more than the certificate would say. Choose the law instead: "
        "its mean, or runs.capped(K) for a bound."
    )


class PrunesRuns(Refusal):
    why = (
        "A run cannot be stopped by comparison with other runs, nor see them: given its hyperparameters, each run must "
        "be independent of all others. A rule inside the training function that looks at that run alone is part of "
        "the mechanism and is allowed, provided that its event covers it."
    )


class ChangedStudy(Refusal):
    why = (
        "The journal belongs to a study that was declared differently. The guarantee is computed from values fixed "
        "before the data are looked at: the space, the band, the law of T, the privacy event, the neighbouring "
        "relation, and which scores are better. T was drawn for those, for one data set and one model. Open it with "
        "the same declaration, or start a new study with a new journal."
    )


class OutcomeTwice(Refusal):
    why = (
        "This trial has been told already. A run has one outcome: telling another would replace a draw from the "
        "mechanism by a choice between two, which is not what the event bounds."
    )


class OtherThread(Refusal):
    why = (
        "Another thread is making the runs of this study. Who makes them is one thread's to decide: two that begin or "
        "take back the same run would let the faster of two outcomes count."
    )
    instead = (
        "Call study.run() once, with workers= for several runs at a time; or ask and tell, from as many threads as you "
        "like."
    )
    in_stages = (
        "Call stages.run() once, with workers= for several runs at a time; or ask and tell, from as many threads as "
        "you like."
    )


class Shredded(Refusal):
    why = (
        "The journal of this study was reduced to its certificate. The release was made and cannot be made again; "
        "load the saved one with dphypo.load_release(folder)."
    )


class NotReleased(Refusal):
    why = (
        "A study can be shredded only after its release: destroying the runs of an unreleased study and starting again "
        "would be a way to choose among several T."
    )
    instead = "Finish it with study.run(), or keep the journal."
    in_stages = "Finish it with stages.run(), or keep the journal."


class SecretValue(Refusal, AttributeError):  # noqa: N818
    why = (
        "The trials of a study are secret: the guarantee covers the release and nothing else, so T, other runs and "
        "their scores may not be published, nor decide anything that is. The release has the best run."
    )
    instead = (
        "The curator, who may see the data, finds the rest behind study.curator(), where nothing carries a guarantee."
    )
    in_stages = (
        "The curator, who may see the data, finds the rest behind stages.curator(stage), where nothing carries a "
        "guarantee."
    )


class UnboundedEvent(Refusal):
    why = (
        "The privacy event depends on a hyperparameter over which its supremum cannot be taken. The guarantee needs "
        "an event that bounds the run for every value in the space, not only for those that are drawn."
    )


class WiderPrior(Refusal):
    why = (
        "The rule for the next prior returned a space that leaves the one that was declared. The guarantee was "
        "computed before the first run, for every value in the original space and for no other. Keep to that space: "
        "space.around(...) changes its prior only. Nothing was drawn; mend the rule and run the stages again."
    )


class SamplerError(RuntimeError):
    """A search rule gave no usable weights. Nothing was drawn; mend the rule and run the study again.

    The rule's own error may quote the history, which is secret: it is in ``study.curator().sampler_error``.
    """

    def __init__(self, sampler: object, secret: Exception) -> None:
        super().__init__(
            f"{type(sampler).__name__} gave no usable weights ({type(secret).__name__}): a rule returns finite, "
            "non-negative numbers, one for each candidate and not all zero. Nothing was drawn; mend it and run the "
            "study again. The details may quote secret values: study.curator().sampler_error has them"
        )
        self.secret = secret


class NoWeightError(ValueError):
    """Every weight is zero: the sampler named no candidate at all."""

    def __init__(self) -> None:
        super().__init__(
            "every one of the weights is 0, so they name no candidate: give at least one that is positive, "
            "and equal weights to prefer none"
        )


class UnsupportedModelError(TypeError):
    """The model is of a kind the saver does not know: an error in the declaration, not an outcome of the run."""


class UnfitModelError(UnsupportedModelError):
    """The model or its loss cannot be trained privately as it is; the message says what to change.

    It is an error in the declaration, found on made-up records: a study raises it and does not count it as an outcome.
    """


class ExecutorError(RuntimeError):
    """The executor that was given can make no more runs."""

    def __init__(self) -> None:
        super().__init__(
            "the executor is broken, because a worker died, and takes no more runs: run the study again with a new "
            "one; it goes on where it was"
        )


class JournalError(RuntimeError):
    """The journal could not be read or written. What was committed before is not lost."""


class JournalInUseError(JournalError):
    """Another process, or another open study in this one, holds the journal."""

    def __init__(self) -> None:
        super().__init__(
            "the journal is in use by another process, or by another open study in this one: only one runs a study at "
            "a time (it may have many workers), because a run made twice would let the faster of two outcomes count. "
            "Wait for it, or stop or close it and try again"
        )


class JournalTakenError(JournalError):
    """Another process has taken the study over. This one can commit nothing more."""

    def __init__(self) -> None:
        super().__init__(
            "another process has taken this study over since this one opened it, so nothing more is committed here: "
            "two processes that run one study could release two models. Let the other one finish; its release can be "
            "read from the journal"
        )


class JournalMovedError(JournalError):
    """The storage at the journal's address is no longer the one that is open."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} while the study was open: nothing was released, and nothing more is committed. The study belongs "
            "to the file that was there before. Put that file back under its name and run the study again. A new file "
            "would begin a new study, whose guarantee composes with this one's"
        )


class JournalTamperedError(JournalError):
    """The rows of the journal are not those that were committed."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"the journal was changed by something other than this library: {found}. Nothing was released from it. "
            "Releases that were saved before are not affected. Do not go on with these runs: put back an unchanged "
            "copy of the latest state. If there is none, the study is lost, and its guarantee counts as spent"
        )


class JournalMissingError(JournalError, FileNotFoundError):
    """There is no journal to read at this place."""

    def __init__(self, where: str) -> None:
        super().__init__(f"there is no journal at {where}: give the one with which the study was run")


class JournalReadOnlyError(JournalError):
    """The journal can be read but not written."""

    def __init__(self) -> None:
        super().__init__(
            "the journal cannot be written: its file, its folder or its file system is read-only. A release that it "
            "holds can be read; to go on with a study, copy the file to a folder that can be written"
        )


class RehearsalError(ValueError):
    """A dry run on made-up records failed. Nothing was drawn, and no private record was touched."""


class WorkerError(RuntimeError):
    """Worker processes could not start. No run was made in them, so none counts as lost."""

    def __init__(self) -> None:
        super().__init__(
            "several worker processes in a row ended before they could make a run; what they printed says why. With "
            'the start method "spawn" they import the main module again: protect what that runs with '
            'if __name__ == "__main__"'
        )


class UnaccountableError(ValueError):
    """The event has no privacy profile that we can compute: it is not private, or dp_accounting does not know it."""


class UnreachableError(ValueError):
    """No value of the knob meets the target."""


class OrderWarning(UserWarning):
    """The best Rényi order is the last one on offer: more orders would give a smaller ε."""


class NoDesignError(ValueError):
    """There is no design to choose: why, and what to change.

    Args:
        reason: why.
        remedy: what to change.
        in_python: what else can be done from Python, where the command line cannot.

    >>> print(NoDesignError("compute = 1 is too little", "give more", ", or designs="))
    compute = 1 is too little: give more, or designs=
    """

    def __init__(self, reason: str, remedy: str, in_python: str = "") -> None:
        super().__init__(f"{reason}: {remedy}{in_python}")
        self.reason, self.remedy = reason, remedy


# What people used to other optimisers try to pass to ``study.run``, and why it is refused.
OPTIONS: dict[str, type[Refusal]] = {
    "timeout": StopsOnTime,
    "deadline": StopsOnTime,
    "max_time": StopsOnTime,
    "n_trials": FixesRuns,
    "n_runs": FixesRuns,
    "max_runs": FixesRuns,
    "target": StopsOnScore,
    "stop": StopsOnScore,
    "stop_score": StopsOnScore,
    "patience": StopsOnScore,
    "callbacks": StopsOnScore,
    "early_stopping": StopsOnScore,
    "pruner": PrunesRuns,
    "scheduler": PrunesRuns,
}

# Names under which other optimisers show their trials.
SECRETS = frozenset(
    {"trials", "history", "results", "best_trial", "best_trials", "best_params", "best_value", "best_score", "T"}
)


def refuse_options(options: dict[str, object]) -> None:
    """Explain an option that exists elsewhere and cannot exist here; anything else is a plain TypeError."""
    for name in options:
        if name in OPTIONS:
            raise OPTIONS[name](f"(run was given {name}=.)")
        raise TypeError(f"run() got an unexpected keyword argument {name!r}")
