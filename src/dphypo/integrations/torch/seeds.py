"""The random streams of one run, all derived from the run's seed.

A run draws randomness for five purposes, each with a stream of :class:`dphypo.noise.Words` of its own: which records it
may use, which are in each batch, the Gaussian noise, the noise on a score, and everything else (initial weights,
dropout). The first four carry the privacy guarantee.

PyTorch's generator on the CPU, from which Opacus's noise comes, is a Mersenne twister which ``manual_seed`` fills from
the low 32 bits of the seed alone: four billion noise streams, few enough to try them all. Here its whole state comes
from such words, so that all bits of the seed count.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch

from dphypo.dpsgd.device import one_run, padded_attention, seed_everywhere
from dphypo.noise import Words

# Layout of a CPU generator's state: seed, (left, seeded), next, the twister's 624 words, then cached normals.
_STATE_BYTES, _FIRST_WORD, _WORDS = 5056, 3, 624


def words(seed: int, purpose: str) -> Words:
    """The words for one purpose of a run, such as "subsample", "sampling", "noise" or "score"."""
    return Words.of_seed(seed).stream(purpose)


def noise(seed: int, device: torch.device) -> torch.Generator:
    """The stream of the Gaussian noise, on the device the noise is drawn on.

    >>> cpu = torch.device("cpu")
    >>> torch.equal(torch.rand(3, generator=noise(7, cpu)), torch.rand(3, generator=noise(7 + 2**32, cpu)))
    False
    """
    generator = torch.Generator(device)
    source = words(seed, "noise")
    generator.manual_seed(int(source.draw(1)[0]) >> 1)
    if device.type != "cpu":
        return generator  # CUDA's Philox takes all 64 bits of its seed
    state = np.frombuffer(generator.get_state().numpy().tobytes(), dtype="<u8").copy()
    if state.nbytes != _STATE_BYTES:
        raise RuntimeError(
            f"PyTorch {torch.__version__} keeps {state.nbytes} bytes of generator state where {_STATE_BYTES} were "
            f"expected: this version of dphypo cannot seed it with more than 32 bits, and refuses to with fewer"
        )
    state[_FIRST_WORD : _FIRST_WORD + _WORDS] = source.draw(_WORDS // 2).view(np.uint32)
    generator.set_state(torch.from_numpy(state.view(np.uint8)))
    return generator


def seed_global(seed: int, purpose: str = "everything else") -> None:
    """Seed the global generators of PyTorch, numpy and Python."""
    source = words(seed, purpose)
    seed_everywhere(int(source.draw(1)[0]) >> 1)
    np.random.seed(source.draw(4).view(np.uint32))  # noqa: NPY002
    random.seed(source.draw(4).tobytes())


@contextlib.contextmanager
def everything_else(
    seed: int, device: torch.device, threads: int = 1, purpose: str = "everything else"
) -> Iterator[None]:
    """Seed the global generators (initial weights, dropout, augmentation), then put them back as they were.

    They and PyTorch's number of threads belong to the whole process, so only one thread is in here at a time: runs in
    several threads take turns, and each gives the same result as alone. The caller's autocast, in which sums would be
    rounded, is switched off, and attention that looks at the whole batch.
    """
    kept = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
    plain = torch.autocast(device.type, enabled=False)
    with one_run(), padded_attention(), kept, plain, contextlib.ExitStack() as after:
        after.callback(torch.set_num_threads, torch.get_num_threads())
        after.callback(np.random.set_state, np.random.get_state())  # noqa: NPY002
        after.callback(random.setstate, random.getstate())
        torch.set_num_threads(threads)
        seed_global(seed, purpose)
        yield
