"""Samplers: each turns the finished runs into weights on candidates. The band makes any of them private.

``__init__.pyi`` lists the public names. Each is loaded when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
