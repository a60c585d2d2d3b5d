"""What fits into the memory of a GPU: the largest piece, estimated from the graph of a step, not measured on a GPU.

    python -m benchmarks.fits [--tokens 128 512] [--memory 24 80 141]

The models are built from configurations of transformers, with random weights. Each is captured with one and with two
layers, and what a layer adds is multiplied. The graph is that of a CPU, in single precision: attention holds its matrix
of tokens × tokens. Two thirds of the memory are used (``memory._ROOM``), and the weights are counted three times: a run
holds two copies of the model beside its program.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import peft
import torch
import transformers
from torch import nn

from dphypo.torch.engine import Program, memory

NUMBERS = 3 * 4  # bytes of a weight, in three copies
BERT = {"vocab_size": 30522, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
GPT2 = {"vocab_size": 50257, "n_embd": 768, "n_head": 12}
LLAMA = {"vocab_size": 32000, "hidden_size": 2048, "num_attention_heads": 32, "intermediate_size": 5632}
LLAMA |= {"num_key_value_heads": 32, "pad_token_id": 0}
ROWS = [
    ("BERT-base", 12, "bert", BERT, ["query", "value"]),
    ("GPT-2", 12, "gpt2", GPT2, ["c_attn"]),
    ("a decoder of 1.3 billion", 24, "llama", LLAMA, ["q_proj", "v_proj"]),
]


class Classifier(nn.Module):
    def __init__(self, kind: str, given: dict[str, Any], layers: int, targets: Sequence[str] | None) -> None:
        super().__init__()
        number = "n_layer" if kind == "gpt2" else "num_hidden_layers"
        config = transformers.AutoConfig.for_model(kind, **given, **{number: layers}, pad_token_id=0)
        made: Any = transformers.AutoModelForSequenceClassification.from_config(config)  # type: ignore[no-untyped-call]
        if targets is not None:
            turned, names = kind == "gpt2", list(targets)
            how = peft.LoraConfig(r=8, target_modules=names, task_type="SEQ_CLS", fan_in_fan_out=turned)
            made = peft.get_peft_model(made, how)
        self.model = made

    def forward(self, tokens: torch.Tensor) -> Any:
        return self.model(input_ids=tokens).logits


def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def needs(kind: str, given: dict[str, Any], layers: int, targets: Sequence[str] | None, tokens: int) -> list[float]:
    """Weights, trained numbers, and bytes of pieces of 1, 32 and 512 records, of a model with so many layers."""
    model = Classifier(kind, {k: v for k, v in given.items() if k != "pad_token_id"}, layers, targets)
    example = torch.ones((1, tokens), dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    program = Program.of(model, loss, example)
    sizes = [float(memory.needed(program, size)) for size in (1, 32, 512)]
    return [float(sum(one.numel() for one in model.parameters())), float(program.layout.size), *sizes]


def main(tokens: Sequence[int] = (128, 512), gigabytes: Sequence[int] = (24, 80, 141)) -> None:
    print(f"| model | trained | tokens | {' | '.join(f'{one} GB' for one in gigabytes)} |", flush=True)
    print(f"|---|---|---|{'---|' * len(gigabytes)}", flush=True)
    for name, layers, kind, given, targets in ROWS:
        for some in [targets] if kind == "llama" else [None, targets]:
            for length in tokens:
                one, two = (needs(kind, given, count, some, length) for count in (1, 2))
                weights, trained, *sizes = (a + (layers - 1) * (b - a) for a, b in zip(one, two, strict=True))
                each = (sizes[2] - sizes[1]) / 480
                cells = []
                for room in gigabytes:
                    free = room * 1e9 / memory._ROOM - NUMBERS * weights
                    most = int(sizes[0] <= free)
                    if sizes[1] <= free:
                        most = 32 * (1 + int((free - sizes[1]) / (32 * each)))
                    cells.append(str(most) if most else "none")
                what = f"all, {trained / 1e6:.0f} million" if some is None else f"LoRA, {trained / 1e6:.1f} million"
                print(f"| {name} | {what} | {length} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--memory", type=int, nargs="+", default=[24, 80, 141], dest="gigabytes")
    main(**vars(parser.parse_args()))
