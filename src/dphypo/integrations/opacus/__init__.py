"""DP-SGD through Opacus as a mechanism: :class:`DPSGD`, its scores, and its models as safetensors."""

import importlib.util

if missing := [name for name in ("torch", "opacus", "safetensors") if importlib.util.find_spec(name) is None]:
    raise ImportError(f"dphypo.integrations.opacus needs {', '.join(missing)}: pip install 'dphypo[torch]'")

from dphypo.errors import UnfitModelError as UnfitModelError
from dphypo.integrations.opacus.clipping import DivergedError as DivergedError
from dphypo.integrations.opacus.clipping import GradSampleMode as GradSampleMode
from dphypo.integrations.opacus.cost import NoiseTable as NoiseTable
from dphypo.integrations.opacus.dpsgd import DPSGD as DPSGD
from dphypo.integrations.opacus.saver import Safetensors as Safetensors
from dphypo.integrations.opacus.saver import remember as remember
from dphypo.integrations.opacus.score import PrivateAccuracy as PrivateAccuracy
from dphypo.integrations.opacus.score import PrivateLoss as PrivateLoss
from dphypo.integrations.opacus.score import PublicAccuracy as PublicAccuracy
from dphypo.integrations.split import split_by_hash as split_by_hash
