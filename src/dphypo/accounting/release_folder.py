"""The folder of a release against its certificate: whether it holds what was certified, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dphypo import _files
from dphypo._files import Json
from dphypo.accounting import untrusted
from dphypo.accounting.certificate import fingerprints, table_hash
from dphypo.errors.faults import MissingFileError


def problems(document: Json, folder: Path) -> Iterator[str]:
    """Whether the model and the parameters in a folder are those that the certificate names."""
    if document["release"] is None:
        yield "release: the certificate names no model, so that it says nothing of the one in this folder"
        return
    try:
        described = untrusted.read(folder / "release.json", "description of a release", within=folder)
    except MissingFileError:
        yield "release: there is no release.json in the folder, so that it is no saved release"
        return
    models, named = sorted(folder.glob("model.*")), document["release"]["model_sha256"]
    if bool(models) != (named is not None):
        missing = "the model is missing from the folder" if named else "the folder holds a model that it does not name"
        yield f"release: {missing}"
        return
    if len(models) > 1:
        yield "release: the folder holds more than one model"
        return
    model = _files.read(models[0], "model", most=_files.MOST_MODEL_BYTES, within=folder) if models else None
    try:
        found = fingerprints(model, described, document["public"])
    except ValueError as error:
        yield f"release: {error}"
        return
    if found["model_sha256"] != named:
        yield "release.model_sha256: the model in the folder is not the one that was certified"
    if found["described_sha256"] != document["release"]["described_sha256"]:
        changed = "the parameters in the folder, or what the certificate calls public, were changed"
        yield f"release.described_sha256: {changed}"
    yield from _tables(document, folder)


def _tables(document: Json, folder: Path) -> Iterator[str]:
    """Whether the tables of surveys in a folder are those that the certificate names, in their order."""
    path = folder / "surveys.json"
    with _files.parsing(folder / "certificate.json", "what it says of tables is damaged"):
        named = [one["sha256"] for one in document["public"].get("released", ()) if "sha256" in one]
    try:
        tables = untrusted.read_json(path, "table", most=_files.MOST_TABLE_BYTES, within=folder)
    except MissingFileError:
        tables = []
    with _files.parsing(path, "it was not written by Release.save"):
        found = [table_hash(table) for table in tables]
    if len(found) != len(named):
        yield f"surveys.json: the folder has {len(found)} tables of surveys, and the certificate names {len(named)}"
    elif found != named:
        yield "surveys.json: it holds a table that the certificate does not name: it was changed"
