"""Fine-tuning as people do it: models of ``transformers`` and ``peft`` as they come, records of several fields."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.dpsgd_models import gradients
from support.rows import rows_of
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

import dphypo
from dphypo.accounting.certificate import assumptions
from dphypo.errors import UnsupportedModelError
from dphypo.torch import DPSGD, PrivateAccuracy, PublicAccuracy, engine
from dphypo.torch.engine import trainable
from dphypo.torch.engine.clipped_sum import Shape
from dphypo.torch.fields import called

transformers: Any = None
peft: Any = None


@pytest.fixture(autouse=True, scope="module")
def libraries() -> None:
    """Imported when the first test needs them: the two take seconds, in each process that only collects tests."""
    global transformers, peft
    transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")


SMALL = {"vocab_size": 50, "num_labels": 2, "pad_token_id": 0}
LENGTH, COUNT = 12, 96


def bert() -> nn.Module:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.BertConfig(**sizes, max_position_embeddings=16, **SMALL)
    return transformers.BertForSequenceClassification(config)  # type: ignore[no-any-return]


def probe() -> nn.Module:
    model = bert().requires_grad_(False)
    model.classifier.requires_grad_(True)
    return model


def distilbert() -> nn.Module:
    config = transformers.DistilBertConfig(
        dim=32, n_layers=2, n_heads=2, hidden_dim=64, max_position_embeddings=16, **SMALL
    )
    return transformers.DistilBertForSequenceClassification(config)  # type: ignore[no-any-return]


GPT = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 16, "bos_token_id": 1, "eos_token_id": 1}


def gpt2() -> nn.Module:
    return transformers.GPT2ForSequenceClassification(transformers.GPT2Config(**GPT, **SMALL))  # type: ignore[no-any-return]


def language_model() -> nn.Module:
    """Its table of tokens is the weight of its last layer, too."""
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT, **SMALL))  # type: ignore[no-any-return]


def lora(rank: int = 4) -> nn.Module:
    config = peft.LoraConfig(r=rank, target_modules=["query", "value"], task_type="SEQ_CLS", lora_dropout=0.1)
    return peft.get_peft_model(bert(), config)  # type: ignore[no-any-return]


class ByHand(nn.Module):
    """A frozen layer with a trainable product of two small matrices beside it."""

    def __init__(self, layer: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) / 4)
        self.up = nn.Parameter(torch.randn(layer.out_features, rank) / 4)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        added = nn.functional.linear(nn.functional.linear(inputs, self.down), self.up)
        return self.layer(inputs) + added  # type: ignore[no-any-return]


def lora_by_hand() -> nn.Module:
    model: Any = probe()
    for layer in model.bert.encoder.layer:
        layer.attention.self.query = ByHand(layer.attention.self.query)
    return model  # type: ignore[no-any-return]


def batch_norm() -> nn.Module:
    """A new head on a frozen network whose batch normalisation has public statistics."""
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    backbone(torch.randn(64, 1, 8, 8))
    return nn.Sequential(backbone.requires_grad_(False).eval(), nn.Linear(4, 2))


def each_token(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """One value per record: the mean over its tokens."""
    return cross_entropy(logits[:, :-1].mT, tokens[:, 1:], reduction="none").mean(1)


def texts(count: int = COUNT, fields: tuple[str, ...] = ("input_ids", "attention_mask")) -> dict[str, torch.Tensor]:
    """Made-up texts of several lengths: the first token says the label."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 2, (count,), generator=generator)
    ids = torch.randint(4, 50, (count, LENGTH), generator=generator)
    ids[:, :3] = 2 + labels[:, None]
    mask = (torch.arange(LENGTH) < torch.randint(4, LENGTH + 1, (count, 1), generator=generator)).long()
    given = {"input_ids": ids * mask, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
    return {**{name: given[name] for name in fields}, "labels": labels}


def dpsgd(model: Any, **changes: Any) -> DPSGD:
    arguments = {"data": texts(), "score": lambda model: 0.5, "noise_multiplier": 1.0, "epochs": 1, "batch_size": 32}
    return DPSGD(model=model, device="cpu", **{**arguments, **changes})


ALL = ("input_ids", "attention_mask", "token_type_ids")
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "BERT": (bert, {"data": texts(fields=ALL)}),
    "a frozen BERT": (probe, {}),
    "DistilBERT": (distilbert, {}),
    "GPT-2": (gpt2, {}),
    "a language model": (language_model, {"data": (texts()["input_ids"],) * 2, "loss": each_token}),
    "LoRA": (lora, {}),
    "LoRA by hand": (lora_by_hand, {}),
    "a frozen BatchNorm": (batch_norm, {"data": (torch.randn(COUNT, 1, 8, 8), torch.randint(0, 2, (COUNT,)))}),
}
EACH = [
    pytest.param(name, marks=[pytest.mark.slow] * (name in ("BERT", "DistilBERT", "a frozen BERT", "GPT-2", "LoRA")))
    for name in CASES
]


@pytest.mark.parametrize("name", EACH)
def test_models_are_trained_as_they_come(name: str) -> None:
    factory, changes = CASES[name]
    mechanism = dpsgd(factory, **changes)
    torch.manual_seed(0)
    given, trained = factory(), mechanism({}, seed=1).model
    assert type(trained) is type(given)
    ((_, records),) = (fit for fit in mechanism._fits.values() if isinstance(fit, tuple))
    assert len(records) == COUNT  # none is left out
    moved = {key for key, value in trained.named_parameters() if value.requires_grad}
    assert moved == {key for key, value in given.named_parameters() if value.requires_grad}


def in_double(inputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return inputs.double() if inputs.is_floating_point() else inputs, targets


@pytest.mark.parametrize("name", EACH)
def test_gradients_are_those_of_one_record_at_a_time(name: str) -> None:
    factory, changes = CASES[name]
    records = dpsgd(factory, **changes).data
    loss = changes.get("loss") or (lambda outputs, targets: cross_entropy(outputs, targets, reduction="none"))
    torch.manual_seed(0)
    model = called(factory(), records.fields).double()
    for part in model.modules():
        part.p = 0.0 if isinstance(part, nn.Dropout) else getattr(part, "p", None)  # type: ignore[assignment]
    program = engine.Program.of(model, loss, in_double(*records.example))
    inputs, targets = in_double(*rows_of(records, np.arange(3)))
    found, norms, _ = gradients(program, model, inputs, targets)
    trained = [value for value in model.parameters() if value.requires_grad]
    for record in range(3):
        value = loss(model(inputs[record : record + 1]), targets[record : record + 1])
        wanted = torch.cat([part.flatten() for part in torch.autograd.grad(value.sum(), trained)])
        layout = program.layout
        ours = torch.cat([layout.values(found[record][None], at).flatten() for at in range(len(layout.names))])
        assert (ours - wanted).norm() <= 1e-6 * wanted.norm()
        assert norms[record] >= wanted.norm() * (1 - 1e-9)


class Items(Dataset[Any]):
    """Read by index, with a column that is not for the model; one text has another length, one token is unknown."""

    def __init__(self) -> None:
        self.given = texts()

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        record = {name: values[index].tolist() for name, values in self.given.items()} | {"text": "words"}
        record["input_ids"] = record["input_ids"][:-1] if index == 3 else record["input_ids"]
        record["input_ids"][0] = 77 if index == 5 else record["input_ids"][0]
        return record


EXAMPLE = {"input_ids": [0] * LENGTH, "attention_mask": [0] * LENGTH, "labels": 0}


def test_a_data_set_gives_fields_and_records_that_do_not_fit_are_left_out() -> None:
    read = dpsgd(probe, data=Items(), example=EXAMPLE)
    assert read({}, seed=1).ok
    ((_, inside),) = (fit for fit in read._fits.values() if isinstance(fit, tuple))
    _, _, usable = inside.rows(torch.arange(8), torch.ones(8, dtype=torch.bool))
    assert usable.tolist() == [place not in (3, 5) for place in range(8)]
    without = {
        name: values[[place for place in range(COUNT) if place not in (3, 5)]] for name, values in texts().items()
    }
    assert len(next(iter(without.values()))) == COUNT - 2
    with_unknown = texts()
    with_unknown["input_ids"][5, 0] = 77
    chosen = dpsgd(bert, data=with_unknown)
    chosen({}, seed=1)
    assert [len(fit[1]) for fit in chosen._fits.values() if isinstance(fit, tuple)] == [COUNT - 1]


@pytest.mark.slow
def test_scores_take_fields_too() -> None:
    trained = dpsgd(probe, score=PublicAccuracy(texts()))({}, seed=1)
    assert trained.score == PublicAccuracy(texts())(trained.model)
    private = PrivateAccuracy(texts(), noise_multiplier=5.0, split="same")
    assert np.isfinite(dpsgd(probe, score=private)({}, seed=1).score)
    assert np.isfinite(private(trained.model, seed=1))
    named = dpsgd(probe, score="accuracy").at(score_noise_multiplier=5.0)
    assert np.isfinite(named({}, seed=1).score)


@pytest.mark.slow
def test_the_rank_of_an_adapter_is_tuned_and_the_adapter_saved(tmp_path: Any) -> None:
    mechanism = dpsgd(lora, score=PublicAccuracy(texts()))
    space = dphypo.Space({"rank": [2, 4], "learning_rate": [0.1, 0.5]})
    study = dphypo.Study(space, mechanism, dphypo.Pmf({2: 1.0}), delta=1e-5, journal=None)
    release = study.run(progress=False)
    assert release.model.peft_config["default"].r == release.params["rank"]
    release.model.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(bert(), tmp_path)
    adapters = {key: value for key, value in again.state_dict().items() if "lora" in key}
    assert adapters
    assert all(torch.equal(value, release.model.state_dict()[key]) for key, value in adapters.items())


@pytest.mark.slow
def test_a_shared_backbone_stays_as_it_was() -> None:
    backbone = bert()
    before = {key: value.clone() for key, value in backbone.state_dict().items()}
    first, again = (dpsgd(lambda: backbone)({}, seed=1).model.state_dict() for _ in range(2))
    assert all(torch.equal(value, again[key]) for key, value in first.items())
    assert all(torch.equal(value, before[key]) for key, value in backbone.state_dict().items())


def test_a_linear_probe_of_a_network_with_batch_normalisation() -> None:
    whole: Any = batch_norm()
    backbone, data = whole[0], CASES["a frozen BatchNorm"][1]["data"]
    trained = dpsgd(lambda: nn.Sequential(backbone, nn.Linear(4, 2)), data=data)({}, seed=1).model
    assert all(torch.equal(value, backbone.state_dict()[key]) for key, value in trained[0].state_dict().items())
    assert not torch.equal(trained[1].weight, whole[1].weight)


@pytest.mark.slow
def test_what_mixes_records_is_refused_by_name() -> None:
    def checkpointed() -> nn.Module:
        model: Any = bert()
        model.gradient_checkpointing_enable()
        return model  # type: ignore[no-any-return]

    assert dpsgd(checkpointed)({}, seed=1).ok  # its passes are part of the graph
    with pytest.raises(UnsupportedModelError, match=r"the model's own \.loss, which averages"):
        dpsgd(probe, loss=lambda outputs, targets: outputs.loss)
    config: Any = bert().config
    with pytest.raises(UnsupportedModelError, match="without logits"):
        dpsgd(lambda: transformers.BertModel(config))


def test_the_certificate_says_that_pretrained_weights_are_public() -> None:
    study = dphypo.Study(
        dphypo.Space({"learning_rate": [0.1]}), dpsgd(probe), dphypo.Pmf({1: 1.0}), delta=1e-5, journal=None
    )
    assert any("such as pretrained weights, is public" in line for line in assumptions(study.certificate.document))


def test_one_padded_text_changes_no_bit_of_the_others() -> None:
    """Before, it changed 12 037 of 401 264 numbers in the gradients of 31 other texts: another kernel is chosen."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    more = {"num_key_value_heads": 2, "max_position_embeddings": 32, "bos_token_id": 1, "eos_token_id": 1}
    torch.manual_seed(0)
    net = transformers.LlamaForSequenceClassification(transformers.LlamaConfig(**sizes, **more, **SMALL))
    whole = {
        **texts(32),
        "input_ids": torch.randint(4, 50, (32, LENGTH)),
        "attention_mask": torch.ones(32, LENGTH).long(),
    }
    padded = {name: values.clone() for name, values in whole.items()}
    for name in ("input_ids", "attention_mask"):
        padded[name][-1, 6:] = 0
    mechanism = dpsgd(lambda: net, data=whole)
    ((way, _),) = mechanism._fits.values()
    model = called(net, mechanism.data.fields)
    shape, rows = Shape(1, 32, 1), way.layout.stacked([model], torch.device("cpu"))
    code = way.on(rows, shape)
    assert not code.alone
    found = []
    for given in (whole, padded):
        with torch.no_grad():
            batch = mechanism.data.fields.pack(given)
            found.append(trainable._bits(code.bound(rows, shape), batch, torch.arange(32)))
    assert all(torch.equal(one[:, :-1], two[:, :-1]) for one, two in zip(*found, strict=True))
