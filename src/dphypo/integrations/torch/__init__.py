"""DP-SGD as a mechanism: :class:`DPSGD`, its scores, and its models as safetensors."""

import importlib.util

if missing := [name for name in ("torch", "opacus", "safetensors") if importlib.util.find_spec(name) is None]:
    raise ImportError(f"dphypo.integrations.torch needs {', '.join(missing)}: pip install 'dphypo[torch]'")

from dphypo.integrations.evaluate import private_test as private_test
from dphypo.integrations.scores import PrivateAccuracy as PrivateAccuracy
from dphypo.integrations.scores import PrivateConfusion as PrivateConfusion
from dphypo.integrations.scores import PrivateLoss as PrivateLoss
from dphypo.integrations.scores import PublicAccuracy as PublicAccuracy
from dphypo.integrations.split import split_by_hash as split_by_hash
from dphypo.integrations.torch.dpsgd import DPSGD as DPSGD
