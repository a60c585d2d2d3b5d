"""DP-SGD whose steps are Gaussian mechanisms to the last bit, for one run or many together, without Opacus.

:meth:`Program.of` captures how a model is differentiated, :func:`train` trains it, and :func:`slack` bounds how far a
run is from the event that describes it. The proof is in docs/theory/engine.md. The settings, the draws and the grid are
in :mod:`dphypo.training`: they do not need PyTorch, and JAX uses them too.
"""

from dphypo.torch.engine.batch_rows import Records as Records
from dphypo.torch.engine.batch_rows import Tensors as Tensors
from dphypo.torch.engine.program import Program as Program
from dphypo.torch.engine.run import train as train
from dphypo.torch.engine.trainable import in_training as in_training
from dphypo.torch.engine.trainable import refuse_layers as refuse_layers
from dphypo.torch.engine.trainable import synthetic_records as synthetic_records
from dphypo.training.setting import Average as Average
from dphypo.training.setting import Clipping as Clipping
from dphypo.training.setting import Run as Run
from dphypo.training.setting import Setting as Setting
from dphypo.training.sum_on_grid import SumGrid as SumGrid
from dphypo.training.sum_on_grid import slack as slack
