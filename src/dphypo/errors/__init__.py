"""Every error that a user can meet: what is refused (``refusals``), and what can go wrong (``faults``)."""

from dphypo.errors.faults import AllFailedError as AllFailedError
from dphypo.errors.faults import ContradictionError as ContradictionError
from dphypo.errors.faults import ExecutorError as ExecutorError
from dphypo.errors.faults import FileError as FileError
from dphypo.errors.faults import JournalError as JournalError
from dphypo.errors.faults import JournalInUseError as JournalInUseError
from dphypo.errors.faults import LedgerError as LedgerError
from dphypo.errors.faults import OrderWarning as OrderWarning
from dphypo.errors.faults import RehearsalError as RehearsalError
from dphypo.errors.faults import SamplerError as SamplerError
from dphypo.errors.faults import Stopped as Stopped
from dphypo.errors.faults import UnaccountableError as UnaccountableError
from dphypo.errors.faults import UnfitModelError as UnfitModelError
from dphypo.errors.faults import UnreachableError as UnreachableError
from dphypo.errors.faults import WorkerError as WorkerError
from dphypo.errors.refusals import ChangedStudy as ChangedStudy
from dphypo.errors.refusals import NotReleased as NotReleased
from dphypo.errors.refusals import Refusal as Refusal
from dphypo.errors.refusals import SecondRelease as SecondRelease
from dphypo.errors.refusals import Unfinished as Unfinished
