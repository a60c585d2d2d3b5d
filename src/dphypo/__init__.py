"""Differentially private hyperparameter optimisation: search adaptively, release one model, pay for the whole search.

The names below are loaded when they are first used, so that ``import dphypo`` costs almost nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dphypo.accounting import ApproximateDp as ApproximateDp
    from dphypo.accounting import Calibration as Calibration
    from dphypo.accounting import Certificate as Certificate
    from dphypo.accounting import Composition as Composition
    from dphypo.accounting import Guarantee as Guarantee
    from dphypo.accounting import PureDp as PureDp
    from dphypo.accounting import RdpCurve as RdpCurve
    from dphypo.accounting import account as account
    from dphypo.accounting import calibrate as calibrate
    from dphypo.accounting import calibrate_band as calibrate_band
    from dphypo.accounting import calibrate_mean as calibrate_mean
    from dphypo.accounting import verify as verify
    from dphypo.band import KL as KL
    from dphypo.band import L2 as L2
    from dphypo.band import Band as Band
    from dphypo.band import Greedy as Greedy
    from dphypo.band import Mixed as Mixed
    from dphypo.design import Choice as Choice
    from dphypo.design import Design as Design
    from dphypo.design import Landscape as Landscape
    from dphypo.design import choose_design as choose_design
    from dphypo.mechanism import Outcome as Outcome
    from dphypo.mechanism import mechanism as mechanism
    from dphypo.release import Release as Release
    from dphypo.release import load_release as load_release
    from dphypo.runs import Geometric as Geometric
    from dphypo.runs import Logarithmic as Logarithmic
    from dphypo.runs import NegativeBinomial as NegativeBinomial
    from dphypo.runs import Pmf as Pmf
    from dphypo.runs import Poisson as Poisson
    from dphypo.space import Space as Space
    from dphypo.stages import PriorAround as PriorAround
    from dphypo.stages import Stage as Stage
    from dphypo.stages import Stages as Stages
    from dphypo.stages import calibrate_stages as calibrate_stages
    from dphypo.study import Study as Study

__version__ = "0.1.0"

# Public name -> the module that defines it.
_HOMES = {
    "ApproximateDp": "dphypo.accounting",
    "Calibration": "dphypo.accounting",
    "Composition": "dphypo.accounting",
    "Certificate": "dphypo.accounting",
    "Guarantee": "dphypo.accounting",
    "PureDp": "dphypo.accounting",
    "RdpCurve": "dphypo.accounting",
    "account": "dphypo.accounting",
    "calibrate": "dphypo.accounting",
    "calibrate_band": "dphypo.accounting",
    "calibrate_mean": "dphypo.accounting",
    "verify": "dphypo.accounting",
    "Band": "dphypo.band",
    "Greedy": "dphypo.band",
    "KL": "dphypo.band",
    "L2": "dphypo.band",
    "Mixed": "dphypo.band",
    "Choice": "dphypo.design",
    "Design": "dphypo.design",
    "Landscape": "dphypo.design",
    "choose_design": "dphypo.design",
    "Outcome": "dphypo.mechanism",
    "mechanism": "dphypo.mechanism",
    "Release": "dphypo.release",
    "load_release": "dphypo.release",
    "Geometric": "dphypo.runs",
    "Logarithmic": "dphypo.runs",
    "NegativeBinomial": "dphypo.runs",
    "Pmf": "dphypo.runs",
    "Poisson": "dphypo.runs",
    "Space": "dphypo.space",
    "PriorAround": "dphypo.stages",
    "Stage": "dphypo.stages",
    "Stages": "dphypo.stages",
    "calibrate_stages": "dphypo.stages",
    "Study": "dphypo.study",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dphypo' has no attribute {name!r}")
    home = importlib.import_module(_HOMES[name])
    # dphypo.mechanism is a module that can be called: it is the module however it was first reached.
    value = home if home.__name__ == f"{__name__}.{name}" else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
