"""DP-SGD in JAX on the digits, on one CPU thread: ten runs at once, and accuracies beside the PyTorch engine's.

python -m benchmarks.jax_engine [speed | accuracy] [--quick]
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from typing import Any

# Before JAX is loaded.
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import jax
import jax.numpy as jnp
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from dphypo.integrations import jax as in_jax
from dphypo.integrations import torch as in_torch

PIXELS, LABELS = load_digits(return_X_y=True)
SHOWN, HELD_OUT = (PIXELS[:1400] / 16, LABELS[:1400]), (PIXELS[1400:] / 16, LABELS[1400:])
WIDTHS = (0, 16, 64)  # of the hidden layer; 0: none


def init(key: jax.Array, width: int) -> list[jax.Array]:
    """PyTorch's initial weights: uniform within one over the root of the inputs."""
    sizes = [64, width, 10] if width else [64, 10]
    keys = jax.random.split(key, 2 * len(sizes))
    made = []
    for place, (ins, outs) in enumerate(itertools.pairwise(sizes)):
        bound = ins**-0.5
        made += [jax.random.uniform(keys[2 * place], (ins, outs), minval=-bound, maxval=bound)]
        made += [jax.random.uniform(keys[2 * place + 1], (outs,), minval=-bound, maxval=bound)]
    return made


def predict(params: list[jax.Array], pixels: jax.Array) -> jax.Array:
    for weights, bias in zip(params[:-2:2], params[1:-2:2], strict=True):
        pixels = jax.nn.relu(pixels @ weights + bias)
    return pixels @ params[-2] + params[-1]


def network(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def given(**more: Any) -> dict[str, Any]:
    return {"data": SHOWN, "noise_multiplier": 1.0, "batch_size": 64, "clipping": "normalise", **more}


def speed(quick: bool) -> None:
    """Seconds of the process for ten runs, one by one and at once, after both have been compiled."""
    for width in WIDTHS:
        mechanism = in_jax.DPSGD(
            init=init,
            predict=predict,
            score=lambda params: 0.5,
            fixed={"width": width},
            **given(epochs=1 if quick else 8),
        )
        runs: list[dict[str, Any]] = [{"learning_rate": 0.2 * (1 + place)} for place in range(10)]
        seeds = list(range(10))

        def alone(runs: Any = runs, seeds: Any = seeds, mechanism: Any = mechanism) -> None:
            for one, seed in zip(runs, seeds, strict=True):
                mechanism(one, seed=seed)

        def at_once(runs: Any = runs, seeds: Any = seeds, mechanism: Any = mechanism) -> None:
            mechanism.many(runs, seeds=seeds)

        ways = {"alone": alone, "at once": at_once}
        found: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(2 if quick else 4):
            for name, way in ways.items():
                start = time.process_time()
                way()
                if turn:  # the first one compiles
                    found[name].append(time.process_time() - start)
        best = {name: min(times) for name, times in found.items()}
        steps = 10 * (22 if quick else 175)
        print(
            f"width {width}: {1e3 * best['alone'] / steps:.2f} ms a step alone, "
            f"{1e3 * best['at once'] / steps:.2f} ms of ten at once, ratio {best['alone'] / best['at once']:.1f}",
            flush=True,
        )


def accuracy(quick: bool) -> None:
    """Mean accuracies of twenty runs by each engine on the same pictures, and the 95 % interval of their difference."""
    count = 2 if quick else 20
    seeds, more = list(range(1000, 1000 + count)), given(epochs=1 if quick else 10, fixed={"width": 64})
    runs: list[dict[str, Any]] = [{"learning_rate": 1.0}] * count
    ours = in_jax.DPSGD(init=init, predict=predict, score=in_jax.PublicAccuracy(HELD_OUT), **more)
    theirs = in_torch.DPSGD(model=network, score=in_torch.PublicAccuracy(HELD_OUT), device="cpu", **more)
    scores = np.array([[one.score for one in mechanism.many(runs, seeds=seeds)] for mechanism in (ours, theirs)])
    means, error = scores.mean(1), 1.96 * float(np.sqrt(scores.var(1, ddof=1).sum() / count))
    print(f"JAX {means[0]:.4f}, PyTorch {means[1]:.4f}, difference {means[0] - means[1]:+.4f} ± {error:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=["speed", "accuracy"])
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    _ = jnp.zeros(1)
    for name, function in {"speed": speed, "accuracy": accuracy}.items():
        if options.what in (None, name):
            function(options.quick)
