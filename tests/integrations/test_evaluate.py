"""A private test number: its noise, its certificate, its entry in the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import dphypo
from dphypo import Ledger
from dphypo.accounting.certificate import breaks
from dphypo.accounting.tradeoff import paper_sentence
from dphypo.accounting.verify import verify
from dphypo.errors import LedgerError
from dphypo.sklearn import DPSGDClassifier, DPSGDRegressor
from dphypo.torch import DPSGD, PrivateConfusion, PrivateLoss, PublicAccuracy, private_test

X = torch.randn(4000, 2, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


def model() -> nn.Module:
    made = nn.Linear(2, 2)
    with torch.no_grad():
        made.weight[:] = torch.tensor([[-1.0, 0.3], [1.0, 0.0]])
        made.bias.zero_()
    return made


def test_the_number_is_near_the_truth_and_its_certificate_verifies(tmp_path: Path) -> None:
    """False alarm: the noise is Gaussian, and six deviations have a probability of 2e-9."""
    truth = float((model()(X).argmax(1) == Y).double().mean())
    found = private_test(model(), (X, Y), epsilon=0.5, delta=1e-6)
    assert found.deviation is not None
    assert abs(found.score - truth) < 6 * found.deviation < 0.02
    assert 0.49 < found.certificate.epsilon <= 0.5
    found.certificate.save(tmp_path / "test.json")
    assert verify(tmp_path / "test.json")
    assert "one score of a model on private records" in found.certificate.statement()


def test_the_ledger_is_charged_before_a_score_and_refuses_one_too_many(tmp_path: Path) -> None:
    Ledger.open(tmp_path / "data.db", epsilon=1, delta=1e-5)
    given: dict[str, Any] = {"epsilon": 0.7, "delta": 1e-6, "ledger": tmp_path / "data.db"}
    private_test(model(), (X, Y), name="first", **given)
    assert [entry.name for entry in Ledger(tmp_path / "data.db").entries] == ["first"]
    with pytest.raises(LedgerError):
        private_test(model(), (X, Y), **given)


def test_a_folder_and_rows_of_a_model_for_persons_are_noticed(tmp_path: Path) -> None:
    keys = np.arange(400) // 4
    train = DPSGD(model=model, data=(X[:400], Y[:400]), person=keys, score="accuracy", epochs=2, batch_size=20)
    release = dphypo.tune(train, epsilon=8, delta=1e-5, search="never", journal=None, progress=False)
    with pytest.warns(UserWarning, match="guarantee for persons, and this score protects single rows.*person="):
        private_test(release, (X, Y), epsilon=0.5, delta=1e-6)
    private_test(release, (X, Y), epsilon=0.5, delta=1e-6, person=np.arange(4000) // 4)
    folder = release.save(tmp_path / "release")
    with pytest.raises(ValueError, match=r"model = .*give the release, dphypo.load_release\(folder\)"):
        private_test(str(folder), (X, Y), epsilon=0.5, delta=1e-6)


@pytest.mark.parametrize("score", ["auc", "f1", "balanced_accuracy", "loss"])
def test_other_measures(score: str) -> None:
    found = private_test(model(), (X, Y), epsilon=1, delta=1e-6, score=score)
    assert -1 < found.score < 1.1


def test_the_declared_number_of_persons_is_not_that_of_rows() -> None:
    """A mean loss over persons was divided by the number of their rows."""
    given: dict[str, Any] = {"epsilon": 50, "delta": 1e-6, "score": "loss"}
    rows, persons = (
        private_test(model(), (X, Y), person=keys, **given) for keys in (np.arange(len(X)), np.arange(len(X)) // 4)
    )
    assert abs(rows.score - persons.score) < 0.1


def test_a_number_about_persons_is_certified_and_charged_for_persons(tmp_path: Path) -> None:
    """The certificate said that each person had one record, and a ledger of records took the cost of persons."""
    given: dict[str, Any] = {"epsilon": 0.5, "delta": 1e-6, "person": np.arange(len(X)) // 4, "rows_per_person": 3}
    for unit in ("person", "record"):
        Ledger.open(tmp_path / f"{unit}.db", epsilon=2, delta=1e-5, unit=unit)
    found = private_test(model(), (X, Y), ledger=tmp_path / "person.db", **given).certificate
    assert "every person of the private data" in found.statement()
    assert "At most 3 rows of a person" in found.statement()
    assert [entry.unit for entry in Ledger(tmp_path / "person.db").entries] == ["person"]
    with pytest.raises(LedgerError, match="protects each record, and the search each person"):
        private_test(model(), (X, Y), ledger=tmp_path / "record.db", **given)


def test_an_estimator_and_a_score_of_ones_own() -> None:
    fitted = DPSGDClassifier(hidden=(), classes=(0, 1), noise_multiplier=0.5).fit(X.numpy(), Y.numpy())
    assert private_test(fitted, (X.numpy(), Y.numpy()), epsilon=1, delta=1e-6).score > 0.8
    loss = PrivateLoss(None, "calibrate", bound=2.0)
    assert -2 < private_test(model(), (X, Y), epsilon=1, delta=1e-6, score=loss).score < 0
    trace = PrivateConfusion(None, "calibrate", measure=lambda matrix: float(matrix.trace() / matrix.sum()))
    found = private_test(model(), (X, Y), epsilon=1, delta=1e-6, score=trace)
    assert found.score > 0.8


@pytest.mark.parametrize("own", [{}, {"person": np.arange(len(X)) // 4}])
def test_an_estimator_is_tested_by_its_loss(own: dict[str, Any]) -> None:
    """Its records have no example, and the check of the loss asked for one. Six deviations are below 0.1."""
    given: dict[str, Any] = {"epsilon": 1, "delta": 1e-6, **own}
    inputs, labels = X.numpy(), Y.numpy()
    classifier = DPSGDClassifier(hidden=(), classes=(0, 1), noise_multiplier=0.5).fit(inputs, labels)
    wanted = functional.cross_entropy(torch.from_numpy(classifier.predict_proba(inputs)).log(), Y).item()
    loss = private_test(classifier, (inputs, labels), score="loss", bound=5.0, **given)
    perplexity = private_test(classifier, (inputs, labels), score="perplexity", bound=5.0, **given)
    assert abs(loss.score + wanted) < 0.1
    assert abs(perplexity.score + np.exp(wanted)) < 0.2
    assert (loss.deviation is None, perplexity.deviation is None) == (False, True)


def test_the_loss_of_a_regressor_has_no_bound_of_its_own(tmp_path: Path) -> None:
    """It had that of two classes, 1.39, in whatever unit its targets are."""
    Ledger.open(tmp_path / "data.db", epsilon=2, delta=1e-5)
    inputs, targets = X.numpy(), 10 * X[:, 0].numpy()
    regressor = DPSGDRegressor(hidden=(), target_bounds=(-40, 40)).fit(inputs, targets)
    given: dict[str, Any] = {"epsilon": 1, "delta": 1e-6, "score": "loss", "ledger": tmp_path / "data.db"}
    with pytest.raises(ValueError, match="bound = None is not valid: give the largest loss"):
        private_test(regressor, (inputs, targets), **given)
    with pytest.raises(ValueError, match=r"private_test takes bound="):
        private_test(nn.Linear(2, 1), (X, X[:, :1]), loss=nn.MSELoss(), **given)
    assert not Ledger(tmp_path / "data.db").entries
    wanted = np.abs(regressor.predict(inputs) - targets).mean()
    assert abs(private_test(regressor, (inputs, targets), bound=80.0, **given).score + wanted) < 1.0


def test_targets_that_cannot_be_scored_cost_nothing(tmp_path: Path) -> None:
    Ledger.open(tmp_path / "data.db", epsilon=1, delta=1e-5)
    with pytest.raises(ValueError, match="score = 'accuracy' is not valid"):
        private_test(model(), (X, np.eye(2)[Y]), epsilon=0.5, delta=1e-6, ledger=tmp_path / "data.db")
    assert not Ledger(tmp_path / "data.db").entries


@pytest.mark.parametrize("score", ["accuracy", "f1"])
def test_an_estimator_is_tested_on_persons(score: str, tmp_path: Path) -> None:
    """Three deviations of the noise are below 0.1; the ledger of persons takes it, and the statement names them."""
    Ledger.open(tmp_path / "data.db", epsilon=2, delta=1e-5, unit="person")
    fitted = DPSGDClassifier(hidden=(), classes=(0, 1), noise_multiplier=0.5).fit(X.numpy(), Y.numpy())
    given: dict[str, Any] = {"epsilon": 1, "delta": 1e-6, "score": score, "ledger": tmp_path / "data.db"}
    found = private_test(fitted, (X.numpy(), Y.numpy()), person=np.arange(len(X)) // 4, **given)
    assert found.score > 0.8
    assert found.deviation is not None
    assert found.deviation < 0.03
    words = found.certificate.statement()
    assert "every person of the private data" in words
    assert "the score reads 1000 declared persons" in words
    assert "charged to it stays within epsilon = 2" in words
    assert paper_sentence(found.certificate.document).startswith("The reported score satisfies")
    assert not any("training that differs" in line for line in breaks(found.certificate.document))
    assert verify(found.certificate)


def test_public_accuracy_of_an_estimator_is_a_share_of_the_records() -> None:
    fitted = DPSGDClassifier(hidden=(), classes=(0, 1), noise_multiplier=0.5).fit(X.numpy(), Y.numpy())
    found = PublicAccuracy((X.numpy(), Y.numpy()))(fitted)
    assert found == np.mean(fitted.predict(X.numpy()) == Y.numpy())
    with pytest.raises(TypeError, match=r"a pair \(X, y\)"):
        PublicAccuracy(X.numpy())(fitted)


def test_a_number_that_is_mostly_noise_is_warned_of_in_words_of_a_test(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.db", epsilon=1, delta=1e-5)
    with pytest.warns(UserWarning, match=r"whole range, so it says little about the model. Score on more records"):
        private_test(model(), (X[:20], Y[:20]), epsilon=0.1, delta=1e-6, ledger=ledger)
    assert len(ledger.entries) == 1
