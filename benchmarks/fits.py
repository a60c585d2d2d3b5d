"""What fits into the memory of a GPU: the largest piece by the engine's estimate, and with --measure what it takes.

    python -m benchmarks.fits [--tokens 128 512] [--memory 24 80 141]
    python -m benchmarks.fits --measure --tokens 128      on a GPU, of which so much memory may be used

Without --measure each model is captured with one and with two layers on a CPU, and what a layer adds is multiplied. Two
thirds of the memory are proposed (``memory._ROOM``) besides the weights. A device holds these once for all runs; there
are three copies while a model is captured. With it a run of three steps is made with the piece that is proposed.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Iterator, Sequence

import torch

from benchmarks.finetuning import MODELS, Classifier, losses
from dphypo.torch.engine import Program, Run, Setting, Tensors, memory
from dphypo.torch.engine.device import pinned
from dphypo.torch.engine.run import Group

WEIGHT, COPIES = 4, 3  # bytes of a weight, and its copies while the model is captured
MOST = 512  # records of a piece that are tried at most


def kinds() -> Iterator[tuple[str, bool]]:
    """The names of models, and whether an adapter is trained, or all weights."""
    for name in list(MODELS)[1:]:
        yield from ((name, lora) for lora in ((True,) if name.startswith("a decoder") else (False, True)))


def captured(name: str, lora: bool, tokens: int, layers: int | None, device: str) -> Program:
    number, kind, given, targets = MODELS[name]
    model = Classifier(kind, given, number if layers is None else layers, targets if lora else None).to(device)
    example = torch.ones((1, tokens), dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    return Program.of(model, losses, (example[0].to(device), example[1].to(device)))


def weights_of(program: Program) -> float:
    return float(sum(one.numel() for one in program.model.parameters()))


def estimated(name: str, lora: bool, tokens: int, gigabytes: Sequence[int]) -> tuple[float, list[str]]:
    """How many numbers are trained, and the largest piece for each size of memory, from one and two layers."""
    found = []
    for count in (1, 2):
        program = captured(name, lora, tokens, count, "cpu")
        sizes = [float(memory.needed(program, size)) for size in (1, 32, MOST)]
        found.append([weights_of(program), float(program.layout.size), *sizes])
    layers = MODELS[name][0]
    weights, trained, *sizes = (one + (layers - 1) * (two - one) for one, two in zip(*found, strict=True))
    each, cells = (sizes[2] - sizes[1]) / (MOST - 32), []
    for room in gigabytes:
        free = (room * 1e9 - WEIGHT * weights) / memory._ROOM
        captures = COPIES * WEIGHT * weights <= room * 1e9
        most = int(captures and sizes[0] <= free)
        if captures and sizes[1] <= free:
            most = 32 * (1 + int((free - sizes[1]) / (32 * each)))
        cells.append(str(most) if most else "none")
    print("   ", name, lora, tokens, *cells, flush=True)
    return trained, cells


def measured(name: str, lora: bool, tokens: int, gigabytes: Sequence[int]) -> tuple[float, list[str]]:
    """The same on a GPU for the model as it is, with the memory that a run takes at most."""
    program = captured(name, lora, tokens, None, "cuda")
    generator, cells = torch.Generator().manual_seed(0), []
    for room in gigabytes:
        program.flat.clear()
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.set_per_process_memory_fraction(min(1.0, room * 1e9 / torch.cuda.mem_get_info()[1]))
        free = room * 1e9 - WEIGHT * weights_of(program)
        piece = memory.largest_piece(program, free / memory._ROOM, MOST)
        cell = str(piece) if piece else "none"
        if piece > 1:
            inputs = torch.randint(1, 30_000, (8 * piece, tokens), generator=generator).cuda()
            records = Tensors(inputs, torch.zeros(8 * piece, dtype=torch.int64).cuda())
            run = Run(
                seed=1, records=8 * piece, rate=0.2, steps=3, batch_size=1.6 * piece, noise_multiplier=1.0,
                max_grad_norm=1.0, learning_rate=0.1,
            )  # fmt: skip
            try:
                rows = program.layout.stacked([program.model], torch.device("cuda"))
                with pinned(1):
                    Group(program, rows, records, [run], Setting(physical_batch_size=piece)).finish()
                cell += f" ({torch.cuda.max_memory_reserved() / 1e9:.0f} GB used)"
            except torch.cuda.OutOfMemoryError:
                cell += " (out of memory)"
        print("   ", name, lora, tokens, f"{room} GB:", cell, flush=True)
        cells.append(cell)
    return float(program.layout.size), cells


def main(tokens: Sequence[int] = (128, 512), gigabytes: Sequence[int] = (24, 80, 141), measure: bool = False) -> None:
    table = [f"| model | trained | tokens | {' | '.join(f'{one} GB' for one in gigabytes)} |"]
    table.append(f"|---|---|---|{'---|' * len(gigabytes)}")
    for name, lora in kinds():
        for length in tokens:
            trained, cells = (measured if measure else estimated)(name, lora, length, gigabytes)
            what = f"LoRA, {trained / 1e6:.1f} million" if lora else f"all, {trained / 1e6:.0f} million"
            table.append(f"| {name} | {what} | {length} | {' | '.join(cells)} |")
    print("\n".join(table))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--memory", type=int, nargs="+", default=[24, 80, 141], dest="gigabytes")
    parser.add_argument("--measure", action="store_true")
    main(**vars(parser.parse_args()))
