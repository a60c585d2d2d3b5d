"""DP-SGD whose steps are Gaussian mechanisms to the last bit, for one run or many at once. Opacus is not used.

:meth:`Program.of` decides how a model is differentiated, :func:`train` trains it, :func:`slack` says how far a run is
from the event that describes it. The proof is in docs/theory/engine.md. Names are loaded when they are first used: the
grid, the settings, the batches and the noise need no PyTorch, and JAX trains with them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
