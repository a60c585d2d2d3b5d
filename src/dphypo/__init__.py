"""Differentially private hyperparameter optimisation: search adaptively, release one model, pay for the whole search.

``__init__.pyi`` lists the public names. Each is loaded when it is first used, so that ``import dphypo`` is cheap.
"""

from importlib.metadata import version

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = version("dphypo")
