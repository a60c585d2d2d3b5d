"""A private search as a scikit-learn meta-estimator."""

from __future__ import annotations

import copy
import difflib
import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, cast

import numpy as np
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.compose import TransformedTargetRegressor
from sklearn.metrics import check_scoring, f1_score, make_scorer
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted, indexable

from dphypo import _validate
from dphypo._stderr import on_terminal, say, shielded
from dphypo.accounting.composition import EVERYONE
from dphypo.band import Band
from dphypo.band.band import BandLike
from dphypo.entropy import SYSTEM, Seeded
from dphypo.journal import Ledger
from dphypo.laws import Law, NegativeBinomial
from dphypo.mechanisms.mechanism import CALIBRATE
from dphypo.samplers import Sampler
from dphypo.search import Study, SurveyPlan, tune
from dphypo.search.rates import scale_of_columns
from dphypo.sklearn.estimators import TUNED, DPSGDClassifier, DPSGDRegressor, Fitting, absolute_error, callers, fitted
from dphypo.sklearn.schema import Schema, is_frame, split_pipeline, steps_instead
from dphypo.space import Space
from dphypo.torch.data import as_records
from dphypo.training import cost
from dphypo.training.base import AllRecords
from dphypo.training.persons import PersonKeys
from dphypo.training.scores import PrivateAccuracy, PrivateConfusion, PrivateLoss, RecordScore, scoring_share
from dphypo.training.split import split_within

_STUDY_SCORE_NOISE = 10.0
SCORINGS = {"balanced_accuracy": "balanced_accuracy", "f1": "f1 of class 1", "f1_macro": "f1", "roc_auc": "auc"}
"""Names of scikit-learn's scorers that are computed privately from one noisy matrix, and the measures of it."""

# Arguments of scikit-learn's searches, and what to use here.
_ELSEWHERE = {
    "cv": "every fold would cost. Runs are ranked on records set apart by a hash or on public ones (fit(holdout=))",
    "n_iter": "give epsilon=..., survey=20 for 20 short runs, or the law of a study's number of runs as runs=",
    "n_jobs": "give workers=2 to execute two runs at a time, each in its own process",
    "refit": "best_estimator_ is the best run itself: training it again would cost again",
    "param_grid": "give the hyperparameters as space={'learning_rate': [0.1, 1.0]}",
    "param_distributions": "give the hyperparameters as space={'learning_rate': loguniform(0.1, 10)}",
    "return_train_score": "scores on training records cost privacy and are not computed",
    "error_score": "a run that fails counts as one with the lowest score",
    "verbose": "give progress=True; the scores of single runs are secret",
    "pre_dispatch": "give workers=2 to execute two runs at a time",
}


def _has(name: str) -> Any:
    return available_if(lambda search: hasattr(getattr(search, "best_estimator_", search.estimator), name))


@dataclass(eq=False, repr=False)
class PrivateSearch(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Tunes an estimator whose ``fit`` is private, releases the best fit, and certifies the cost of the whole search.

    It works like ``RandomizedSearchCV``, but without cross-validation and refit, which cannot be private.

    **Two ways to search.** With a total ``epsilon`` it runs a *survey* (:func:`dphypo.tune`): short, noisy runs whose
    results are all published (``cv_results_``), then one full fit, which is released without a score. Otherwise, or
    with ``runs``, ``band``, ``sampler`` or ``survey=False``, it runs a *study* (:class:`dphypo.Study`): full fits whose
    number and results are secret, of which the best is released.

    **How runs are ranked.** With ``fit(X, y, holdout=(X_public, y_public))``, by any scorer on those records. They must
    be public, because nothing protects them. Otherwise on a fifth of the private records, at most about 4 000, chosen
    by a hash of each: a classifier by its accuracy, or the ``scoring``, with Gaussian noise on the counts, and a
    regressor by minus its mean absolute error, with each error clipped to ``error_bound``. Each record is used either
    to train or to score, so the cost is the larger of the two, not their sum.

    **Guarantee.** The release (``best_estimator_``, ``best_params_``, ``best_score_``, and ``cv_results_`` if there is
    one) is (ε, δ)-DP under adding or removing one record; ``certificate_`` states ε and how it follows. Training
    and the scorer are rehearsed on made-up records before anything is spent.

    Args:
        estimator: a ``DPSGDClassifier`` or ``DPSGDRegressor``, or a pipeline of a :class:`Schema` and one
            (``schema.pipeline``). Their network is trained by :class:`dphypo.torch.DPSGD`. Other steps
            are refused with one message that says what to write instead.
        space: hyperparameters and their priors, as for ``RandomizedSearchCV``: a dict, or a :class:`dphypo.Space`. By
            default the learning rate, and :func:`dphypo.tune` decides from public values whether to search it.
        runs: of a study, the law of the number of runs; negative binomial with shape 8 and mean 10 by default.
        band, sampler: of a study, how to search, as for :class:`dphypo.Study`; uniformly by default.
        epsilon: the total ε, for which the estimator's ``noise_multiplier`` is solved; None leaves it as it is, and is
            refused unless that noise, or a study, was chosen.
        delta: the total δ.
        survey: a :class:`dphypo.SurveyPlan`, or the number of short runs; None plans it, False runs a study.
        compute: of a survey, the largest compute, in full fits.
        scoring: with a public hold-out, what scikit-learn's searches take. Without one, a classifier is ranked by
            "accuracy", "balanced_accuracy", "f1" (of the second class), "f1_macro" or "roc_auc", with noise.
        rarest: the share of the rarest class, a public constant: the noise of these scores depends on it, and is
            stated. By default a fifth of an even share is assumed.
        score_noise_multiplier: standard deviation of the noise on the count of correct records (or of the sum of errors
            in units of ``error_bound``), without a public hold-out; by default a survey solves for it, and a study
            takes 10.
        error_bound: for a regressor without a public hold-out, the largest absolute error that counts; half the width
            of its ``target_bounds`` by default.
        records: the number of records, as a public constant; None declares the length of the data public.
        persons: the number of persons, in place of ``records``, if ``fit(X, y, groups=)`` assigns rows to persons.
        rows_per_person: at most this many rows of a person, drawn afresh, are used at a time; 8 by default.
        data_name: a public name of the data set; a journal that was begun under another name is refused.
        journal: keeps the search on disk, so that it can be resumed; None keeps it in memory. A journal holds one
            search over one set of records: copies (``clone``, cross-validation) and a second ``fit`` are refused.
        ledger: a :class:`dphypo.Ledger`, or its file. Every ``fit`` reserves its cost there before its first run,
            and is refused if the total would be exceeded.
        workers: the number of runs to execute at a time.
        progress: show the cost of the search, and a progress bar.
        random_state: None draws from the operating system. **A seed voids the guarantee**: the certificate says so.

    >>> from scipy.stats import loguniform
    >>> from dphypo.sklearn import DPSGDClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 600)
    >>> X = rng.normal(size=(600, 2)) + 3 * y[:, None]
    >>> estimator = DPSGDClassifier(hidden=(), bounds=(-5, 10), classes=(0, 1), epochs=3, noise_multiplier=3.0)
    >>> search = PrivateSearch(estimator, {"learning_rate": loguniform(0.1, 10)}, delta=1e-5, random_state=1)
    >>> search = search.fit(X[100:], y[100:], holdout=(X[:100], y[:100]))  # the first hundred are public
    >>> bool(search.score(X, y) > 0.8)
    True
    """

    estimator: Any
    space: Space | Mapping[str, Any] | None = None
    runs: Law | None = None
    _: KW_ONLY
    band: BandLike | None = None
    sampler: Sampler | None = None
    epsilon: float | None = None
    delta: float = 1e-5
    survey: SurveyPlan | int | bool | None = None
    compute: float | None = None
    scoring: str | Callable[..., float] | None = None
    score_noise_multiplier: float | None = None
    error_bound: float | None = None
    rarest: float | None = None
    records: int | None = None
    persons: int | None = None
    rows_per_person: int | None = None
    data_name: str | None = None
    journal: str | Path | None = None
    ledger: Ledger | str | Path | None = None
    workers: int = 1
    progress: bool = True
    random_state: int | None = None

    def __new__(cls, *arguments: Any, **named: Any) -> PrivateSearch:
        """Explain what replaces an argument of scikit-learn's searches."""
        for name in _ELSEWHERE.keys() & named.keys():
            raise TypeError(f"PrivateSearch has no {name}: {_ELSEWHERE[name]}")
        made: PrivateSearch = super().__new__(cls)
        return made

    def fit(self, X: Any, y: Any, *, holdout: tuple[Any, Any] | None = None, groups: Any = None) -> PrivateSearch:
        """Search.

        Args:
            X, y: the private records.
            holdout: public records that rank the runs; see above for what happens without them.
            groups: the person of each row, if persons have several: an array of keys, or a column of X that is not a
                feature. A record is then a person with all their rows (docs/howto/persons.md).
        """
        self._refuse_reuse()
        if y is None:
            raise ValueError("PrivateSearch requires y to be passed, but the target y is None")
        check_estimator(self.estimator, X)
        X, person = self._persons(X, groups)
        refuse_steps_around(self)
        X, y = indexable(X, y)
        whole = clone(self.estimator)
        schema, last, prefix = split_pipeline(whole)
        if schema is not None:
            schema.fit(X)
        elif is_frame(X) and last.bounds is None and last.input_scale is None:
            _validate.warn(
                "bounds = None: columns are used as they are, and training fails unless each is about -1 to 1. Give "
                "their ranges from public knowledge, Schema({'age': (18, 90), ...}).pipeline(estimator); "
                "bounds=(-1, 1) states that they are"
            )
        data = last.read(X if schema is None else schema.transform(X), y)
        space = self._own_space(last, prefix)
        self._refuse_unknown_cost(last, space)
        surveys = self._surveys()
        mechanism = self._mechanism(whole, X, y, data, holdout, person, CALIBRATE if surveys else _STUDY_SCORE_NOISE)
        if (deviation := mechanism.score_deviation) is not None:
            _validate.warn_of_score_noise(deviation)
        if schema is not None and self.progress and (surveys or on_terminal()):  # as tune says how many records fit
            shielded(partial(_tell_outside, schema, X), otherwise=None)
        entropy = SYSTEM if self.random_state is None else Seeded(self.random_state)
        options: dict[str, Any] = {"delta": self.delta, "journal": self.journal, "entropy": entropy}
        options |= {"data_name": self.data_name, "ledger": self.ledger}
        making: dict[str, Any] = {"workers": self.workers, "progress": self.progress}
        if surveys:
            survey = None if self.survey is True else self.survey
            budget: dict[str, Any] = {"epsilon": self.epsilon, "compute": self.compute}
            release = tune(space=space, mechanism=mechanism, survey=survey, **budget, **making, **options)
        else:
            space = mechanism.default_space() if space is None else space
            runs = NegativeBinomial(shape=8, mean=10) if self.runs is None else copy.deepcopy(self.runs)
            band = Band(1, 1) if self.band is None else Band.of(self.band)
            if self.epsilon is not None:
                budget = {"epsilon": self.epsilon, "delta": self.delta, "journal": self.journal}
                mechanism = cost.calibrated(mechanism, space, runs, band, **budget, progress=self.progress)
            study = Study(space, mechanism, runs, band, self.sampler, epsilon=self.epsilon, **options)
            release = study.run(**making)
        self.release_, self.certificate_ = release, release.certificate
        self.best_params_ = None if release.params is None else _prefixed(prefix, release.params)
        self.best_score_ = release.score
        self.best_estimator_ = release.model
        for name in ("classes_", "n_features_in_", "feature_names_in_"):
            if hasattr(self.best_estimator_, name):
                setattr(self, name, getattr(self.best_estimator_, name))
        return self

    def _persons(self, X: Any, groups: Any) -> tuple[Any, PersonKeys | None]:
        """The table without the column that says whose rows are whose, and its keys."""
        schema = split_pipeline(self.estimator)[0]
        if isinstance(groups, str):
            names = list(getattr(X, "columns", ()))
            if groups not in names:
                known = f"X has the columns {', '.join(map(str, names))}" if names else "X has no columns by name"
                raise _validate.fail("groups", groups, f"{known}: give an array of keys, one per row")
            if schema is None or groups in schema.columns:
                remedy = "a key may not be a feature, and this column is one: give groups=X.pop(...), or a Schema "
                raise _validate.fail("groups", groups, remedy + "without it")
            X, groups = X.drop(columns=groups), X[groups]
        person = None if groups is None else PersonKeys.of(groups, _num_samples(X))
        if person is None and self.persons is not None:
            raise _validate.fail("persons", self.persons, "say whose rows are whose, fit(X, y, groups=)")
        if person is not None and self.records is not None:
            raise _validate.fail("records", self.records, "records are persons here: declare their number, persons=")
        return X, person

    def _refuse_reuse(self) -> None:
        """Refuse a journal that was used before: ``fit`` would return its release again, for any data."""
        if self.journal is None:
            return
        if self.journal == getattr(self, "_journal_of_another", None):
            remedy = (
                "this search is a copy (clone, cross-validation), and a journal holds one search: give another journal"
            )
            raise _validate.fail("journal", str(self.journal), remedy)
        if hasattr(self, "release_"):
            remedy = (
                "another fit would return that release again, whatever the data: make a new search with another journal"
            )
            raise _validate.fail("journal", str(self.journal), remedy)

    def __sklearn_clone__(self) -> PrivateSearch:
        copied = type(self)(**{name: clone(value, safe=False) for name, value in self.get_params(deep=False).items()})
        copied._journal_of_another = self.journal
        return copied

    def _own_space(self, last: Any, prefix: str) -> Space | None:
        """The space with the estimator's own names of hyperparameters: without the prefix of a pipeline."""
        if self.space is None:
            return None
        given = self.space if isinstance(self.space, Space) else Space(self.space)
        if self.epsilon is not None and f"{prefix}noise_multiplier" in given.names:
            raise _validate.fail("epsilon", self.epsilon, "it needs a noise_multiplier that is not tuned")
        known = {f"{prefix}{name}": name for name in TUNED}
        if unknown := [name for name in given.names if name not in known]:
            close = difflib.get_close_matches(f"{prefix}{unknown[0]}", sorted(known), 1)
            meant = f": write {close[0]!r}" if close else f", or that cannot be tuned: give one of {', '.join(known)}"
            raise ValueError(
                f"the space has {unknown[0]!r}, which is not a parameter of {type(last).__name__} by this name{meant}"
            )
        return given.renamed(known)

    def _refuse_unknown_cost(self, last: Any, space: Space | None) -> None:
        """Refuse a search whose cost nobody chose: neither ε, nor the noise, nor a study."""
        asked = (self.epsilon, self.survey, self.compute, self.runs, self.band, self.sampler)
        tuned = space is not None and "noise_multiplier" in space.names
        if not tuned and last.noise_multiplier == type(last).noise_multiplier and all(one is None for one in asked):
            raise TypeError(
                "PrivateSearch needs epsilon: give epsilon=, the total privacy cost, such as 4; or survey=False for a "
                f"study with the noise of the estimator, noise_multiplier={last.noise_multiplier:g}"
            )

    def _surveys(self) -> bool:
        """Whether to survey: by default where noise is solved for."""
        given = [name for name in ("runs", "band", "sampler") if getattr(self, name) is not None]
        wanted = self.survey is not False and (self.survey is not None or self.compute is not None)
        if wanted and (given or self.epsilon is None):
            why = f"{given[0]} is given, which belongs to a study" if given else "a survey needs epsilon"
            raise ValueError(f"survey = {self.survey!r}, compute = {self.compute!r}: {why}")
        return self.epsilon is not None and not given and self.survey is not False

    def _mechanism(
        self,
        whole: Any,
        X: Any,
        y: Any,
        data: tuple[Any, Any],
        public: tuple[Any, Any] | None,
        person: PersonKeys | None,
        score_noise: float | str,
    ) -> Fitting:
        """The mechanism of one run, with its records and its score.

        Args:
            whole: the estimator, or the pipeline, whose parts know the columns and the classes.
            X, y, data: the private records, as they were given and as the network reads them.
            public, person: the public records, if there are some, and whose row each row is.
            score_noise: used where the user gives none.
        """
        schema, last, _ = split_pipeline(whole)
        declared = self.records if person is None else self.persons
        counted = _num_samples(X) if person is None else person.count
        records = _validate.integer(at_least=1, records=counted if declared is None else declared)
        given: dict[str, Any] = {"kind": Fitting, "estimator": whole}
        given["rows_per_person"] = self.rows_per_person
        if self.epsilon is not None:
            given["noise_multiplier"] = CALIBRATE
        if schema is not None and last.input_scale is None:
            ranges = sum(isinstance(one, tuple) for one in schema.columns.values())
            given["input_scale"] = scale_of_columns(ranges=ranges, categories=len(schema.columns) - ranges)
        if public is not None:
            scorer = check_scoring(self.estimator, scoring=self.scoring)
            given["score"] = _OnPublic(scorer, *_pair(public), whole)
            return cast(Fitting, last.mechanism(data, records, person=person, **given))
        measure, bound = self._measure(last), self._error_bound(last)
        if self.score_noise_multiplier is not None:
            score_noise = _validate.positive(score_noise_multiplier=self.score_noise_multiplier)
        share, to_score = scoring_share(records)
        train, held_out = split_within(EVERYONE, X, y, share=share, person=person, form=data)
        of_score: dict[str, Any] = {"data": held_out, "noise_multiplier": score_noise, "records": to_score}
        of_score["rows_per_person"] = self.rows_per_person
        with warnings.catch_warnings(action="ignore"):  # fit warns of much noise, once
            if bound is not None:
                private: RecordScore = PrivateLoss(**of_score, bound=bound, loss=absolute_error(last))
            elif measure == "accuracy":
                private = PrivateAccuracy(**of_score)
            else:
                private = PrivateConfusion(**of_score, measure=SCORINGS[measure], rarest=self.rarest)
        whole_data = AllRecords(as_records(data, person=person), records)
        given |= {"score": private, "whole": whole_data, "person": train.person}
        return cast(Fitting, last.mechanism(train, max(1, records - to_score), **given))

    def _error_bound(self, last: Any) -> float | None:
        """The largest absolute error that counts, in the units of the target; None for a classifier."""
        if is_classifier(last):
            return None
        if self.error_bound is None and last.target_bounds is None:
            remedy = (
                "for a regressor give target_bounds=(low, high), of which half the width counts at most, or the "
                "largest absolute error that counts, or public records, holdout="
            )
            raise _validate.fail("error_bound", None, remedy)
        given = np.ptp(last.target_bounds) / 2 if self.error_bound is None else self.error_bound
        return _validate.positive(error_bound=given)

    def _measure(self, last: Any) -> str:
        """The measure that ranks a classifier on private records; refused if it cannot be private."""
        private = ("accuracy", *SCORINGS) if is_classifier(last) else ("neg_mean_absolute_error",)
        if self.scoring is not None and self.scoring not in private:
            raise _validate.fail(
                "scoring",
                self.scoring,
                f"on private records give one of {', '.join(private)}; any other scorer needs public ones, "
                "fit(X, y, holdout=(X_public, y_public))",
            )
        classes = getattr(last, "classes", None)
        if self.scoring in ("f1", "roc_auc") and classes is not None and len(classes) != 2:
            remedy = f"it needs two classes, and there are {len(classes)}: give 'f1_macro' or 'balanced_accuracy'"
            raise _validate.fail("scoring", self.scoring, remedy)
        return "accuracy" if self.scoring is None else str(self.scoring)

    @property
    def cv_results_(self) -> dict[str, Any]:
        """The table of a survey in the columns that scikit-learn's searches have; all of it is published."""
        if not hasattr(self, "release_") or not self.release_.surveys:
            if hasattr(self, "release_") and self._surveys():
                raise AttributeError(
                    "there is no cv_results_: nothing was searched, because the hyperparameters follow from public "
                    "values. To search, give a space= or survey=8"
                )
            raise AttributeError(
                "there is no cv_results_ after a study: the scores of all runs would be another output, which the "
                "guarantee does not cover. It covers only the best run: best_params_, best_score_ and best_estimator_. "
                "A survey (epsilon=..., no runs) publishes all of its short runs there"
            )
        rows = self.release_.survey.rows
        scores = np.array([row.score for row in rows], dtype=np.float64)
        prefix = split_pipeline(self.estimator)[2]
        names = dict.fromkeys(name for row in rows for name in row.params)
        columns = {f"{prefix}{name}": [row.params.get(name) for row in rows] for name in names}
        return {
            "params": [_prefixed(prefix, row.params) for row in rows],
            **{f"param_{name}": np.array(values, dtype=object) for name, values in columns.items()},
            "mean_test_score": scores,
            "rank_test_score": rankdata(-np.nan_to_num(scores, nan=-np.inf), method="ordinal"),
            "status": np.array([str(row.status) for row in rows]),
        }

    def _released(self) -> Any:
        check_is_fitted(self, "release_")
        if self.best_estimator_ is None:
            raise ValueError(f"this search released no estimator ({self.release_.ending})")
        return self.best_estimator_

    def predict(self, X: Any) -> Any:
        """The predictions of the released estimator."""
        return self._released().predict(X)

    def score(self, X: Any, y: Any) -> float:
        """The released estimator's score on your records by ``scoring``, else its own, without any protection."""
        released = self._released()
        scoring: Any = self.scoring
        if scoring == "f1":  # of the second class in sorted order, as when it ranked runs, whatever its label
            scoring = make_scorer(f1_score, pos_label=released.classes_[1])
        return float(check_scoring(released, scoring)(released, X, y))

    @_has("predict_proba")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """The class probabilities of the released estimator."""
        return self._released().predict_proba(X)

    @_has("decision_function")  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Any:
        """The decision function of the released estimator."""
        return self._released().decision_function(X)

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        for name in ("estimator_type", "classifier_tags", "regressor_tags", "target_tags"):
            setattr(tags, name, getattr(inner, name))
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        return tags


def _pair(holdout: Any) -> tuple[Any, Any]:
    """The inputs and the labels of a hold-out; it may have been given as one table, or as a share of the records."""
    if not isinstance(holdout, tuple | list) or len(holdout) != 2:
        remedy = "give a pair of public records, holdout=(X_public, y_public)"
        given = holdout if isinstance(holdout, Real) else type(holdout).__name__
        raise _validate.fail("holdout", given, f"{remedy}; without it a hash sets private records apart")
    X, y = holdout
    return X, y


def _prefixed(prefix: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}{name}": value for name, value in params.items()}


@dataclass(frozen=True, eq=False, repr=False)
class _OnPublic:
    """A scorer of scikit-learn on public records, as a function of a trained network."""

    scorer: Callable[..., float]
    X: Any
    y: Any
    estimator: Any

    def __call__(self, model: Any) -> float:
        try:
            return float(self.scorer(fitted(self.estimator, model), self.X, self.y))
        except Exception as error:
            raise ValueError(f"scoring raises {type(error).__name__} on the public records: {error}") from error


def _tell_outside(schema: Schema, X: Any) -> None:
    if names := schema.outside(X):
        said = "" if on_terminal() else " Do not publish this log."
        say(
            f"SECRET, for the curator alone: most values of {', '.join(map(repr, names))} are outside the range or the "
            f"categories that the schema gives, so little is learnt from them.{said}"
        )


def check_estimator(estimator: Any, X: Any) -> None:
    """Refuse an estimator unless it is one of ours, alone or after a :class:`Schema`; the error lists all problems."""
    _, last, _ = split_pipeline(estimator)
    steps: list[tuple[str, Any]] = []
    problems: list[str] = []
    foreign = isinstance(last, Pipeline)
    while isinstance(last, Pipeline):
        steps, last = [*steps, *last.steps[:-1]], last.steps[-1][1]
    if foreign:
        problems.append(steps_instead(steps, last, X))
    if isinstance(last, type):
        problems.append(f"the estimator is the class {last.__name__}: give {last.__name__}(...)")
    elif not isinstance(last, DPSGDClassifier | DPSGDRegressor):
        problems.append(
            f"{type(last).__name__} does not state its privacy event: PrivateSearch needs a DPSGDClassifier or a "
            "DPSGDRegressor. Training of your own becomes a mechanism by @dphypo.mechanism"
        )
    elif type(last).fit not in (DPSGDClassifier.fit, DPSGDRegressor.fit):
        problems.append(f"{type(last).__name__} has a fit of its own, which a search does not call: leave it out")
    if problems:
        raise TypeError("\n".join(problems))


# That of __init__: __new__ only explains arguments of other searches.
PrivateSearch.__signature__ = inspect.Signature([*inspect.signature(PrivateSearch.__init__).parameters.values()][1:])


def refuse_steps_around(search: PrivateSearch) -> None:
    """Refuse steps of a pipeline around a search, and warn of a fit that is repeated from outside.

    Steps around a search read all records before it does, and fail on one that they cannot take. The pipeline is found
    among the callers of ``fit``.
    """
    for owner, called, of_sklearn in callers():
        outside = ""
        if owner is not search and called.startswith("fit"):
            if type(owner) is Pipeline:
                for name, step in owner.steps[:-1]:
                    if step not in (None, "passthrough"):
                        raise _outside(f"step {name!r} ({type(step).__name__}) comes before")
            elif isinstance(owner, TransformedTargetRegressor):
                raise _outside("TransformedTargetRegressor is around")
            elif isinstance(owner, BaseEstimator):
                outside = type(owner).__name__
        if called == "cross_validate" and of_sklearn:
            outside = called
        if outside:
            _validate.warn(
                f"PrivateSearch is fitted inside {outside}: every fit is a search with its own certificate, and "
                f"{outside} costs their composition (dphypo compose), which no single certificate states"
            )
            return


def _outside(what: str) -> TypeError:
    return TypeError(
        f"{what} PrivateSearch: it reads all records first and may learn from them or fail on one, and nothing makes "
        f"that private. Put a Schema inside, PrivateSearch(Schema(...).pipeline(estimator)), or transform X and y "
        f"before fit, each record by itself"
    )
