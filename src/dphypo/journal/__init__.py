"""What must not be lost: the journals of searches and the ledger of a data set. SQLite by default, PostgreSQL by URL.

A journal is **secret**: it holds T, every run and every score. So is a ledger. Protect them as you protect the data.
"""

from dphypo.journal.ledger import Ledger as Ledger
