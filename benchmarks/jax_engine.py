"""DP-SGD in JAX on the digits, on one CPU thread: ten runs at once, and accuracies beside the PyTorch engine's.

python -m benchmarks.jax_engine [speed | accuracy] [--quick]
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Callable
from typing import Any

# Before JAX is loaded.
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from jax_privacy import clipped_grad, noise_addition
from sklearn.datasets import load_breast_cancer, load_digits
from torch import nn

from dphypo import jax as in_jax
from dphypo import torch as in_torch
from dphypo.training.poisson_draws import piece_size

PIXELS, LABELS = load_digits(return_X_y=True)
SHOWN, HELD_OUT = (PIXELS[:1400] / 16, LABELS[:1400]), (PIXELS[1400:] / 16, LABELS[1400:])
VALUES, KINDS = load_breast_cancer(return_X_y=True)
TABLE = (VALUES / VALUES.max(0), KINDS)
CASES = (  # records, values, classes; batch size; width of the hidden layer, 0 for none
    ("table", TABLE, 30, 2, 64, 0),
    ("digits", SHOWN, 64, 10, 64, 0),
    ("digits", SHOWN, 64, 10, 64, 16),
    ("digits", SHOWN, 64, 10, 64, 64),
    ("digits", SHOWN, 64, 10, 256, 128),
)


def init(key: jax.Array, width: int, values: int = 64, classes: int = 10) -> list[jax.Array]:
    """PyTorch's initial weights: uniform within one over the root of the inputs."""
    sizes = [values, width, classes] if width else [values, classes]
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


def peer(data: Any, batch_size: int, fixed: dict[str, int], steps: int) -> float:
    """CPU seconds of a run by jax_privacy's clipping and noise in single precision, with batches padded as ours are."""
    random, share = np.random.default_rng(), batch_size / len(data[0])
    size = piece_size(len(data[0]), share, None)
    inputs, labels = np.asarray(data[0], np.float32), np.asarray(data[1], np.int32)

    def loss(params: Any, record: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(predict(params, record[0]), record[1])

    clipped = clipped_grad(loss, l2_clip_norm=1.0, normalize_by=batch_size, keep_batch_dim=False)
    privatizer = noise_addition.gaussian_privatizer(stddev=1.0 / batch_size, prng_key=1)

    @jax.jit
    def step(params: Any, state: Any, batch: Any, padding: Any) -> Any:
        noisy, state = privatizer.update(clipped(params, batch, is_padding_example=padding), state)
        return jax.tree.map(lambda value, slope: value - slope, params, noisy), state

    params = init(jax.random.key(0), **fixed)
    state, found = privatizer.init(params), []
    for _ in range(3):
        start = time.process_time()
        for _ in range(steps):
            taken = np.flatnonzero(random.random(len(inputs)) < share)[:size]
            numbers = np.pad(taken, (0, size - len(taken)))
            params, state = step(params, state, (inputs[numbers], labels[numbers]), np.arange(size) >= len(taken))
        params[0].block_until_ready()
        found.append(time.process_time() - start)
    return min(found[1:])


def speed(quick: bool) -> None:
    """CPU seconds for ten runs of different settings, one by one and at once; compiled, and from the start."""
    runs: list[dict[str, Any]] = [{"learning_rate": 0.2 * (1 + at), "max_grad_norm": 0.5 + at / 10} for at in range(10)]
    for name, data, values, classes, batch_size, width in CASES:
        epochs = 1 if quick else 8
        steps = 10 * round(epochs * len(data[0]) / batch_size)
        fixed = {"width": width, "values": values, "classes": classes}
        told = given(data=data, batch_size=batch_size, epochs=epochs, fixed=fixed, score=lambda params: 0.5)

        def fresh(told: Any = told) -> Any:
            jax.clear_caches()  # type: ignore[no-untyped-call]
            return in_jax.DPSGD(init=init, predict=predict, **told)

        def alone(mechanism: Any) -> None:
            for seed, one in enumerate(runs):
                mechanism(one, seed=seed)

        def at_once(mechanism: Any) -> None:
            mechanism.many(runs, seeds=list(range(10)))

        def seconds(way: Callable[[Any], None], fresh: Callable[[], Any] = fresh) -> tuple[float, float]:
            """From the start; and the least of some more."""
            found, start = [], time.process_time()
            mechanism = fresh()
            for _ in range(2 if quick else 4):
                way(mechanism)
                found.append(time.process_time() - start)
                start = time.process_time()
            return found[0], min(found[1:])

        (cold, one), (cold_group, group) = seconds(alone), seconds(at_once)
        theirs = peer(data, batch_size, fixed, steps // 10)
        steps_of = [1e3 * seconds / steps for seconds in (one, 10 * theirs, group)]
        print(
            f"{name}, batch {batch_size}, width {width}: {{:.2f}} ms a step alone, {{:.2f}} by jax_privacy, {{:.2f}} "
            f"of ten at once, ratio {one / group:.1f}; with compilation {cold:.1f} s and {cold_group:.1f} s, ratio "
            f"{cold / cold_group:.1f}".format(*steps_of),
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
