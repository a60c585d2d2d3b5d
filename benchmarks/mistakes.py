"""Mistakes that people make first, and what the library answers: ``python -m benchmarks.mistakes``.

It writes docs/mistakes.md. Each mistake must be answered by an error that this library raises, or by a warning, with
nothing in the ledger: the command ends with status 1 if one comes from elsewhere, or after something was reserved.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from optuna.distributions import FloatDistribution
from scipy.stats import loguniform
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, random_split

import dphypo
from dphypo.mechanisms import OwnTraining, SampledGaussian
from dphypo.optuna import OptunaSurvey
from dphypo.sklearn import DPSGDClassifier, DPSGDRegressor, PrivateSearch, Schema
from dphypo.torch import DPSGD, PrivateAccuracy, private_test
from dphypo.transformers import from_trainer

PAGE = Path(__file__).parents[1] / "docs" / "mistakes.md"
RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, 400)
X = (RNG.normal(size=(400, 8)) + Y[:, None]).astype(np.float32)
FRAME = pd.DataFrame(X, columns=[f"c{place}" for place in range(8)])
RUN = SampledGaussian.of(records=400, batch_size=40, epochs=3, noise_multiplier=1.0)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))


def tune(ledger: Path, *searched: Any, **changes: Any) -> Any:
    given: dict[str, Any] = {"epsilon": 4, "delta": 1e-5, "survey": 2, "progress": False, "journal": None}
    return dphypo.tune(*searched, **{**given, "ledger": ledger, **changes})


def dpsgd(**changes: Any) -> Any:
    """A case: ``tune`` with a ``DPSGD`` of these arguments."""
    given: dict[str, Any] = {"model": net, "data": (X, Y), "score": "accuracy", "epochs": 2}
    return lambda ledger: tune(ledger, DPSGD(**{**given, **changes}))


def tuned(**changes: Any) -> Any:
    """A case: ``tune`` of these arguments."""
    return lambda ledger: tune(ledger, DPSGD(model=net, data=(X, Y), score="accuracy", epochs=2), **changes)


def table(estimator: Any, target: Any = Y, frame: Any = FRAME, **changes: Any) -> Any:
    """A case: a ``PrivateSearch`` of these arguments."""
    given: dict[str, Any] = {"space": {"learning_rate": [0.5]}, "epsilon": 4, "survey": 2}
    return lambda ledger: PrivateSearch(estimator, **{**given, **changes}, ledger=ledger, progress=False).fit(
        frame, target
    )


def untuned(ledger: Path) -> Any:
    arguments: Any = {"ledger": ledger}
    return dphypo.tune(DPSGD(model=net, data=(X, Y), score="accuracy"), **arguments)


class Stream(IterableDataset[Any]):
    """Records without an index."""

    def __iter__(self) -> Any:
        return iter(zip(X, Y, strict=True))


def of_width(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 2))


def batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def own(params: Any, *, seed: int, run: Any) -> Any:
    return run.make_private, 0.5


def positional(ledger: Path) -> Any:
    _, part = random_split(TensorDataset(torch.tensor(X), torch.tensor(Y)), [300, 100])
    return PrivateAccuracy(part, noise_multiplier=5.0)


def trainer(columns: Any = None, **changes: Any) -> Any:
    """A ``Trainer`` of a small BERT on made-up tokens."""
    import transformers
    from datasets import Dataset  # type: ignore[import-untyped]

    config = transformers.BertConfig(vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=1)
    records = Dataset.from_dict(columns or {"input_ids": [[1, 2, 3]] * 64, "label": [0, 1] * 32})
    args = transformers.TrainingArguments(output_dir=tempfile.gettempdir(), report_to="none", **changes)
    model: Any = transformers.BertForSequenceClassification(config)  # type: ignore[no-untyped-call]
    return transformers.Trainer(model=model, args=args, train_dataset=records, eval_dataset=records)


def certified_without_noise(params: Any, *, seed: int, run: Any) -> Any:
    return None, 0.5


def persons_and_records(ledger: Path) -> Any:
    return tune(ledger, DPSGD(model=net, data=(X, Y), person=np.arange(400) // 4, score="accuracy", epochs=2))


def another_journal(ledger: Path) -> Any:
    given: Any = {"journal": ledger.with_name("journal.db"), "search": "never", "progress": False}
    dphypo.tune(MECHANISM, epsilon=4, delta=1e-5, **given)
    return dphypo.tune(dataclasses.replace(MECHANISM, epochs=3), epsilon=4, delta=1e-5, **given)


def saved(ledger: Path) -> Path:
    """The folder of a release without a model that anyone trained."""
    certificate = dphypo.account(RUN.event, dphypo.Geometric(mean=2)).certificate(1e-5)
    return dphypo.Release({"lr": 0.1}, [1.0], 0.5, certificate).save(ledger.with_name("saved"))


MECHANISM = DPSGD(model=net, data=(X, Y), score="accuracy", epochs=2)
CLASSIFIER = DPSGDClassifier(hidden=(), classes=(0, 1), bounds=(-3, 4), epochs=2)
PICTURES = np.zeros((400, 8, 8, 3), dtype=np.float32)


def one_output() -> nn.Module:
    return nn.Linear(8, 1)


REGRESSION: dict[str, Any] = {"model": one_output, "loss": nn.MSELoss()}
CASES: dict[str, Callable[[Path], Any]] = {
    "the model has another number of inputs": dpsgd(model=lambda: nn.Linear(5, 2)),
    "inputs and targets have different lengths": dpsgd(data=(X, Y[:-5])),
    "labels are fractions": dpsgd(data=(X, Y.astype(np.float32))),
    "labels are text": dpsgd(data=(X, np.array(["no", "yes"])[Y])),
    "labels are one-hot": dpsgd(data=(X, np.eye(2)[Y])),
    "labels are a column": dpsgd(data=(X, Y[:, None]), score=lambda model: 0.5),
    "labels are booleans": dpsgd(data=(X, Y > 0)),
    "targets of a regression are no column": dpsgd(**REGRESSION, data=(X, X[:, 0]), score=lambda model: 0.5),
    "a regression without its loss": dpsgd(model=one_output, data=(X, X[:, :1]), score=lambda model: 0.5),
    "a regression ranked by its loss": dpsgd(**REGRESSION, data=(X, X[:, :1]), score="loss"),
    "the class of a loss": dpsgd(loss=nn.CrossEntropyLoss),
    "pictures have their channels last": dpsgd(model=lambda: nn.Conv2d(3, 2, 3), data=(PICTURES, Y)),
    "a model that returns a tuple": dpsgd(model=lambda: nn.LSTM(8, 2)),
    "pictures are uint8": dpsgd(data=((X * 10).astype(np.uint8), Y)),
    "token lists have different lengths": dpsgd(
        data={"input_ids": [[1] * (2 + place % 3) for place in range(400)], "labels": Y}
    ),
    "a DataLoader as data": dpsgd(data=DataLoader(TensorDataset(torch.tensor(X), torch.tensor(Y)), batch_size=32)),
    "a generator as data": dpsgd(data=(pair for pair in zip(X, Y, strict=True))),
    "an IterableDataset as data": dpsgd(data=Stream()),
    "a DataFrame as data": dpsgd(data=FRAME.assign(y=Y)),
    "a data set without an example": dpsgd(data=[(X[place], int(Y[place])) for place in range(400)]),
    "a model in place of a function": dpsgd(model=net()),
    "batch normalisation": dpsgd(model=batch_norm),
    "a loss that averages over the batch": dpsgd(loss=lambda outputs, y: nn.functional.cross_entropy(outputs, y)),
    "a GPU that is not there": dpsgd(device="cuda:7"),
    "an unknown score": dpsgd(score="acc"),
    "a metric of scikit-learn as score": dpsgd(score=accuracy_score),
    "records as score": dpsgd(score=(X, Y)),
    "the class of an optimiser": dpsgd(optimizer=torch.optim.AdamW),
    "an unknown schedule": dpsgd(schedule="step"),
    "a batch larger than the data": dpsgd(batch_size=4000),
    "two workers and a model that is a lambda": lambda ledger: tune(
        ledger, dataclasses.replace(MECHANISM, model=lambda: net()), workers=2
    ),
    "arrays in shards": dpsgd(shards=4, score=lambda model: 0.5),
    "a misspelt argument": dpsgd(learning_rates=0.1),
    "a hyperparameter that nothing takes": tuned(space=dphypo.Space({"lr": loguniform(0.1, 1)})),
    "a hyperparameter that the model requires is missing": lambda ledger: tune(
        ledger, dphypo.Space({"learning_rate": [0.1, 1.0]}), dataclasses.replace(MECHANISM, model=of_width)
    ),
    "a distribution of Optuna in a space": lambda ledger: dphypo.Space({"learning_rate": FloatDistribution(0.1, 1.0)}),
    "a tuple as a range": lambda ledger: dphypo.Space({"learning_rate": (0.1, 1.0)}),
    "a list as space": tuned(space=["learning_rate"]),
    "neither ε nor δ": untuned,
    "a negative ε": tuned(epsilon=-1),
    "a pipeline given to tune": lambda ledger: tune(ledger, make_pipeline(StandardScaler(), LogisticRegression())),
    "a Trainer given to tune": lambda ledger: tune(ledger, trainer()),
    "a model given to tune": lambda ledger: tune(ledger, net()),
    "n_trials= of Optuna": tuned(n_trials=20),
    "timeout= of Optuna": tuned(timeout=60),
    "no score": lambda ledger: tune(ledger, DPSGD(model=net, data=(X, Y), epochs=2)),  # type: ignore[call-arg]
    "a score that is no number": dpsgd(score=lambda model: "good"),
    "fewer outputs than classes": dpsgd(model=lambda: nn.Linear(8, 1)),
    "a ledger that is not there": lambda ledger: tune(ledger.with_name("other.db"), MECHANISM),
    "persons in a ledger of records": persons_and_records,
    "a journal of another search": another_journal,
    "a release that is not there": lambda ledger: dphypo.load_release(ledger.with_name("release")),
    "a release given to verify": lambda ledger: dphypo.verify(dphypo.load_release(saved(ledger))),  # type: ignore[arg-type]
    "a Trainer that evaluates while it trains": lambda ledger: from_trainer(trainer(eval_strategy="epoch")),
    "a Trainer whose records have no labels": lambda ledger: from_trainer(
        trainer({"input_ids": [[1, 2, 3]] * 64, "kind": [0, 1] * 32}), max_length=3
    ),
    "a Trainer whose labels are text": lambda ledger: from_trainer(
        trainer({"input_ids": [[1, 2, 3]] * 64, "label": ["no", "yes"] * 32}), max_length=3
    ),
    "a Trainer whose records are text": lambda ledger: from_trainer(
        trainer({"text": ["one"] * 64, "label": [0, 1] * 32}), max_length=3
    ),
    "a model given to from_trainer": lambda ledger: from_trainer(net(), max_length=3),
    "a pipeline that learns from records": table(make_pipeline(StandardScaler(), CLASSIFIER)),
    "a pipeline that learns from records, and persons": lambda ledger: PrivateSearch(
        make_pipeline(StandardScaler(), CLASSIFIER), epsilon=4, ledger=ledger
    ).fit(FRAME, Y, groups=Y),
    "a hyperparameter without the name of its step": table(Schema({"c0": (-3, 4)}).pipeline(CLASSIFIER)),
    "a grid search over a private estimator": lambda ledger: GridSearchCV(
        CLASSIFIER, {"learning_rate": [0.5, 1.0]}, cv=2
    ).fit(FRAME, Y),
    "an estimator that is not private": table(LogisticRegression()),
    "a search without epsilon": table(CLASSIFIER, epsilon=None, survey=None),
    "the class of an estimator": table(DPSGDClassifier),
    "a share as hold-out": lambda ledger: PrivateSearch(CLASSIFIER, epsilon=4, ledger=ledger).fit(
        FRAME,
        Y,
        holdout=0.2,  # type: ignore[arg-type]
    ),
    "cv= of scikit-learn": lambda ledger: PrivateSearch(CLASSIFIER, {"learning_rate": [1.0]}, cv=5),
    "a scorer that is not private": table(CLASSIFIER, scoring="precision"),
    "class_weight='balanced'": table(DPSGDClassifier(hidden=(), classes=(0, 1), class_weight="balanced")),  # type: ignore[arg-type]
    "classes of another type": table(DPSGDClassifier(hidden=(), classes=("no", "yes"))),
    "a regression without bounds": table(DPSGDRegressor(hidden=()), X[:, 0]),
    "the largest target as bounds": table(DPSGDRegressor(hidden=(), target_bounds=9), X[:, 0]),  # type: ignore[arg-type]
    "one constant for all missing values": table(
        Schema({"c0": (-3, 4)}, missing=0).pipeline(CLASSIFIER),  # type: ignore[arg-type]
        space={"estimator__learning_rate": [0.5]},
    ),
    "a column that is in the table twice": table(
        Schema({"c0": (-3, 4)}).pipeline(CLASSIFIER),
        frame=FRAME[["c0", "c0"]],
        space={"estimator__learning_rate": [0.5]},
    ),
    "incomes from zero": lambda ledger: Schema({"income": (0, 1_000_000)}).fit(pd.DataFrame({"income": [3e4]})),
    "years from zero": lambda ledger: Schema({"born": (0, 2030)}).fit(pd.DataFrame({"born": [1970.0]})),
    "a schema with a column that is missing": table(Schema({"age": (18, 90)}).pipeline(CLASSIFIER)),
    "a split by position for a private score": positional,
    "an own loop that does not say where scores come from": lambda ledger: OwnTraining(own, RUN),
    "an own loop that never reads the certified noise": lambda ledger: tune(
        ledger, dphypo.Space({"lr": [0.1, 1.0]}), OwnTraining(certified_without_noise, RUN, scores="public")
    ),
    "an own loop whose model cannot be saved": lambda ledger: OwnTraining(own, RUN, scores="public").rehearse(
        {}, seed=1
    ),
    "trials of few steps in Optuna": lambda ledger: OptunaSurvey(
        RUN, epsilon=4, delta=1e-5, scores="public", durations="public"
    ),
    "a private test of one-hot labels": lambda ledger: private_test(
        net(), (X, np.eye(2)[Y]), epsilon=1, delta=1e-5, ledger=ledger
    ),
}


def answer(case: Callable[[Path], Any]) -> tuple[str, str]:
    """The message, and what is wrong with it: that it is not the library's own, or came after something was spent."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        ledger, wrong = Path(folder) / "ledger.db", ""
        dphypo.Ledger.open(ledger, epsilon=100, delta=0.1)
        try:
            case(ledger)
            ours = [one for one in warned if issubclass(one.category, UserWarning)]
            message, wrong = (f"warning: {ours[-1].message}", "") if ours else ("", "no answer")
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            last = traceback.extract_tb(error.__traceback__)[-1].filename
            wrong = "" if "dphypo" in Path(last).parts else f"raised in {Path(last).name}"
        if dphypo.Ledger(ledger).entries:
            wrong = "after something was reserved"
    return message, wrong


def page(found: dict[str, tuple[str, str]]) -> str:
    """The table of all mistakes."""
    lines = [
        "# Mistakes and their answers",
        "",
        f"`python -m benchmarks.mistakes` makes this table: {len(found)} mistakes that people make first, and what the "
        "library answers. Each answer comes from the library, with nothing reserved in the ledger.",
        "",
        "| mistake | answer |",
        "|---|---|",
    ]
    for name, (message, _) in found.items():
        shown = " ".join(message.replace("|", "\\|").replace("`", "'").split())
        shown = re.sub(r" at 0x\w+|/\S+/(?=[\w.]+)", "", shown)  # of this process
        lines.append(f"| {name} | `{shown if len(shown) < 500 else shown[:499] + '…'}` |")
    return "\n".join([*lines, ""])


def main() -> None:
    found = {name: answer(case) for name, case in CASES.items()}
    PAGE.write_text(page(found), encoding="utf-8")
    for name, (message, wrong) in found.items():
        if wrong:
            print(f"{name}: {wrong}: {message[:300]}")
    print(f"{len(found)} mistakes, {sum(bool(wrong) for _, wrong in found.values())} answered badly: {PAGE}")
    sys.exit(any(wrong for _, wrong in found.values()))


if __name__ == "__main__":
    main()
