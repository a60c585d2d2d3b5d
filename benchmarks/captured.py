"""Which models the PyTorch engine captures, and how it words a refusal: ``python -m benchmarks.captured``.

Every model is built from a small configuration with random weights. It is captured, its gradient is compared with plain
autograd, it is batched for 32 made-up records, and the engine checks that a record's place changes no bit. ``--write``
writes the table to ``docs/models.md``; names on the command line choose models.
"""

from __future__ import annotations

import argparse
import logging
import re
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from dphypo.errors import UnsupportedModelError
from dphypo.torch.engine import Program
from dphypo.torch.engine.clipped_sum import Shape
from dphypo.torch.fields import Fields, called

LENGTH, TOKENS = 16, 64
PAGE = Path(__file__).parent.parent / "docs" / "models.md"
Example = dict[str, torch.Tensor] | torch.Tensor

PLAIN = {
    "vocab_size": TOKENS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "num_labels": 3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {**PLAIN, "num_key_value_heads": 2, "head_dim": 8}
WIDTHS = {"embedding_size": 32, **PLAIN}
SPECIAL = {"vocab_size": TOKENS, "num_labels": 3, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
BART = {"encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", PLAIN),
    "distilbert": ("DistilBert", {**SPECIAL, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}),
    "roberta": ("Roberta", PLAIN),
    "electra": ("Electra", WIDTHS),
    "albert": ("Albert", WIDTHS),
    "deberta-v2": ("DebertaV2", {**PLAIN, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    "mpnet": ("MPNet", PLAIN),
    "xlm-roberta": ("XLMRoberta", PLAIN),
    "camembert": ("Camembert", PLAIN),
    "convbert": ("ConvBert", WIDTHS),
    "modernbert": ("ModernBert", {**PLAIN, "local_attention": 8, "cls_token_id": 1, "sep_token_id": 2}),
    "nystromformer": ("Nystromformer", {**PLAIN, "num_landmarks": LENGTH, "segment_means_seq_len": LENGTH}),
    "squeezebert": ("SqueezeBert", WIDTHS),
    "funnel": ("Funnel", {**SPECIAL, "block_sizes": [1, 1], "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 64}),
    "gpt2": ("GPT2", {**SPECIAL, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    "opt": ("OPT", {**PLAIN, "ffn_dim": 64, "word_embed_proj_dim": 32}),
    "llama": ("Llama", GROUPED),
    "mistral": ("Mistral", GROUPED),
    "qwen2": ("Qwen2", GROUPED),
    "qwen3": ("Qwen3", GROUPED),
    "gemma": ("Gemma", GROUPED),
    "gemma2": ("Gemma2", GROUPED),
    "phi": ("Phi", PLAIN),
    "gpt_neox": ("GPTNeoX", PLAIN),
    "gpt_neo": ("GPTNeo", {**PLAIN, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]}),
    "bloom": ("Bloom", {**SPECIAL, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "falcon": ("Falcon", PLAIN),
    "xlnet": ("XLNet", {**SPECIAL, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}),
    "t5": ("T5", {**SPECIAL, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "decoder_start_token_id": 0}),
    "bart": ("Bart", {**SPECIAL, "d_model": 32, **BART, "encoder_attention_heads": 4, "decoder_attention_heads": 4}),
    "big_bird": ("BigBird", {**PLAIN, "block_size": 4, "num_random_blocks": 1}),
    "longformer": ("Longformer", {**PLAIN, "attention_window": 4}),
    "roformer": ("RoFormer", WIDTHS),
    "ernie": ("Ernie", PLAIN),
    "esm": ("Esm", {**PLAIN, "mask_token_id": 3}),
    "olmo": ("Olmo", GROUPED),
    "stablelm": ("StableLm", GROUPED),
}
CAUSAL = ("gpt2", "opt", "llama", "mistral", "qwen2", "gemma", "gpt_neox", "bloom")
ADAPTERS = {"bert": ["query", "value"], "distilbert": ["q_lin", "v_lin"], "gpt2": ["c_attn"], "llama": ["q_proj"]}


def classifier(kind: str) -> nn.Module:
    import transformers

    name, sizes = KINDS[kind]
    config = getattr(transformers, f"{name}Config")(**sizes)
    return transformers.AutoModelForSequenceClassification.from_config(config)  # type: ignore[no-any-return,no-untyped-call]


def language_model(kind: str) -> nn.Module:
    import transformers

    name, sizes = KINDS[kind]
    config = getattr(transformers, f"{name}Config")(**sizes)
    return transformers.AutoModelForCausalLM.from_config(config)  # type: ignore[no-any-return,no-untyped-call]


def adapter(kind: str) -> nn.Module:
    import peft

    config = peft.LoraConfig(r=4, target_modules=ADAPTERS[kind], task_type="SEQ_CLS", lora_dropout=0.1)
    return peft.get_peft_model(classifier(kind), config)


def vision() -> nn.Module:
    import transformers

    sizes: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_labels": 3}
    config = transformers.ViTConfig(**sizes, intermediate_size=64, image_size=32)
    return transformers.ViTForImageClassification(config)


class Residual(nn.Module):
    """A block of a residual network with group normalisation."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            *(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.GroupNorm(4, outputs), nn.ReLU(inplace=True)),
            *(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.GroupNorm(4, outputs)),
        )
        self.short = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.path(inputs) + self.short(inputs))


def residual() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 7, 2, 3), nn.MaxPool2d(3, 2, 1), Residual(8, 16, 1), Residual(16, 16, 2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3)),
    )


class UNet(nn.Module):
    """One level down and up again, with a skip connection; a class for every pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.inner = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.up, self.last = nn.ConvTranspose2d(8, 8, 2, 2), nn.Conv2d(16, 3, 1)
        self.norm = nn.InstanceNorm2d(8, affine=True)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        wide = functional.silu(self.norm(self.down(inputs)))
        deep = functional.silu(self.inner(functional.max_pool2d(wide, 2)))
        return self.last(torch.cat([wide, self.up(deep)], 1)).mean((2, 3))  # type: ignore[no-any-return]


class Recurrent(nn.Module):
    """A recurrent layer over tokens, and its last state."""

    def __init__(self, layer: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.tokens, self.layer, self.last = nn.Embedding(TOKENS, 8), layer(8, 16, batch_first=True), nn.Linear(16, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(self.layer(self.tokens(inputs))[0][:, -1])  # type: ignore[no-any-return]


class Attention(nn.Module):
    """``nn.MultiheadAttention`` with a mask of the padding."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.last = nn.Embedding(TOKENS, 8, padding_idx=0), nn.Linear(8, 3)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, dropout=0.1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(inputs)
        hidden, _ = self.attention(hidden, hidden, hidden, key_padding_mask=inputs == 0)
        return self.last(hidden.mean(1))  # type: ignore[no-any-return]


class Tied(nn.Module):
    """A table of tokens that is also the weight of the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, 8)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return functional.linear(self.tokens(inputs).mean(1), self.tokens.weight)


class Sign(torch.autograd.Function):
    """A straight-through estimator."""

    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(inputs)
        return inputs.sign()

    @staticmethod
    def backward(ctx: Any, upstream: torch.Tensor) -> Any:
        return upstream * (ctx.saved_tensors[0].abs() < 1)


class Binary(nn.Module):
    """Weights of one bit, by a straight-through estimator."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.last = nn.Parameter(torch.randn(8, 6)), nn.Linear(8, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(functional.linear(inputs, Sign.apply(self.weight)))  # type: ignore[no-untyped-call,no-any-return]


def frozen_statistics() -> nn.Module:
    """A frozen backbone whose batch normalisation has public statistics."""
    backbone = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(backbone.requires_grad_(False).eval(), nn.Linear(4, 3))


def losses(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


def each_token(outputs: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs[:, :-1].mT, tokens[:, 1:], reduction="none").mean(1)


TEXT: Example = {"input_ids": torch.ones(1, LENGTH).long(), "attention_mask": torch.ones(1, LENGTH).long()}
TOKEN_ROW, PICTURE, ROW = torch.ones(1, LENGTH).long(), torch.ones(1, 3, 32, 32), torch.ones(1, 6)
LABEL = torch.zeros(1, dtype=torch.int64)
MODELS: dict[str, dict[str, tuple[Callable[[], nn.Module], Example, torch.Tensor, Any]]] = {
    "classification, `transformers`": {kind: (partial(classifier, kind), TEXT, LABEL, losses) for kind in KINDS},
    "causal language models": {
        kind: (partial(language_model, kind), {"input_ids": TOKEN_ROW}, TOKEN_ROW, each_token) for kind in CAUSAL
    },
    "LoRA, `peft`": {kind: (partial(adapter, kind), TEXT, LABEL, losses) for kind in ADAPTERS},
    "others": {
        "ViT": (vision, {"pixel_values": PICTURE}, LABEL, losses),
        "ResNet with GroupNorm": (residual, PICTURE, LABEL, losses),
        "U-Net with InstanceNorm": (UNet, PICTURE, LABEL, losses),
        "`nn.LSTM`": (lambda: Recurrent(nn.LSTM), TOKEN_ROW, LABEL, losses),
        "`nn.GRU`": (lambda: Recurrent(nn.GRU), TOKEN_ROW, LABEL, losses),
        "`nn.MultiheadAttention`": (Attention, TOKEN_ROW, LABEL, losses),
        "weight norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 3)), ROW, LABEL, losses),
        "tied weights": (Tied, TOKEN_ROW, LABEL, losses),
        "a straight-through estimator": (Binary, ROW, LABEL, losses),
        "frozen BatchNorm": (frozen_statistics, PICTURE, LABEL, losses),
        "BatchNorm in training": (lambda: nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)), ROW, LABEL, losses),
    },
}


def tried(build: Callable[[], nn.Module], example: Example, target: torch.Tensor, loss: Any) -> str:
    """ "yes", with the unused parameters that were frozen as a refusal asks, or the words of the refusal."""
    torch.manual_seed(0)
    model, frozen = build(), 0
    fields = Fields.of({**example, "labels": target}) if isinstance(example, dict) else None
    inputs: Any = example if fields is None else fields.example()
    while True:
        try:
            program = Program.of(called(model, fields), loss, (inputs, target))
            rows = program.layout.stacked([program.model], torch.device("cpu"))
            program.on(rows, Shape(1, 32))
            return f"yes, with {frozen} unused parameters frozen" if frozen else "yes"
        except UnsupportedModelError as error:
            unused = re.match(r"the trainable parameter '(?:module\.)?(.*)' does not affect the output", str(error))
            if unused is None:
                return re.sub(r"/\S*/(?:site-packages|benchmarks)/", "", str(error))
        model.get_parameter(unused[1]).requires_grad_(False)
        frozen += 1


def table(chosen: list[str]) -> str:
    lines = []
    for group, models in MODELS.items():
        found = {}
        for name, (build, example, target, loss) in models.items():
            if chosen and name not in chosen:
                continue
            start = time.perf_counter()
            with warnings.catch_warnings(action="ignore"):
                found[name] = tried(build, example, target, loss)
            print(f"{group}: {name}: {found[name]} ({time.perf_counter() - start:.1f} s)", flush=True)
        good = {name: words.removeprefix("yes") for name, words in found.items() if words.startswith("yes")}
        which = ", ".join(f"{name} ({more.removeprefix(', ')})" if more else name for name, more in good.items())
        lines.append(f"| {group} | {len(good)} of {len(found)} | {which} |")
        lines += [f"| | {name}: refused | {words} |" for name, words in found.items() if name not in good]
    return "\n".join(["| models | captured | which, or the words of the refusal |", "|---|---|---|", *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", help="only these")
    parser.add_argument("--write", action="store_true", help="write the table to docs/models.md")
    given = parser.parse_args()
    logging.disable(logging.ERROR)
    made = table(given.models)
    if given.write:
        before, begin, rest = PAGE.read_text(encoding="utf-8").partition("<!-- table -->\n")
        _, end, after = rest.partition("<!-- end -->")
        PAGE.write_text(f"{before}{begin}{made}\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
