"""Fine-tune a small transformer with LoRA, privately: rank, learning rate, clip and batch are tuned.

    python examples/lora.py

The public model is made here, so that nothing is downloaded: a BERT of two layers, first trained on public sentences of
a made-up language. The private sentences have other words for the same thing. Only adapters and the classifier are
trained on them, one clipped contribution a sentence; a part of the sentences, by a hash, scores. A total of ε = 8
covers the tuning.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import peft
import torch
import transformers
from scipy.stats import loguniform
from torch import nn

import dphypo
from dphypo.integrations.torch import DPSGD, PublicAccuracy

WORDS, LENGTH, PAD = 60, 16, 0
GOOD, BAD = np.arange(10, 20), np.arange(20, 30)


def sentences(count: int, seed: int, shift: int = 0) -> dict[str, torch.Tensor]:
    """Sentences of 8 to 16 words; the label says whether good words outnumber bad ones, which shift in other texts."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    tone = np.where(rng.random((count, LENGTH)) < np.where(labels, 0.8, 0.2)[:, None], 0, 10) + 10
    words = np.where(rng.random((count, LENGTH)) < 0.5, tone + shift + rng.integers(0, 10, (count, LENGTH)), 0)
    words = np.where(words == 0, rng.integers(1, 10, (count, LENGTH)), words)
    mask = np.arange(LENGTH) < rng.integers(8, LENGTH + 1, (count, 1))
    fields = {"input_ids": words * mask + PAD * ~mask, "attention_mask": mask, "labels": labels}
    return {name: torch.as_tensor(np.asarray(values, dtype=np.int64)) for name, values in fields.items()}


def pretrained() -> nn.Module:
    """A public model: trained without noise, on public sentences."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.BertConfig(vocab_size=WORDS, max_position_embeddings=LENGTH, intermediate_size=96, **sizes)
    model: nn.Module = transformers.BertForSequenceClassification(config)  # type: ignore[no-untyped-call]
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(200):
        batch = sentences(64, seed=step, shift=0)
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def main() -> None:
    backbone = pretrained()

    def model(rank: int) -> nn.Module:
        targets = ["query", "value", "dense"]
        config = peft.LoraConfig(r=rank, target_modules=targets, task_type="SEQ_CLS")
        return peft.get_peft_model(copy.deepcopy(backbone), config)  # it would write adapters into the backbone itself

    private, test = sentences(4000, seed=10**6, shift=20), PublicAccuracy(sentences(1000, seed=10**7, shift=20))
    train = DPSGD(model=model, data=private, score="accuracy", epochs=6, optimizer="adam")
    rates: dict[str, Any] = {"learning_rate": loguniform(3e-3, 0.05), "max_grad_norm": loguniform(0.1, 10)}
    space = dphypo.Space({**rates, "rank": [2, 8], "batch_size": [128, 256]})
    release = dphypo.tune(space, train, epsilon=8, delta=1e-5, survey=6, journal=None)
    print(f"accuracy before: {test(backbone):.3f}")
    print(f"accuracy after:  {test(release.model):.3f}, with {release.params}")
    print(release.certificate.statement())
    release.model.save_pretrained("adapter")
    print("the adapter is in the folder adapter; peft.PeftModel.from_pretrained loads it onto the public model")


if __name__ == "__main__":
    main()
