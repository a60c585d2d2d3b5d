"""A ``Trainer`` of transformers as a mechanism, and the release back in the ``Trainer``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from support.rows import rows_of
from torch.nn.functional import cross_entropy

import dphypo
from dphypo.errors import UnsupportedModelError
from dphypo.torch import PublicAccuracy
from dphypo.torch.data import as_records

transformers: Any = None
peft: Any = None
datasets: Any = None
side: Any = None

COUNT, LENGTH = 400, 8


@pytest.fixture(autouse=True, scope="module")
def libraries() -> None:
    """Imported when the first test needs them: they take seconds, in each process that only collects tests."""
    global transformers, peft, datasets, side
    transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")
    datasets = pytest.importorskip("datasets")
    from dphypo import transformers as module

    side = module


SMALL = {"vocab_size": 40, "pad_token_id": 0}
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def bert() -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(**SIZES, max_position_embeddings=16, num_labels=2, **SMALL)
    return transformers.BertForSequenceClassification(config)


def adapted() -> Any:
    config = peft.LoraConfig(r=2, target_modules=["query", "value"], task_type="SEQ_CLS")
    return peft.get_peft_model(bert(), config)


def texts(count: int = COUNT) -> Any:
    """Token lists of different lengths, a column that no model takes, and labels that the first token tells."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, count)
    rows = [[int(token) for token in rng.integers(3, 20, rng.integers(3, 12)) + 20 * label] for label in labels]
    return datasets.Dataset.from_dict(
        {
            "input_ids": rows,
            "attention_mask": [[1] * len(row) for row in rows],
            "label": labels.tolist(),
            "text": [" ".join(map(str, row)) for row in rows],
        }
    )


def padded(rows: list[Any]) -> dict[str, torch.Tensor]:
    """As ``DataCollatorWithPadding``: to the longest of a batch."""
    width = max(len(row["input_ids"]) for row in rows)
    lists = {name: [row[name] for row in rows] for name in rows[0] if not name.startswith("label")}
    found = {name: torch.tensor([one + [0] * (width - len(one)) for one in some]) for name, some in lists.items()}
    return {**found, "labels": torch.tensor([row["label"] for row in rows])}


def trainer(tmp_path: Path, model: Any = None, **changes: Any) -> Any:
    parts = {name: changes.pop(name) for name in list(changes) if name in PARTS}
    fixed: dict[str, Any] = {"per_device_train_batch_size": 64, "use_cpu": True, "report_to": []}
    args = transformers.TrainingArguments(output_dir=str(tmp_path / "out"), **{**fixed, **changes})
    given = {"train_dataset": texts(), "data_collator": padded, **parts}
    if "model_init" not in given:
        given["model"] = bert() if model is None else model
    return transformers.Trainer(args=args, **given)


PARTS = ("train_dataset", "eval_dataset", "data_collator", "callbacks", "compute_loss_func", "optimizers", "model_init")


def test_what_the_trainer_declares_is_taken_over(tmp_path: Path) -> None:
    given = trainer(
        tmp_path,
        per_device_train_batch_size=32,
        gradient_accumulation_steps=4,
        num_train_epochs=5,
        learning_rate=3e-3,
        max_grad_norm=0.5,
        lr_scheduler_type="cosine",
        warmup_steps=0.25,
        weight_decay=0.1,
        adam_beta2=0.98,
        bf16=True,
        dataloader_num_workers=2,
    )
    made = side.from_trainer(given, max_length=LENGTH, noise_multiplier=1.0)
    assert (made.batch_size, made.physical_batch_size, made.learning_rate, made.max_grad_norm) == (128, 32, 3e-3, 0.5)
    assert (made.optimizer, made.autocast, made.data.workers, str(made.device)) == ("adamw", "bfloat16", 2, "cpu")
    assert made.fixed == {"weight_decay": 0.1, "betas": (0.9, 0.98), "eps": 1e-8}
    assert [round(made.schedule(done), 3) for done in (0.0, 0.125, 0.25, 0.625)] == [0.0, 0.5, 1.0, 0.5]
    assert made.whole.records == COUNT
    assert made.on_all_records().cost.run({}).steps == 16, "ceil(5 · 400 / 128), as the Trainer counts"


def test_records_are_padded_and_cut_to_the_public_length_and_all_of_them_count(tmp_path: Path) -> None:
    made = side.from_trainer(trainer(tmp_path), max_length=LENGTH)
    assert all(fit == given for fit, given in made.fitting_records().values())
    records = made.whole.data
    row = records.dataset[0]
    inputs, labels = rows_of(records, np.array([0]))
    fields = records.fields.unpack(inputs)
    wanted = (row["input_ids"] + [0] * LENGTH)[:LENGTH]
    assert fields["input_ids"][0].tolist() == wanted
    assert fields["attention_mask"][0].tolist() == [int(token > 0) for token in wanted]
    assert labels.tolist() == [row["label"]]
    assert "text" not in fields


def test_a_mask_is_made_where_the_records_have_none(tmp_path: Path) -> None:
    plain = texts().remove_columns(["attention_mask"])
    with_mask, without = (
        side.from_trainer(trainer(tmp_path, train_dataset=one), max_length=LENGTH).whole.data
        for one in (texts(), plain)
    )
    for records in (with_mask, without):
        inputs, _ = rows_of(records, np.array([3]))
        assert records.fields.unpack(inputs)["attention_mask"].sum() == min(LENGTH, len(plain[3]["input_ids"]))


def test_a_search_from_a_trainer_ends_in_the_trainer(tmp_path: Path) -> None:
    given = trainer(tmp_path, adapted(), learning_rate=0.05, eval_dataset=texts(50))
    made = side.from_trainer(given, max_length=LENGTH)
    first = given.evaluate()["eval_loss"]
    seen: list[Any] = []
    given.add_callback(seen_by(seen))
    space = dphypo.Space({"learning_rate": [0.05]})
    logged = side.log_to(given)
    release = dphypo.tune(space, made, epsilon=8, delta=1e-3, survey=2, journal=None, progress=False, on_run=logged)
    assert [set(one) >= {"learning_rate", "score"} for one in seen] == [True, True]
    side.put_back(release, given)
    batch = padded(list(texts(50).remove_columns(["text"])))
    with torch.no_grad():
        wanted = cross_entropy(release.model(**batch).logits, batch["labels"])
    assert given.evaluate()["eval_loss"] == pytest.approx(float(wanted), rel=1e-4)
    assert abs(float(wanted) - first) > 1e-4
    given.save_model()
    folder = tmp_path / "out"
    assert (folder / "adapter_model.safetensors").exists()
    assert not (folder / "model.safetensors").exists(), "the adapter alone"
    loaded = peft.PeftModel.from_pretrained(bert(), str(folder)).eval()
    test = PublicAccuracy(as_records(texts(50), collate=made.whole.data.collate, public=True))
    assert test(loaded) == test(release.model)

    release.save(tmp_path / "release")
    kept = safetensors.torch.load_file(tmp_path / "release" / "model.safetensors")
    trained = {name for name, one in release.model.named_parameters() if one.requires_grad}
    assert {name for name in kept if not name.startswith("graph constant")} == trained
    again = dphypo.load_release(tmp_path / "release", model=adapted)
    assert test(again.model) == test(release.model)


def seen_by(seen: list[Any]) -> Any:
    class Seen(transformers.TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
            seen.append(logs)

    return Seen()


def test_all_that_cannot_be_private_is_listed_in_one_message(tmp_path: Path) -> None:
    strategy: dict[str, Any] = {"train_sampling_strategy": "group_by_length"}
    if not hasattr(transformers.TrainingArguments, "train_sampling_strategy"):
        strategy = {"group_by_length": True}
    given = trainer(
        tmp_path,
        eval_strategy="steps",
        eval_dataset=texts(20),
        load_best_model_at_end=True,
        save_strategy="steps",
        gradient_checkpointing=True,
        lr_scheduler_type="polynomial",
        neftune_noise_alpha=5,
        callbacks=[transformers.EarlyStoppingCallback()],
        compute_loss_func=lambda outputs, labels, num_items_in_batch: outputs.logits.mean(),
        **strategy,
    )
    with pytest.raises(ValueError, match="cannot be made private as it is") as told:
        side.from_trainer(given)
    lines = str(told.value).splitlines()[1:]
    named = ["eval_strategy='steps'", "load_best_model_at_end", "group_by_length", "gradient_checkpointing"]
    named += ["neftune_noise_alpha", "lr_scheduler_type='polynomial'", "compute_loss_func", "EarlyStoppingCallback"]
    for name in (*named, "max_length=128"):
        assert sum(name in line for line in lines) == 1, name
    assert len(lines) == 9


def test_columns_that_no_model_can_take_are_named(tmp_path: Path) -> None:
    declared = texts()
    words = declared.remove_columns("label").add_column("label", ["spam"] * COUNT)
    for records, line in [
        (words, "column 'label' is text. Encode it as numbers"),
        (declared.rename_column("label", "kind"), "no column 'label', only .*'kind'.*. Rename the one"),
        (
            declared.remove_columns(["input_ids", "attention_mask"]),
            "no column 'input_ids', only 'label', 'text'. Token",
        ),
    ]:
        given = trainer(tmp_path, train_dataset=records, data_collator=transformers.default_data_collator)
        with pytest.raises(ValueError, match=f"cannot be made private as it is:\n  .*{line}"):
            side.from_trainer(given, max_length=LENGTH)


def test_a_stream_of_records_is_refused(tmp_path: Path) -> None:
    given = trainer(tmp_path, train_dataset=texts().to_iterable_dataset(), max_steps=4)
    with pytest.raises(ValueError, match="train_dataset: it has no length, as a stream has none"):
        side.from_trainer(given, max_length=LENGTH)


def test_what_is_no_trainer_no_length_and_no_function_of_a_row_is_named(tmp_path: Path) -> None:
    given = trainer(tmp_path)
    with pytest.raises(ValueError, match="trainer = 'BertForSequenceClassification' is not valid: give a transformers"):
        side.from_trainer(bert(), max_length=LENGTH)
    with pytest.raises(ValueError, match="max_length = '8' is not valid: give a whole number"):
        side.from_trainer(given, max_length="8")
    with pytest.raises(ValueError, match="trainer = 'str' is not valid: give a transformers"):
        side.put_back(given, "release")
    with pytest.raises(ValueError, match=r"on_run = .* is not valid: give a function of a row; .*log_to\(trainer\)"):
        dphypo.tune(
            side.from_trainer(given, max_length=LENGTH),
            epsilon=8, delta=1e-5, search="never", journal=None, progress=False, on_run=given,
        )  # fmt: skip
    with pytest.raises(
        UnsupportedModelError, match=r"each 'input_ids' of shape \(64,\) and type int64, 'attention_mask' of shape"
    ):
        side.from_trainer(given, max_length=64)


@pytest.mark.slow
def test_a_trainer_that_has_trained_is_refused(tmp_path: Path) -> None:
    given = trainer(tmp_path, train_dataset=texts(64), max_steps=1, save_strategy="no")
    given.train()
    with pytest.raises(ValueError, match="has been trained, without noise"):
        side.from_trainer(given, max_length=LENGTH)


def test_small_batches_are_warned_of(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="a batch has 8 records: .* such as 64 here"):
        side.from_trainer(trainer(tmp_path, per_device_train_batch_size=8), max_length=LENGTH)


@pytest.mark.slow
def test_the_parts_of_a_trainer_do_as_well(tmp_path: Path) -> None:
    args = transformers.TrainingArguments(output_dir=str(tmp_path), per_device_train_batch_size=64, use_cpu=True)
    parts = {"args": args, "train_dataset": texts(), "data_collator": padded}
    parts |= {"model_init": bert, "max_length": LENGTH}
    one, two = side.from_trainer(**parts), side.from_trainer(trainer(tmp_path), max_length=LENGTH)
    models = [
        made.at(noise_multiplier=1.0, score_noise_multiplier=1.0)({}, seed=1).model.state_dict() for made in (one, two)
    ]
    assert all(torch.equal(value, models[1][name]) for name, value in models[0].items())


def gpt() -> Any:
    torch.manual_seed(0)
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 16, "bos_token_id": 1, "eos_token_id": 1}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **SMALL))


@pytest.mark.slow
def test_a_language_model_is_scored_by_perplexity_and_its_padding_counts_for_nothing(tmp_path: Path) -> None:
    rows = texts().remove_columns(["label", "text"])
    rows = rows.add_column("labels", rows["input_ids"])
    made = side.from_trainer(trainer(tmp_path, gpt(), train_dataset=rows, data_collator=None), max_length=LENGTH)
    assert made.score.measure == "perplexity"
    assert all(fit == given for fit, given in made.fitting_records().values())
    release = dphypo.tune(made, epsilon=8, delta=1e-3, survey=2, journal=None, progress=False)
    scores = [row.score for row in release.survey.rows]
    assert all(-(40**2) * 1.5 < score < 0 for score in scores), "between certainty and the bound, up to noise"

    # The loss of a record is that of transformers, which sees it alone and without padding.
    row = rows[0]["input_ids"][:LENGTH]
    alone = gpt().eval()(input_ids=torch.tensor([row]), labels=torch.tensor([row])).loss
    whole = side.from_trainer(
        trainer(tmp_path, gpt(), train_dataset=rows.select([0] * 300), data_collator=None), max_length=LENGTH
    )
    inputs, labels = rows_of(whole.data, np.array([0]))
    fields = whole.data.fields.unpack(inputs)
    ours, alone = whole.loss(gpt().eval()(**fields).logits, labels).detach(), alone.detach()
    assert float(ours) == pytest.approx(float(alone), rel=1e-5)


def test_a_regression_asks_for_a_score(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(**SIZES, max_position_embeddings=16, num_labels=1, **SMALL)
    model = transformers.BertForSequenceClassification(config)
    rows = texts().cast_column("label", datasets.Value("float32"))
    with pytest.raises(ValueError, match="not ranked by accuracy"):
        side.from_trainer(trainer(tmp_path, model, train_dataset=rows), max_length=LENGTH)
    made = side.from_trainer(
        trainer(tmp_path, model, train_dataset=rows), max_length=LENGTH, score=lambda model: 0.5, noise_multiplier=1.0
    )
    assert made({}, seed=1).score == 0.5
