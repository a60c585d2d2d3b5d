"""Loops of one's own as users write them: a private validation set, Opacus's accountant, Optuna, the next month."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import optuna
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from opacus import PrivacyEngine
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import dphypo
import dphypo.torch.own_loop as side
from dphypo.errors import ChangedStudy, LedgerError
from dphypo.mechanisms import OwnTraining, SampledGaussian
from dphypo.optuna import OptunaSurvey
from dphypo.torch import DPSGD, PrivateAccuracy, split_by_hash
from dphypo.torch.saver import Safetensors

X = torch.randn(800, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
RUN = SampledGaussian.of(records=640, batch_size=64, epochs=3, noise_multiplier=1.0)
SPACE = dphypo.Space({"lr": [0.5, 2.0]})


def loop(run: Any, records: Any, lr: float, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    net = nn.Linear(3, 2)
    loader = DataLoader(TensorDataset(*map(torch.as_tensor, records)), batch_size=64)
    parts = run.make_private(net, torch.optim.SGD(net.parameters(), lr=lr), loader, max_grad_norm=1.0)
    with parts as (model, optimizer, batches):
        for inputs, labels in batches:
            optimizer.zero_grad()
            cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    return net


@pytest.mark.filterwarnings("ignore:Full backward hook:UserWarning")
def test_a_private_validation_set_is_scored_and_paid_for_on_its_own_side() -> None:
    trains, validates = split_by_hash(X, Y, share=0.2)
    accuracy = PrivateAccuracy(validates, noise_multiplier=10.0, records=160)

    def train(params: Any, *, seed: int, run: Any) -> Any:
        net = loop(run, trains, params["lr"], seed)
        return net, accuracy(net, seed=seed)

    given: dict[str, Any] = {"score_event": accuracy.event, "saver": Safetensors(nn.Linear(3, 2)), "data": trains}
    training = OwnTraining(train, RUN, split=trains.split, **given)
    release = dphypo.tune(SPACE, training, epsilon=8, delta=1e-4, survey=2, journal=None, progress=False)
    assert isinstance(release.model, nn.Linear)
    assert all(row.score is not None for row in release.survey.rows)
    assert "either to train or to score" in release.certificate.statement()


def test_a_model_that_cannot_be_saved_is_said_before_the_first_run() -> None:
    calls = []

    def train(params: Any, *, seed: int, run: Any) -> Any:
        calls.append(run.make_private)
        return nn.Linear(3, 2), 0.5

    with pytest.warns(UserWarning, match=r"the last run would fail after everything is spent. Give OwnTraining\(saver"):
        OwnTraining(train, RUN, scores="public").rehearse({}, seed=1)
    rehearsed = OwnTraining(train, RUN, scores="public", rehearsal=train)
    with pytest.raises(TypeError, match="cannot be saved by Plain"):
        dphypo.tune(SPACE, rehearsed, epsilon=4, delta=1e-4, survey=2, journal=None, progress=False)
    assert len(calls) == 1, "the rehearsal alone"


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")  # of Opacus
def test_the_accountant_counts_all_runs_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side.SearchAccountant, "trained", [])
    engines = []
    for _ in range(3):
        net = nn.Linear(3, 2)
        engine = PrivacyEngine(accountant="dphypo")
        loader = DataLoader(TensorDataset(X, Y), batch_size=80)
        model, optimizer, batches = engine.make_private(
            module=net,
            optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
            data_loader=loader,
            noise_multiplier=1.5,
            max_grad_norm=1.0,
        )
        for inputs, labels in batches:
            optimizer.zero_grad()
            cross_entropy(model(inputs), labels).backward()
            optimizer.step()
        engines.append(engine)
    event = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.5))
    reference = PLDAccountant()
    reference.compose(event, 30)
    wanted = reference.get_epsilon(1e-5)
    assert all(wanted * (1 - 1e-3) <= engine.get_epsilon(1e-5) <= wanted * 1.01 for engine in engines)
    alone = PrivacyEngine(accountant="prv")
    alone.accountant.history = [(1.5, 0.1, 10)]
    assert alone.get_epsilon(1e-5) < engines[0].get_epsilon(1e-5) / 1.3


def test_noise_that_is_solved_for_is_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side.SearchAccountant, "trained", [])
    one = side.SearchAccountant()
    one.history = [(1.0, 0.1, 10)]
    other = side.SearchAccountant()
    assert other.get_epsilon(1e-5) == 0.0
    assert one.get_epsilon(1e-5) > 0


def survey(**changes: Any) -> OptunaSurvey:
    given: dict[str, Any] = {"epsilon": 8, "delta": 1e-4, "runs": 2, "scores": "public", "durations": "public"}
    return OptunaSurvey(RUN, **{**given, "fraction": 1.0, **changes})


def test_trials_of_few_steps_are_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"a trial has 3 steps, and with fewer than about 30 .* Give fraction=1"):
        survey(fraction=0.1)


@pytest.mark.filterwarnings("ignore:Full backward hook:UserWarning")
def test_a_survey_of_optuna_offers_make_private() -> None:
    made, study = survey(), optuna.create_study(direction="maximize")

    def objective(trial: Any) -> float:
        net = loop(made.short, (X, Y), trial.suggest_float("lr", 0.1, 1.0))
        return float((net(X).argmax(1) == Y).float().mean())

    made.optimize(study, objective)
    net, _, certificate = made.last_run(study, lambda lr: loop(made.full, (X, Y), lr))
    assert isinstance(net, nn.Linear)
    assert certificate.epsilon <= 8
    assert made.short == made.short, "but for the seed, which is drawn for each"
    with pytest.raises(dphypo.errors.Refusal, match="What it returned is the release"):
        made.last_run(study, lambda lr: None)


def network() -> nn.Module:
    return nn.Linear(3, 2)


@pytest.mark.slow
def test_the_next_month_starts_from_the_old_model_under_one_ledger(tmp_path: Path) -> None:
    ledger = tmp_path / "customers.db"
    dphypo.Ledger.open(ledger, epsilon=8, delta=1e-3)
    months = [(X[:400], Y[:400]), (X[400:], Y[400:])]
    given: dict[str, Any] = {"delta": 1e-4, "ledger": ledger, "progress": False, "survey": 2}
    space = dphypo.Space({"learning_rate": [1e-6]})

    def month(number: int, start: nn.Module | None) -> DPSGD:
        data = months[number]
        return DPSGD(model=network, data=data, score=lambda model: 0.5, epochs=1, start=start, device="cpu")

    first = dphypo.tune(space, month(0, None), epsilon=4, journal=tmp_path / "1.db", name="first", **given)
    first.save(tmp_path / "first")
    old = dphypo.load_release(tmp_path / "first", model=network).model
    second = dphypo.tune(space, month(1, old), epsilon=3, journal=tmp_path / "2.db", name="second", **given)
    near = torch.allclose(second.model.weight, old.weight, atol=1e-3)
    assert near, "at a rate of almost 0 it ends where it started"
    assert [entry.name for entry in dphypo.Ledger(ledger).entries] == ["first", "second"]
    with pytest.raises((ChangedStudy, ValueError)):  # last month's journal holds last month's records
        dphypo.tune(space, month(1, old), epsilon=4, journal=tmp_path / "1.db", name="first", **given)
    with pytest.raises(LedgerError):
        dphypo.tune(space, month(1, old), epsilon=7.5, journal=tmp_path / "3.db", name="third", **given)


def test_an_adapter_of_peft_gets_the_gradient_of_autograd() -> None:
    """With peft 0.14 and later, Opacus's hooks see a layer of an adapter twice, and its updates are wrong in silence.

    Without noise and clipping, one step of ours on all records is one step of plain SGD.
    """
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}

    def adapted() -> Any:
        torch.manual_seed(0)
        config = transformers.BertConfig(**sizes, vocab_size=30, max_position_embeddings=8, initializer_range=0.4)
        config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
        lora = peft.LoraConfig(r=2, target_modules=["query", "value"], task_type="SEQ_CLS", init_lora_weights=False)
        return peft.get_peft_model(transformers.BertForSequenceClassification(config), lora)

    rng = np.random.default_rng(0)
    ids, labels = torch.tensor(rng.integers(1, 30, (40, 6))), torch.tensor(rng.integers(0, 2, 40))
    records = {"input_ids": ids, "labels": labels}
    given: dict[str, Any] = {"batch_size": 40, "epochs": 1, "max_grad_norm": 50.0, "learning_rate": 1.0}
    mechanism = DPSGD(
        model=adapted, data=records, score=lambda model: 0.5, noise_multiplier=1e-7, device="cpu", **given
    )
    ours = dict(mechanism({}, seed=1).model.named_parameters())
    plain = adapted().train()
    cross_entropy(plain(input_ids=ids).logits, labels).backward()
    seen = {name: one for name, one in plain.named_parameters() if one.requires_grad}
    assert sum("lora" in name for name in seen) == 4
    for name, one in seen.items():
        largest = float(one.grad.abs().max())
        assert largest > 1e-6
        torch.testing.assert_close(one.detach() - ours[name], one.grad, atol=0.02 * largest, rtol=0.0)
