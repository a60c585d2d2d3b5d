"""What leaves the curator's side: a model with its hyperparameters and score, tables of surveys, the certificate."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dphypo import _files, _validate
from dphypo._files import read_json
from dphypo._validate import printable
from dphypo.accounting import Certificate
from dphypo.accounting.certificate import table_hash
from dphypo.accounting.verify import model_stem, survey_models
from dphypo.errors import FileError
from dphypo.journal.journal import Journal, Record, frozen
from dphypo.mechanisms import Plain, Saver
from dphypo.space import Space

if TYPE_CHECKING:  # Optuna is an extra
    from optuna.distributions import BaseDistribution
    from optuna.storages import BaseStorage
    from optuna.study import Study

_ROW = {"params", "score"}


class Status(StrEnum):
    """How a published run ended. Why a run failed is not published: a message may quote a record."""

    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class Row:
    """One published run: its hyperparameters, as the full run would have them, its score, and how it ended.

    >>> Row({"lr": 0.1}, 0.9)
    Row(params=mappingproxy({'lr': 0.1}), score=0.9, status=<Status.DONE: 'done'>)
    >>> Row({"lr": 10.0}, None).status
    <Status.FAILED: 'failed'>
    """

    params: Mapping[str, Any]
    score: float | None
    metrics: Mapping[str, float] = field(default_factory=dict, repr=False)
    status: Status = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", MappingProxyType(dict(_validate.mapping(params=self.params))))
        if self.score is not None:
            object.__setattr__(self, "score", _validate.number(score=self.score))
        given = _validate.mapping(metrics=self.metrics)
        metrics = {name: _validate.number(**{f"metrics[{name!r}]": one}) for name, one in given.items()}
        object.__setattr__(self, "metrics", MappingProxyType(metrics))
        object.__setattr__(self, "status", Status.FAILED if self.score is None else Status.DONE)

    def __reduce__(self) -> tuple[Any, ...]:  # a proxy is not pickled
        return Row, (dict(self.params), self.score, dict(self.metrics))


OnRun = Callable[[Row], object]
"""A function of the user that is called with every published run."""


@dataclass(frozen=True, repr=False)
class SurveyTable:
    """All that a survey has published: ``rows`` in the order in which their λ were proposed.

    Args:
        rows: one for every run.
        maximize: whether larger scores are better.
        models: the model of each run in bytes, None for a failed run, if the survey publishes them.
        saver: loads these models.

    >>> survey = SurveyTable((Row({"lr": 0.1}, 0.9), Row({"lr": 10.0}, None)))
    >>> survey
    <survey: 2 runs, 1 failed, best score 0.9>
    >>> survey.records()
    [{'lr': 0.1, 'score': 0.9, 'status': 'done'}, {'lr': 10.0, 'score': None, 'status': 'failed'}]
    >>> SurveyTable.from_dict(survey.to_dict()).hash == survey.hash
    True
    """

    rows: tuple[Row, ...]
    maximize: bool = True
    models: tuple[bytes | None, ...] = field(default=(), compare=False)
    saver: Saver = field(default_factory=Plain, compare=False)

    def __post_init__(self) -> None:
        if not all(isinstance(row, Row) for row in _validate.sequence(rows=self.rows)):
            raise _validate.fail("rows", self.rows, "give a tuple of rows (dphypo.search.release.Row)")

    def table(self) -> Any:
        """The rows as a pandas frame, one column a parameter; a list of dicts where pandas is not installed."""
        try:
            import pandas
        except ImportError:
            return self.records()
        return pandas.DataFrame(self.records(), columns=[*self._names(), *self._metrics(), "score", "status"])

    def records(self) -> list[dict[str, Any]]:
        """The rows as dicts of plain values: every parameter, every metric, ``score`` and ``status``."""
        names, metrics = self._names(), self._metrics()
        return [
            {name: row.params.get(name) for name in names}
            | {name: row.metrics.get(name) for name in metrics}
            | {"score": row.score, "status": str(row.status)}
            for row in self.rows
        ]

    def to_optuna(
        self,
        space: Space | None = None,
        *,
        metrics: Sequence[str] = (),
        storage: str | BaseStorage | None = None,
        name: str | None = None,
    ) -> Study:
        """The table as a study of Optuna, for its plots, its analyses and its dashboard.

        A failed run is a failed trial. The times of the trials are those of this call: a survey publishes none.

        Args:
            space: the search space. Where its prior is uniform in the logarithm, so are Optuna's axes; without one the
                values decide.
            metrics: the objectives, all of which are maximised, where runs have several metrics: for
                ``optuna.visualization.plot_pareto_front``. By default the score.
            storage: as for ``optuna.create_study``: in memory by default. The dashboard needs a database.
            name: of the study.

        >>> study = SurveyTable((Row({"lr": 0.1}, 0.9), Row({"lr": 10.0}, None))).to_optuna()
        >>> study.best_params, [trial.state.name for trial in study.trials]
        ({'lr': 0.1}, ['COMPLETE', 'FAIL'])
        """
        known = self._metrics()
        if unknown := [one for one in metrics if one not in known]:
            raise _validate.fail("metrics", unknown[0], f"the survey has published {', '.join(known) or 'none'}")
        from optuna.study import StudyDirection, create_study
        from optuna.trial import TrialState, create_trial

        params = [  # Optuna stores no tuples: their text is used instead
            {name: repr(value) if isinstance(value, tuple) else value for name, value in row.params.items()}
            for row in self.rows
        ]
        parameters = () if space is None else space.parameters
        priors = {one.name: str(one.description.get("distribution")) for one in parameters}
        values = {name: [chosen[name] for chosen in params if name in chosen] for name in self._names()}
        spans = {name: _span(found, priors.get(name)) for name, found in values.items()}
        trials = [
            create_trial(
                state=TrialState.FAIL if row.score is None else TrialState.COMPLETE,
                values=None if row.score is None else [row.metrics[one] for one in metrics] or [row.score],
                params=chosen,
                distributions={name: spans[name] for name in chosen},
            )
            for row, chosen in zip(self.rows, params, strict=True)
        ]
        one = StudyDirection.MAXIMIZE if self.maximize or metrics else StudyDirection.MINIMIZE
        study = create_study(storage=storage, study_name=name, directions=[one] * max(len(metrics), 1))
        study.add_trials(trials)
        return study

    def model(self, number: int) -> Any:
        """The model of a run, counted from 0 as ``rows`` are; None if the run failed."""
        if not self.models:
            raise _validate.fail("models", False, "this survey publishes no models: declare Survey(models=True)")
        content = self.models[number]
        return None if content is None else self.saver.load(content)

    @property
    def best(self) -> Row | None:
        """The row with the best score. Scores are noisy: the last run uses the best posterior mean instead."""
        sign = 1.0 if self.maximize else -1.0
        return max(done(self.rows), key=lambda row: sign * (row.score or 0.0), default=None)

    @property
    def hash(self) -> str:
        """SHA-256 of the table. The certificate contains it, so a changed table is detected."""
        return table_hash(self.to_dict())

    def fingerprint(self) -> dict[str, Any]:
        """The table as a certificate states it: how many runs, how many failed, and the hashes of table and models."""
        hashes = [None if one is None else hashlib.sha256(one).hexdigest() for one in self.models]
        stated = {"survey": len(self), "failed": len(self) - len(done(self.rows)), "sha256": self.hash}
        return {**stated, **({"models": hashes} if hashes else {})}

    def to_dict(self) -> dict[str, Any]:
        rows = [
            {"params": _plain(row.params), "score": row.score} | ({"metrics": dict(row.metrics)} if row.metrics else {})
            for row in self.rows
        ]
        return {"rows": rows, "maximize": self.maximize}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SurveyTable:
        rows = _validate.mapping(data=data).get("rows")
        known = isinstance(rows, list) and all(isinstance(row, Mapping) and row.keys() >= _ROW for row in rows)
        if not known or "maximize" not in data:
            raise _validate.fail("data", "a table", "give what SurveyTable.to_dict has written")
        params = [frozen(_validate.mapping(params=row["params"])) for row in data["rows"]]
        made = (Row(one, row["score"], row.get("metrics", {})) for one, row in zip(params, data["rows"], strict=True))
        return cls(tuple(made), maximize=_validate.flag(maximize=data["maximize"]))

    def _names(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.rows for name in row.params))

    def _metrics(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.rows for name in row.metrics))

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        ending = "" if self.best is None else f", best score {self.best.score:g}"
        return f"<survey: {len(self)} runs, {len(self) - len(done(self.rows))} failed{ending}>"


def table_of(record: Record) -> SurveyTable:
    """What has been published so far."""
    assert record.declaration is not None
    ended = ((record.trials[number].params, record.results[number]) for number in sorted(record.results))
    rows = tuple(Row(params, result.score, result.metrics) for params, result in ended)
    return SurveyTable(rows, maximize=record.declaration["direction"] == "maximize")


def with_models(table: SurveyTable, journal: Journal, saver: Saver) -> SurveyTable:
    """The table with the models that the journal of the survey keeps."""
    models = tuple(None if row.score is None else journal.model(run) for run, row in enumerate(table.rows))
    return replace(table, models=models, saver=saver)


_EDGE = 0.05  # of a range


def at_edge(survey: SurveyTable, space: Mapping[str, Any]) -> str:
    """Remark that the best run lies at an end of its range; "" if it does not. All of it is public.

    Args:
        survey: what was published.
        space: what :meth:`dphypo.Space.to_dict` or a certificate says of the space; the file may be untrusted.

    >>> at_edge(SurveyTable((Row({"lr": 9.5}, 0.9),)), {"parameters": [
    ...     {"name": "lr", "distribution": "loguniform", "arguments": {"a": 0.1, "b": 10}}]})
    'The best run lies at the edge of the space: lr = 9.5 of 0.1 to 10. A better one may lie beyond it.'
    """
    best, entries = survey.best, space.get("parameters")
    near = [] if best is None or not isinstance(entries, list) else [_near(best.params, one) for one in entries]
    shown = ", ".join(filter(None, near))
    return f"The best run lies at the edge of the space: {shown}. A better one may lie beyond it." if shown else ""


def _near(params: Mapping[str, Any], entry: Any) -> str | None:
    """The value of a hyperparameter with its range, if it lies at one of the ends."""
    try:
        value, given = params[entry["name"]], entry["arguments"]
        if entry["distribution"] == "loguniform" and given.keys() == {"a", "b"}:
            low, high = given["a"], given["b"]
            place = math.log(value / low) / math.log(high / low)
        elif entry["distribution"] == "uniform":
            low, width = given.get("loc", 0.0), given.get("scale", 1.0)
            high, place = low + width, (value - low) / width
        else:
            return None
        near = not _EDGE <= place <= 1 - _EDGE
        return f"{printable(entry['name'], 50)} = {value:.4g} of {low:g} to {high:g}" if near else None
    except (TypeError, LookupError, AttributeError, ValueError, ArithmeticError):
        return None


def done(rows: Sequence[Row]) -> list[Row]:
    """The rows that have a score."""
    return [row for row in rows if row.score is not None]


_WIDE = 30.0
_LOG = ("loguniform", "reciprocal", "lograndint")


def _span(values: list[Any], prior: str | None) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if not all(type(value) in (int, float) and math.isfinite(value) for value in values):
        distinct = {(type(value), value): value for value in values}  # True, 1 and 1.0 are three
        return CategoricalDistribution(list(distinct.values()))
    low, high, log = min(values), max(values), is_logarithmic(values, prior)
    if all(isinstance(value, int) for value in values):
        return IntDistribution(low, high, log=log)
    return FloatDistribution(low, high, log=log)


def is_logarithmic(values: Sequence[float], prior: str | None) -> bool:
    """Whether numbers belong on a logarithmic scale: by their prior, or else by how far they span.

    Without a prior it is so if the largest is 30 times the smallest, or more, and the median is nearer to the middle
    of a logarithmic scale than of a plain one.
    """
    low, high = min(values, default=0.0), max(values, default=0.0)
    if low <= 0 or prior is not None or high < _WIDE * low:
        return low > 0 and prior in _LOG
    middle = median(values)
    plain, by_log = (middle - low) / (high - low), math.log(middle / low) / math.log(high / low)
    return abs(by_log - 0.5) < abs(plain - 0.5)


class Ending(StrEnum):
    """How a search can end. The values are what people read. Each is an outcome that the guarantee covers."""

    MODEL = "a model is released"
    ALL_FAILED = "no model: every run failed"
    SURVEYED = "no model: the table of a survey is released"
    NO_RUN = "no model: no run was executed, because the number of runs drawn was 0"


_REASONS = (
    "The curator finds the reasons with release.curator().trials() in the process that ran the search, later with "
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
        read_from: the journal from which an earlier release was read again; None for a new one.
        surveys: the tables of the surveys, in order: all results of all their runs.
        curator_view: makes what :meth:`curator` returns; None outside the process that ran the search.
    """

    params: Mapping[str, Any] | None
    model: Any
    score: float | None
    certificate: Certificate
    ending: Ending = Ending.MODEL
    saver: Saver = field(default_factory=Plain)
    surveys: tuple[SurveyTable, ...] = ()
    read_from: str | None = field(default=None, compare=False)
    curator_view: Callable[[], Any] | None = field(default=None, compare=False)

    @property
    def survey(self) -> SurveyTable:
        """The table of the only survey; if there are several, use ``surveys``."""
        if len(self.surveys) != 1:
            raise AttributeError(f"this release has {len(self.surveys)} surveys: see release.surveys")
        return self.surveys[0]

    @property
    def reached(self) -> bool | None:
        """Of ``tune(until=...)``, whether the released model reached the target; None for other searches."""
        stated = self.certificate.document["public"].get("released") or [{}]
        found = stated[-1].get("reached")
        return None if found is None else bool(found)

    def curator(self) -> Any:
        """Why every run of the last part failed, for the curator alone. **Nothing it shows carries a guarantee.**"""
        if self.curator_view is None:
            raise ValueError("this release does not know its journal: open it with dphypo.open_journal(journal)")
        return self.curator_view()

    def save(self, folder: str | Path) -> Path:
        """Write ``release.json``, ``certificate.json``, the model and the surveys into a new folder; no pickle.

        The folder must be new or empty: a release never overwrites another. If anything goes wrong, as on a full disk,
        nothing is left in it.
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
            files["surveys.json"] = _files.to_json([table.to_dict() for table in self.surveys])
        for survey, table in enumerate(self.surveys):
            kept = {f"{model_stem(survey, run)}.{table.saver.format}": one for run, one in enumerate(table.models)}
            files |= {name: one for name, one in kept.items() if one is not None}
        files["certificate.json"] = _files.to_json(self.certificate.for_release(model, described).to_dict())
        files["release.json"] = _files.to_json(described)  # last: a folder with this file is complete
        return _files.write_folder(_validate.path(folder=folder), files)

    def report(self, path: str | Path) -> Path:
        """Write one self-contained page of HTML: what was released, the privacy statement, and how to check it.

        It contains public values only. An earlier report at the path is replaced; any other file is left alone. Needs
        the extra ``plots``.
        """
        from dphypo.report import release_page, write  # which is built on this module

        return write(release_page(self), path)

    def __repr__(self) -> str:
        if self.ending is Ending.ALL_FAILED:
            return f"<release: {self.ending}. {_REASONS}>"
        if self.ending is not Ending.MODEL:
            return f"<release: {self.ending}>"
        score = "one model" if self.score is None else f"score {self.score:g}"
        again = "" if self.read_from is None else f"; it was released before and read again from {self.read_from}"
        target = "" if self.reached is None else f"; the target was {'' if self.reached else 'not '}reached"
        params = {
            name: float(f"{one:.6g}") if isinstance(one, float) else one for name, one in (self.params or {}).items()
        }
        return f"<release: {score} with {params!r}{target}{again}>"


def load_release(folder: str | Path, saver: Saver | None = None, *, model: Any = None) -> Release:
    """A saved release.

    Args:
        folder: where it was saved.
        saver: the saver, if the model was saved by a custom one.
        model: for an estimator, the unfitted estimator or pipeline that was searched. For a PyTorch model, the class or
            function that builds it, ``load_release("release", model=MLP)``; without it the model is loaded from its
            captured graph, which takes records and gives outputs but cannot be trained further.

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
    certificate, loaded = Certificate.load(source), None
    if described["ending"] is Ending.MODEL:
        path = source / _model_name(saver.format)
        content = _files.read(path, "model of this release", most=_files.MOST_MODEL_BYTES, within=source)
        with _files.parsing(path.with_name("certificate.json"), "its description of the release is damaged"):
            named = (certificate.document.get("release") or {}).get("model_sha256")
        _check_hash(content, named, path)
        with _files.parsing(path, f"its {saver.format} model cannot be loaded"):
            loaded = saver.load(content)
    surveys = tuple(_survey_models(source, certificate, saver))
    return Release(**described, model=loaded, certificate=certificate, saver=saver, surveys=surveys)


def _check_hash(content: bytes, named: str | None, path: Path) -> None:
    """Refuse a model that was damaged or replaced since its certificate was written."""
    if named is not None and hashlib.sha256(content).hexdigest() != named:
        raise FileError(f"{printable(path)} was damaged or replaced: the certificate names another model")


def _saver_of(format: str, model: Any) -> Saver | None:
    """The saver that reads a format into what ``model`` is: a PyTorch model or its factory, an estimator, or None.

    Frameworks are imported here because their packages are built on this module.
    """
    if hasattr(model, "get_params"):
        from dphypo.sklearn.estimators import Networks

        return Networks(model) if format == Networks.format else None
    if format == "safetensors":
        from dphypo.torch.saver import Safetensors, SavedGraph

        return SavedGraph() if model is None else Safetensors(model)
    return Plain() if model is None and format == Plain.format else None


def _saver(format: str, saver: Saver | None, model: Any, folder: Path) -> Saver:
    saver = _saver_of(format, model) if saver is None else saver
    if saver is None or saver.format != format:
        more = {
            "npz": ")",
            "safetensors": ", model=MLP), where MLP builds the model, or is the estimator that was searched",
            "pickle": ", saver=dphypo.mechanisms.savers.Pickled()), which runs code from the file",
        }.get(format, ", saver=...) with the saver that knows it")
        write = f"dphypo.load_release({str(folder)!r}{more}"
        raise ValueError(f"the model in {str(folder)!r} was saved in the format {format!r}: write {write}")
    return saver


def read_surveys(source: Path) -> tuple[SurveyTable, ...]:
    """The tables in the folder of a release; none if it has none."""
    path = source / "surveys.json"
    try:
        tables = read_json(path, "table", most=_files.MOST_TABLE_BYTES, within=source)
    except FileNotFoundError:
        return ()
    with _files.parsing(path, "it was not written by Release.save"):
        return tuple(SurveyTable.from_dict(table) for table in tables)


def _survey_models(source: Path, certificate: Certificate, saver: Saver) -> Iterator[SurveyTable]:
    """The tables in the folder of a release, with the models of those surveys that published them."""
    with _files.parsing(source / "certificate.json", "its description of surveys is damaged"):
        named = survey_models(certificate.document)
    for survey, table in enumerate(read_surveys(source)):
        models: list[bytes | None] = []
        for stem, sha256 in named[survey] if survey < len(named) else ():
            path = source / f"{stem}.{saver.format}"
            one = None if sha256 is None else _files.read(path, "model of a run", most=_files.MOST_MODEL_BYTES)
            if one is not None:
                _check_hash(one, sha256, path)
            models.append(one)
        yield replace(table, models=tuple(models), saver=saver)


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


def _model_name(format: str) -> str:
    if not isinstance(format, str) or not format.isalnum() or not format.isascii():
        raise _validate.fail("format", format, "a saver's format is a short name of letters and digits")
    return f"model.{format}"
