"""What must not be lost: the journals of searches, and the ledger of a data set. SQLite by default, PostgreSQL by URL.

A journal is **secret**: it holds T, every run and every score. So is a ledger. Keep them as you keep the data.
"""

from dphypo.journal.database import Database as Database
from dphypo.journal.ledger import Ledger as Ledger
from dphypo.journal.postgresql import PostgreSQL as PostgreSQL
from dphypo.journal.sqlite import SQLite as SQLite
