"""DP-SGD whose steps are Gaussian mechanisms to the last bit, for one run or many at once. Opacus is not used.

:meth:`Program.of` decides how a model is differentiated, :func:`train` trains it, :func:`slack` says how far a run is
from the event that describes it. The proof is in docs/theory/engine.md.
"""

import importlib.util

if importlib.util.find_spec("torch") is None:
    raise ImportError("dphypo.dpsgd needs torch: pip install 'dphypo[torch]'")

from dphypo.dpsgd.batches import Records as Records
from dphypo.dpsgd.batches import Tensors as Tensors
from dphypo.dpsgd.check import in_training as in_training
from dphypo.dpsgd.check import made_up as made_up
from dphypo.dpsgd.check import refuse_layers as refuse_layers
from dphypo.dpsgd.many import memory_of as memory_of
from dphypo.dpsgd.many import train as train
from dphypo.dpsgd.program import Program as Program
from dphypo.dpsgd.run import Average as Average
from dphypo.dpsgd.run import Clipping as Clipping
from dphypo.dpsgd.run import Run as Run
from dphypo.dpsgd.run import Setting as Setting
from dphypo.dpsgd.sum_on_grid import Grid as Grid
from dphypo.dpsgd.sum_on_grid import slack as slack
