"""A release from its folder, for a report: read as a stranger's, and refused unless it verifies.

The model is not loaded. What is on the page is what the certificate is tied to: its parameters by their hash, and the
tables of surveys by theirs.
"""

from __future__ import annotations

import os
from pathlib import Path

from dphypo import _validate
from dphypo._files import parsing, printable
from dphypo.accounting import Certificate, verify
from dphypo.errors import FileError
from dphypo.report.page import Kind, write
from dphypo.report.release_report import release_page
from dphypo.search import Release
from dphypo.search.release import read_description, read_surveys
from dphypo.search.table import Surveyed


def write_folder_report(folder: str | os.PathLike[str], path: str | os.PathLike[str]) -> Path:
    """Write the report of a saved release, after its certificate was recomputed.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: the folder does not hold what its certificate says.
    """
    return write(release_page(read_folder(folder), verified=True), path, Kind.PUBLIC)


def read_folder(folder: str | os.PathLike[str]) -> Release:
    """What a folder releases, without its model."""
    source = _validate.path(folder=folder)
    if not source.is_dir():
        raise FileNotFoundError(f"there is no folder {str(source)!r}: give one that Release.save has written")
    outcome = verify(source)
    if not outcome:
        raise ValueError(f"the release does not verify, so that no report of it is written: {outcome}")
    surveys, certificate = read_tables(source)
    described = read_description(source)
    return Release(described["params"], None, described["score"], certificate, described["ending"], surveys=surveys)


def read_tables(folder: str | os.PathLike[str]) -> tuple[tuple[Surveyed, ...], Certificate]:
    """The tables of the surveys of a saved release, and the certificate, which has the hash of each.

    The numbers of the certificate are not recomputed.
    """
    source = _validate.path(folder=folder)
    certificate, surveys, path = Certificate.load(source), read_surveys(source), source / "surveys.json"
    with parsing(path, "the certificate of its release is damaged"):
        known = {one.get("sha256") for one in certificate.document["public"].get("released", [])}
    for survey in surveys:
        if survey.hash not in known:
            raise FileError(f"{printable(path)} holds a table that the certificate does not name: it was changed")
    return surveys, certificate
