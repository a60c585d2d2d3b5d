"""Search rules: each turns the finished runs into weights on candidates. The band makes any of them private.

The adaptive rules are loaded when they are first used: what they are built on takes longer to import than the rest of
the package, and :class:`Forest` and :class:`OptunaSampler` need extras.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._default import default_sampler as default_sampler
from ._history import History as History
from ._sampler import Sampler as Sampler
from ._uniform import Uniform as Uniform

if TYPE_CHECKING:
    from ._forest import Forest as Forest
    from ._gaussian_process import GaussianProcess as GaussianProcess
    from ._kernel import Hyperparameters as Hyperparameters
    from ._optuna import OptunaSampler as OptunaSampler
    from ._parzen import Parzen as Parzen
    from ._proposals import Proposals as Proposals
    from ._units import Units as Units

# Public name -> the module of this package that defines it.
_HOMES = {
    "Forest": "_forest",
    "GaussianProcess": "_gaussian_process",
    "Hyperparameters": "_kernel",
    "OptunaSampler": "_optuna",
    "Parzen": "_parzen",
    "Proposals": "_proposals",
    "Units": "_units",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dphypo.samplers' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"dphypo.samplers.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
