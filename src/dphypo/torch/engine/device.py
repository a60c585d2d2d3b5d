"""What would let a run or a record depend on others is held: threads, algorithms, generators, padding."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import torch
from torch import nn

Read = TypeVar("Read")
_AUTOCAST = "cpu", "cuda"
_PROCESS = threading.RLock()
# A child that was forked while another thread held the lock would wait for ever.
os.register_at_fork(after_in_child=lambda: globals().update(_PROCESS=threading.RLock(), _FAST_LOCK=threading.Lock()))
_FAST: list[bool] = []
_FAST_LOCK = threading.Lock()
# cuBLAS reads this when it starts.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def process_lock() -> threading.RLock:
    """The lock of whoever changes what belongs to the whole process: generators, threads, algorithms."""
    return _PROCESS


def device_of(model: nn.Module) -> torch.device:
    """Where a model is; the CPU if it holds no tensor."""
    return next((value.device for value in itertools.chain(model.parameters(), model.buffers())), torch.device("cpu"))


def seed_everywhere(seed: int) -> None:
    """Seed PyTorch's generators. ``torch.manual_seed`` would queue a traceback for every device that is not there."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(seed)


def products() -> tuple[Any, ...]:
    """The backends of PyTorch that have a precision for products in single precision."""
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
        torch._C._len_torch_dispatch_stack(),
        torch._C._len_torch_function_stack(),
    )


def with_settings_kept(read: Callable[[], Read]) -> Read:
    """Call code that reads a record; put back the settings of PyTorch that it changes, and leave modes that it enters.

    They would decide how other records are computed, or whether a run fails.
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
    for device, enabled in zip(_AUTOCAST, autocast, strict=True):
        torch.set_autocast_enabled(device, enabled)
    for one, precision in zip(products(), precisions, strict=True):
        one.fp32_precision = precision


@contextlib.contextmanager
def padded_attention() -> Iterator[None]:
    """Switch off the fast path of ``nn.TransformerEncoder``, which the padding of all records of a batch decides about.

    If every padding is at the end, the fast path leaves it out, and the outputs there are zero. One record with padding
    elsewhere would change the outputs of all others. The setting belongs to the whole process: the last thread to leave
    puts it back.
    """
    attention = torch.backends.mha
    with _FAST_LOCK:
        _FAST.append(attention.get_fastpath_enabled())
        attention.set_fastpath_enabled(False)
    try:
        yield
    finally:
        with _FAST_LOCK:
            last = _FAST.pop()  # the one that is left at the end is what the first thread found
            attention.set_fastpath_enabled(last if not _FAST else False)


@contextlib.contextmanager
def pinned(threads: int) -> Iterator[None]:
    """Make results repeatable: they depend neither on the order of threads nor on a choice of algorithms.

    These settings belong to the whole process, so only one thread of a process is in here at a time.
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
