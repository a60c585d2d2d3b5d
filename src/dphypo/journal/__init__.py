"""What must not be lost: the journals of searches, and the ledger of a data set. SQLite by default, PostgreSQL by URL.

A journal is **secret**: it holds T, every run and every score. So is a ledger. Keep them as you keep the data.
"""

from dphypo.errors import JournalError as JournalError
from dphypo.errors import JournalInUseError as JournalInUseError
from dphypo.journal import params as params
from dphypo.journal.database import Database as Database
from dphypo.journal.database import stores as stores
from dphypo.journal.journal import Journal as Journal
from dphypo.journal.journal import keeping as keeping
from dphypo.journal.ledger import Ledger as Ledger
from dphypo.journal.postgresql import PostgreSQL as PostgreSQL
from dphypo.journal.records import MAX_ATTEMPTS as MAX_ATTEMPTS
from dphypo.journal.records import Record as Record
from dphypo.journal.records import Trial as Trial
from dphypo.journal.reservation import Reservation as Reservation
from dphypo.journal.reservation import make_reservation as make_reservation
from dphypo.journal.sqlite import SQLite as SQLite
from dphypo.journal.store import Store as Store
from dphypo.journal.store import machine as machine
from dphypo.journal.store import open_store as open_store
