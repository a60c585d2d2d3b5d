"""Pins everything that could make one run or record depend on another: generators, threads, algorithms, padding.

These settings belong to the whole process: what changes them holds :func:`process_lock`, and restores them.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import nn

from dphypo.noise import Words

Read = TypeVar("Read")
_AUTOCAST = "cpu", "cuda"
_FLAGS = (  # of kernels: each decides bits
    *("cudnn_enabled", "cudnn_benchmark", "cudnn_deterministic", "mkldnn_enabled", "mkldnn_deterministic"),
    *("nnpack_enabled", "cublas_allow_fp16_accumulation", "cublas_allow_fp16_reduced_precision_reduction"),
    "cublas_allow_bf16_reduced_precision_reduction",
)
_NORMAL = sys.float_info.min
_PROCESS = threading.RLock()
# Without new locks, a child that is forked while another thread holds them would wait forever.
os.register_at_fork(after_in_child=lambda: globals().update(_PROCESS=threading.RLock(), _FAST_LOCK=threading.Lock()))
_FAST: list[bool] = []
_FAST_LOCK = threading.Lock()
# cuBLAS reads this when it starts.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def process_lock() -> threading.RLock:
    """The lock to hold while settings of the whole process are changed: generators, threads, algorithms."""
    return _PROCESS


def device_of(model: nn.Module) -> torch.device:
    """The device of a model; the CPU if it holds no tensor."""
    return next((value.device for value in itertools.chain(model.parameters(), model.buffers())), torch.device("cpu"))


def seed_everywhere(seed: int) -> None:
    """Seed PyTorch's generators. ``torch.manual_seed`` would queue a traceback for every device that is missing."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(seed)


def words(seed: int, purpose: str) -> Words:
    """The random words for one purpose of a run, such as "sampling" or "score"."""
    return Words.of_seed(seed).stream(purpose)


@contextlib.contextmanager
def seeded(seed: int, device: torch.device, threads: int = 1, purpose: str = "everything else") -> Iterator[None]:
    """A block in which the seed alone decides what PyTorch's, numpy's and Python's generators draw; restores them.

    Only one thread of the process is in this block at a time, so runs in several threads take turns, and each gives the
    same result as alone. The caller's autocast, which would round sums, is switched off.
    """
    kept = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
    full_precision = torch.autocast(device.type, enabled=False)
    with process_lock(), padded_attention(), kept, full_precision, contextlib.ExitStack() as after:
        after.callback(torch.set_num_threads, torch.get_num_threads())
        after.callback(np.random.set_state, np.random.get_state())  # noqa: NPY002
        after.callback(random.setstate, random.getstate())
        torch.set_num_threads(threads)
        source = words(seed, purpose)
        seed_everywhere(int(source.draw(1)[0]) >> 1)
        np.random.seed(source.draw(4).view(np.uint32))  # noqa: NPY002
        random.seed(source.draw(4).tobytes())
        yield


def products() -> tuple[Any, ...]:
    """PyTorch's backends whose single-precision products have a configurable precision."""
    backends: Any = torch.backends
    return backends.cuda.matmul, backends.cudnn.conv, backends.mkldnn.matmul, backends.mkldnn.conv


def _settings() -> tuple[Any, ...]:
    return (
        tuple(one.fp32_precision for one in products()),
        tuple(map(torch.is_autocast_enabled, _AUTOCAST)),
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.get_deterministic_debug_mode(),
        torch.is_grad_enabled(),
        tuple(getattr(torch._C, f"_get_{name}")() for name in _FLAGS),
        _NORMAL * 0.5 * 2.0 != _NORMAL,  # whether subnormal numbers are zeros
        torch._C._len_torch_dispatch_stack(),
        torch._C._len_torch_function_stack(),
    )


def with_settings_kept(read: Callable[[], Read]) -> Read:
    """Call code that reads a record; restore the settings of PyTorch that it changes, and leave modes that it enters.

    They would affect how other records are processed, or make a run fail.
    """
    before = _settings()
    try:
        return read()
    finally:
        if _settings() != before:
            _restore(*before)


def _restore(
    precisions: tuple[str, ...],
    autocast: tuple[bool, ...],
    threads: int,
    kind: torch.dtype,
    strict: int,
    grad: bool,
    flags: tuple[Any, ...],
    flush: bool,
    modes: int,
    functions: int,
) -> None:
    while torch._C._len_torch_dispatch_stack() > modes:
        torch._C._pop_torch_dispatch_stack(None)
    if torch._C._len_torch_function_stack() > functions:
        torch.set_default_device(None)  # a mode, too
    while torch._C._len_torch_function_stack() > functions:
        torch._C._pop_torch_function_stack()
    torch.set_num_threads(threads)
    torch.set_default_dtype(kind)
    torch.set_deterministic_debug_mode(strict)
    torch.set_grad_enabled(grad)
    torch.set_flush_denormal(flush)
    for name, value in zip(_FLAGS, flags, strict=True):
        getattr(torch._C, f"_set_{name}")(*(value if isinstance(value, tuple) else (value,)))
    for device, enabled in zip(_AUTOCAST, autocast, strict=True):
        torch.set_autocast_enabled(device, enabled)
    for one, precision in zip(products(), precisions, strict=True):
        one.fp32_precision = precision


@contextlib.contextmanager
def padded_attention() -> Iterator[None]:
    """Switch off the fast path of ``nn.TransformerEncoder``, which depends on the padding of all records of a batch.

    If every record is padded at its end, the fast path skips the padding, and the outputs there are zero. One record
    with padding elsewhere would change the outputs of all others. The last thread that leaves restores the setting.
    """
    attention = torch.backends.mha
    with _FAST_LOCK:
        _FAST.append(attention.get_fastpath_enabled())
        attention.set_fastpath_enabled(False)
    try:
        yield
    finally:
        with _FAST_LOCK:
            last = _FAST.pop()  # the last one is the setting that the first thread found
            attention.set_fastpath_enabled(last if not _FAST else False)


@contextlib.contextmanager
def pinned(threads: int) -> Iterator[None]:
    """Make results repeatable: they depend neither on the order of threads nor on a choice of algorithms.

    Only one thread of the process is in this block at a time.
    """
    backend, fill = torch.backends.cudnn, cast(Any, torch.utils.deterministic)
    with process_lock(), padded_attention(), contextlib.ExitStack() as after:
        if gc.get_freeze_count() == 0:  # a full collection in the middle of a short run takes longer than the run
            gc.freeze()
            after.callback(gc.unfreeze)
        after.callback(torch.set_num_threads, torch.get_num_threads())
        after.callback(torch.set_deterministic_debug_mode, torch.get_deterministic_debug_mode())
        torch.set_num_threads(threads)
        torch.set_deterministic_debug_mode("error")  # use_deterministic_algorithms would import a compiler
        for owner, name in ((backend, "benchmark"), (backend, "deterministic"), (fill, "fill_uninitialized_memory")):
            after.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, name == "deterministic")
        yield
