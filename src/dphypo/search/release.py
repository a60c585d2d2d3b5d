"""What leaves the curator's side: one model, its hyperparameters, its score, and the certificate."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dphypo import _files, _validate
from dphypo._files import read_json
from dphypo._validate import printable
from dphypo.accounting import Certificate
from dphypo.errors import FileError
from dphypo.journal.journal import frozen
from dphypo.mechanisms import Plain, Saver

if TYPE_CHECKING:
    from dphypo.search.curator import Curator
    from dphypo.search.table import Surveyed


class Ending(StrEnum):
    """How a search can end. The values are what people read. Each is an outcome that the guarantee covers."""

    MODEL = "a model is released"
    ALL_FAILED = "no model: every run failed"
    SURVEYED = "no model: the table of a survey is released"
    NO_RUN = "no model: no run was made, because the number of runs drawn was 0"


_REASONS = (
    "The curator finds the reasons with release.curator().trials() in the process that made the search, later with "
    "dphypo.open_journal(journal).curator().trials(). To see what fails whatever the data are, such as a function that "
    "returns no (model, score) pair, run dphypo.testing.check_mechanism(mechanism, space) on made-up records"
)


@dataclass(frozen=True, repr=False)
class Release:
    """The output of a search: the only thing about it that is private in the sense of the certificate.

    Args:
        params: the hyperparameters of the best run; None if there is no model.
        model: its model.
        score: its score.
        certificate: the guarantee, in public values that anyone can check.
        ending: whether there is a model, and why not.
        saver: how the model is written.
        read_from: the journal from which it was read again, if it was made before; None if it was just made.
        surveys: the tables of the surveys that were made, in order: all results of all their runs.
        door: makes what :meth:`curator` returns; None outside the process that made the search.
    """

    params: Mapping[str, Any] | None
    model: Any
    score: float | None
    certificate: Certificate
    ending: Ending = Ending.MODEL
    saver: Saver = field(default_factory=Plain)
    surveys: tuple[Surveyed, ...] = ()
    read_from: str | None = field(default=None, compare=False)
    door: Callable[[], Curator] | None = field(default=None, compare=False)

    @property
    def survey(self) -> Surveyed:
        """The table of the survey, where there is one; of several, take one of ``surveys``."""
        if len(self.surveys) != 1:
            raise AttributeError(f"this release has {len(self.surveys)} surveys: see release.surveys")
        return self.surveys[0]

    def curator(self) -> Curator:
        """Why every run of the last part failed, for the curator alone. **Nothing it shows carries a guarantee.**"""
        if self.door is None:
            raise ValueError("this release has no curator's door: open the journal with dphypo.open_journal(journal)")
        return self.door()

    def save(self, folder: str | Path) -> Path:
        """Write ``release.json``, ``certificate.json`` and the model into a new folder; no pickle.

        The folder must not exist or be empty: a release is not written over another. If anything goes wrong, as on a
        full disk, nothing is left in it.
        """
        described = {
            "ending": self.ending.name,
            "params": None if self.params is None else _plain(self.params),
            "score": None if self.score is None else _validate.number(score=self.score),
            "format": self.saver.format,
        }
        model = self.saver.dump(self.model) if self.ending is Ending.MODEL else None
        files = {} if model is None else {_model_name(self.saver.format): bytes(model)}
        if self.surveys:
            files["surveys.json"] = _json([table.to_dict() for table in self.surveys])
        files["certificate.json"] = _json(self.certificate.for_release(model, described).to_dict())
        files["release.json"] = _json(described)  # last: a folder with this file is complete
        return _files.write_folder(_validate.path(folder=folder), files)

    def report(self, path: str | Path) -> Path:
        """Write one self-contained page of HTML: what was released, the privacy statement, and how to check it.

        It holds public values only. An earlier report at the path is replaced; any other file is left alone. Needs the
        extra ``plots``.
        """
        # By name: reports are built on top of this module.
        written: Path = importlib.import_module("dphypo.report.release_report").write_report(self, path)
        return written

    def __repr__(self) -> str:
        if self.ending is Ending.ALL_FAILED:
            return f"<release: {self.ending}. {_REASONS}>"
        if self.ending is not Ending.MODEL:
            return f"<release: {self.ending}>"
        score = "one model" if self.score is None else f"score {self.score:g}"
        again = "" if self.read_from is None else f"; it was made before and read again from {self.read_from}"
        return f"<release: {score} with {self.params!r}{again}>"


def load_release(folder: str | Path, saver: Saver | None = None, *, model: Any = None) -> Release:
    """A saved release.

    Args:
        folder: where it was saved.
        saver: for a model that was saved by a saver of your own, that saver.
        model: for a PyTorch model, the class or function that builds it; for an estimator, the unfitted estimator or
            pipeline that was searched: ``load_release("release", model=MLP)``.

    >>> import tempfile
    >>> from dphypo.accounting import PureDp, account
    >>> from dphypo.laws import Geometric
    >>> certificate = account(PureDp(1.0), Geometric(mean=10)).certificate(1e-6)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     load_release(Release({"lr": 0.1}, [1.0, 2.0], 0.9, certificate).save(folder))
    <release: score 0.9 with {'lr': 0.1}>
    """
    source = _validate.path(folder=folder)
    described = read_description(source)
    saver = _saver(described.pop("format"), saver, model, source)
    path = source / "certificate.json"
    found = read_json(path, "certificate", within=source)
    with _files.parsing(path, "it is not a certificate"):
        certificate = Certificate.from_dict(found)
    loaded = None
    if described["ending"] is Ending.MODEL:
        path = source / _model_name(saver.format)
        content = _files.read(path, "model of this release", most=_files.MOST_MODEL_BYTES, within=source)
        _check_hash(content, certificate, path)
        with _files.parsing(path, f"it is not a model that {type(saver).__name__} can load"):
            loaded = saver.load(content)
    return Release(**described, model=loaded, certificate=certificate, saver=saver, surveys=read_surveys(source))


def _check_hash(content: bytes, certificate: Certificate, path: Path) -> None:
    """Refuse a model that was damaged or replaced since its certificate was written."""
    with _files.parsing(path.with_name("certificate.json"), "what it says of the release is damaged"):
        named = (certificate.document.get("release") or {}).get("model_sha256")
    if named is not None and hashlib.sha256(content).hexdigest() != named:
        raise FileError(f"{printable(path)} was damaged or replaced: it is not the model that the certificate names")


def _saver(format: str, saver: Saver | None, model: Any, folder: Path) -> Saver:
    if saver is None and model is not None:
        # By name: integrations are built on top of this module.
        saver = importlib.import_module("dphypo.integrations").saver_for(format, model)
    elif saver is None and format == Plain.format:
        saver = Plain()
    if saver is None or saver.format != format:
        more = {
            "npz": ")",
            "safetensors": ", model=MLP), where MLP builds the model, or is the estimator that was searched",
            "pickle": ", saver=dphypo.integrations.sklearn.Pickled()), which runs code from the file",
        }.get(format, ", saver=...) with the saver that knows it")
        write = f"dphypo.load_release({str(folder)!r}{more}"
        raise ValueError(f"the model in {str(folder)!r} was saved in the format {format!r}: write {write}")
    return saver


def read_surveys(source: Path) -> tuple[Surveyed, ...]:
    """The tables in the folder of a release; none if it has none."""
    from dphypo.search.table import Surveyed

    path = source / "surveys.json"
    try:
        tables = read_json(path, "table", most=_files.MOST_TABLE_BYTES, within=source)
    except FileNotFoundError:
        return ()
    with _files.parsing(path, "it was not written by Release.save"):
        return tuple(Surveyed.from_dict(table) for table in tables)


def read_description(source: Path) -> dict[str, Any]:
    """What ``release.json`` says: the ending, the parameters, the score, and the format of the model."""
    path = source / "release.json"
    found = read_json(path, "saved release", within=source)
    with _files.parsing(path, "it was not written by Release.save"):
        params, score, format = found["params"], found["score"], found["format"]
        return {
            "ending": Ending[found["ending"]],
            "params": None if params is None else frozen(params),
            "score": None if score is None else _validate.number(score=score),
            "format": _model_name(format) and format,
        }


def _plain(params: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return dict(json.loads(json.dumps(dict(_validate.mapping(params=params)))))
    except TypeError:
        remedy = "values are numbers, texts, None, True, False, or tuples of these"
        raise _validate.fail("params", params, remedy) from None


def _json(document: Any) -> bytes:
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def _model_name(format: str) -> str:
    if not isinstance(format, str) or not format.isalnum() or not format.isascii():
        raise _validate.fail("format", format, "a saver's format is a short name of letters and digits")
    return f"model.{format}"
