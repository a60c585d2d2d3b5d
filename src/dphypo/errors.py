"""All errors that the library raises. No message holds T, a count of runs, a score or a seed.

A class exists where a caller must distinguish it. The message, written where the error is raised, says what is wrong
and what to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Refusal(RuntimeError):  # noqa: N818
    """The request would void the guarantee. The message says why, and what to do instead."""


class ChangedStudy(Refusal):
    """The journal belongs to a search that was declared differently."""


class SecretValue(Refusal, AttributeError):  # noqa: N818
    """The value is secret: only the release is covered by the guarantee. An ``AttributeError``, for ``hasattr``."""


class FileError(ValueError):
    """A file is missing, damaged or of another kind. The message names it."""


class JournalError(RuntimeError):
    """The journal could not be read or written. What was committed before is not lost.

    ``reason`` says what happened in a few words, for use in other messages.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


class JournalInUseError(JournalError):
    """Another process, or another open study in this process, holds the journal."""


class JournalMissingError(JournalError, FileNotFoundError):
    """There is no journal at this address."""


class LedgerError(ValueError):
    """A ledger cannot hold this: it would exceed the total, or is stated in other terms. Nothing was reserved."""


class ExecutorError(RuntimeError):
    """The executor can start no more runs. No run was lost: those that had not started start on resume."""


class SamplerError(RuntimeError):
    """A sampler returned no usable weights. Nothing was drawn. Its own error, ``secret``, may quote the history."""

    def __init__(self, sampler: object, secret: Exception) -> None:
        super().__init__(
            f"{type(sampler).__name__} returned no usable weights ({type(secret).__name__}): a sampler must return "
            "finite, non-negative numbers, one for each candidate and not all zero. Nothing was drawn: correct the "
            "sampler and run the study again. The details may quote secret values: read them from "
            "study.curator().sampler_error"
        )
        self.secret = secret


class UnsupportedModelError(TypeError):
    """The model, its loss or its training loop cannot be trained privately, or saved, as it is.

    Nothing was drawn, and no private record was read.
    """


class UnaccountableError(ValueError):
    """No privacy profile can be certified for the event: it has none, or the accountant contradicts a proven bound."""


class UnreachableError(ValueError):
    """No value of the noise, or of whatever is solved for, reaches the target."""


class UnfitRecordsError(RuntimeError):
    """A noisy count says that few records fit the declaration. ``certificate`` states what the count cost."""

    def __init__(self, message: str, certificate: Any) -> None:
        self.certificate = certificate
        super().__init__(message)


class AllFailedError(RuntimeError):
    """The first runs of a survey all failed, so the rest were not executed. ``curator()`` shows why."""

    def __init__(self, runs: int, curator: Callable[[], Any]) -> None:
        self.curator = curator
        super().__init__(
            f"the first {runs} runs all failed, so no more are executed. Those runs are paid for. If you may see "
            "private records, error.curator().trials() shows why they failed; then correct the training and start a "
            "new search"
        )


class Stopped(KeyboardInterrupt):
    """A signal stopped the process during a run. Unlike a run's own ``KeyboardInterrupt``, it is not an outcome."""

    @staticmethod
    def behind(error: BaseException | None) -> Stopped | None:
        """The signal that is the cause of an error, or that was being handled when the error was raised."""
        while error is not None and not isinstance(error, Stopped):
            error = error.__cause__ or error.__context__
        return error


class ProcessLost(Stopped):
    """A process of a run on several was lost. It is no outcome: the attempt ends, and the run can be resumed."""
