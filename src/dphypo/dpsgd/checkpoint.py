"""The state of a run between two steps, as bytes, and back.

It holds the parameters, their average, what the optimiser remembers, and the number of the step. Batches, dither, noise
and masks are functions of the run's seed and the step, so none of them is kept. State of another run, or of the same
one with other values, is not used: the run then begins at its first step, with its seed, and ends in the same bits.
"""

from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING

import torch

import dphypo

if TYPE_CHECKING:
    from dphypo.dpsgd.run import Group


def dump(group: Group, step: int) -> bytes:
    """The state after so many steps."""
    buffer = io.BytesIO()
    torch.save({"identity": group.identity, "step": step, "state": group.state()}, buffer)
    return buffer.getvalue()


def load(group: Group, kept: bytes | None, device: torch.device) -> int:
    """Give a group its state; how many steps it has made, 0 if this is not its state."""
    mine = group.identity  # of the initial parameters
    if kept is None:
        return 0
    try:
        found = torch.load(io.BytesIO(kept), map_location=device, weights_only=True)
        if found["identity"] != mine:
            return 0
        state, step = dict(found["state"]), int(found["step"])
    except Exception:  # written by another version of PyTorch, or of this library
        return 0
    group.restore(state, step)
    return step


def identity(*parts: object) -> bytes:
    """A hash of values and tensors, and of the versions that made them."""
    digest = hashlib.sha256(f"{torch.__version__} {dphypo.__version__}".encode())
    for part in parts:
        text = part.detach().cpu().contiguous().numpy().tobytes() if isinstance(part, torch.Tensor) else repr(part)
        digest.update(hashlib.sha256(text if isinstance(text, bytes) else text.encode()).digest())
    return digest.digest()
