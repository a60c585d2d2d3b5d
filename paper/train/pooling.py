"""Convolution and pooling as what they are: views, maxima and sums, so that the backward pass is cheap and exact.

The paper's network pools with a window of 2 and a stride of 1, and its second convolution (kernel 4, stride 2) never
reads the last row and column of the pooled picture; so they are never computed. Axes: ``b`` samples, ``k`` models,
``y, x`` positions, ``c`` channels.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import pad


def image_patches(images: Tensor, side: int, columns: int) -> Tensor:
    """What the first convolution (kernel 8, stride 2) multiplies: (b, side², columns), a one for the bias, then zeros.

    ``images`` (b, channels, height, width) are padded already. ``columns`` is rounded up for the matrix units.
    """
    windows = images.unfold(2, 8, 2).unfold(3, 8, 2)[:, :, :side, :side]
    flat = windows.permute(0, 2, 3, 1, 4, 5).reshape(len(images), side * side, -1)
    used = flat.shape[2]
    return pad(pad(flat, (0, 1), value=1.0), (0, columns - used - 1))


def pooled(z: Tensor, y: int, x: int) -> Tensor:
    """Max-pool (window 2, stride 1) over axes ``y`` and ``x`` of the rectified ``z``."""
    high, wide = z.shape[y] - 1, z.shape[x] - 1
    rows = z.narrow(y, 0, high).maximum(z.narrow(y, 1, high))
    return rows.narrow(x, 0, wide).maximum(rows.narrow(x, 1, wide)).relu()


def unpooled(gradient: Tensor, z: Tensor, y: int, x: int) -> Tensor:
    """The gradient with respect to ``z``: each window's goes to its first maximum in reading order, as in PyTorch."""
    high, wide = z.shape[y] - 1, z.shape[x] - 1
    corner = [z.narrow(y, i, high).narrow(x, j, wide) for i in (0, 1) for j in (0, 1)]
    total = None
    for n, value in enumerate(corner):
        chosen = value > 0  # the rectifier
        for m, other in enumerate(corner):
            if m != n:
                chosen = chosen & ((value > other) if m < n else (value >= other))
        width = [0, 0] * gradient.dim()
        i, j = divmod(n, 2)
        width[2 * (gradient.dim() - 1 - y) : 2 * (gradient.dim() - y)] = [i, 1 - i]
        width[2 * (gradient.dim() - 1 - x) : 2 * (gradient.dim() - x)] = [j, 1 - j]
        part = pad(gradient * chosen, width)
        total = part if total is None else total + part
    assert total is not None
    return total


def second_patches(z: Tensor) -> Tensor:
    """From z (b, y, x, k, c) of the first convolution, what the second multiplies: (k, b, positions, 16 c).

    Row 2u + p of the pooled picture is row u, part p; output row o reads rows u = o and o + 1, whole.
    """
    h = pooled(z, 1, 2)
    b, side, _, k, c = h.shape
    out = side // 2 - 1
    halves = h.view(b, side // 2, 2, side // 2, 2, k, c).unfold(1, 2, 1).unfold(3, 2, 1)
    # axes now: b, oy, p, ox, q, k, c, e, f with picture row 2 (oy + e) + p
    return halves.permute(5, 0, 1, 3, 7, 2, 8, 4, 6).reshape(k, b, out * out, 16 * c)


def folded(gradient: Tensor, out: int) -> Tensor:
    """The gradient (k, b, positions, 16 c) with respect to the patches, summed back onto the pooled picture."""
    k, b, _, width = gradient.shape
    c = width // 16
    parts = gradient.view(k, b, out, out, 2, 2, 2, 2, c)
    total = None
    for e in (0, 1):
        for f in (0, 1):
            part = pad(parts[:, :, :, :, e, :, f], (0, 0, 0, 0, 0, 0, f, 1 - f, e, 1 - e))
            total = part if total is None else total + part
    assert total is not None
    side = 2 * (out + 1)
    return total.permute(1, 2, 4, 3, 5, 0, 6).reshape(b, side, side, k, c)


def second_patches_gradient(gradient: Tensor, z: Tensor, out: int) -> Tensor:
    """The gradient with respect to z, the inverse direction of :func:`second_patches`."""
    return unpooled(folded(gradient, out), z, 1, 2)
