"""One file a kind of layer: what is computed for all runs at once, and the formulas of its per-record gradients.

A layer is a function of PyTorch that takes a parameter (``linear``, ``conv2d``, ...), so that it does not matter which
module calls it. To add one, write a handler and list it in :data:`HANDLERS`.
"""

from __future__ import annotations

from dphypo.dpsgd.book import Handlers
from dphypo.dpsgd.layers import attention, convolution, dropout, elementwise, embedding, labels, linear, norms, pooling

HANDLERS: Handlers = {
    **linear.HANDLERS,
    **convolution.HANDLERS,
    **embedding.HANDLERS,
    **norms.HANDLERS,
    **elementwise.HANDLERS,
    **attention.HANDLERS,
    **dropout.HANDLERS,
    **labels.HANDLERS,
    **pooling.HANDLERS,
}
