"""A private test score of a released model, with its certificate and its entry in the ledger, in one call."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dphypo import _validate
from dphypo.accounting import Certificate, Composition, Term, solve_noise
from dphypo.accounting.composition import EVERYONE, account_published
from dphypo.entropy import SEED_BITS, SYSTEM, bits
from dphypo.journal import Ledger
from dphypo.search import Release
from dphypo.training.scores import PrivateLoss, RecordScore, as_trained, named, refuse_targets


@dataclass(frozen=True)
class Evaluation:
    """A published score of a model.

    Args:
        score: the noisy number.
        deviation: the standard deviation of its noise; None if that is not known.
        certificate: what it cost.
    """

    score: float
    deviation: float | None
    certificate: Certificate


def private_test(
    model: Any,
    data: Any,
    *,
    epsilon: float,
    delta: float,
    score: str | RecordScore = "accuracy",
    ledger: Ledger | str | Path | None = None,
    name: str = "private test",
    **options: Any,
) -> Evaluation:
    """Score a released model once on private records, with noise that costs (ε, δ).

    **Guarantee.** The number is (ε, δ)-DP under adding or removing one of these records, or one person with all their
    rows if ``person=`` says which person each row belongs to. If a record also trained the model, the two costs
    compose: give both the same ``ledger``, or use ``dphypo compose``.

    Args:
        model: a release, or its model: of PyTorch, or an estimator of ``dphypo.sklearn``.
        data: the private test records, as for ``DPSGD`` or ``predict``: a pair of inputs and targets.
        epsilon, delta: what the number may cost.
        score: "accuracy", "f1", "balanced_accuracy", "auc", "loss" or "perplexity"; or a
            :class:`dphypo.torch.PrivateLoss` or another such score, with the noise "calibrate".
        ledger: a :class:`dphypo.Ledger`, or its file. The cost is reserved there, under ``name``, before a record is
            read for the score.
        options: further arguments of the score, such as ``records``, ``example``, ``rarest`` or ``loss``; with
            ``person``, the key of each row, a record is a person with all their rows.

    >>> import torch
    >>> from dphypo.torch import private_test
    >>> model = torch.nn.Linear(2, 2)
    >>> found = private_test(model, (torch.randn(4000, 2), torch.arange(4000) % 2), epsilon=0.5, delta=1e-6)
    >>> found.certificate.epsilon <= 0.5, found.deviation < 0.01
    (True, True)
    """
    of_persons = isinstance(model, Release) and model.certificate.document["public"].get("unit") == "person"
    model = model.model if isinstance(model, Release) else model
    if isinstance(model, str | Path):
        raise _validate.fail("model", model, "give the release, dphypo.load_release(folder), or its model")
    if hasattr(model, "get_params"):  # an estimator: its side of the scores is registered where it is imported
        import dphypo.sklearn.estimators  # noqa: F401
    trained = as_trained(model)
    given: Any = named(score, data=data, **options) if isinstance(score, str) else replace(score, data=data, **options)
    if not isinstance(given, RecordScore):
        raise _validate.fail("score", score, "give one name, or a PrivateAccuracy, PrivateLoss or PrivateConfusion")
    given = given.read_by(type(trained))
    refuse_targets(given, trained)
    if isinstance(given, PrivateLoss):
        given.bound_for(trained, given.records_for(trained))  # before anything is spent
    if of_persons and given.rows_per_person is None:
        _validate.warn(
            "the model was released with a guarantee for persons, and this score protects single rows: if a person has "
            "several, give person=, the key of each row"
        )

    def at(noise: float) -> Composition:
        return Composition(
            (Term(account_published(replace(given, noise_multiplier=noise).event, 1), EVERYONE, scores=True),)
        )

    with warnings.catch_warnings(action="ignore"):  # the solver tries large noise
        solved = solve_noise(at, epsilon=epsilon, delta=_validate.positive_delta(delta=delta))
        final, guarantee = replace(given, noise_multiplier=solved.value), at(solved.value)
    deviation = final.deviation(trained.classes(trained.records(final.data, final.example)) or 2)
    _validate.warn_of_score_noise(deviation or 0.0, search=False)
    cap = final.rows_per_person
    unit = {"unit": "record"} if cap is None else {"unit": "person", "rows per person": cap}
    stated: dict[str, Any] = {**unit, "records": final.declared}
    if ledger is not None:
        book = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        stated["ledger"] = {"epsilon": book.epsilon, "delta": book.delta}
        book.reserve(guarantee, name=name, delta=delta, unit=stated["unit"])
    number = final(trained, seed=bits(SEED_BITS, SYSTEM))
    if isinstance(final, PrivateLoss):
        known = final.bound is not None and final.measure == "loss"
        deviation = deviation * final.bound if known else None
    measure = final.measure if isinstance(final.measure, str) else type(final).__name__  # a function is no JSON
    about = {"part": "private test", "measure": measure, "records": final.declared}
    certificate = guarantee.certificate(delta, **stated, releases=[{**about, "score": number}])
    return Evaluation(number, deviation, certificate)
