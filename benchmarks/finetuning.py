"""Fine-tuning against Opacus and plain PyTorch: time and memory of a step, in one process.

    python -m benchmarks.finetuning [NAME ...] [--batch 1024] [--piece 64] [--tokens 128] [--steps 4] [--full]
    python -m benchmarks.finetuning "BERT of 6 layers, width 384" --device cpu --batch 128 --piece 32 --trained lora

Models are built from configurations of transformers, with random weights, for classification. Every way computes a
logical batch in pieces of as many records, one optimiser step a batch: plain PyTorch without privacy; Opacus by hooks
and by ghost norms, on batches of the expected size; the engine on Poisson batches, with exact sums and noise, on a GPU
as CUDA graphs. "To its factors" is the engine's pass from records to the factors of their gradients alone.
``--full`` computes products of passes in float32; otherwise they round to TF32 on a GPU, in all ways.
On a CPU one thread is used, and times are of this process's own processor time.
"""

from __future__ import annotations

import argparse
import gc
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import peft
import torch
import transformers
from opacus import GradSampleModule
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.grad_sample.utils import register_grad_sampler, register_norm_sampler
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from scipy.stats import binom
from torch import nn
from transformers.pytorch_utils import Conv1D

from dphypo.mechanisms.mechanism import Follower
from dphypo.torch.engine import Program, Run, Setting, Tensors
from dphypo.torch.engine.clipped_sum import Shape
from dphypo.torch.engine.device import pinned
from dphypo.torch.engine.run import Group

BERT = {"vocab_size": 30522, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
SMALL = {"vocab_size": 30522, "hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536}
GPT2 = {"vocab_size": 50257, "n_embd": 768, "n_head": 12}
LLAMA = {"vocab_size": 32000, "hidden_size": 2048, "num_attention_heads": 32, "intermediate_size": 5632}
LLAMA |= {"num_key_value_heads": 32}
MODELS: dict[str, tuple[int, str, dict[str, int], list[str]]] = {
    "BERT of 6 layers, width 384": (6, "bert", SMALL, ["query", "value"]),
    "BERT-base": (12, "bert", BERT, ["query", "value"]),
    "GPT-2": (12, "gpt2", GPT2, ["c_attn"]),
    "a decoder of 1.3 billion": (24, "llama", LLAMA, ["q_proj", "v_proj"]),
}
SIZE = 50_000
WAYS = ("plain PyTorch", "Opacus, hooks", "Opacus, ghost norms", "engine")


class Classifier(nn.Module):
    """A model of transformers for two classes, of tokens alone; with LoRA if there are ``targets``."""

    def __init__(self, kind: str, given: dict[str, int], layers: int, targets: Sequence[str] | None) -> None:
        super().__init__()
        number = "n_layer" if kind == "gpt2" else "num_hidden_layers"
        options: dict[str, Any] = {"pad_token_id": 0, "use_cache": False, **given, number: layers}
        for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop") if kind == "gpt2" else ():
            options[name] = 0.0
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob") if kind == "bert" else ():
            options[name] = 0.0
        config = transformers.AutoConfig.for_model(kind, **options)
        made: Any = transformers.AutoModelForSequenceClassification.from_config(config)  # type: ignore[no-untyped-call]
        if targets is not None:
            turned, names = kind == "gpt2", list(targets)
            how = peft.LoraConfig(r=8, target_modules=names, task_type="SEQ_CLS", fan_in_fan_out=turned)
            made = peft.get_peft_model(made, how)
        self.model = made
        self._kinds = kind == "bert"

    def forward(self, tokens: torch.Tensor) -> Any:
        places = torch.arange(tokens.shape[1], device=tokens.device).repeat(len(tokens), 1)  # as Opacus needs it
        named = {"token_type_ids": torch.zeros_like(tokens)} if self._kinds else {}
        return self.model(input_ids=tokens, position_ids=places, **named).logits


def losses(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def built(name: str, lora: bool) -> Classifier:
    layers, kind, given, targets = MODELS[name]
    torch.manual_seed(0)
    return Classifier(kind, given, layers, targets if lora else None)


@register_grad_sampler(Conv1D)  # type: ignore[untyped-decorator]
def _turned(layer: Any, inputs: list[torch.Tensor], slopes: torch.Tensor) -> dict[nn.Parameter, torch.Tensor]:
    """The layer of GPT-2, x @ W + b, which Opacus does not know."""
    found = {layer.weight: torch.einsum("n...i,n...j->nij", inputs[0], slopes)} if layer.weight.requires_grad else {}
    return {**found, layer.bias: torch.einsum("n...j->nj", slopes)} if layer.bias.requires_grad else found


@register_norm_sampler(Conv1D)  # type: ignore[untyped-decorator]
def _turned_norms(layer: Any, inputs: list[torch.Tensor], slopes: torch.Tensor) -> dict[nn.Parameter, torch.Tensor]:
    if not layer.weight.requires_grad:
        return {}
    one, two = (torch.einsum("nik,njk->nij", some, some) for some in (inputs[0], slopes))
    norms = torch.einsum("nij,nij->n", one, two).clamp(min=0).sqrt()
    return {layer.weight: norms, layer.bias: torch.einsum("n...j->nj", slopes).norm(dim=1)}


class Way:
    """A logical batch on a GPU, made as Opacus or PyTorch make one."""

    def __init__(self, way: str, model: nn.Module, records: Tensors, batch: int, piece: int) -> None:
        self._way, self._records, self._batch, self._piece = way, records, batch, piece
        device = records.inputs.device
        model = model.to(device).train()
        base = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.1)
        noisy: dict[str, Any] = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": batch}
        self._module: Any = model
        self._optimizer: Any = base
        self._loss: Any = nn.CrossEntropyLoss()
        if way == "Opacus, hooks":
            self._module, self._optimizer = GradSampleModule(model), DPOptimizer(base, **noisy)
        if way == "Opacus, ghost norms":
            self._module = GradSampleModuleFastGradientClipping(model, max_grad_norm=1.0, use_ghost_clipping=True)
            self._optimizer = DPOptimizerFastGradientClipping(base, **noisy)
            self._loss = DPLossFastGradientClipping(self._module, self._optimizer, self._loss)

    def __call__(self) -> None:
        chosen = torch.randperm(len(self._records), device=self._records.inputs.device)[: self._batch]
        pieces = chosen.split(self._piece)  # type: ignore[no-untyped-call]
        for at, some in enumerate(pieces):
            if self._way != "plain PyTorch":
                self._optimizer.signal_skip_step(at + 1 < len(pieces))
            self._loss(self._module(self._records.inputs[some]), self._records.targets[some]).backward()
            if self._way != "plain PyTorch" or at + 1 == len(pieces):
                self._optimizer.step()
                self._optimizer.zero_grad()


class Marks(Follower):
    """Notes when steps of a group end."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def step(self, made: int, state: Callable[..., object] | None = None) -> None:
        self.times.append(now())


def now() -> float:
    """Seconds, when the GPU has done what it was given; of this process's own where there is none."""
    if not torch.cuda.is_available():
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def timed(step: Callable[[], object], steps: int) -> float:
    """Milliseconds of a step, the least of some, after one to warm up."""
    step()
    found = []
    for _ in range(steps):
        start = now()
        step()
        found.append(1e3 * (now() - start))
    return min(found)


def engine(name: str, lora: bool, records: Tensors, batch: int, piece: int, steps: int) -> Iterator[str]:
    """The pass over one piece, then whole steps."""
    device, start = records.inputs.device, now()
    model = built(name, lora).to(device)
    example = records.inputs[:1], records.targets[:1]
    program = Program.of(model, losses, example)
    rows = program.layout.stacked([model], device)
    with pinned(1):
        program = program.on(rows, Shape(1, piece))
        ready, how = now() - start, "one by one" if program.alone else "together"
        yield f"ready after {ready:.1f} s, records {how}"
        passed, given = program.bound(rows, Shape(1, piece)), (records.inputs[:piece], records.targets[:piece])
        keys = torch.zeros((1, piece), dtype=torch.int64, device=device)
        with torch.inference_mode():
            for _ in range(2):
                passed.parts(*given, keys)
            pass_one: Callable[[], object] = lambda: passed.parts(*given, keys)  # noqa: E731
            _fresh()
            if device.type == "cuda":
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    kept = passed.parts(*given, keys)
                pass_one = graph.replay
            yield f"a piece to its factors {timed(pass_one, 5 * steps):.4g}{_gib()}"
            del pass_one
            if device.type == "cuda":
                del kept, graph
    _fresh()
    run = Run(
        seed=1, records=len(records), rate=batch / len(records), steps=4 * steps, batch_size=batch,
        noise_multiplier=1.0, max_grad_norm=1.0, learning_rate=0.1,
    )  # fmt: skip
    with pinned(1):
        group, marks = Group(program, rows, records, [run], Setting(physical_batch_size=piece)), Marks()
        group.finish(marks)
    later = marks.times[-2 * steps - 1 :]  # graphs of the usual numbers of pieces are captured before
    spent, full = 1e3 * (later[-1] - later[0]) / (2 * steps), group.shape.records
    pieces = sum(binom.sf(full * at, len(records), run.rate) for at in range(-(-len(records) // full)))
    yield f"ms {spent:.4g}, the mean of {2 * steps} steps; {pieces:.3g} pieces of {full} expected{_gib()}"


def _gib() -> str:
    return f", GiB {torch.cuda.max_memory_allocated() / 2**30:.3g}" if torch.cuda.is_available() else ""


def _fresh() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def row(name: str, lora: bool, ways: Sequence[str], records: Tensors, batch: int, piece: int, steps: int) -> None:
    what = f"{name}, {'LoRA' if lora else 'all weights'}"
    for way in ways:
        _fresh()
        try:
            if way == "engine":
                for found in engine(name, lora, records, batch, piece, steps):
                    print(f"  {what}, engine: {found}", flush=True)
            else:
                step = Way(way, built(name, lora), records, batch, piece)
                spent = timed(step, steps)
                each = spent * piece / batch
                print(f"  {what}, {way}: ms {spent:.4g}, a piece {each:.4g}{_gib()}", flush=True)
                del step
        except Exception as error:
            print(f"  {what}, {way} failed: {type(error).__name__}: {error}"[:600], flush=True)
            if way == "engine":
                traceback.print_exc()


def main(
    names: Sequence[str] = (), batch: int = 1024, piece: int = 64, tokens: int = 128, steps: int = 4,
    full: bool = False, ways: Sequence[str] = WAYS, trained: str = "both", device: str = "cuda",
) -> None:  # fmt: skip
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    if not full:
        torch.backends.cuda.matmul.allow_tf32 = True
    torch.set_num_threads(1)
    on = torch.cuda.get_device_name() if device == "cuda" else "CPU, one thread"
    print(f"{on}, PyTorch {torch.__version__}; batches of {batch} in pieces of {piece}, "
          f"{tokens} tokens, products of passes in {'float32' if full else 'TF32'}", flush=True)  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(1, 30_000, (SIZE, tokens), generator=generator).to(device)
    records = Tensors(inputs, torch.randint(2, (SIZE,), generator=generator).to(device))
    for name in names or list(MODELS)[:3]:
        for lora in {"both": (True, False), "lora": (True,), "all": (False,)}[trained]:
            row(name, lora, ways, records, batch, piece, steps)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.finetuning")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(map(repr, MODELS))}")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--piece", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--ways", nargs="+", default=WAYS, choices=WAYS)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--trained", default="both", choices=["both", "lora", "all"])
    main(**vars(parser.parse_args()))
