"""DP-SGD in JAX as a mechanism: :class:`DPSGD`, its scores, and plans of jax_privacy. Nothing here needs PyTorch."""

import importlib.util

if missing := [name for name in ("jax", "optax") if importlib.util.find_spec(name) is None]:
    raise ImportError(f"dphypo.integrations.jax needs {', '.join(missing)}: pip install 'dphypo[jax]'")

from dphypo.integrations.jax.execution_plan import from_execution_plan as from_execution_plan
from dphypo.integrations.jax.jax_dpsgd import DPSGD as DPSGD
from dphypo.integrations.scores import PrivateAccuracy as PrivateAccuracy
from dphypo.integrations.scores import PrivateConfusion as PrivateConfusion
from dphypo.integrations.scores import PrivateLoss as PrivateLoss
from dphypo.integrations.scores import PublicAccuracy as PublicAccuracy
from dphypo.integrations.split import split_by_hash as split_by_hash
