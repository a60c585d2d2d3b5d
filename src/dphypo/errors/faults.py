"""What can go wrong: a journal, a worker, a search rule, a model, an account.

No message holds T, a count, a score or a seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class _Explained(Exception):  # noqa: N818 - it is no error by itself
    """What an error says is ``message`` of its class, with what it is given in the place of {}."""

    message = "{}"

    def __init__(self, what: str = "") -> None:
        super().__init__(" ".join(self.message.split()).format(what))


class SamplerError(RuntimeError):
    """A search rule gave no usable weights. Nothing was drawn. Its own error, ``secret``, may quote the history."""

    def __init__(self, sampler: object, secret: Exception) -> None:
        super().__init__(
            f"{type(sampler).__name__} gave no usable weights ({type(secret).__name__}): a rule returns finite, "
            "non-negative numbers, one for each candidate and not all zero. Nothing was drawn; mend it and run the "
            "study again. The details may quote secret values: study.curator().sampler_error has them"
        )
        self.secret = secret


class NoWeightError(_Explained, ValueError):
    """Every weight is zero: the sampler named no candidate at all."""

    message = """every one of the weights is 0, so they name no candidate: give at least one that is positive, and equal
    weights to prefer none"""


class UnsupportedModelError(TypeError):
    """The model is of a kind the saver does not know: an error in the declaration, not an outcome of the run."""


class UnfitModelError(UnsupportedModelError):
    """The model, its loss or its loop cannot be trained privately as it is; the message says what to change."""


class Stopped(KeyboardInterrupt):
    """A signal has stopped the process during a run. Unlike a run's own ``KeyboardInterrupt``, it is not an outcome."""

    @staticmethod
    def behind(error: BaseException | None) -> bool:
        """Whether a signal is the cause of an error, or what was being handled when it was raised."""
        while error is not None and not isinstance(error, Stopped):
            error = error.__cause__ or error.__context__
        return error is not None


class ExecutorError(_Explained, RuntimeError):
    """The executor that was given can make no more runs."""

    message = """the executor is broken, because a worker died, and takes no more runs: run the study again with a new
    one; it goes on where it was"""


class JournalError(_Explained, RuntimeError):
    """The journal could not be read or written. What was committed before is not lost."""

    reason = ""  # what happened, in few words

    def __init__(self, what: str = "", reason: str = "") -> None:
        super().__init__(what)
        self.reason = reason or self.reason or what or str(self)


class JournalInUseError(JournalError):
    """Another process, or another open study in this one, holds the journal."""

    reason = "another process uses it"
    message = """the journal is in use by another process, or by another open study in this one: only one runs a study
    at a time (it may have many workers), because a run made twice would let the faster of two outcomes count. Wait for
    it, or stop or close it and try again"""


class JournalTakenError(JournalError):
    """Another process has taken the study over. This one can commit nothing more."""

    message = """another process has taken this study over since this one opened it, so nothing more is committed here:
    two processes that run one study could release two models. Let the other one finish; its release can be read from
    the journal"""


class JournalForkedError(JournalError):
    """The journal was opened by another process than this one, which was forked off."""

    reason = "another process has opened it"
    message = """this process was forked off the one that has the journal open, and must not use it: what both commit
    would damage it, or be lost. Ask and tell in the process that opened it; end a child that a run forks by os._exit(),
    also when it fails"""


class JournalMovedError(JournalError):
    """The storage at the journal's address is no longer the one that is open."""

    message = """{} while the study was open: nothing was released, and nothing more is committed. The study belongs to
    the file that was there before. Put that file back under its name and run the study again. A new file would begin a
    new study, whose guarantee composes with this one's"""


class JournalTamperedError(JournalError):
    """The rows of the journal are not those that were committed."""

    message = """the journal was changed by something other than this library: {}. Nothing was released from it.
    Releases that were saved before are not affected. Do not go on with these runs: put back an unchanged copy of the
    latest state. If there is none, the study is lost, and its guarantee counts as spent"""


class JournalMissingError(JournalError, FileNotFoundError):
    """There is no journal to read at this place."""

    message = "there is no journal at {}: give the one with which the study was run"


class JournalReadOnlyError(JournalError):
    """The journal can be read but not written."""

    reason = "it cannot be written"
    message = """the journal cannot be written: its file, its folder or its file system is read-only. A release that it
    holds can be read; to go on with a study, copy the file to a folder that can be written"""


class FileError(ValueError):
    """A file is not what it should be, or cannot be read. The message names it."""


class MissingFileError(FileError, FileNotFoundError):
    """There is no such file."""


class RehearsalError(ValueError):
    """A dry run on made-up records failed. Nothing was drawn, and no private record was touched."""


class UnreachableStudyError(_Explained, RuntimeError):
    """Workers cannot ask the study whether they may begin their runs. None was made, so none counts as lost."""

    message = """several workers in a row could not reach the process that runs the study at {}: give the address of
    this machine that they can reach (host=...), and let them through its firewall"""


class WorkerError(_Explained, RuntimeError):
    """Worker processes could not start. No run was made in them, so none counts as lost."""

    message = """several worker processes in a row ended before they could make a run; what they printed says why. With
    the start method "spawn" they import the main module again: protect what that runs with if __name__ == '__main__'"""


class UnaccountableError(ValueError):
    """The event has no privacy profile that we can compute: it is not private, or dp_accounting does not know it."""


class ContradictionError(ValueError):
    """The accountant's ε of a run is below a proven lower bound: nothing is certified."""


class UnreachableError(ValueError):
    """No value of the knob meets the target."""


class OrderWarning(UserWarning):
    """The best Rényi order is the last one on offer: more orders would give a smaller ε."""


class AllFailedError(RuntimeError):
    """The first runs of a survey have all failed, so that the others are not made. ``curator()`` shows why."""

    def __init__(self, runs: int, curator: Callable[[], Any]) -> None:
        self.curator = curator
        super().__init__(
            f"the first {runs} runs have all failed, so that no other is made. What was made is paid for. Where "
            "private records may be seen, error.curator().trials() shows why; then mend the training and start a new "
            "search"
        )


class LedgerError(ValueError):
    """A ledger cannot hold this: it would exceed the total, or is stated in other terms. Nothing was reserved."""
