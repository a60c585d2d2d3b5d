"""The durable record of a study: SQLite by default, PostgreSQL by URL.

A journal is **secret**: it holds T, every run and every score. Keep it as you keep the data.
"""

from ._engine import Engine as Engine
from ._errors import JournalError as JournalError
from ._errors import JournalInUseError as JournalInUseError
from ._journal import Journal as Journal
from ._postgres import PostgreSQL as PostgreSQL
from ._records import Record as Record
from ._records import Result as Result
from ._records import Trial as Trial
from ._schema import MAX_ATTEMPTS as MAX_ATTEMPTS
from ._sqlite import SQLite as SQLite
from ._store import Store as Store
from ._store import open_store as open_store
