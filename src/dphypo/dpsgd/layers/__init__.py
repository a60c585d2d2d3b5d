"""What is computed for all runs at once, and the formulas of per-record gradients, by kinds of layers.

A layer is a function of PyTorch that takes a parameter (``linear``, ``conv2d``, ...), so that it does not matter which
module calls it. To add one, write a handler and list it in the :data:`HANDLERS` of its file.
"""

from __future__ import annotations

from dphypo.dpsgd.book import Handlers
from dphypo.dpsgd.layers import convolution, elementwise, functions, linear

HANDLERS: Handlers = linear.HANDLERS | convolution.HANDLERS | elementwise.HANDLERS | functions.HANDLERS
