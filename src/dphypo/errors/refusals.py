"""What a search refuses to do, because it would void the guarantee.

Each refusal says which part of the theorem it would break, and what to do instead. The guarantee of a study is for one
algorithm: draw T from its law, make T runs inside the band, release the best and nothing else. That of a survey is for
the runs that were declared. No message holds T, a count, a score or a seed.
"""

from __future__ import annotations


class Refusal(RuntimeError):  # noqa: N818 - the subclasses are named after the reason
    """A request that would void the guarantee. The class is the reason; ``str`` is the explanation."""

    # What it would break and what to do instead; {search} is "study" or "stages", {curator} the call of its method.
    why = "This would void the guarantee."

    def __init__(self, detail: str = "", *, stages: bool = False) -> None:
        why = self.why.replace("{search}", "stages" if stages else "study")
        why = why.replace("{curator}", "stages.curator(stage)" if stages else "study.curator()")
        super().__init__(" ".join([*why.split(), detail]).rstrip())


class SecondRelease(Refusal):
    why = """This search has made its release. The guarantee covers that output; another one of the same runs, such as
    the second best, would have to be paid for again. {search}.run() shows the same release again; for a new one, start
    a new search with a new journal: its guarantee composes with this one's."""


class RunsAfterRelease(Refusal):
    why = """This search has made its release, so it can make no more runs. How many it makes was fixed before the first
    one; runs added after a look at the release would not be paid for. {search}.run() shows the release again. For more
    runs, start a new search with a new journal: its guarantee composes with this one's."""


class Unfinished(Refusal):
    why = """Not all runs of this search have been told, so there is nothing to release yet. How many runs there are
    must not depend on them, as it would if the search stopped at a good score or when time is up. To spend less,
    declare less before it starts: runs.capped(K) of a study, fewer runs of a survey. Go on until {search}.ask() returns
    None and every trial is told (a failed one with Outcome.failed), or call {search}.run()."""


class StopsOnScore(Refusal):
    why = """A search cannot stop because of a score: how many runs a study makes must be independent of the data, and a
    survey pays for all runs that it declared. To spend less, declare less before it starts: a law with a smaller mean
    or runs.capped(K) of a study, fewer runs of a survey."""


class StopsOnTime(Refusal):
    why = """A search cannot release when time is up: how many runs end in time depends on the data, and fast runs would
    win. Interrupt it instead: it resumes where it was and releases nothing before the end. To bound the compute,
    declare less before it starts: runs.capped(K) of a study, fewer or shorter runs of a survey."""


class WatchesRuns(Refusal):
    why = """A study has no callbacks: they would be shown every run, and runs are secret. What they do elsewhere has
    its own place here: progress=True shows a bar, the journal keeps every run, study.curator() shows them to whoever
    may see the data. In a survey all runs are published: tune(on_run=...) and Optuna's callbacks are shown them."""


class FixesRuns(Refusal):
    why = """The number of runs cannot be chosen here: a fixed or hand-picked number is not a draw from the law of T,
    and the best of a fixed number of runs costs far more than the certificate would say. Choose the law instead: its
    mean, or runs.capped(K) for a bound."""


class PrunesRuns(Refusal):
    why = """A run cannot be stopped by comparison with other runs, nor see them: given its hyperparameters, each run
    must be independent of all others. A rule inside the training function that looks at that run alone is part of the
    mechanism and is allowed, provided that its event covers it."""


class ChangedStudy(Refusal):
    why = """The journal belongs to a search that was declared differently. The guarantee is computed from values fixed
    before the data are looked at: space, events, number of runs or law of T, band, neighbouring relation, and which
    scores are better. Open it with the same declaration, or start a new search with a new journal."""


class ChangedRule(Refusal):
    why = """The study was begun with another search rule. Its guarantee counts on a rule that sees only the history:
    one that is chosen on the way may have been chosen by somebody who saw the journal. Open it with the rule it was
    begun with, or with policy="anything", which costs more and cannot be taken back."""


class LateHistoryOnly(Refusal):
    why = """The study was begun, or has gone on, with policy="anything": a rule that sees only the history cannot be
    promised afterwards. Open it with policy="anything", or start a new study with a new journal."""


class TellFirst(Refusal):
    why = """The search rule sees results in the order of the runs, with a fixed lag, and never those that happen to
    have come first. Tell the runs that were given out before you ask for the next one; or declare the study with
    lag=n-1 to have n runs under way at a time, or with policy="anything", which costs more."""


class OutcomeTwice(Refusal):
    why = """This trial has been told already. A run has one outcome: telling another would replace a draw from the
    mechanism by a choice between two, which is not what the event bounds."""


class OtherThread(Refusal):
    why = """Another thread is making the runs of this search. If two threads began or took back the same run, the
    faster of two outcomes would count. Call {search}.run() once, with workers= for several runs at a time; or ask and
    tell, from any number of threads."""


class Shredded(Refusal):
    why = """The journal of this search was reduced to its certificate. The release was made and cannot be made again;
    load the saved one with dphypo.load_release(folder)."""


class NotReleased(Refusal):
    why = """A search can be shredded only after its release: destroying unreleased runs and starting again would be a
    way to choose among several searches. Finish it with {search}.run(), or keep the journal."""


class SecretValue(Refusal, AttributeError):  # noqa: N818
    why = """The trials of a study are secret: the guarantee covers the release and nothing else, so T, other runs and
    their scores may not be published, nor decide anything that is. The release has the best run. The curator, who may
    see the data, finds the rest behind {curator}: it carries no guarantee."""


class UnboundedEvent(Refusal):
    why = """The privacy event depends on a hyperparameter over which its supremum cannot be taken. The guarantee needs
    an event that bounds the run for every value in the space, not only for those that are drawn."""


class WiderPrior(Refusal):
    why = """The rule for the next prior returned a space that leaves the one that was declared. The guarantee was
    computed before the first run, for every value in the original space and for no other. Keep to that space:
    space.around(...) changes its prior only. Nothing was drawn; mend the rule and run the stages again."""


class NotThisStudy(Refusal):
    why = """This Optuna study was not begun by this survey: it has trials, or another declaration. All trials of a
    survey are paid for, and their number and cost are declared before the first. Create a new study (another
    study_name), or open it with the same OptunaSurvey as before."""


class RemadeStudy(Refusal):
    why = """An Optuna study of this name was begun by a survey and deleted. Its trials were made, and they count: the
    claims beside it, in the study whose name ends in "(dphypo)", are used up. Those of this study would not be paid
    for. Create a study with another study_name: it is a new survey, and the two compose."""


class TooManyTrials(Refusal):
    why = """All trials that were declared have been made. One more would not be paid for, and a number of runs that is
    chosen from the results is not covered. Make the last run, or a new survey on a new study: the two compose."""


class DeclaredParameter(Refusal):
    why = """The objective suggests a parameter that the privacy event reads. The event is declared before the first
    trial and bounds every one of them, so its noise, batch size and steps are those of survey.short. Take them from
    there; to tune them, use dphypo.tune, which gives every setting noise of its own."""


class UndeclaredReport(Refusal):
    why = """The objective reports more intermediate scores than were declared. Each score on private records is an
    event of its own. Declare them: OptunaSurvey(reports=...)."""


# What people used to other optimisers try to pass to ``study.run``, and why it is refused.
OPTIONS: dict[str, type[Refusal]] = {
    **dict.fromkeys(("timeout", "deadline", "max_time"), StopsOnTime),
    **dict.fromkeys(("n_trials", "n_runs", "max_runs"), FixesRuns),
    **dict.fromkeys(("target", "stop", "stop_score", "patience", "early_stopping"), StopsOnScore),
    **dict.fromkeys(("callbacks", "on_run"), WatchesRuns),
    **dict.fromkeys(("pruner", "scheduler"), PrunesRuns),
}

# Options of other optimisers that have another name here.
ELSEWHERE = {
    "n_jobs": "give workers= for several runs at a time, or executor= for a cluster",
    "show_progress_bar": "give progress=True or False",
    "catch": "leave it out: an exception inside a run is a failed run, and the study goes on",
    "gc_after_trial": "leave it out: workers= makes each run in a process of its own",
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
        if name in ELSEWHERE:
            raise TypeError(f"run() has no {name}: {ELSEWHERE[name]}")
        raise TypeError(f"run() got an unexpected keyword argument {name!r}")
