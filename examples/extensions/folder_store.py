"""A store of one's own: ``folder:///path`` keeps the journal in a folder that only the owner may enter."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL

from dphypo.journal import Database, SQLite, stores


@stores.register("folder")
def folder_store(url: URL) -> Database:
    """SQLite, in ``journal.db`` of the folder that the URL names."""
    folder = Path("/", url.database or "")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return SQLite(folder / "journal.db")


if __name__ == "__main__":
    import tempfile

    from sqlalchemy import make_url

    from dphypo.testing import check_store

    with tempfile.TemporaryDirectory() as place:
        check_store(lambda: folder_store(make_url(f"folder://{place}/secret")))
    print("folder:// conforms")
