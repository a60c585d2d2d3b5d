"""Private hyperparameter search in the style of scikit-learn: :class:`PrivateSearch`, and estimators to search over.

``__init__.pyi`` lists the public names. The estimators need the extra "torch" too and are loaded when first used.
"""

import importlib.util

import lazy_loader

if importlib.util.find_spec("sklearn") is None:
    raise ImportError("dphypo.sklearn needs scikit-learn: pip install 'dphypo[sklearn,torch]'")

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
