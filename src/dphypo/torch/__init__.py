"""DP-SGD as a mechanism: :class:`DPSGD`, its scores, and its models as safetensors."""

import importlib.util

if missing := [name for name in ("torch", "opacus", "safetensors") if importlib.util.find_spec(name) is None]:
    raise ImportError(f"dphypo.torch needs {', '.join(missing)}: pip install 'dphypo[torch]'")

from dphypo.torch.dpsgd import DPSGD as DPSGD
from dphypo.training.evaluate import private_test as private_test
from dphypo.training.scores import PrivateAccuracy as PrivateAccuracy
from dphypo.training.scores import PrivateConfusion as PrivateConfusion
from dphypo.training.scores import PrivateLoss as PrivateLoss
from dphypo.training.scores import PublicAccuracy as PublicAccuracy
from dphypo.training.split import split_by_hash as split_by_hash
