"""DP-SGD in JAX as a mechanism: :class:`DPSGD`, its scores, and plans of jax_privacy. Nothing here needs PyTorch."""

import importlib.util

if missing := [name for name in ("jax", "optax") if importlib.util.find_spec(name) is None]:
    raise ImportError(f"dphypo.jax needs {', '.join(missing)}: pip install 'dphypo[jax]'")

from dphypo.jax.dpsgd import DPSGD as DPSGD
from dphypo.jax.execution_plan import from_execution_plan as from_execution_plan
from dphypo.training.scores import PrivateAccuracy as PrivateAccuracy
from dphypo.training.scores import PrivateConfusion as PrivateConfusion
from dphypo.training.scores import PrivateLoss as PrivateLoss
from dphypo.training.scores import PublicAccuracy as PublicAccuracy
from dphypo.training.split import split_by_hash as split_by_hash
